//! Positions in a rule, and the text of its compile errors.

use kube_cel::cel::parser::{ParseErrors, Parser};

/// What is wrong at a position: line and column, both from 1.
pub(super) struct Mark {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) message: String,
}

/// Returns the positions of parts of a rule by their ids in its syntax tree.
///
/// The parser keeps positions only for its errors, so the rule is parsed once more as the first element of a list
/// whose second element is an error. The list takes the first id, and the ids of the rule follow.
pub(super) fn of(rule: &str, ids: &[u64]) -> Vec<(usize, usize)> {
    let parsed = Parser::new().parse(&format!("[{rule}\n, has(0)]"));
    let info = parsed.err().and_then(|failed| failed.errors.into_iter().next()?.source_info);
    let offset = |id: u64| Some(info.as_ref()?.offset_for(id + 1)?.0.saturating_sub(1) as usize);
    ids.iter().map(|id| offset(*id).map_or((1, 1), |offset| line_and_column(rule, offset))).collect()
}

fn line_and_column(rule: &str, offset: usize) -> (usize, usize) {
    let before = &rule[..rule.floor_char_boundary(offset)];
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count());
    (before.matches('\n').count() + 1, column + 1)
}

/// Returns the problems of a text that is no expression.
pub(super) fn of_syntax(errors: &ParseErrors) -> Vec<Mark> {
    let mark = |position: isize| usize::try_from(position).unwrap_or(0).max(1);
    let errors = errors.errors.iter();
    errors
        .map(|error| Mark { line: mark(error.pos.0), column: mark(error.pos.1), message: error.msg.clone() })
        .collect()
}

/// Writes problems as the real server does: each with its line of the rule and a mark below.
pub(super) fn shown(rule: &str, marks: &[Mark]) -> String {
    let texts: Vec<_> = marks.iter().map(|mark| one(rule, mark)).collect();
    texts.join("\n")
}

fn one(rule: &str, Mark { line, column, message }: &Mark) -> String {
    let text = format!("ERROR: <input>:{line}:{column}: {message}");
    let Some(shown) = rule.split('\n').nth(line - 1) else { return text };
    // Wide letters get a wide dot.
    let dots: String =
        shown.chars().take(column - 1).map(|letter| if letter.is_ascii() { '.' } else { '．' }).collect();
    let hand = if shown.chars().nth(column - 1).is_none_or(|letter| letter.is_ascii()) { '^' } else { '＾' };
    format!("{text}\n | {}\n | {dots}{hand}", shown.replace('\t', " "))
}
