//! The JSON path subset of printer columns: fields, indexes and equality filters.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(usize),
    All,
    /// `[?(@.type=="Ready")]`.
    Where(String, String),
}

/// A path such as `.status.conditions[?(@.type=="Ready")].status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path(Vec<Step>);

impl Path {
    /// Parses a path; an unsupported one matches nothing.
    pub(crate) fn read(text: &str) -> Self {
        let mut steps = Vec::new();
        let mut rest = text.trim().trim_start_matches(['$', '{']).trim_end_matches('}');
        while !rest.is_empty() {
            rest = rest.trim_start_matches('.');
            if let Some(inside) = rest.strip_prefix('[') {
                let end = closing(inside);
                let (bracket, after) = inside.split_at(end.min(inside.len()));
                rest = after.strip_prefix(']').unwrap_or(after);
                steps.push(bracketed(bracket));
                continue;
            }
            let mut name = String::new();
            let mut chars = rest.char_indices();
            let mut end = rest.len();
            while let Some((at, c)) = chars.next() {
                match c {
                    '\\' => name.extend(chars.next().map(|(_, escaped)| escaped)),
                    '.' | '[' => {
                        end = at;
                        break;
                    }
                    c => name.push(c),
                }
            }
            rest = &rest[end..];
            if !name.is_empty() {
                steps.push(Step::Field(name));
            }
        }
        Self(steps)
    }

    /// Returns the first value that the path matches.
    pub(crate) fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        find(&self.0, value)
    }
}

fn find<'a>(steps: &[Step], value: &'a Value) -> Option<&'a Value> {
    let Some((step, rest)) = steps.split_first() else { return Some(value) };
    match step {
        Step::Field(name) => find(rest, value.get(name)?),
        Step::Index(at) => find(rest, value.get(at)?),
        Step::All => value.as_array()?.iter().find_map(|element| find(rest, element)),
        Step::Where(field, wanted) => {
            let fits =
                |element: &&Value| element.get(field).is_some_and(|found| found.as_str() == Some(wanted));
            value.as_array()?.iter().filter(fits).find_map(|element| find(rest, element))
        }
    }
}

/// Returns the position of the closing bracket, skipping quoted ones.
fn closing(text: &str) -> usize {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, ']') => return at,
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
    }
    text.len()
}

fn bracketed(text: &str) -> Step {
    let unquoted = |text: &str| text.trim().trim_matches(['\'', '"']).to_owned();
    if text == "*" {
        return Step::All;
    }
    if let Ok(index) = text.parse() {
        return Step::Index(index);
    }
    let condition = text.strip_prefix("?(").and_then(|inner| inner.strip_suffix(')'));
    match condition.and_then(|condition| condition.split_once("==")) {
        Some((field, wanted)) => {
            Step::Where(unquoted(field.trim().trim_start_matches("@.")), unquoted(wanted))
        }
        None => Step::Field(unquoted(text)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_through_fields_indexes_and_conditions() {
        let object = json!({"spec": {"a.b": 1, "list": [{"n": 1}, {"n": 2}]}, "status": {"conditions": [
            {"type": "A", "status": "no"}, {"type": "Ready", "status": "yes"}]}});
        for (path, expected) in [
            (".spec.list[1].n", json!(2)),
            (".spec.list[*].n", json!(1)),
            (r".spec.a\.b", json!(1)),
            (".spec['a.b']", json!(1)),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!("yes")),
            ("{.spec.list[0].n}", json!(1)),
        ] {
            assert_eq!(Path::read(path).find(&object), Some(&expected), "{path}");
        }
        assert_eq!(Path::read(".spec.none.x").find(&object), None);
    }
}
