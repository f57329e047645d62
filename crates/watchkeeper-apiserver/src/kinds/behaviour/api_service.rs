//! APIServices, as objects: requests are not forwarded to another server.

use serde_json::{Value, json};

use super::{Behaviour, Change, Findings};
use crate::failure::Cause;
use crate::kinds::cells::{Row, list, text};

#[derive(Debug)]
pub(in crate::kinds) struct ApiService;

impl Behaviour for ApiService {
    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        let (spec, name) = (&change.new["spec"], &change.new["metadata"]["name"]);
        let required = format!("{}.{}", text(&spec["version"]), text(&spec["group"]));
        if text(name) != required {
            let problem = format!("must be `spec.version+\".\"+spec.group`: {required:?}");
            findings.causes.push(Cause::invalid("metadata.name", name, &problem));
        }
        if text(&spec["version"]).is_empty() {
            findings.causes.push(Cause::required("spec.version", ""));
        }
        for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
            let priority = spec[field].as_i64().unwrap_or_default();
            if !(1..=most).contains(&priority) {
                let problem = format!("must be positive and less than {most}");
                findings.causes.push(Cause::invalid(&format!("spec.{field}"), &priority.into(), &problem));
            }
        }
    }

    fn headers(&self) -> &'static str {
        "Name Service Available Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let service = &row.spec()["service"];
        let target = match service.is_object() {
            true => format!("{}/{}", text(&service["namespace"]), text(&service["name"])),
            false => "Local".to_owned(),
        };
        let condition = list(&row.status()["conditions"]).iter().find(|it| it["type"] == "Available");
        let available = condition.map_or_else(
            || "Unknown".to_owned(),
            |condition| match (text(&condition["status"]), text(&condition["reason"])) {
                ("True", _) => "True".to_owned(),
                (status, reason) => format!("{status} ({reason})"),
            },
        );
        json!([row.name(), target, available, row.age()])
    }
}
