//! NetworkPolicies.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::cells::{Row, selector};

#[derive(Debug)]
pub(in crate::kinds) struct NetworkPolicy;

impl Behaviour for NetworkPolicy {
    fn headers(&self) -> &'static str {
        "Name Pod-Selector Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        json!([row.name(), selector(&row.spec()["podSelector"]), row.age()])
    }
}
