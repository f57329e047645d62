//! Label and field selectors: parsing and matching.

use std::sync::Arc;

use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::kinds::behaviour::Behaviour;
use crate::kinds::kind::Kind;
use crate::state::store::Stored;

/// The label and field selectors of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

#[derive(Clone, Debug)]
struct FieldRequirement {
    /// The path in stored objects.
    field: String,
    /// How the kind reads the field, where it is not indexed.
    behaviour: Option<&'static dyn Behaviour>,
    value: String,
    equal: bool,
}

impl Selector {
    pub(crate) fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self> {
        Ok(Self { labels: parse_labels(labels)?, fields: parse_fields(kind, fields)? })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, stored: &Stored) -> bool {
        self.labels.iter().all(|requirement| {
            let at = stored.labels.binary_search_by(|(key, _)| key.as_str().cmp(&requirement.key));
            requirement.matches(at.ok().map(|at| stored.labels[at].1.as_str()))
        }) && self.fields.iter().all(|requirement| requirement.matches(stored))
    }

    /// Returns whether the selector matches at most one name.
    pub(crate) fn is_of_one_name(&self) -> bool {
        self.fields.iter().any(|requirement| requirement.field == "metadata.name" && requirement.equal)
    }

    /// Restricts the selector to one name.
    pub(crate) fn and_name(mut self, name: &str) -> Self {
        self.fields.push(FieldRequirement {
            field: "metadata.name".to_owned(),
            behaviour: None,
            value: name.to_owned(),
            equal: true,
        });
        self
    }
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.iter().any(|v| v == value)),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::Above(bound) => number().is_some_and(|number| number > *bound),
            Test::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

impl FieldRequirement {
    fn matches(&self, stored: &Stored) -> bool {
        let found = match self.field.as_str() {
            "metadata.name" => stored.key.name == self.value,
            "metadata.namespace" => stored.key.namespace == self.value,
            field => match stored.fields.iter().find(|(path, _)| **path == *field) {
                Some((_, value)) => *value == self.value,
                // The object was stored before the kind made this field selectable.
                None => {
                    let read = |behaviour| field_value(behaviour, &stored.value(), field);
                    self.behaviour.map(read).unwrap_or_default() == self.value
                }
            },
        };
        found == self.equal
    }
}

/// Extracts the values of a kind's selectable fields when an object is stored, so that watches need not decode it.
pub(crate) fn selectable(kind: &Kind, value: &Value) -> Vec<(Arc<str>, String)> {
    let paths = kind.selectable().iter();
    paths.map(|path| (path.clone(), field_value(kind.behaviour, value, path))).collect()
}

fn field_value(behaviour: &dyn Behaviour, value: &Value, path: &str) -> String {
    let special = behaviour.field_value(value, path);
    special.unwrap_or_else(|| text(path.split('.').fold(value, |at, part| &at[part])))
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn parse_fields(kind: &Kind, text: &str) -> Result<Vec<FieldRequirement>> {
    let mut requirements = Vec::new();
    for term in split_unescaped(text) {
        if term.is_empty() {
            continue;
        }
        let at =
            ["!=", "==", "="].iter().filter_map(|op| find_unescaped(&term, op).map(|at| (at, *op))).min();
        let Some((at, operator)) = at else {
            return Err(Failure::bad_request(format!(
                "invalid selector: '{text}'; can't understand '{term}'"
            )));
        };
        // `=` is a prefix of `==`: prefer the longer operator.
        let operator = if term[at..].starts_with("==") { "==" } else { operator };
        let label = term[..at].trim();
        let value = unescape(&term[at + operator.len()..]);
        let Some(field) = kind.stored_field(label) else {
            return Err(Failure::bad_request(if kind.custom.is_none() && kind.fields.is_empty() {
                format!(
                    "\"{label}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                )
            } else {
                format!("field label not supported: {label}")
            }));
        };
        let behaviour = Some(kind.behaviour);
        requirements.push(FieldRequirement { field, behaviour, value, equal: operator != "!=" });
    }
    Ok(requirements)
}

fn split_unescaped(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    parts
}

fn find_unescaped(term: &str, operator: &str) -> Option<usize> {
    term.match_indices(operator).map(|(at, _)| at).find(|at| !term[..*at].ends_with('\\'))
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next().unwrap_or('\\') } else { c });
    }
    out
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Symbol(&'static str),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Symbol(symbol) => symbol,
            Self::End => "",
        }
    }
}

fn tokens(text: &str) -> Vec<Token> {
    const SYMBOLS: &[&str] = &["==", "!=", "=", "!", ",", "(", ")", ">", "<"];
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || "=!,()<>".contains(c)).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    tokens.push(Token::End);
    tokens
}

fn expected(found: &Token, expected: &str) -> Box<Failure> {
    Failure::bad_request(format!("found '{}', expected: {expected}", found.text()))
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>> {
    let mut tokens = tokens(text).into_iter().peekable();
    let mut next = move || tokens.next().unwrap_or(Token::End);
    let mut requirements = Vec::new();
    let mut token = next();
    if token == Token::End {
        return Ok(requirements);
    }
    loop {
        let absent = token == Token::Symbol("!");
        if absent {
            token = next();
        }
        let Token::Word(key) = token else {
            return Err(expected(&token, "!, identifier, or 'end of string'"));
        };
        check_key(&key)?;
        let operator = if absent { Token::End } else { next() };
        let (test, after) = match &operator {
            Token::End if absent => (Test::Absent, next()),
            Token::End | Token::Symbol(",") => (Test::Exists, operator.clone()),
            Token::Symbol("=" | "==" | "!=") => {
                let (value, after) = match next() {
                    Token::Word(word) => (word, next()),
                    after @ (Token::End | Token::Symbol(",")) => (String::new(), after),
                    other => return Err(expected(&other, "identifier")),
                };
                check_value(&key, &value)?;
                let not = operator == Token::Symbol("!=");
                (if not { Test::NotIn(vec![value]) } else { Test::In(vec![value]) }, after)
            }
            Token::Symbol(symbol @ (">" | "<")) => {
                let value = next();
                let bound = value.text().parse().map_err(|_| {
                    Failure::bad_request(format!(
                        "values[0][{key}]: Invalid value: \"{}\": for 'Gt', 'Lt' operators, the value must be an integer",
                        value.text()
                    ))
                })?;
                (if *symbol == ">" { Test::Above(bound) } else { Test::Below(bound) }, next())
            }
            Token::Word(word) if word == "in" || word == "notin" => {
                let values = parse_set(&mut next)?;
                for value in &values {
                    check_value(&key, value)?;
                }
                (if word == "in" { Test::In(values) } else { Test::NotIn(values) }, next())
            }
            other => return Err(expected(other, "=, !=, ==, in, notin, >, <")),
        };
        requirements.push(Requirement { key, test });
        match after {
            Token::End => return Ok(requirements),
            Token::Symbol(",") => token = next(),
            other => return Err(expected(&other, "',' or 'end of string'")),
        }
        if token == Token::End {
            return Err(expected(&token, "identifier after ','"));
        }
    }
}

fn parse_set(next: &mut impl FnMut() -> Token) -> Result<Vec<String>> {
    let open = next();
    if open != Token::Symbol("(") {
        return Err(expected(&open, "'('"));
    }
    let mut values = Vec::new();
    let mut last = String::new();
    loop {
        match next() {
            Token::Word(word) => last = word,
            Token::Symbol(",") => values.push(std::mem::take(&mut last)),
            Token::Symbol(")") => {
                values.push(last);
                return Ok(values);
            }
            other => return Err(expected(&other, "',', or ')'")),
        }
    }
}

fn check_key(key: &str) -> Result<()> {
    match crate::kinds::meta::qualified_name_problem(key) {
        None => Ok(()),
        Some(problem) => Err(Failure::bad_request(format!("key: Invalid value: \"{key}\": {problem}"))),
    }
}

fn check_value(key: &str, value: &str) -> Result<()> {
    match crate::kinds::meta::label_value_problem(value) {
        None => Ok(()),
        Some(problem) => {
            Err(Failure::bad_request(format!("values[0][{key}]: Invalid value: \"{value}\": {problem}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::registry::Registry;
    use crate::state::store::Key;

    fn kind(plural: &str) -> Arc<Kind> {
        Registry::new().find("", "v1", plural).unwrap().clone()
    }

    fn pod(labels: &Value, extra: &Value) -> Stored {
        let kind = kind("pods");
        let mut value = json!({"kind": kind.kind, "apiVersion": "v1", "metadata": {"labels": labels}});
        value["spec"] = extra.clone();
        Stored::encode(&kind, Key::new("d", "p"), 1, &value)
    }

    #[test]
    fn every_operator_of_label_selectors_is_understood() {
        let stored = pod(&json!({"a": "b", "n": "4"}), &json!({}));
        for (selector, expected) in [
            ("", true),
            ("a=b", true),
            ("a==b", true),
            ("a=c", false),
            ("a!=c", true),
            ("x!=c", true),
            ("a in (c, b)", true),
            ("a notin (b)", false),
            ("x notin (b)", true),
            ("a", true),
            ("x", false),
            ("!x", true),
            ("!a", false),
            ("n>3", true),
            ("n<4", false),
            ("a=b,n>3", true),
            ("a=b, !n", false),
            ("a=,x", false),
        ] {
            let parsed = Selector::parse(&kind("pods"), selector, "").unwrap();
            assert_eq!(parsed.matches(&stored), expected, "{selector}");
        }
    }

    #[test]
    fn a_malformed_label_selector_is_refused_by_name() {
        let error = Selector::parse(&kind("pods"), "==bad=", "").unwrap_err();
        assert_eq!(error.message, "found '==', expected: !, identifier, or 'end of string'");
        for bad in ["a b", "a in b", "a in (b", "a>x", "a,", "a=b c", "-bad=1"] {
            assert_eq!(Selector::parse(&kind("pods"), bad, "").unwrap_err().code, 400, "{bad}");
        }
    }

    #[test]
    fn field_selectors_read_the_fields_of_their_kind() {
        let stored = pod(&json!({}), &json!({"nodeName": "n1"}));
        for (selector, expected) in [
            ("spec.nodeName=n1", true),
            ("spec.host=n1", true),
            ("spec.nodeName!=n1", false),
            ("spec.nodeName==n2", false),
            ("metadata.name=p,metadata.namespace=d", true),
            ("metadata.name!=p", false),
            ("spec.hostNetwork=false", true),
            ("status.phase=", true),
        ] {
            let parsed = Selector::parse(&kind("pods"), "", selector).unwrap();
            assert_eq!(parsed.matches(&stored), expected, "{selector}");
        }
    }

    #[test]
    fn unknown_fields_are_refused_in_the_words_of_their_kind() {
        let error = Selector::parse(&kind("configmaps"), "", "data.a=b").unwrap_err();
        assert_eq!(
            error.message,
            r#""data.a" is not a known field selector: only "metadata.name", "metadata.namespace""#
        );
        let error = Selector::parse(&kind("pods"), "", "spec.foo=b").unwrap_err();
        assert_eq!(error.message, "field label not supported: spec.foo");
    }
}
