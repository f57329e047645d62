//! CustomResourceDefinitions. What they define is built by [`definition`].

use serde_json::{Value, json};

use super::{Behaviour, Change, Contents, Findings};
use crate::failure::{Cause, Result};
use crate::kinds::cells::Row;
use crate::kinds::definition;
use crate::kinds::kind::Kind;

#[derive(Debug)]
pub(in crate::kinds) struct CustomResourceDefinition;

impl Behaviour for CustomResourceDefinition {
    fn defaults(&self, _kind: &Kind, definition: &mut Value) -> Result<()> {
        definition::default(definition);
        Ok(())
    }

    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        let (causes, compiled) = definition::validate(change.new, change.old, change.defined);
        findings.causes.extend(causes);
        findings.compiled = compiled;
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        definition::validate_update(old, new)
    }

    fn contents(&self) -> Contents {
        Contents::CustomKinds
    }

    fn headers(&self) -> &'static str {
        "Name Created_At:date"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        json!([row.name(), row.object["metadata"]["creationTimestamp"]])
    }
}
