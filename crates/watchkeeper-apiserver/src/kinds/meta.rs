//! Object metadata: access, names, labels, and validation on create and update.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::failure::Cause;
use crate::kinds::builtin::NameRule;
use crate::kinds::fill::set_text;
use crate::kinds::kind::Kind;

const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// Formats a time as objects carry it: UTC, in whole seconds.
pub(crate) fn timestamp(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// Returns a string field of the metadata, or an empty string.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value["metadata"][field].as_str().unwrap_or_default()
}

/// Returns the metadata, created if missing.
pub(crate) fn metadata_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    let metadata = &mut value["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    match metadata {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object above"),
    }
}

/// Sets a field of the metadata, or removes it if `text` is empty.
pub(crate) fn set(value: &mut Value, field: &str, text: &str) {
    let metadata = metadata_mut(value);
    if text.is_empty() {
        metadata.remove(field);
    } else {
        set_text(&mut value["metadata"], field, text);
    }
}

/// Returns the finalizers of an object.
pub(crate) fn finalizers(value: &Value) -> Vec<String> {
    let list = value["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter_map(|f| f.as_str().map(str::to_owned)).collect()
}

/// Replaces the finalizers of an object.
pub(crate) fn set_finalizers(value: &mut Value, finalizers: &[String]) {
    let metadata = metadata_mut(value);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), json!(finalizers));
    }
}

/// Validates the metadata of an object about to be stored.
pub(crate) fn validate(kind: &Kind, value: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = text(value, "name");
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        let problems = name_problems(kind.names, name);
        causes.extend(problems.iter().map(|p| Cause::invalid("metadata.name", &name.into(), p)));
    }
    let metadata = &value["metadata"];
    validate_labels(&metadata["labels"], "metadata.labels", &mut causes);
    let mut size = 0;
    for (key, annotation) in metadata["annotations"].as_object().into_iter().flatten() {
        if let Some(problem) = qualified_name_problem(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &key.as_str().into(), &problem));
        }
        size += key.len() + annotation.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_LIMIT {
        causes.push(Cause::too_long("metadata.annotations", ANNOTATIONS_LIMIT, "bytes"));
    }
    let own = finalizers(value);
    for (at, finalizer) in own.iter().enumerate() {
        if Cause::are_enough(&causes) {
            return causes;
        }
        let field = format!("metadata.finalizers[{at}]");
        if let Some(problem) = qualified_name_problem(finalizer) {
            causes.push(Cause::invalid(&field, &finalizer.as_str().into(), &problem));
        } else if kind.custom.is_none()
            && !finalizer.contains('/')
            && !["orphan", "foregroundDeletion", "kubernetes"].contains(&&**finalizer)
        {
            let problem = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(&field, &finalizer.as_str().into(), problem));
        }
    }
    if ["orphan", "foregroundDeletion"].iter().all(|policy| own.iter().any(|own| own == policy)) {
        let problem = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(Cause::invalid("metadata.finalizers", &json!(own), problem));
    }
    owner_causes(metadata, &mut causes);
    causes
}

fn owner_causes(metadata: &Value, causes: &mut Vec<Cause>) {
    let owners = metadata["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
    let mut controller: Option<String> = None;
    let shown = || format!("[{}]", owners.iter().map(wire_owner).collect::<Vec<_>>().join(","));
    let shown = std::cell::LazyCell::new(shown);
    for owner in owners {
        if Cause::are_enough(causes) {
            return;
        }
        for (field, problem) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                let field = format!("metadata.ownerReferences.{field}");
                causes.push(Cause::invalid(&field, &"".into(), problem));
            }
        }
        if owner["controller"] == true {
            let text = |field: &str| owner[field].as_str().unwrap_or_default();
            let this = format!("{}/{}", text("kind"), text("name"));
            if let Some(first) = &controller {
                let problem = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                );
                causes.push(Cause::invalid_text("metadata.ownerReferences", &shown, &problem));
            }
            controller.get_or_insert(this);
        }
    }
}

/// Returns an owner reference with its fields in wire order.
fn wire_owner(owner: &Value) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"].into_iter();
    let fields: Vec<_> =
        fields.filter_map(|field| Some(format!("\"{field}\":{}", owner.get(field)?))).collect();
    format!("{{{}}}", fields.join(","))
}

/// Validates a change of metadata from `old` to `new`.
pub(crate) fn validate_update(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["name", "namespace", "uid"] {
        let (before, after) = (text(old, field), text(new, field));
        if before != after {
            causes.push(Cause::invalid(&format!("metadata.{field}"), &after.into(), "field is immutable"));
        }
    }
    if old["metadata"]["deletionTimestamp"].is_string() {
        let before: BTreeSet<_> = finalizers(old).into_iter().collect();
        let added: BTreeSet<_> = finalizers(new).into_iter().filter(|f| !before.contains(f)).collect();
        if !added.is_empty() {
            let list: Vec<_> = added.iter().map(|f| format!("{f:?}")).collect();
            let problem = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                list.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &problem));
        }
    }
    causes
}

/// Returns the problems of an object's name.
pub(crate) fn name_problems(rule: NameRule, name: &str) -> Vec<String> {
    match rule {
        NameRule::Subdomain => subdomain_problems(name),
        NameRule::Label => label_problems(name),
        NameRule::PathSegment => {
            let mut problems = Vec::new();
            if name == "." || name == ".." {
                problems.push(format!("may not be '{name}'"));
            }
            for c in ['/', '%'] {
                if name.contains(c) {
                    problems.push(format!("may not contain '{c}'"));
                }
            }
            problems
        }
    }
}

fn is_label(text: &str) -> bool {
    let alphanumeric = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|c| alphanumeric(*c))
        && bytes.last().is_some_and(|c| alphanumeric(*c))
        && bytes.iter().all(|c| alphanumeric(*c) || *c == b'-')
}

/// Returns the problems of a DNS label.
pub(crate) fn label_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push("must be no more than 63 characters".to_owned());
    }
    if text.contains('.') && text.split('.').all(is_label) {
        problems.push("must not contain dots".to_owned());
    } else if !is_label(text) {
        problems.push(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    problems
}

/// Returns the problems of a DNS subdomain.
pub(crate) fn subdomain_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 253 {
        problems.push("must be no more than 253 characters".to_owned());
    }
    if !text.split('.').all(is_label) {
        problems.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    problems
}

fn is_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(c))
}

/// Validates labels, or the labels of a selector.
pub(crate) fn validate_labels(labels: &Value, at: &str, causes: &mut Vec<Cause>) {
    for (key, label) in labels.as_object().into_iter().flatten() {
        if let Some(problem) = qualified_name_problem(key) {
            causes.push(Cause::invalid(at, &key.as_str().into(), &problem));
        }
        if let Some(problem) = label.as_str().and_then(label_value_problem) {
            causes.push(Cause::invalid(at, label, &problem));
        }
    }
}

/// Returns the problem of a qualified name (a label key, a finalizer).
pub(crate) fn qualified_name_problem(text: &str) -> Option<String> {
    const RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            return Some(format!(
                "a qualified name {RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
        }
        Some(("", _)) => return Some("prefix part must be non-empty".to_owned()),
        Some((prefix, name)) => {
            if let Some(problem) = subdomain_problems(prefix).first() {
                return Some(format!("prefix part {problem}"));
            }
            name
        }
    };
    if name.is_empty() {
        return Some("name part must be non-empty".to_owned());
    }
    if name.len() > 63 {
        return Some("name part must be no more than 63 characters".to_owned());
    }
    (!is_name_part(name)).then(|| format!("name part {RULE}"))
}

/// Returns the problem of a label value.
pub(crate) fn label_value_problem(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some("must be no more than 63 characters".to_owned());
    }
    (!text.is_empty() && !is_name_part(text)).then(|| {
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule_of_their_kind() {
        assert!(name_problems(NameRule::Subdomain, "a.b-c.d1").is_empty());
        assert!(!name_problems(NameRule::Subdomain, "a..b").is_empty());
        assert!(!name_problems(NameRule::Label, "a.b").is_empty());
        assert!(name_problems(NameRule::PathSegment, "system:node").is_empty());
        assert!(!name_problems(NameRule::PathSegment, "a/b").is_empty());
    }

    #[test]
    fn label_keys_may_have_a_prefix() {
        assert_eq!(qualified_name_problem("example.com/My_Name"), None);
        for bad in ["", "/a", "a/", "a/b/c", "Bad_Prefix/a", "bad label!"] {
            assert!(qualified_name_problem(bad).is_some(), "{bad}");
        }
    }
}
