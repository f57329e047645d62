//! The rules by which webhooks and policies select writes.

use std::sync::Arc;

use serde_json::Value;

use crate::admission::attempt::{Attempt, Operation};
use crate::kinds::cells::text;
use crate::kinds::kind::Kind;
use crate::kinds::label_selector::selects;
use crate::state::store::Key;

const GROUP: &str = "admissionregistration.k8s.io";

/// Returns whether no webhook and no policy sees an attempt: it is about one of them.
pub(super) fn is_exempt(attempt: &Attempt<'_>) -> bool {
    attempt.kind.custom.is_none() && attempt.kind.group == GROUP
}

/// Returns the version of the resource in which rules select an attempt: that of the request, or with `equivalent` any
/// other that the resource is served in.
pub(super) fn selected(rules: &Value, equivalent: bool, attempt: &Attempt<'_>) -> Option<Arc<Kind>> {
    let rules = rules.as_array()?;
    let is_selected = |kind: &Kind| rules.iter().any(|rule| matches(rule, kind, attempt));
    if is_selected(attempt.kind) {
        return Some(attempt.kind.clone());
    }
    if !equivalent {
        return None;
    }
    attempt.equivalents().into_iter().find(|kind| is_selected(kind))
}

fn matches(rule: &Value, kind: &Kind, attempt: &Attempt<'_>) -> bool {
    let has = |field: &str, wanted: &str| {
        rule[field].as_array().into_iter().flatten().any(|entry| entry == "*" || entry == wanted)
    };
    let is_resource = |entry: &Value| {
        let entry = text(entry);
        let (resource, part) = entry.split_once('/').unwrap_or((entry, ""));
        (resource == "*" || resource == kind.plural) && (part == "*" || part == attempt.subresource)
    };
    has("operations", attempt.operation.name())
        && has("apiGroups", &kind.group)
        && has("apiVersions", &kind.version)
        && rule["resources"].as_array().into_iter().flatten().any(is_resource)
        && match text(&rule["scope"]) {
            "Namespaced" => kind.namespaced,
            "Cluster" => !kind.namespaced,
            _ => true,
        }
}

/// Returns whether the labels of the namespace, and those of the old or the new object, are selected.
pub(super) fn labels_match(from: &Value, attempt: &Attempt<'_>, object: Option<&Value>) -> bool {
    let labels = |object: &Value| object["metadata"]["labels"].clone();
    let namespaces = &from["namespaceSelector"];
    if has_terms(namespaces) {
        let is_namespace = attempt.is_part_of("", "namespaces");
        let of_namespace = match is_namespace && attempt.subresource.is_empty() {
            // A namespace is selected by its own labels.
            true => object.or(attempt.old).map(labels),
            false if is_namespace => attempt.namespace_labels(attempt.name),
            false if attempt.kind.namespaced => attempt.namespace_labels(attempt.namespace),
            false => None,
        };
        if of_namespace.is_some_and(|labels| !selects(namespaces, &labels)) {
            return false;
        }
    }
    let selector = &from["objectSelector"];
    !has_terms(selector)
        || [object, attempt.old].into_iter().flatten().any(|it| selects(selector, &labels(it)))
}

fn has_terms(selector: &Value) -> bool {
    ["matchLabels", "matchExpressions"].iter().any(|field| !selector[*field].is_null())
}

impl Attempt<'_> {
    /// The other versions of the resource.
    fn equivalents(&self) -> Vec<Arc<Kind>> {
        self.session.core().lock().registry.equivalents(self.kind)
    }

    /// The labels of a namespace.
    fn namespace_labels(&self, name: &str) -> Option<Value> {
        let found = self.find("", "v1", "namespaces", &Key::new("", name))?;
        Some(found.value()["metadata"]["labels"].clone())
    }
}

impl Operation {
    /// The name in rules and reviews.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}
