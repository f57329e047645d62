//! ResourceQuotas.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::cells::{Row, or, text};

#[derive(Debug)]
pub(in crate::kinds) struct ResourceQuota;

impl Behaviour for ResourceQuota {
    fn headers(&self) -> &'static str {
        "Name Request Limit Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        json!([row.name(), amounts(row.status(), false), amounts(row.status(), true), row.age()])
    }
}

/// `resource: used/hard` of the limits, or of everything else.
fn amounts(status: &Value, limits: bool) -> String {
    let hard = status["hard"].as_object().into_iter().flatten();
    let wanted = hard.filter(|(resource, _)| resource.starts_with("limits.") == limits);
    let shown = wanted.map(|(resource, hard)| {
        let used = or(text(&status["used"][resource.as_str()]), "0");
        format!("{resource}: {used}/{}", text(hard))
    });
    shown.collect::<Vec<_>>().join(", ")
}
