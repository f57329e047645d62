//! The form of a rule in a definition: what does not depend on its meaning.

use serde_json::Value;

use super::types::Problem;
use crate::failure::Cause;

/// The reasons that a rule may give for a refusal.
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// The maximum length of a message.
const MESSAGE: usize = 2_048;

/// Returns what is wrong with the fields of a rule; `at` is its path in the definition.
pub(super) fn problems(rule: &Value, at: &str) -> Vec<Cause> {
    let text = |field: &str| rule[field].as_str().unwrap_or_default();
    let blank = |field: &str| !text(field).is_empty() && text(field).trim().is_empty();
    let lines = |text: &str| text.contains(['\n', '\r']);
    let message = text("message").trim();
    let place = |field: &str| format!("{at}.{field}");
    let invalid = |field: &str, problem: &str| Cause::invalid(&place(field), &text(field).into(), problem);
    let first = if text("rule").trim().is_empty() {
        Some(Cause::required(&place("rule"), "rule is not specified"))
    } else if blank("message") {
        Some(invalid("message", "message must be non-empty if specified"))
    } else if text("message").len() > MESSAGE {
        let beginning = format!("{}...", text("message").chars().take(10).collect::<String>());
        let problem = "message must have a maximum length of 2048 characters";
        Some(Cause::invalid(&place("message"), &beginning.into(), problem))
    } else if lines(message) {
        Some(invalid("message", "message must not contain line breaks"))
    } else if lines(text("rule").trim()) && message.is_empty() {
        let problem = "message must be specified if rule contains line breaks";
        Some(Cause::required(&place("message"), problem))
    } else {
        None
    };
    let mut causes: Vec<_> = first.into_iter().collect();
    if blank("messageExpression") {
        let problem = "messageExpression must be non-empty if specified";
        causes.push(Cause::required(&place("messageExpression"), problem));
    }
    if rule["reason"].is_string() && !REASONS.contains(&text("reason")) {
        causes.push(Cause::not_supported(&place("reason"), &rule["reason"], &REASONS));
    }
    if blank("fieldPath") {
        causes.push(invalid("fieldPath", "fieldPath must be non-empty if specified"));
    } else if lines(text("fieldPath")) {
        causes.push(invalid("fieldPath", "fieldPath must not contain line breaks"));
    }
    causes
}

/// The cause for a rule that does not compile. The real server shows the rule as Go encodes its struct.
pub(super) fn mistyped(rule: &Value, at: &str, problem: Problem) -> Cause {
    let (field, problem) = match problem {
        Problem::Rule(problem) => ("rule", problem),
        Problem::Message(problem) => ("messageExpression", problem),
    };
    let text = |field: &str| Value::from(rule[field].as_str().unwrap_or_default());
    let shown = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        rule["reason"],
        text("fieldPath"),
        rule["optionalOldSelf"],
    );
    let shown = shown.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    Cause::invalid_text(&format!("{at}.{field}"), &shown, &problem)
}
