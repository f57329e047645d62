//! Secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::data::{decoded_length, texts, validate_immutable, validate_keys, validate_size};
use super::{Behaviour, Change, Findings};
use crate::failure::{Cause, Result};
use crate::kinds::cells::{Row, count, text};
use crate::kinds::fill::fill;
use crate::kinds::kind::Kind;

#[derive(Debug)]
pub(in crate::kinds) struct Secret;

impl Behaviour for Secret {
    fn defaults(&self, _kind: &Kind, secret: &mut Value) -> Result<()> {
        encode_string_data(secret);
        fill(secret, "type", "Opaque".into());
        Ok(())
    }

    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        validate_keys(change.new, &mut findings.causes);
        let size = |field: &str| texts(&change.new[field]).map(decoded_length).sum::<usize>();
        validate_size(size("data") + size("binaryData"), "data", &mut findings.causes);
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        validate_immutable(old, new)
    }

    fn is_confidential(&self) -> bool {
        true
    }

    fn headers(&self) -> &'static str {
        "Name Type Data Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        json!([row.name(), text(&row.object["type"]), count(&row.object["data"]), row.age()])
    }
}

/// Moves `stringData`, which is never stored, into `data`.
fn encode_string_data(secret: &mut Value) {
    if let Value::Object(map) = secret
        && let Some(Value::Object(plain)) = map.remove("stringData")
    {
        let data = map.entry("data").or_insert_with(|| json!({}));
        for (key, text) in plain {
            data[key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
        }
    }
}
