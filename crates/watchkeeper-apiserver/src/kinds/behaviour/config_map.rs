//! ConfigMaps.

use serde_json::{Value, json};

use super::data::{decoded_length, texts, validate_immutable, validate_keys, validate_size};
use super::{Behaviour, Change, Findings};
use crate::failure::Cause;
use crate::kinds::cells::{Row, count};

#[derive(Debug)]
pub(in crate::kinds) struct ConfigMap;

impl Behaviour for ConfigMap {
    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        validate_keys(change.new, &mut findings.causes);
        let plain: usize = texts(&change.new["data"]).map(str::len).sum();
        let binary: usize = texts(&change.new["binaryData"]).map(decoded_length).sum();
        validate_size(plain + binary, "[]", &mut findings.causes);
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        validate_immutable(old, new)
    }

    fn headers(&self) -> &'static str {
        "Name Data Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        json!([row.name(), count(&row.object["data"]) + count(&row.object["binaryData"]), row.age()])
    }
}
