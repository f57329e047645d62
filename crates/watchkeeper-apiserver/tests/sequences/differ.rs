//! The first difference between two transcripts, field by field.

use std::fmt;

use serde_json::Value;

use crate::server::Transcript;

/// A response that differs.
pub(crate) struct Difference {
    /// The request.
    pub(crate) asked: String,
    /// The places in the response, each with the values of both servers.
    places: Vec<(String, String)>,
}

impl Difference {
    /// Returns what differences with the same cause have in common.
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

/// Returns the first difference; `expected` is the transcript of the real server.
pub(crate) fn first(expected: &Transcript, found: &Transcript) -> Option<Difference> {
    expected.answers.iter().zip(&found.answers).find_map(|((asked, expected), (_, found))| {
        let mut places = Vec::new();
        descend("", expected, found, &mut places);
        (!places.is_empty()).then(|| Difference { asked: asked.clone(), places })
    })
}

/// Returns whether both servers processed every request within the same second. Managed fields are ordered by the
/// second of the write: a write that only changes this order makes a new version, and none within the same second.
pub(crate) fn same_seconds(expected: &Transcript, found: &Transcript) -> bool {
    expected.seconds == found.seconds && expected.seconds.iter().all(|(sent, answered)| sent == answered)
}

/// Returns whether two texts differ only in ways that docs/apiserver-conformance.md explains.
fn explained(expected: &str, found: &str) -> bool {
    let patches = around_patch(expected).is_some() && around_patch(expected) == around_patch(found);
    let types = problems(expected).zip(problems(found)).is_some_and(|(some, all)| is_cut_short(&some, &all));
    patches || types
}

/// Returns the text before and after the quoted patch, which the embedded server does not repeat.
fn around_patch(text: &str) -> Option<(&str, &str)> {
    let (head, quoted) = text.split_once("Invalid value: \"")?;
    let mut escaped = false;
    let end = quoted.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    })?;
    (head.is_empty() || head.ends_with("patch: ")).then(|| (head, &quoted[end..]))
}

/// Returns the problems of an apply that does not match its schema.
fn problems(text: &str) -> Option<Vec<&str>> {
    let problems = text.strip_prefix("failed to create typed patch object ")?.split_once(": ")?.1;
    Some(
        problems
            .trim_start_matches("errors:")
            .split('\n')
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect(),
    )
}

/// Returns whether `some` are the problems of `all` up to the first unknown field of each map, where the real server
/// stops, in any order.
fn is_cut_short(some: &[&str], all: &[&str]) -> bool {
    let stops: Vec<_> = some
        .iter()
        .filter_map(|problem| problem.strip_suffix(": field not declared in schema")?.rsplit_once('.'))
        .map(|(map, _)| format!("{map}."))
        .collect();
    let skipped = |problem: &&&str| stops.iter().any(|map| problem.starts_with(map.as_str()));
    some.iter().all(|problem| all.contains(problem))
        && all.iter().filter(|problem| !some.contains(problem)).all(|problem| skipped(&problem))
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
