//! Leases.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::cells::{Row, text};

#[derive(Debug)]
pub(in crate::kinds) struct Lease;

impl Behaviour for Lease {
    fn headers(&self) -> &'static str {
        "Name Holder Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        json!([row.name(), text(&row.spec()["holderIdentity"]), row.age()])
    }
}
