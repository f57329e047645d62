//! What may be told of JSON that does not fit its type? Where, and what was expected, but never what was found.

use std::fmt;

use serde_json::error::Category;

/// Why JSON could not be decoded, without the values in it: they may be a Secret's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError(String);

impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        let place = format!(" at line {} column {}", error.line(), error.column());
        let message = error.to_string();
        let message = message.strip_suffix(&place).unwrap_or(&message);
        let safe = match error.classify() {
            // These come from a fixed set of texts about JSON itself.
            Category::Syntax | Category::Eof | Category::Io => message.to_owned(),
            Category::Data => of_data(message),
        };
        Self(safe + &place)
    }
}

/// The parts of a message about data that come from the type: serde's own words, names of fields, and what was expected.
fn of_data(message: &str) -> String {
    if message.starts_with("missing field `") {
        return message.to_owned();
    }
    let kinds = [
        "invalid type",
        "invalid value",
        "invalid length",
        "unknown variant",
        "unknown field",
        "duplicate field",
    ];
    let kind = kinds.into_iter().find(|kind| message.starts_with(kind)).unwrap_or("invalid data");
    // What was found stands before the last of these words, and may contain them.
    match message.rsplit_once(", expected ") {
        Some((_, expected)) if kind != "invalid data" => format!("{kind}, expected {expected}"),
        _ => kind.to_owned(),
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

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "decoded for its errors only")]
    struct Spec {
        replicas: u32,
    }

    fn error_of<T: for<'a> Deserialize<'a>>(json: &str) -> String {
        JsonError::from(serde_json::from_str::<T>(json).map(drop).unwrap_err()).to_string()
    }

    #[test]
    fn values_are_left_out_and_places_and_expectations_are_told() {
        for (text, said) in [
            (error_of::<Vec<u32>>(r#"["hunter2"]"#), "invalid type, expected u32 at line 1 column 10"),
            (
                error_of::<Vec<u32>>(r#"["x, expected hunter2"]"#),
                "invalid type, expected u32 at line 1 column 22",
            ),
            (error_of::<String>("2222"), "invalid type, expected a string at line 1 column 4"),
            (
                error_of::<Color>(r#""hunter2""#),
                "unknown variant, expected `Red` or `Green` at line 1 column 9",
            ),
            (error_of::<Spec>("{}"), "missing field `replicas` at line 1 column 2"),
            (error_of::<Spec>(r#"{"replicas":1"#), "EOF while parsing an object at line 1 column 13"),
        ] {
            assert_eq!(text, said);
        }
    }

    #[test]
    fn the_words_of_others_are_not_repeated() {
        let error: serde_json::Error =
            serde::de::Error::custom("Invalid symbol 42 in hunter2, expected base64");
        assert_eq!(JsonError::from(error).to_string(), "invalid data at line 0 column 0");
    }
}
