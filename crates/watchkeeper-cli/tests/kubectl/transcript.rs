//! The transcript: a text file of commands and their output, read and written.
//!
//! A step is a command after `$`, the exit code in brackets, and the lines that a real cluster answers with after `|`. Where our server is known
//! to differ, `~` gives the reason, and its own exit code and lines follow. Lines after `#` are titles.

use std::fmt::Write as _;

/// What a command gives: its exit code, and its lines with what a server chooses masked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) lines: Vec<String>,
}

/// A known difference.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    pub(crate) reason: String,
    pub(crate) ours: Outcome,
}

#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) titles: Vec<String>,
    pub(crate) command: String,
    pub(crate) real: Outcome,
    pub(crate) difference: Option<Difference>,
}

pub(crate) fn read(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut titles = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() {
            continue;
        }
        let (sign, rest) = line.split_at(1);
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        match (sign, steps.last_mut()) {
            ("#", _) => titles.push(rest.to_owned()),
            ("$", _) => {
                let titles = std::mem::take(&mut titles);
                steps.push(Step { titles, command: rest.to_owned(), ..Step::default() });
            }
            ("~", Some(step)) => {
                step.difference = Some(Difference { reason: rest.to_owned(), ..Difference::default() });
            }
            ("[" | "|", Some(step)) => {
                let outcome = match &mut step.difference {
                    Some(difference) => &mut difference.ours,
                    None => &mut step.real,
                };
                match rest.strip_suffix(']') {
                    Some(code) if sign == "[" => outcome.code = code.parse().unwrap(),
                    _ => outcome.lines.push(rest.to_owned()),
                }
            }
            _ => panic!("line {} of the transcript: {line}", number + 1),
        }
    }
    steps
}

pub(crate) fn write(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        for title in &step.titles {
            writeln!(text, "# {title}").unwrap();
        }
        writeln!(text, "$ {}", step.command).unwrap();
        write_outcome(&mut text, &step.real);
        if let Some(difference) = &step.difference {
            writeln!(text, "~ {}", difference.reason).unwrap();
            write_outcome(&mut text, &difference.ours);
        }
        text.push('\n');
    }
    text
}

fn write_outcome(text: &mut String, outcome: &Outcome) {
    writeln!(text, "[{}]", outcome.code).unwrap();
    for line in &outcome.lines {
        writeln!(text, "{}", format!("| {line}").trim_end()).unwrap();
    }
}
