//! How does the server say no? As a `Status` object with a code, a reason, a message and details that clients match on.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;

use serde_json::{Map, Value, json};

use crate::kinds::registry::Kind;

/// How many causes one refusal tells. The real server has no such bound: a client that breaks a rule a hundred thousand times over is told so
/// a hundred thousand times.
const CAUSES_LIMIT: usize = 1_000;

/// How long the causes of one refusal may be together; the first is always told.
const CAUSES_LENGTH: usize = 1 << 20;

/// How much of a value one cause quotes.
const VALUE_LIMIT: usize = 64 << 10;

/// One field that was found wrong, in the words of a validation error.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) field: String,
}

impl Cause {
    /// Whether the object is not of the shape that rules about it may count on.
    pub(crate) fn hides_others(&self) -> bool {
        let shape = ["NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid"];
        self.reason.strip_prefix("FieldValue").is_some_and(|reason| shape.contains(&reason))
    }

    /// All that was found wrong, each thing once.
    pub(crate) fn text(causes: &[Self]) -> String {
        let mut seen = BTreeSet::new();
        let told = causes.iter().filter(|cause| seen.insert((&cause.field, &cause.message)));
        let told: Vec<_> = told.map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        if let [only] = &told[..] { only.clone() } else { format!("[{}]", told.join(", ")) }
    }

    /// Whether so much has been found wrong that nothing more is looked for.
    pub(crate) fn are_enough(causes: &[Self]) -> bool {
        causes.len() >= CAUSES_LIMIT
    }

    pub(crate) fn required(field: &str, detail: &str) -> Self {
        let message =
            if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Self { reason: "FieldValueRequired", message, field: field.to_owned() }
    }

    pub(crate) fn invalid(field: &str, value: &Value, detail: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {}: {}", shown(value), beginning(detail)),
            field: field.to_owned(),
        }
    }

    /// As [`Cause::invalid`], of a value that is a text already.
    pub(crate) fn invalid_text(field: &str, value: &str, detail: &str) -> Self {
        let message = format!("Invalid value: {}: {}", beginning(value), beginning(detail));
        Self { reason: "FieldValueInvalid", message, field: field.to_owned() }
    }

    pub(crate) fn forbidden(field: &str, detail: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {detail}"),
            field: field.to_owned(),
        }
    }

    pub(crate) fn duplicate(field: &str, value: &Value) -> Self {
        Self {
            reason: "FieldValueDuplicate",
            message: format!("Duplicate value: {}", shown(value)),
            field: field.to_owned(),
        }
    }

    pub(crate) fn not_supported(field: &str, value: &Value, supported: &[&str]) -> Self {
        let supported: Vec<_> = supported.iter().map(|text| Value::from(*text).to_string()).collect();
        Self::not_among(field, value, &supported.join(", "))
    }

    /// As [`Cause::not_supported`], of choices that are a text already.
    pub(crate) fn not_among(field: &str, value: &Value, supported: &str) -> Self {
        let message =
            format!("Unsupported value: {}: supported values: {}", shown(value), beginning(supported));
        Self { reason: "FieldValueNotSupported", message, field: field.to_owned() }
    }

    pub(crate) fn too_long(field: &str, limit: usize, unit: &str) -> Self {
        Self {
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {limit} {unit}"),
            field: field.to_owned(),
        }
    }

    pub(crate) fn wrong_type(field: &str, found: &str, detail: &str) -> Self {
        Self {
            reason: "FieldValueTypeInvalid",
            message: format!("Invalid value: {}: {detail}", Value::from(found)),
            field: field.to_owned(),
        }
    }
}

/// The `details` of a failure; an empty one is printed as `{}`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Details {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) causes: Vec<Cause>,
    pub(crate) retry_after: u32,
}

/// A request that was refused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) details: Option<Details>,
    /// `metadata.continue`: how to go on after an expired page.
    pub(crate) proceed: Option<String>,
    /// What was noticed before the request failed.
    pub(crate) warnings: Vec<String>,
    /// The kind is no longer what the request took it for: the request is to be judged anew.
    pub(crate) outdated: bool,
}

pub(crate) type Result<T, E = Box<Failure>> = std::result::Result<T, E>;

impl Failure {
    /// The failure of a write, with the warnings that the write has gathered.
    pub(crate) fn of(mut self: Box<Self>, write: &crate::verbs::write::Write) -> Box<Self> {
        self.warnings.clone_from(&write.warnings);
        self
    }

    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            code,
            reason,
            message: message.into(),
            details: None,
            proceed: None,
            warnings: Vec::new(),
            outdated: false,
        })
    }

    fn with_details(mut self: Box<Self>, details: Details) -> Box<Self> {
        self.details = Some(details);
        self
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Box<Self> {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Box<Self> {
        Self::new(500, "", message)
    }

    pub(crate) fn unauthorized() -> Box<Self> {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// A path below a known group and version that leads nowhere.
    pub(crate) fn no_such_path() -> Box<Self> {
        Self::new(404, "NotFound", "the server could not find the requested resource")
            .with_details(Details::default())
    }

    /// Never told: the request begins anew.
    pub(crate) fn outdated() -> Box<Self> {
        let mut failure = Self::no_such_path();
        failure.outdated = true;
        failure
    }

    pub(crate) fn method_not_allowed() -> Box<Self> {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with_details(Details::default())
    }

    pub(crate) fn not_acceptable(message: impl Into<String>) -> Box<Self> {
        Self::new(406, "NotAcceptable", message)
    }

    pub(crate) fn unsupported_media_type(accepted: &str) -> Box<Self> {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn unsupported_patch_type() -> Box<Self> {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").with_details(Details::default())
    }

    pub(crate) fn too_large(limit: usize) -> Box<Self> {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// A patch that does not fit the object it was meant for.
    pub(crate) fn unprocessable() -> Box<Self> {
        let message = "the server rejected our request due to an error in our request";
        Self::new(422, "Invalid", message).with_details(Details::default())
    }

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

    /// A conflict as preconditions of a delete report it: by kind, not by resource.
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

    /// A failed validation of the query options, which have a kind of their own.
    pub(crate) fn invalid_options(options: &str, causes: Vec<Cause>) -> Box<Self> {
        Self::invalid_as("meta.k8s.io", options, "", causes)
    }

    pub(crate) fn invalid_as(group: &str, kind: &str, name: &str, mut causes: Vec<Cause>) -> Box<Self> {
        let mut length = 0;
        let told = causes.iter().take(CAUSES_LIMIT).take_while(|cause| {
            let fits = length < CAUSES_LENGTH;
            length += cause.field.len() + cause.message.len();
            fits
        });
        causes.truncate(told.count());
        let dot = if group.is_empty() { "" } else { "." };
        let message = format!("{kind}{dot}{group} {} is invalid: {}", quoted(name), Cause::text(&causes));
        Self::new(422, "Invalid", message).with_details(Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes,
            retry_after: 0,
        })
    }

    /// A version that this server has not reached yet.
    pub(crate) fn version_too_large(asked: u64, current: u64) -> Box<Self> {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let cause = Cause {
            reason: "ResourceVersionTooLarge",
            message: "Too large resource version".to_owned(),
            field: String::new(),
        };
        Self::new(504, "Timeout", message).with_details(Details {
            causes: vec![cause],
            retry_after: 1,
            ..Details::default()
        })
    }

    /// A version that has left the history.
    pub(crate) fn expired(asked: u64, oldest: u64) -> Box<Self> {
        Self::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }

    /// The value as it goes over the wire.
    pub(crate) fn to_value(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(proceed) = &self.proceed {
            metadata.insert("continue".to_owned(), proceed.as_str().into());
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure", "message": self.message,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.to_value();
        }
        status["code"] = self.code.into();
        status
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

    fn to_value(&self) -> Value {
        let mut details = Map::new();
        for (key, text) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind)] {
            if !text.is_empty() {
                details.insert(key.to_owned(), text.as_str().into());
            }
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|cause| {
                let mut value = json!({"reason": cause.reason, "message": cause.message});
                if !cause.field.is_empty() {
                    value["field"] = cause.field.as_str().into();
                }
                value
            });
            details.insert("causes".to_owned(), causes.collect());
        }
        if self.retry_after > 0 {
            details.insert("retryAfterSeconds".to_owned(), self.retry_after.into());
        }
        Value::Object(details)
    }
}

/// What a DELETE that removed the object at once answers.
pub(crate) fn deleted(kind: &Kind, name: &str, uid: &str) -> Value {
    let mut details = json!({"name": name});
    if !kind.group.is_empty() {
        details["group"] = kind.group.as_str().into();
    }
    details["kind"] = kind.plural.as_str().into();
    details["uid"] = uid.into();
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// What an action without an object of its own answers.
pub(crate) fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

/// The JSON text of a value; of a long one the beginning.
fn shown(value: &Value) -> String {
    let mut text = Shown(Vec::new());
    // It fails where the text becomes too long.
    if serde_json::to_writer(&mut text, value).is_ok() {
        return String::from_utf8_lossy(&text.0).into_owned();
    }
    let whole = text.0.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    format!("{whole}...")
}

/// At most [`VALUE_LIMIT`] of a text.
pub(crate) fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(VALUE_LIMIT)]
}

/// A text that does not grow beyond [`VALUE_LIMIT`].
struct Shown(Vec<u8>);

impl io::Write for Shown {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(VALUE_LIMIT - self.0.len());
        self.0.extend_from_slice(&bytes[..fits]);
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `text` in double quotes, with the usual escapes.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 => {
                let _infallible = write!(out, "\\x{:02x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cause_stands_alone_and_several_in_brackets() {
        let required = Cause::required("spec.a", "");
        let one = Failure::invalid_as("apps", "Deployment", "x", vec![required.clone()]);
        assert_eq!(one.message, r#"Deployment.apps "x" is invalid: spec.a: Required value"#);
        let two = Failure::invalid_as("", "Pod", "x", vec![required, Cause::forbidden("b", "no")]);
        assert_eq!(two.message, r#"Pod "x" is invalid: [spec.a: Required value, b: Forbidden: no]"#);
    }

    #[test]
    fn a_refusal_is_bounded_whatever_was_found_wrong() {
        let many = (0..200_000).map(|n| Cause::required(&format!("spec.items[{n}]"), "")).collect();
        let failure = Failure::invalid_as("", "Pod", "x", many);
        assert_eq!(failure.details.map(|details| details.causes.len()), Some(CAUSES_LIMIT));
        let large = Value::from("ä".repeat(1 << 20));
        let large: Vec<_> = (0..50).map(|n| Cause::invalid(&n.to_string(), &large, "too long")).collect();
        assert!(large[0].message.len() < VALUE_LIMIT + 100 && large[0].message.ends_with("...: too long"));
        let failure = Failure::invalid_as("", "Pod", "x", large);
        assert!(failure.message.len() < CAUSES_LENGTH + 2 * VALUE_LIMIT);
        let huge = vec![Cause::required(&"a".repeat(2 << 20), ""), Cause::required("b", "")];
        let failure = Failure::invalid_as("", "Pod", "x", huge);
        assert_eq!(failure.details.map(|details| details.causes.len()), Some(1));
    }

    #[test]
    fn a_failure_without_a_reason_has_no_reason_field() {
        let value = Failure::internal("boom").to_value();
        assert_eq!(value.get("reason"), None);
        assert_eq!(value["code"], 500);
    }
}
