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
    expected.iter().zip(found).find_map(|((asked, expected), (_, found))| {
        let mut places = Vec::new();
        descend("", expected, found, &mut places);
        (!places.is_empty()).then(|| Difference { asked: asked.clone(), places })
    })
}

/// Whether two texts differ only as docs/apiserver-conformance.md says they do.
fn explained(expected: &str, found: &str) -> bool {
    // Neither the object nor the patch is repeated.
    let patch = |text: &str| {
        let (head, told) = text.split_once("Invalid value: \"").unwrap_or(("", ""));
        let problem = told.split("\": strict decoding error: ").nth(1).unwrap_or_default().to_owned();
        (head.ends_with("patch: ") || head.is_empty()).then_some((head.to_owned(), problem))
    };
    let patches = expected.contains("Invalid value: \"")
        && patch(expected).is_some()
        && patch(expected) == patch(found);
    // The real server names some of what does not fit, in any order; all of it is named here.
    let typed = |text: &str| -> Option<Vec<String>> {
        let problems = text.strip_prefix("failed to create typed patch object ")?.split_once(": ")?.1;
        Some(problems.trim_start_matches("errors:").split("\n").map(|line| line.trim().to_owned()).collect())
    };
    let types =
        typed(expected).zip(typed(found)).is_some_and(|(some, all)| some.iter().all(|one| all.contains(one)));
    patches || types
}

fn descend(at: &str, expected: &Value, found: &Value, places: &mut Vec<(String, String)>) {
    match (expected, found) {
        (a, b) if a == b => {}
        (Value::String(a), Value::String(b)) if explained(a, b) => {}
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
