//! What may be told of JSON that does not fit its type? Where and why, but never the value that was found.

use std::fmt;

/// Why JSON could not be decoded, without the values in it: they may be a Secret's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError(String);

impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        Self(without_values(&error.to_string()))
    }
}

/// serde prints the strings it found in double quotes, and unknown variants in backticks.
fn without_values(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(start) = rest.find('"') {
        text.push_str(&rest[..start]);
        text.push_str("\"…\"");
        // Quotes inside are escaped by serde's Debug form; the last one of the message ends the value at the latest.
        let value = &rest[start + 1..];
        let end = value.find("\", expected").or_else(|| value.rfind('"'));
        rest = end.map_or("", |end| &value[end + 1..]);
    }
    text.push_str(rest);
    match text.split_once("unknown variant `") {
        Some((before, after)) => {
            let end = after.find("`, ").or_else(|| after.rfind('`')).unwrap_or(after.len());
            format!("{before}unknown variant `…{}", &after[end..])
        }
        None => text,
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JsonError {}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "decoded for its errors only")]
    enum Color {
        Red,
        Green,
    }

    fn error_of<T: for<'a> Deserialize<'a>>(json: &str) -> String {
        JsonError::from(serde_json::from_str::<T>(json).map(drop).unwrap_err()).to_string()
    }

    #[test]
    fn values_are_left_out_and_places_are_told() {
        let text = error_of::<Vec<u32>>(r#"["hunter2\"x"]"#);
        assert!(text.starts_with("invalid type: string \"…\", expected u32 at line 1"), "{text}");
        let text = error_of::<Color>(r#""hunter`2""#);
        assert!(text.starts_with("unknown variant `…`, expected `Red` or `Green`"), "{text}");
    }

    #[test]
    fn names_of_missing_fields_stay() {
        #[derive(Debug, Deserialize)]
        #[allow(dead_code, reason = "decoded for its errors only")]
        struct Spec {
            replicas: u32,
        }
        assert!(error_of::<Spec>("{}").starts_with("missing field `replicas`"));
    }
}
