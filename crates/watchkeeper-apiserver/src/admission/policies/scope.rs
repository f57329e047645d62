//! The variables of the expressions of a policy.

use serde_json::Value;

use crate::admission::attempt::{Attempt, Operation};
use crate::admission::expression::Scope;
use crate::kinds::kind::Kind;
use crate::state::store::Key;

/// Returns the variables that all policies have. They show objects in the version of `kind`.
pub(super) fn of(attempt: &Attempt<'_>, kind: &Kind, object: Option<&Value>) -> Scope {
    let in_version = |object: &Value| attempt.convert(object.clone(), attempt.kind, kind);
    let object = object.filter(|_| attempt.operation != Operation::Delete);
    let namespace = match attempt.namespace {
        "" => None,
        name => attempt.find("", "v1", "namespaces", &Key::new("", name)).map(|found| found.value()),
    };
    Scope::new()
        .with("object", &object.map_or(Value::Null, in_version))
        .with("oldObject", &attempt.old.map_or(Value::Null, in_version))
        .with("request", &attempt.request(kind))
        .with("namespaceObject", &namespace.unwrap_or_default())
}
