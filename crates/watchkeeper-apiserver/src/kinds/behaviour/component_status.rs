//! ComponentStatuses: the parts of a control plane, all of them healthy. They are not stored.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::cells::{Row, list, text};
use crate::kinds::kind::Kind;

#[derive(Debug)]
pub(in crate::kinds) struct ComponentStatus;

/// The parts that a real control plane reports.
const COMPONENTS: [&str; 3] = ["controller-manager", "etcd-0", "scheduler"];

impl Behaviour for ComponentStatus {
    fn computed(&self) -> Option<Vec<Value>> {
        let component = |name| {
            json!({
                "kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": name},
                "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}],
            })
        };
        Some(COMPONENTS.into_iter().map(component).collect())
    }

    fn deprecation(&self, _kind: &Kind) -> Option<String> {
        Some("v1 ComponentStatus is deprecated in v1.19+".to_owned())
    }

    fn headers(&self) -> &'static str {
        "Name Status Message Error"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let conditions = list(&row.object["conditions"]);
        let health = conditions.iter().find(|condition| condition["type"] == "Healthy");
        let status = match health.map(|health| text(&health["status"])) {
            None => "Unknown",
            Some("True") => "Healthy",
            Some(_) => "Unhealthy",
        };
        let part = |name: &str| health.map_or("", |health| text(&health[name]));
        json!([row.name(), status, part("message"), part("error")])
    }
}
