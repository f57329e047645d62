//! Failures: error answers as `Status` objects, with the code, reason, message and details that clients match on.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

mod cause;

use cause::{CAUSES_LENGTH, CAUSES_LIMIT};
pub(crate) use cause::{Cause, beginning};

/// The `details` of a failure; serialized as `{}` if empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Details {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) causes: Vec<Cause>,
    pub(crate) retry_after: u32,
}

/// A refused request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) details: Option<Details>,
    /// `metadata.continue`: how to resume after an expired continue token.
    pub(crate) proceed: Option<String>,
    /// Warnings collected before the request failed.
    pub(crate) warnings: Vec<String>,
    /// The kind changed while the request was processed; the request is retried.
    pub(crate) outdated: bool,
    /// The `Status` of somebody else, such as a webhook, which is sent as it is.
    pub(crate) given: Option<Box<Value>>,
}

pub(crate) type Result<T, E = Box<Failure>> = std::result::Result<T, E>;

impl Failure {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            code,
            reason,
            message: message.into(),
            details: None,
            proceed: None,
            warnings: Vec::new(),
            outdated: false,
            given: None,
        })
    }

    pub(crate) fn with_details(mut self: Box<Self>, details: Details) -> Box<Self> {
        self.details = Some(details);
        self
    }

    /// A `Status` of somebody else, with its code and message.
    pub(crate) fn given(status: Value) -> Box<Self> {
        let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
        let message = status["message"].as_str().unwrap_or_default().to_owned();
        let mut failure = Self::new(code, "", message);
        failure.given = Some(Box::new(status));
        failure
    }

    /// An internal error in the words of the real server.
    pub(crate) fn internal_error(message: &str) -> Box<Self> {
        let cause = Cause { reason: "", message: message.to_owned(), field: String::new() };
        let shown = format!("Internal error occurred: {message}");
        Self::new(500, "InternalError", shown)
            .with_details(Details { causes: vec![cause], ..Details::default() })
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

    /// An unknown path below a known group version.
    pub(crate) fn no_such_path() -> Box<Self> {
        Self::new(404, "NotFound", "the server could not find the requested resource")
            .with_details(Details::default())
    }

    /// Internal: the request is retried and no client sees this failure.
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

    /// More than the server works on at a time, in the words of the real one.
    pub(crate) fn too_many_requests() -> Box<Self> {
        let message = "Too many requests, please try again later.";
        let details = Details { retry_after: 1, ..Details::default() };
        Self::new(429, "TooManyRequests", message).with_details(details)
    }

    /// A patch that cannot be applied to its object.
    pub(crate) fn unprocessable() -> Box<Self> {
        let message = "the server rejected our request due to an error in our request";
        Self::new(422, "Invalid", message).with_details(Details::default())
    }

    /// Invalid query options, which are a kind of their own.
    pub(crate) fn invalid_options(options: &str, causes: Vec<Cause>) -> Box<Self> {
        Self::invalid_as("meta.k8s.io", options, "", causes)
    }

    pub(crate) fn invalid_as(group: &str, kind: &str, name: &str, mut causes: Vec<Cause>) -> Box<Self> {
        let mut length = 0;
        let reported = causes.iter().take(CAUSES_LIMIT).take_while(|cause| {
            let fits = length < CAUSES_LENGTH;
            length += cause.field.len() + cause.message.len();
            fits
        });
        causes.truncate(reported.count());
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

    /// A resourceVersion that this server has not reached.
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

    /// A resourceVersion that is no longer in the history.
    pub(crate) fn expired(asked: u64, oldest: u64) -> Box<Self> {
        Self::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }

    /// Returns the `Status` object as sent on the wire.
    pub(crate) fn to_value(&self) -> Value {
        if let Some(status) = &self.given {
            return (**status).clone();
        }
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
    fn to_value(&self) -> Value {
        let mut details = Map::new();
        for (key, text) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind)] {
            if !text.is_empty() {
                details.insert(key.to_owned(), text.as_str().into());
            }
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|cause| {
                let mut value = json!({"message": cause.message});
                if !cause.reason.is_empty() {
                    value["reason"] = cause.reason.into();
                }
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

/// Returns the `Status` of an action that succeeded and returns no object.
pub(crate) fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

/// Returns `text` in double quotes, escaped.
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
    use super::cause::VALUE_LIMIT;
    use super::*;

    #[test]
    fn one_cause_stands_alone_and_several_in_brackets() {
        let required = Cause::required("spec.a", "");
        let one = Failure::invalid_as("apps", "Deployment", "x", vec![required.clone()]);
        assert_eq!(one.message, r#"Deployment.apps "x" is invalid: spec.a: Required value"#);
        let two = Failure::invalid_as("", "Node", "x", vec![required, Cause::forbidden("b", "no")]);
        assert_eq!(two.message, r#"Node "x" is invalid: [spec.a: Required value, b: Forbidden: no]"#);
    }

    #[test]
    fn a_refusal_is_bounded_whatever_was_found_wrong() {
        let many = (0..200_000).map(|n| Cause::required(&format!("spec.items[{n}]"), "")).collect();
        let failure = Failure::invalid_as("", "Node", "x", many);
        assert_eq!(failure.details.map(|details| details.causes.len()), Some(CAUSES_LIMIT));
        let large = Value::from("ä".repeat(1 << 20));
        let large: Vec<_> = (0..50).map(|n| Cause::invalid(&n.to_string(), &large, "too long")).collect();
        assert!(large[0].message.len() < VALUE_LIMIT + 100 && large[0].message.ends_with("...: too long"));
        let failure = Failure::invalid_as("", "Node", "x", large);
        assert!(failure.message.len() < CAUSES_LENGTH + 2 * VALUE_LIMIT);
        let huge = vec![Cause::required(&"a".repeat(2 << 20), ""), Cause::required("b", "")];
        let failure = Failure::invalid_as("", "Node", "x", huge);
        assert_eq!(failure.details.map(|details| details.causes.len()), Some(1));
    }

    #[test]
    fn a_failure_without_a_reason_has_no_reason_field() {
        let value = Failure::internal("boom").to_value();
        assert_eq!(value.get("reason"), None);
        assert_eq!(value["code"], 500);
    }
}
