//! PodDisruptionBudgets.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::cells::{Row, number, shown};

#[derive(Debug)]
pub(in crate::kinds) struct PodDisruptionBudget;

impl Behaviour for PodDisruptionBudget {
    fn headers(&self) -> &'static str {
        "Name Min_Available Max_Unavailable Allowed_Disruptions:integer Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let spec = row.spec();
        json!([
            row.name(),
            shown(&spec["minAvailable"], "N/A"),
            shown(&spec["maxUnavailable"], "N/A"),
            number(&row.status()["disruptionsAllowed"]),
            row.age(),
        ])
    }
}
