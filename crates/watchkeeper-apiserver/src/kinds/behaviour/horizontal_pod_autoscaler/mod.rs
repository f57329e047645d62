//! HorizontalPodAutoscalers, in their two views: `autoscaling/v2`, in which they are stored, and `autoscaling/v1`.

use serde_json::{Value, json};

use super::Behaviour;
use crate::failure::Result;
use crate::kinds::cells::{Row, list, number, shown, some, text};
use crate::kinds::fill::fill;
use crate::kinds::kind::Kind;

mod v1;

const HEADERS: &str = "Name Reference Targets MinPods MaxPods Replicas Age";

/// The view `autoscaling/v2`.
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
        HEADERS
    }

    fn row(&self, row: &Row<'_>) -> Value {
        autoscaler_row(row)
    }
}

/// The view `autoscaling/v1`.
#[derive(Debug)]
pub(in crate::kinds) struct OldHorizontalPodAutoscaler;

impl Behaviour for OldHorizontalPodAutoscaler {
    fn defaults(&self, _kind: &Kind, object: &mut Value) -> Result<()> {
        fill(&mut object["spec"], "minReplicas", 1.into());
        Ok(())
    }

    fn to_served(&self, _kind: &Kind, object: &mut Value) {
        v1::from_stored(object);
    }

    fn to_storage(&self, _kind: &Kind, object: &mut Value) {
        v1::to_stored(object);
    }

    fn headers(&self) -> &'static str {
        HEADERS
    }

    fn row(&self, row: &Row<'_>) -> Value {
        autoscaler_row(row)
    }
}

/// The cells of a stored autoscaler.
fn autoscaler_row(row: &Row<'_>) -> Value {
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
