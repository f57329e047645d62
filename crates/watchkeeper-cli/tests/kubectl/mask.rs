//! Masks what may differ between two runs of one command: uids, versions, times, ages, addresses and the width of columns.

use regex::Regex;

/// Pairs of what a server or the clock chooses and the word that stands for it.
const MASKS: &[(&str, &str)] = &[
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
    (r#"([rR]esource ?Version\W+)\d+"#, "${1}VERSION"),
    (r"\b10\.0\.\d+\.\d+\b", "ADDRESS"),
    // Of Pods and nodes.
    (r"\b(10\.24[4-7]|172\.18)\.\d+\.\d+\b", "ADDRESS"),
    // What controllers append to the names of sets and Pods: a hash of the template, and a suffix.
    (r"\b([a-z]+)-[bcdf4-9]{7,10}-[bcdfghjklmnpqrstvwxz2-9]{5}\b", "$1-HASH-SUFFIX"),
    (r"(-hash=|\b[a-z]+-)[bcdf4-9]{7,10}\b", "${1}HASH"),
    (r"\b([a-z]+)-[bcdfghjklmnpqrstvwxz2-9]{5}\b", "$1-SUFFIX"),
    (r"https?://127\.0\.0\.1:\d+", "SERVER"),
    (r"(/tmp/[A-Za-z]+-)\d+", "${1}NUMBER"),
    (r"(^|  )(\d+[smhd])+( |$)", "${1}AGE$3"),
    // Columns are as wide as their widest cell, which may be one of the above.
    (r"(\S) {2,}", "$1  "),
];

pub(crate) struct Masks(Vec<(Regex, &'static str)>);

impl Masks {
    pub(crate) fn new() -> Self {
        Self(MASKS.iter().map(|(pattern, word)| (Regex::new(pattern).unwrap(), *word)).collect())
    }

    pub(crate) fn apply(&self, line: &str) -> String {
        let masked = self
            .0
            .iter()
            .fold(line.to_owned(), |text, (pattern, word)| pattern.replace_all(&text, *word).into_owned());
        masked.trim_end().to_owned()
    }
}
