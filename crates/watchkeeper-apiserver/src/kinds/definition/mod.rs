//! CustomResourceDefinitions: defaulting, validation, accepted names, and the kinds that they define.

use serde_json::{Value, json};

use crate::kinds::conditions;
use crate::kinds::meta;
use crate::kinds::registry::Registry;

mod compile;
mod kinds;
mod names;
mod selectable;
mod validate;

pub(crate) use compile::{Compiled, Compiler};
pub(crate) use kinds::kinds;
pub(crate) use names::{accept_names, is_decided};
pub(crate) use validate::{validate, validate_update};

/// Keeps a terminating definition until its objects are gone.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

pub(crate) fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Fills in the defaults of a definition.
pub(crate) fn default(value: &mut Value) {
    let spec = &mut value["spec"];
    let kind = text(&spec["names"], "kind").to_owned();
    if spec["names"].is_object() && !kind.is_empty() {
        if text(&spec["names"], "singular").is_empty() {
            spec["names"]["singular"] = kind.to_lowercase().into();
        }
        if text(&spec["names"], "listKind").is_empty() {
            spec["names"]["listKind"] = format!("{kind}List").into();
        }
    }
    if spec.is_object() && spec["conversion"].get("strategy").is_none() {
        spec["conversion"] = json!({"strategy": "None"});
    }
}

/// Returns whether a definition has been established.
pub(crate) fn is_established(value: &Value) -> bool {
    conditions::holds(&value["status"], "Established")
}

/// Registers the kinds of a stored definition. The registry is to be indexed afterwards.
pub(crate) fn restore(registry: &mut Registry, value: &Value) {
    let kinds = kinds(value, Compiler::default().compile_all(value));
    registry.define(meta::text(value, "name"), kinds);
}
