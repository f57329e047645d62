//! HorizontalPodAutoscalers.

use serde_json::{Value, json};

use super::Behaviour;
use crate::failure::Result;
use crate::kinds::cells::{Row, list, number, shown, some, text};
use crate::kinds::fill::fill;
use crate::kinds::kind::Kind;

#[derive(Debug)]
pub(in crate::kinds) struct HorizontalPodAutoscaler;

impl Behaviour for HorizontalPodAutoscaler {
    fn defaults(&self, _kind: &Kind, object: &mut Value) -> Result<()> {
        let spec = &mut object["spec"];
        fill(spec, "minReplicas", 1.into());
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        fill(spec, "metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
        Ok(())
    }

    fn headers(&self) -> &'static str {
        "Name Reference Targets MinPods MaxPods Replicas Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let spec = row.spec();
        let target = &spec["scaleTargetRef"];
        let metrics: Vec<_> = list(&spec["metrics"]).iter().map(metric).collect();
        json!([
            row.name(),
            format!("{}/{}", text(&target["kind"]), text(&target["name"])),
            some(&metrics, 2),
            shown(&spec["minReplicas"], "<unset>"),
            number(&spec["maxReplicas"]),
            number(&row.status()["currentReplicas"]),
            row.age(),
        ])
    }
}

fn metric(metric: &Value) -> String {
    let resource = &metric["resource"];
    match (text(&metric["type"]), resource["target"]["averageUtilization"].as_i64()) {
        ("Resource", Some(wanted)) => format!("{}: <unknown>/{wanted}%", text(&resource["name"])),
        ("Resource", None) => {
            format!("{}: <unknown>/{}", text(&resource["name"]), text(&resource["target"]["averageValue"]))
        }
        _ => "<unknown>/<auto>".to_owned(),
    }
}
