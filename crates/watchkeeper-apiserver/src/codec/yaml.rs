//! YAML decoding into JSON values that reports duplicate keys.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::{DuplicateKeyPolicy, Options, Spanned};

use crate::codec::json;
use crate::failure::quoted;

/// The prefix of the real server's message about YAML problems.
const PROBLEMS: &str = "yaml: unmarshal errors:\n";

/// Enough for some hundred levels, also in unoptimized builds. Untouched pages of the stack cost no memory.
const STACK: usize = 16 << 20;

/// Decodes YAML into JSON. Of duplicate keys the last value wins; the second part reports them. An error gives the
/// position and never the content: the body may be a Secret.
pub(crate) fn read(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    let mut options = Options::default();
    options.duplicate_keys = DuplicateKeyPolicy::LastWins;
    // The parser's depth limit must not be below that of objects.
    if let Some(budget) = &mut options.budget {
        budget.max_depth = json::DEPTH_LIMIT + 4;
        budget.max_nodes = usize::MAX;
    }
    // The parser recurses, with a large frame per level.
    let read = stacker::grow(STACK, || serde_saphyr::from_slice_with_options::<Tree>(body, options));
    let tree = read.map_err(|error| match error.location() {
        Some(at) => format!("malformed at line {} column {}", at.line(), at.column()),
        None => "malformed".to_owned(),
    })?;
    let duplicates: Vec<_> = tree.duplicates.iter().map(|line| format!("  {line}")).collect();
    let problem = (!duplicates.is_empty()).then(|| format!("{PROBLEMS}{}", duplicates.join("\n")));
    Ok((tree.value, problem.into_iter().collect()))
}

/// Splits a problem into warnings: one per line of a YAML problem.
pub(crate) fn lines(problem: &str) -> impl Iterator<Item = String> {
    problem.strip_prefix(PROBLEMS).unwrap_or(problem).lines().map(|line| line.trim_start().to_owned())
}

/// A value, and the duplicate keys found in it.
#[derive(Default)]
struct Tree {
    value: Value,
    duplicates: Vec<String>,
}

impl From<Value> for Tree {
    fn from(value: Value) -> Self {
        Self { value, duplicates: Vec::new() }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value that JSON can represent")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Tree, E> {
        Ok(Value::from(value).into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Tree, E> {
        Ok(Value::from(value).into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Tree, E> {
        Ok(Value::from(value).into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Tree, E> {
        Ok(json::plain_number(value).into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Tree, E> {
        Ok(Value::from(value).into())
    }

    fn visit_unit<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::default())
    }

    fn visit_none<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(Self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Tree, A::Error> {
        let (mut list, mut duplicates) = (Vec::new(), Vec::new());
        while let Some(mut element) = elements.next_element::<Tree>()? {
            list.push(element.value);
            duplicates.append(&mut element.duplicates);
        }
        Ok(Tree { value: list.into(), duplicates })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Tree, A::Error> {
        let (mut map, mut duplicates) = (Map::new(), Vec::new());
        while let Some(key) = fields.next_key::<Spanned<String>>()? {
            let mut field = fields.next_value::<Tree>()?;
            if map.contains_key(&key.value) {
                let line = key.referenced.line();
                duplicates.push(format!("line {line}: key {} already set in map", quoted(&key.value)));
            }
            map.insert(key.value, field.value);
            duplicates.append(&mut field.duplicates);
        }
        Ok(Tree { value: map.into(), duplicates })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_is_read_as_json() {
        let (value, duplicates) = read(b"a: {b: [1, x, true, -2, 1.5, ~, \"3\"]}\n1: |\n  text\n").unwrap();
        assert_eq!(value, serde_json::json!({"a": {"b": [1, "x", true, -2, 1.5, null, "3"]}, "1": "text\n"}));
        assert_eq!(duplicates, [""; 0]);
        assert_eq!(read(b"a: [").unwrap_err(), "malformed at line 1 column 4");
        assert_eq!(read(b"").unwrap().0, Value::Null);
    }

    #[test]
    fn a_text_nested_without_end_is_refused() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(read(nested(50).as_bytes()).is_ok());
        assert!(read(nested(100_000).as_bytes()).is_err());
    }

    #[test]
    fn keys_that_are_there_duplicates_are_named_and_the_last_one_counts() {
        let (value, duplicates) = read(b"a:\n  b: 1\n  b: 2\nc:\n- d: one\n  d: two\na: {b: 3}\n").unwrap();
        assert_eq!(value, serde_json::json!({"a": {"b": 3}, "c": [{"d": "two"}]}));
        let expected = [
            "line 3: key \"b\" already set in map",
            "line 6: key \"d\" already set in map",
            "line 7: key \"a\" already set in map",
        ];
        assert_eq!(duplicates, [format!("yaml: unmarshal errors:\n  {}", expected.join("\n  "))]);
        assert_eq!(lines(&duplicates[0]).collect::<Vec<_>>(), expected);
        assert_eq!(lines("unknown field").collect::<Vec<_>>(), ["unknown field"]);
    }
}
