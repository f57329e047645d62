//! JSON decoding that reports duplicate fields, and numbers as Go encodes them.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::failure::quoted;

/// Decodes a JSON text. Of duplicate fields the last value wins; the second part has one message for each of them.
pub(crate) fn read(text: &[u8]) -> serde_json::Result<(Value, Vec<String>)> {
    let found = RefCell::new(Found { path: String::new(), duplicates: Vec::new() });
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Reader(&found).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok((value, found.into_inner().duplicates))
}

struct Found {
    /// The path of the value being decoded: `spec.containers[0]`.
    path: String,
    duplicates: Vec<String>,
}

#[derive(Clone, Copy)]
struct Reader<'a>(&'a RefCell<Found>);

impl Reader<'_> {
    /// Appends a step to the path; returns its previous length, for `leave`.
    fn enter(&self, step: fmt::Arguments<'_>) -> usize {
        let path = &mut self.0.borrow_mut().path;
        let before = path.len();
        // Writing to a `String` cannot fail.
        let _infallible = fmt::Write::write_fmt(path, step);
        before
    }

    fn leave(&self, before: usize) {
        self.0.borrow_mut().path.truncate(before);
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        // Go encodes negative zero without a fraction, too.
        Ok(if value == 0.0 && value.is_sign_negative() { 0.into() } else { number(value) })
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let before = self.enter(format_args!("[{}]", list.len()));
            let element = elements.next_element_seed(self);
            self.leave(before);
            match element? {
                Some(element) => list.push(element),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let dot = if self.0.borrow().path.is_empty() { "" } else { "." };
            let before = self.enter(format_args!("{dot}{name}"));
            let value = fields.next_value_seed(self);
            if map.insert(name, value?).is_some() {
                let mut found = self.0.borrow_mut();
                if found.duplicates.len() < DUPLICATES_LIMIT {
                    let text = format!("duplicate field {}", quoted(&found.path));
                    if !found.duplicates.contains(&text) {
                        found.duplicates.push(text);
                    }
                }
            }
            self.leave(before);
        }
        Ok(Value::Object(map))
    }
}

fn number(value: f64) -> Value {
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

/// Returns a number as Go encodes it: a whole number has no fraction, however it was sent.
pub(crate) fn plain_number(value: f64) -> Value {
    // The first value beyond `i64`.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if value.fract() == 0.0 && value.abs() < LIMIT { (value as i64).into() } else { number(value) }
}

/// Replaces every number in `value` by its Go encoding.
pub(crate) fn plain_numbers(value: &mut Value) {
    match value {
        Value::Number(found) if found.is_f64() => {
            if let Some(found) = found.as_f64() {
                *value = plain_number(found);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(plain_numbers),
        Value::Object(map) => map.values_mut().for_each(plain_numbers),
        _ => {}
    }
}

/// The maximum number of duplicate fields reported.
const DUPLICATES_LIMIT: usize = 100;

/// The maximum nesting depth of an object. Stored objects are decoded together with their managed fields, by a parser
/// that stops at 128 levels.
pub(crate) const DEPTH_LIMIT: usize = 100;

/// The number of levels by which managed fields, which repeat the object's fields, may exceed the object.
const RECORD_DEPTH: usize = 10;

/// Returns whether an object is nested too deeply to be stored.
pub(crate) fn is_too_deep(object: &Value) -> bool {
    let Value::Object(fields) = object else { return is_deeper(object, DEPTH_LIMIT) };
    fields.iter().any(|(name, value)| {
        is_deeper(value, if name == "metadata" { DEPTH_LIMIT + RECORD_DEPTH } else { DEPTH_LIMIT - 1 })
    })
}

/// Returns whether a value has more than `limit` levels of arrays and objects. Recurses no deeper than `limit` itself.
pub(crate) fn is_deeper(value: &Value, limit: usize) -> bool {
    let deeper = |value: &Value| limit == 0 || is_deeper(value, limit - 1);
    match value {
        Value::Array(elements) => limit == 0 || elements.iter().any(deeper),
        Value::Object(fields) => limit == 0 || fields.values().any(deeper),
        _ => false,
    }
}

/// Returns the real server's text for a JSON syntax error. Of the input it quotes at most the offending character.
pub(crate) fn problem(error: &serde_json::Error, text: &[u8]) -> String {
    use serde_json::error::Category;
    if error.classify() == Category::Eof {
        return "unexpected end of JSON input".to_owned();
    }
    let line = text.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let found = line.get(error.column().saturating_sub(1)).copied().unwrap_or(b' ');
    let said = error.to_string();
    let place = [
        ("key must be a string", "looking for beginning of object key string"),
        ("expected value", "looking for beginning of value"),
        ("expected `,` or `}`", "after object key:value pair"),
        ("expected `,` or `]`", "after array element"),
        ("expected `:`", "after object key"),
        ("trailing characters", "after top-level value"),
    ];
    match place.iter().find(|(start, _)| said.starts_with(start)) {
        Some((_, place)) if found.is_ascii_graphic() => {
            format!("invalid character '{}' {place}", char::from(found))
        }
        _ => format!("malformed at line {} column {}", error.line(), error.column()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_in_levels() {
        let nested = |levels: usize| (0..levels).fold(Value::Null, |value, _| serde_json::json!([value]));
        assert!(!is_deeper(&nested(5), 5) && is_deeper(&nested(6), 5) && is_deeper(&nested(1), 0));
        assert!(!is_too_deep(&serde_json::json!({"spec": nested(99), "metadata": nested(110)})));
        assert!(is_too_deep(&serde_json::json!({"spec": nested(100)})));
        assert!(is_too_deep(&serde_json::json!({"metadata": nested(111)})));
    }

    #[test]
    fn numbers_without_a_fraction_are_integers() {
        let mut value = serde_json::json!([1.0, {"a": -0.0, "b": 1.5, "c": 1e3}, 1e20, 5, "1.0"]);
        plain_numbers(&mut value);
        assert_eq!(value.to_string(), r#"[1,{"a":0,"b":1.5,"c":1000},1e+20,5,"1.0"]"#);
        assert_eq!(read(b"[-0, 1.0]").unwrap().0.to_string(), "[0,1.0]");
    }

    #[test]
    fn fields_that_are_there_duplicates_are_named_and_the_last_one_counts() {
        let text = br#"{"a": {"b": [1, {"c": 1.5, "c": null}]}, "d": "x", "d": true}"#;
        let (value, duplicates) = read(text).unwrap();
        assert_eq!(value, serde_json::json!({"a": {"b": [1, {"c": null}]}, "d": true}));
        assert_eq!(duplicates, [r#"duplicate field "a.b[1].c""#, r#"duplicate field "d""#]);
        assert!(read(b"{} x").is_err());
    }
}
