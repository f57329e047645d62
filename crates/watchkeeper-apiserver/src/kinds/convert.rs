//! Conversion of objects between their stored form and the version of a request.

use serde_json::Value;

use crate::kinds::kind::Kind;

/// Converts a stored object to the version of `kind`.
pub(crate) fn from_storage(kind: &Kind, mut value: Value) -> Value {
    kind.behaviour.to_served(kind, &mut value);
    value["apiVersion"] = kind.api_version.as_str().into();
    value
}

/// Converts an object of the version of `kind` to the storage version.
pub(crate) fn to_storage(kind: &Kind, mut value: Value) -> Value {
    kind.behaviour.to_storage(kind, &mut value);
    value
}
