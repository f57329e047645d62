//! Field-by-field comparison of responses. Versions and uids are bound to the recorded ones across all responses.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::mask::BOUND;

/// One place at which a response differs.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// A JSON pointer into the response.
    pub(crate) at: String,
    expected: Option<Value>,
    found: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<Value>| {
            let text = value.as_ref().map_or("(absent)".to_owned(), Value::to_string);
            text.chars().take(400).collect::<String>()
        };
        write!(
            f,
            "{}\n      expected {}\n      found    {}",
            self.at,
            shown(&self.expected),
            shown(&self.found)
        )
    }
}

/// The correspondence between recorded versions and uids and those of this server.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    recorded: BTreeMap<String, String>,
    found: BTreeMap<String, String>,
}

impl Bindings {
    /// Replaces the versions and uids of a new recording by numbers, in order of appearance.
    pub(crate) fn number(&mut self, answer: &mut Value) {
        match answer {
            Value::Object(map) => map.values_mut().for_each(|value| self.number(value)),
            Value::Array(list) => list.iter_mut().for_each(|value| self.number(value)),
            Value::String(text) => {
                if let Some(value) = text.strip_prefix(BOUND) {
                    let (sort, _) = value.split_once(' ').expect("a sort and a value");
                    let next = self.found.len() + 1;
                    *text = self
                        .found
                        .entry(value.to_owned())
                        .or_insert_with(|| format!("<{sort} {next}>"))
                        .clone();
                }
            }
            _ => {}
        }
    }

    /// Returns whether `found` can correspond to `recorded`: both are new, or they have been bound to each other
    /// before.
    fn agree(&mut self, recorded: &str, found: &str) -> bool {
        let (known, taken) = (self.recorded.get(recorded), self.found.get(found));
        match (known, taken) {
            (None, None) => {
                self.recorded.insert(recorded.to_owned(), found.to_owned());
                self.found.insert(found.to_owned(), recorded.to_owned());
                true
            }
            (known, taken) => known.is_some_and(|k| k == found) && taken.is_some_and(|t| t == recorded),
        }
    }

    /// Returns the differences of a response.
    pub(crate) fn compare(&mut self, expected: &Value, found: &Value) -> Vec<Difference> {
        let mut differences = Vec::new();
        self.descend("", Some(expected), Some(found), &mut differences);
        differences
    }

    fn descend(
        &mut self,
        at: &str,
        expected: Option<&Value>,
        found: Option<&Value>,
        out: &mut Vec<Difference>,
    ) {
        match (expected, found) {
            (Some(Value::Object(a)), Some(Value::Object(b))) => {
                let mut names: Vec<_> = a.keys().chain(b.keys()).collect();
                names.sort();
                names.dedup();
                for name in names {
                    let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                    self.descend(&at, a.get(name), b.get(name), out);
                }
                return;
            }
            (Some(Value::Array(a)), Some(Value::Array(b))) if a.len() == b.len() => {
                for (index, (a, b)) in a.iter().zip(b).enumerate() {
                    self.descend(&format!("{at}/{index}"), Some(a), Some(b), out);
                }
                return;
            }
            (Some(Value::String(a)), Some(Value::String(b))) if b.starts_with(BOUND) => {
                let same_sort = a.split(' ').next() == b.replace(BOUND, "<").split(' ').next();
                if same_sort && self.agree(a, b) {
                    return;
                }
            }
            (a, b) if a == b => return,
            _ => {}
        }
        out.push(Difference { at: at.to_owned(), expected: expected.cloned(), found: found.cloned() });
    }
}
