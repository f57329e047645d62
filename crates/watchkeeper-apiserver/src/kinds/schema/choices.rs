//! The values of an `enum`, indexed by hash.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::failure::beginning;

/// The values of one `enum`.
#[derive(Debug, Default)]
pub(super) struct Choices {
    by_hash: BTreeMap<u64, Vec<Value>>,
    /// The values as an error lists them, truncated.
    listed: String,
}

impl Choices {
    pub(super) fn new(choices: &[Value]) -> Self {
        let mut by_hash = BTreeMap::<_, Vec<_>>::new();
        for choice in choices {
            let same = by_hash.entry(hash(choice)).or_default();
            if !same.contains(choice) {
                same.push(choice.clone());
            }
        }
        let texts = choices.iter().map(|choice| match choice {
            Value::String(_) => choice.to_string(),
            other => Value::from(other.to_string()).to_string(),
        });
        let listed = texts.collect::<Vec<_>>().join(", ");
        Self { by_hash, listed: beginning(&listed).to_owned() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }

    /// Returns the choices to compare `value` with: those of its hash.
    pub(super) fn candidates(&self, value: &Value) -> &[Value] {
        self.by_hash.get(&hash(value)).map_or(&[], Vec::as_slice)
    }

    pub(super) fn listed(&self) -> &str {
        &self.listed
    }
}

fn hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
