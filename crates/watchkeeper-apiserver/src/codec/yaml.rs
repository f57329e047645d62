//! Is every key of a YAML text there once? A reader that gives it as JSON, with the last of those that are there twice, and names them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::{DuplicateKeyPolicy, Options, Spanned};

use crate::codec::json;
use crate::failure::quoted;

/// How the real server begins to say what is wrong with a YAML text.
const PROBLEMS: &str = "yaml: unmarshal errors:\n";

/// For some hundred levels, also without optimization. Only what is used of it costs memory.
const STACK: usize = 16 << 20;

/// YAML as JSON, and what to say about keys that are there more than once. The error says where, not what: the body may be a Secret.
pub(crate) fn read(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    let mut options = Options::default();
    options.duplicate_keys = DuplicateKeyPolicy::LastWins;
    // As deep as an object may be, and hardly deeper.
    if let Some(budget) = &mut options.budget {
        budget.max_depth = json::DEPTH_LIMIT + 4;
        budget.max_nodes = usize::MAX;
    }
    // Each level takes a good piece of the stack.
    let read = stacker::grow(STACK, || serde_saphyr::from_slice_with_options::<Tree>(body, options));
    let tree = read.map_err(|error| match error.location() {
        Some(at) => format!("malformed at line {} column {}", at.line(), at.column()),
        None => "malformed".to_owned(),
    })?;
    let twice: Vec<_> = tree.twice.iter().map(|line| format!("  {line}")).collect();
    let problem = (!twice.is_empty()).then(|| format!("{PROBLEMS}{}", twice.join("\n")));
    Ok((tree.value, problem.into_iter().collect()))
}

/// What is to be told of a problem: of a YAML text, each of its lines.
pub(crate) fn lines(problem: &str) -> impl Iterator<Item = String> {
    problem.strip_prefix(PROBLEMS).unwrap_or(problem).lines().map(|line| line.trim_start().to_owned())
}

/// A value, and what was found twice in it.
#[derive(Default)]
struct Tree {
    value: Value,
    twice: Vec<String>,
}

impl From<Value> for Tree {
    fn from(value: Value) -> Self {
        Self { value, twice: Vec::new() }
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
        f.write_str("any YAML value that JSON can say")
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
        let (mut list, mut twice) = (Vec::new(), Vec::new());
        while let Some(mut element) = elements.next_element::<Tree>()? {
            list.push(element.value);
            twice.append(&mut element.twice);
        }
        Ok(Tree { value: list.into(), twice })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Tree, A::Error> {
        let (mut map, mut twice) = (Map::new(), Vec::new());
        while let Some(key) = fields.next_key::<Spanned<String>>()? {
            let mut field = fields.next_value::<Tree>()?;
            if map.contains_key(&key.value) {
                let line = key.referenced.line();
                twice.push(format!("line {line}: key {} already set in map", quoted(&key.value)));
            }
            map.insert(key.value, field.value);
            twice.append(&mut field.twice);
        }
        Ok(Tree { value: map.into(), twice })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_is_read_as_json() {
        let (value, twice) = read(b"a: {b: [1, x, true, -2, 1.5, ~, \"3\"]}\n1: |\n  text\n").unwrap();
        assert_eq!(value, serde_json::json!({"a": {"b": [1, "x", true, -2, 1.5, null, "3"]}, "1": "text\n"}));
        assert_eq!(twice, [""; 0]);
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
    fn keys_that_are_there_twice_are_named_and_the_last_one_counts() {
        let (value, twice) = read(b"a:\n  b: 1\n  b: 2\nc:\n- d: one\n  d: two\na: {b: 3}\n").unwrap();
        assert_eq!(value, serde_json::json!({"a": {"b": 3}, "c": [{"d": "two"}]}));
        let expected = [
            "line 3: key \"b\" already set in map",
            "line 6: key \"d\" already set in map",
            "line 7: key \"a\" already set in map",
        ];
        assert_eq!(twice, [format!("yaml: unmarshal errors:\n  {}", expected.join("\n  "))]);
        assert_eq!(lines(&twice[0]).collect::<Vec<_>>(), expected);
        assert_eq!(lines("unknown field").collect::<Vec<_>>(), ["unknown field"]);
    }
}
