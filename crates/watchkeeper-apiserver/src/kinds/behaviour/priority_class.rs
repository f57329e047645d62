//! PriorityClasses.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::cells::{Row, number, or, text};

#[derive(Debug)]
pub(in crate::kinds) struct PriorityClass;

impl Behaviour for PriorityClass {
    fn headers(&self) -> &'static str {
        "Name Value:integer Global-Default:boolean Age PreemptionPolicy"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let class = row.object;
        json!([
            row.name(),
            number(&class["value"]),
            class["globalDefault"] == true,
            row.age(),
            or(text(&class["preemptionPolicy"]), "PreemptLowerPriority"),
        ])
    }
}
