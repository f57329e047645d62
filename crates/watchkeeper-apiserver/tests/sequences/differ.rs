//! Where do two stories part? At the first answer that differs, field by field.

use std::fmt;

use serde_json::Value;

use crate::server::Story;

/// One answer that is not the same.
pub(crate) struct Difference {
    /// What was asked.
    pub(crate) asked: String,
    /// The places in the answer, each with what both servers have there.
    places: Vec<(String, String)>,
}

impl Difference {
    /// What differences of one cause have in common.
    pub(crate) fn sort(&self) -> String {
        let places: Vec<_> = self.places.iter().map(|(place, _)| place.as_str()).collect();
        let (method, path) = self.asked.split_once(' ').unwrap_or_default();
        let path = path.split_once("/wkspace/").map_or("", |(_, path)| path);
        format!("{method} {} {}", path.split([' ', '?']).next().unwrap_or_default(), places.join(" "))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {}", self.asked)?;
        self.places.iter().try_for_each(|(place, values)| writeln!(f, "  {place}\n{values}"))
    }
}

/// The first difference; `expected` is what the real server said.
pub(crate) fn first(expected: &Story, found: &Story) -> Option<Difference> {
    let parted = expected.iter().zip(found).find(|(a, b)| a.1 != b.1);
    let ((asked, expected), (_, found)) = parted?;
    let mut places = Vec::new();
    descend("", expected, found, &mut places);
    Some(Difference { asked: asked.clone(), places })
}

fn descend(at: &str, expected: &Value, found: &Value, places: &mut Vec<(String, String)>) {
    match (expected, found) {
        (a, b) if a == b => {}
        (Value::Object(a), Value::Object(b)) => {
            let mut names: Vec<_> = a.keys().chain(b.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let get = |map: &serde_json::Map<String, Value>| {
                    map.get(name).cloned().unwrap_or("(absent)".into())
                };
                descend(&format!("{at}/{name}"), &get(a), &get(b), places);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                descend(&format!("{at}/{index}"), a, b, places);
            }
        }
        (a, b) => {
            let short = |value: &Value| value.to_string().chars().take(1200).collect::<String>();
            places.push((at.to_owned(), format!("    expected {}\n    found    {}", short(a), short(b))));
        }
    }
}
