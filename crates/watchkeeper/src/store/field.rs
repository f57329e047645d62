//! Values at a path of an object's JSON, found in the bytes without decoding them.

use crate::object::scan::{Cursor, Malformed};
use crate::object::{PathError, Segment, segments};

/// A field of objects, such as `spec.nodeName` or `spec.containers[*].image`.
#[derive(Debug)]
pub(crate) struct Field(Vec<Segment>);

impl Field {
    pub(crate) fn new(path: &str) -> Result<Self, PathError> {
        segments(path).map(Self)
    }

    /// Calls `each` with the strings, numbers and booleans of the field.
    pub(crate) fn each(&self, json: &[u8], each: &mut dyn FnMut(&str)) {
        // If the JSON does not have the shape of the path, there is no value.
        let _other_shape = walk(json, &self.0, each);
    }
}

fn walk(json: &[u8], path: &[Segment], each: &mut dyn FnMut(&str)) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(json);
    for (depth, segment) in path.iter().enumerate() {
        match segment {
            Segment::Key(name) => {
                cursor.enter()?;
                loop {
                    let Some(key) = cursor.key()? else { return Ok(()) };
                    if *cursor.name(&key)? == *name.as_bytes() {
                        break;
                    }
                    cursor.value()?;
                }
            }
            Segment::Each => {
                cursor.enter_array()?;
                while cursor.element()? {
                    let element = cursor.value()?;
                    let _other_shape = walk(&json[element], &path[depth + 1..], each);
                }
                return Ok(());
            }
        }
    }
    match cursor.peek() {
        Some(b'"') => {
            let text = cursor.string()?;
            each(&cursor.text(&text)?);
        }
        Some(b't' | b'f' | b'-' | b'0'..=b'9') => {
            let range = cursor.value()?;
            each(std::str::from_utf8(&json[range]).unwrap_or_default());
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = r#"{"metadata":{"labels":{"a.b/c":"x"}},"spec":{"nodeName" : "n\u0031", "ok":true,"none":null,"port":-80,
        "containers":[{"image":"one","args":["a","b"]},7,{"args":[]},{"image":"two","args":["c"]}]},"status":{}}"#;

    fn values(path: &str, json: &str) -> Vec<String> {
        let mut found = Vec::new();
        Field::new(path).unwrap().each(json.as_bytes(), &mut |value| found.push(value.to_owned()));
        found
    }

    #[test]
    fn texts_numbers_and_booleans_are_values_and_nothing_else_is() {
        for (path, found) in [
            ("spec.nodeName", &["n1"][..]),
            ("spec.ok", &["true"]),
            ("spec.port", &["-80"]),
            (r"metadata.labels.a\.b/c", &["x"]),
            ("spec.containers[*].image", &["one", "two"]),
            ("spec.containers[*].args[*]", &["a", "b", "c"]),
            ("spec.containers[*]", &["7"]),
            ("spec.none", &[]),
            ("spec.nodeName.deeper", &[]),
            ("spec.nodeName[*]", &[]),
            ("spec.containers", &[]),
            ("spec.containers.image", &[]),
            ("status", &[]),
            ("status.phase", &[]),
            ("nothing", &[]),
        ] {
            assert_eq!(values(path, POD), found, "{path}");
        }
        assert_eq!(Field::new("spec..x").err().unwrap().path, "spec..x");
    }

    #[test]
    fn what_cannot_be_read_has_no_value() {
        for json in ["", "7", r#"{"a"#, r#"{"a":"b"#, r#"{"a":"\x"}"#, r#"{"a":[{"b":}"#] {
            assert_eq!(values("a", json), [""; 0], "{json}");
        }
        assert_eq!(values("a[*].b", r#"{"a":[{"b":"1"},{"b":2},{"b"#), ["1", "2"]);
    }
}
