//! Causes of a validation error: one invalid field each, with the real server's message.

use std::collections::BTreeSet;
use std::io;

use serde_json::Value;

/// The maximum number of causes in one answer. The real server has no limit.
pub(super) const CAUSES_LIMIT: usize = 1_000;

/// The maximum total length of the causes of one answer. The first is always included.
pub(super) const CAUSES_LENGTH: usize = 1 << 20;

/// The maximum length of a value quoted in a cause.
pub(super) const VALUE_LIMIT: usize = 64 << 10;

/// An invalid field, and why it is invalid.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) field: String,
}

impl Cause {
    /// Returns whether the object is structurally invalid, so that rules cannot be evaluated on it.
    pub(crate) fn hides_others(&self) -> bool {
        let structural = ["NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid"];
        self.reason.strip_prefix("FieldValue").is_some_and(|reason| structural.contains(&reason))
    }

    /// Joins the distinct causes into a message.
    pub(crate) fn text(causes: &[Self]) -> String {
        let mut seen = BTreeSet::new();
        let distinct = causes.iter().filter(|cause| seen.insert((&cause.field, &cause.message)));
        let distinct: Vec<_> = distinct.map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        if let [only] = &distinct[..] { only.clone() } else { format!("[{}]", distinct.join(", ")) }
    }

    /// Returns whether the limit of causes is reached and validation may stop.
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

    /// Like [`Cause::invalid`], with a value that is already formatted.
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

    /// Like [`Cause::not_supported`], with choices that are already formatted.
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

/// Returns the JSON of a value, truncated to [`VALUE_LIMIT`].
fn shown(value: &Value) -> String {
    let mut text = Shown(Vec::new());
    // Fails where the text exceeds the limit.
    if serde_json::to_writer(&mut text, value).is_ok() {
        return String::from_utf8_lossy(&text.0).into_owned();
    }
    let whole = text.0.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    format!("{whole}...")
}

/// Truncates a text to [`VALUE_LIMIT`].
pub(crate) fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(VALUE_LIMIT)]
}

/// A buffer that does not grow beyond [`VALUE_LIMIT`].
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
