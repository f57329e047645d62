//! Known deviations: the rows of docs/apiserver-conformance.md, each of which must still apply.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::compare::Difference;

#[derive(Debug)]
struct Row {
    step: String,
    at: String,
}

/// The table of known deviations.
#[derive(Debug)]
pub(crate) struct Deviations {
    rows: Vec<Row>,
    seen: BTreeSet<usize>,
}

impl Deviations {
    /// For a server that must not deviate.
    pub(crate) fn none() -> Self {
        Self { rows: Vec::new(), seen: BTreeSet::new() }
    }

    /// Reads the rows `| step | where | why |`, with one step and one JSON pointer each, both in backticks.
    pub(crate) fn read() -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/apiserver-conformance.md");
        let text = fs::read_to_string(&file).unwrap();
        let mut rows = Vec::new();
        for line in text.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [step, at, why] = cells[..] else { panic!("a row has three cells: {line}") };
            assert!(!why.is_empty(), "a row has a reason: {line}");
            let plain = |cell: &str| cell.trim_matches('`').to_owned();
            rows.push(Row { step: plain(step), at: plain(at).trim_end_matches('/').to_owned() });
        }
        Self { rows, seen: BTreeSet::new() }
    }

    /// Returns the differences that no row explains.
    pub(crate) fn unexplained(&mut self, step: &str, differences: Vec<Difference>) -> Vec<Difference> {
        let mut left = Vec::new();
        for difference in differences {
            let explains = |row: &Row| {
                let rest = difference.at.strip_prefix(&row.at);
                row.step == step && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            match self.rows.iter().position(explains) {
                Some(row) => drop(self.seen.insert(row)),
                None => left.push(difference),
            }
        }
        left
    }

    /// Returns the rows that explained nothing.
    pub(crate) fn stale(&self) -> Vec<String> {
        let rows = self.rows.iter().enumerate().filter(|(at, _)| !self.seen.contains(at));
        rows.map(|(_, row)| format!("{} at {}", row.step, row.at)).collect()
    }
}
