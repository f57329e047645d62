//! Errors of JSON that does not fit its type: the place and the expectation, never the value.

use std::fmt::{self, Write};

use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};

/// The reason why JSON could not be decoded. It never contains values, as they may belong to a Secret.
///
/// If the JSON is well-formed, the error names the path of the field, such as `spec.containers[0].image`; otherwise the
/// line and column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError(String);

/// Decodes `bytes` as a `T`.
///
/// The path of a field is tracked only in a second pass, after a failure, because tracking slows down every decode.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonError> {
    serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        Category::Data => JsonError::of_field::<T>(bytes).unwrap_or_else(|| error.into()),
        Category::Syntax | Category::Eof | Category::Io => error.into(),
    })
}

impl JsonError {
    /// Returns the error of a value that exceeds a size limit.
    pub(crate) fn too_large(error: &impl fmt::Display) -> Self {
        Self(error.to_string())
    }

    fn of_field<T: DeserializeOwned>(bytes: &[u8]) -> Option<Self> {
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let error = serde_path_to_error::deserialize::<_, T>(&mut json).err()?;
        let path = path_text(error.path());
        let (message, _) = message_and_place(error.inner());
        let reason = of_data(&message);
        Some(Self(if path.is_empty() { reason } else { format!("{path}: {reason}") }))
    }
}

/// The maximum length of a path in an error: keys come from the object and may have any length.
const LONGEST_PATH: usize = 256;

/// Returns the path as `a.b[0]["c.d"]`; keys that are more than a word are quoted.
fn path_text(path: &Path) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => drop(write!(text, "[{index}]")),
            Segment::Map { key } | Segment::Enum { variant: key } if is_word(key) => {
                text.push_str(if text.is_empty() { "" } else { "." });
                text.push_str(key);
            }
            Segment::Map { key } | Segment::Enum { variant: key } => drop(write!(text, "[{key:?}]")),
            Segment::Unknown => text.push_str("[?]"),
        }
    }
    if text.len() > LONGEST_PATH {
        text.truncate(text.floor_char_boundary(LONGEST_PATH));
        text.push_str("...");
    }
    text
}

fn is_word(key: &str) -> bool {
    !key.is_empty()
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$'))
}

/// Returns the text of an error without its place, and the place.
fn message_and_place(error: &serde_json::Error) -> (String, String) {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let mut message = error.to_string();
    if message.ends_with(&place) {
        message.truncate(message.len() - place.len());
    }
    (message, place)
}

impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        let (message, place) = message_and_place(&error);
        let safe = match error.classify() {
            // These are from a fixed set of texts about JSON itself.
            Category::Syntax | Category::Eof | Category::Io => message,
            Category::Data => of_data(&message),
        };
        Self(safe + &place)
    }
}

/// Returns the parts of a message that come from the type: serde's own words, names of fields, and the expectation.
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
    // The value that was found precedes the last of these words, and may contain them.
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
    use std::collections::BTreeMap;

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
    fn values_are_omitted_and_places_and_expectations_are_named() {
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
    fn a_path_is_cut_behind_its_longest_length_only() {
        for (length, end) in [(LONGEST_PATH, ""), (LONGEST_PATH + 1, "...")] {
            let json = format!(r#"{{"{}":"x"}}"#, "k".repeat(length));
            let error = decode::<BTreeMap<String, u32>>(json.as_bytes()).unwrap_err().to_string();
            let path = format!("{}{end}", "k".repeat(LONGEST_PATH));
            assert_eq!(error, format!("{path}: invalid type, expected u32"));
        }
    }

    #[test]
    fn the_words_of_others_are_not_repeated() {
        let error: serde_json::Error =
            serde::de::Error::custom("Invalid symbol 42 in hunter2, expected base64");
        assert_eq!(JsonError::from(error).to_string(), "invalid data at line 0 column 0");
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "decoded for its errors only")]
    struct Deployment {
        spec: Spec,
        #[serde(default)]
        labels: BTreeMap<String, String>,
        #[serde(default)]
        list: Vec<Spec>,
        #[serde(default)]
        color: Option<Color>,
    }

    #[test]
    fn a_field_that_does_not_fit_is_named_by_its_path() {
        let long = format!(r#"{{"spec":{{"replicas":1}},"labels":{{"{}":7}}}}"#, "é ".repeat(1000));
        for (json, said) in [
            (r#"{"spec":{"replicas":"hunter2"}}"#, "spec.replicas: invalid type, expected u32"),
            (r#"{"spec":{}}"#, "spec: missing field `replicas`"),
            (r#"{"labels":{}}"#, "missing field `spec`"),
            (
                r#"{"spec":{"replicas":1},"labels":{"app.io/name":7}}"#,
                r#"labels["app.io/name"]: invalid type, expected a string"#,
            ),
            (
                r#"{"spec":{"replicas":1},"list":[{"replicas":1},{"replicas":-5}]}"#,
                "list[1].replicas: invalid value, expected u32",
            ),
            (
                r#"{"spec":{"replicas":1},"color":"hunter2"}"#,
                "color: unknown variant, expected `Red` or `Green`",
            ),
            (r#"{"spec":{"replicas":1}"#, "EOF while parsing an object at line 1 column 22"),
            (r#"{"spec":{"replicas":1}}x"#, "trailing characters at line 1 column 24"),
        ] {
            assert_eq!(decode::<Deployment>(json.as_bytes()).unwrap_err().to_string(), said);
        }
        let said = decode::<Deployment>(long.as_bytes()).unwrap_err().to_string();
        assert!(said.len() < 320 && said.ends_with("...: invalid type, expected a string"), "{said}");
    }
}
