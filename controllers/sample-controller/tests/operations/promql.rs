//! The names in an expression of PromQL: which metrics it reads, and by which labels.

use std::collections::{BTreeMap, BTreeSet};

/// The labels of each series, without those of its target.
pub(crate) type Series = BTreeMap<String, BTreeSet<String>>;

/// Labels that Prometheus adds to every series of a target.
const TARGET: [&str; 5] = ["namespace", "job", "pod", "instance", "container"];
/// Functions and aggregations that our files use.
const FUNCTIONS: [&str; 8] =
    ["absent", "histogram_quantile", "increase", "max", "min", "rate", "sum", "time"];
/// Words before a list of labels.
const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(char),
}

/// The words and symbols of an expression, without strings, numbers and ranges of time.
fn tokens(expression: &str) -> Vec<Token> {
    let (mut tokens, mut rest) = (Vec::new(), expression.trim_start());
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.');
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => rest[1..].find('"').unwrap() + 2,
            '[' => rest.find(']').unwrap() + 1,
            _ if is_inner(first) => rest.find(|c| !is_inner(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let text = &rest[..length];
        match first {
            '"' | '[' => {}
            _ if first.is_ascii_alphabetic() || first == '_' => tokens.push(Token::Word(text.to_owned())),
            _ if first.is_ascii_digit() => {}
            _ => tokens.push(Token::Symbol(first)),
        }
        rest = rest[length..].trim_start();
    }
    tokens
}

/// The words up to the symbol that closes a list.
fn list<'a>(tokens: &mut impl Iterator<Item = &'a Token>, end: char) -> Vec<&'a str> {
    let mut words = Vec::new();
    for token in tokens {
        match token {
            Token::Word(word) => words.push(word.as_str()),
            Token::Symbol(symbol) if *symbol == end => break,
            Token::Symbol(_) => {}
        }
    }
    words
}

/// What is wrong with an expression: metrics, labels and functions that do not exist.
pub(crate) fn problems(expression: &str, series: &Series) -> Vec<String> {
    let tokens = tokens(expression);
    let (mut tokens, mut problems) = (tokens.iter().peekable(), Vec::new());
    let (mut grouping, mut labels) = (Vec::new(), BTreeSet::from(TARGET));
    while let Some(token) = tokens.next() {
        let Token::Word(word) = token else { continue };
        if FUNCTIONS.contains(&word.as_str()) || OPERATORS.contains(&word.as_str()) {
            continue;
        }
        if GROUPING.contains(&word.as_str()) {
            grouping.extend(list(&mut tokens, ')'));
            continue;
        }
        if tokens.peek() == Some(&&Token::Symbol('(')) {
            problems.push(format!("function {word}"));
            continue;
        }
        let matched = match tokens.peek() {
            Some(Token::Symbol('{')) => list(&mut tokens, '}'),
            _ => Vec::new(),
        };
        let Some(known) = series.get(word) else {
            problems.push(format!("metric {word}"));
            continue;
        };
        labels.extend(known.iter().map(String::as_str));
        let is_unknown = |label: &&str| !known.contains(*label) && !TARGET.contains(label);
        problems
            .extend(matched.into_iter().filter(is_unknown).map(|label| format!("label {label} of {word}")));
    }
    let is_unknown = |label: &&str| !labels.contains(*label);
    problems.extend(grouping.into_iter().filter(is_unknown).map(|label| format!("label {label}")));
    problems
}

#[test]
fn what_an_expression_reads_and_what_does_not_exist_is_found() {
    let labels = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let series = Series::from([
        ("up_total".to_owned(), labels(&["kind"])),
        ("slow_bucket".to_owned(), labels(&["le"])),
    ]);
    let found = |expression: &str| problems(expression, &series);
    for right in [
        r#"sum by (job, kind) (rate(up_total{kind=~"a|b", pod!="{x}"}[5m])) > 1.5e3"#,
        "(up_total > 1) unless on (pod) (up_total == 0)",
        "histogram_quantile(0.99, sum by (le) (rate(slow_bucket[$__rate_interval])))",
    ] {
        assert_eq!(found(right), [""; 0], "{right}");
    }
    assert_eq!(found("down_total"), ["metric down_total"]);
    assert_eq!(found(r#"up_total{sort="x"}"#), ["label sort of up_total"]);
    assert_eq!(found("sum by (le) (up_total)"), ["label le"]);
    assert_eq!(found("guess(up_total)"), ["function guess"]);
}
