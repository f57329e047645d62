//! PodTemplates.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::cells::{Row, containers, labels};

#[derive(Debug)]
pub(in crate::kinds) struct PodTemplate;

impl Behaviour for PodTemplate {
    fn headers(&self) -> &'static str {
        "Name Containers Images Pod_Labels"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let template = &row.object["template"];
        json!([
            row.name(),
            containers(template, "name"),
            containers(template, "image"),
            labels(&template["metadata"]["labels"]),
        ])
    }
}
