//! Is every field of a JSON text there once? A reader that gives the value, with the last of those that are there twice, and names them.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::failure::quoted;

/// Reads a JSON text; the second part is what to say about each field that is there more than once.
pub(crate) fn read(text: &[u8]) -> serde_json::Result<(Value, Vec<String>)> {
    let found = RefCell::new(Found { path: String::new(), twice: Vec::new() });
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Reader(&found).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok((value, found.into_inner().twice))
}

struct Found {
    /// Where we are: `spec.containers[0]`.
    path: String,
    twice: Vec<String>,
}

#[derive(Clone, Copy)]
struct Reader<'a>(&'a RefCell<Found>);

impl Reader<'_> {
    /// Goes one step down; returns how long the path was.
    fn enter(&self, step: fmt::Arguments<'_>) -> usize {
        let path = &mut self.0.borrow_mut().path;
        let before = path.len();
        // Writing into a string cannot fail.
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
        // Minus zero comes without a fraction too.
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
                if found.twice.len() < TWICE_LIMIT {
                    let text = format!("duplicate field {}", quoted(&found.path));
                    if !found.twice.contains(&text) {
                        found.twice.push(text);
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

/// A number as Go writes it: without a fraction if it has none, however it was sent.
pub(crate) fn plain_number(value: f64) -> Value {
    // From here on, an integer of 64 bits does not hold it.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if value.fract() == 0.0 && value.abs() < LIMIT { (value as i64).into() } else { number(value) }
}

/// Writes every number in `value` as Go does.
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

/// How many of the fields that are there twice are told.
const TWICE_LIMIT: usize = 100;

/// How deep an object may be nested. What is kept is read again, with the record of its managers, by a parser that stops at 128.
pub(crate) const DEPTH_LIMIT: usize = 100;

/// How much deeper than the object the record of its managers may be, which repeats its fields.
const RECORD_DEPTH: usize = 10;

/// Whether an object is nested too deeply to be kept.
pub(crate) fn is_too_deep(object: &Value) -> bool {
    let Value::Object(fields) = object else { return is_deeper(object, DEPTH_LIMIT) };
    fields.iter().any(|(name, value)| {
        is_deeper(value, if name == "metadata" { DEPTH_LIMIT + RECORD_DEPTH } else { DEPTH_LIMIT - 1 })
    })
}

/// Whether a value has more than `limit` levels of arrays and objects. Goes no deeper than that itself.
pub(crate) fn is_deeper(value: &Value, limit: usize) -> bool {
    let deeper = |value: &Value| limit == 0 || is_deeper(value, limit - 1);
    match value {
        Value::Array(elements) => limit == 0 || elements.iter().any(deeper),
        Value::Object(fields) => limit == 0 || fields.values().any(deeper),
        _ => false,
    }
}

/// What is wrong with a JSON text, in the words of the real server: of the text, at most the one character that does not fit.
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
    fn fields_that_are_there_twice_are_named_and_the_last_one_counts() {
        let text = br#"{"a": {"b": [1, {"c": 1.5, "c": null}]}, "d": "x", "d": true}"#;
        let (value, twice) = read(text).unwrap();
        assert_eq!(value, serde_json::json!({"a": {"b": [1, {"c": null}]}, "d": true}));
        assert_eq!(twice, [r#"duplicate field "a.b[1].c""#, r#"duplicate field "d""#]);
        assert!(read(b"{} x").is_err());
    }
}
