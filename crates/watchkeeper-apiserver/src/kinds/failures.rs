//! Failures that name a kind: not found, conflict, forbidden, invalid.

use serde_json::{Value, json};

use crate::failure::{Cause, Details, Failure, quoted};
use crate::kinds::kind::Kind;

impl Failure {
    pub(crate) fn not_found(kind: &Kind, name: &str) -> Box<Self> {
        let message = format!("{} {} not found", kind.resource(), quoted(name));
        Self::new(404, "NotFound", message).with_details(Details::of(kind, name))
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str, terminating: bool) -> Box<Self> {
        let prefix = if terminating { "object is being deleted: " } else { "" };
        let message = format!("{prefix}{} {} already exists", kind.resource(), quoted(name));
        Self::new(409, "AlreadyExists", message).with_details(Details::of(kind, name))
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Box<Self> {
        let message = format!("Operation cannot be fulfilled on {} {}: {why}", kind.resource(), quoted(name));
        Self::new(409, "Conflict", message).with_details(Details::of(kind, name))
    }

    /// A conflict of a delete precondition, which names the kind and not the resource.
    pub(crate) fn precondition(kind: &Kind, name: &str, why: &str) -> Box<Self> {
        let qualified = kind.qualified_kind();
        let message = format!("Operation cannot be fulfilled on {qualified} {}: {why}", quoted(name));
        Self::new(409, "Conflict", message).with_details(Details {
            name: name.to_owned(),
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            ..Details::default()
        })
    }

    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> Box<Self> {
        let message = format!("{} {} is forbidden: {why}", kind.resource(), quoted(name));
        Self::new(403, "Forbidden", message).with_details(Details::of(kind, name))
    }

    /// A failed validation of an object.
    pub(crate) fn invalid(kind: &Kind, name: &str, causes: Vec<Cause>) -> Box<Self> {
        Self::invalid_as(&kind.group, &kind.kind, name, causes)
    }
}

impl Details {
    fn of(kind: &Kind, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            group: kind.group.clone(),
            kind: kind.plural.clone(),
            ..Self::default()
        }
    }
}

/// The `Status` of a DELETE that removed the object at once.
pub(crate) fn deleted(kind: &Kind, name: &str, uid: &str) -> Value {
    let mut details = json!({"name": name});
    if !kind.group.is_empty() {
        details["group"] = kind.group.as_str().into();
    }
    details["kind"] = kind.plural.as_str().into();
    details["uid"] = uid.into();
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
