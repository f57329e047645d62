//! The format of a trace: steps, and what they led to.
//!
//! A line that starts in the first column is a step: a verb and its arguments. Indented lines below it are its results.
//! Lines that start with `#`, and empty ones, are for the reader.

use std::fs;
use std::path::{Path, PathBuf};

/// One step of a trace, with the number of its line for error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) line: usize,
    pub(crate) text: String,
}

impl Step {
    /// The first word, and the others.
    pub(crate) fn words(&self) -> (&str, Vec<&str>) {
        let mut words = self.text.split_whitespace();
        (words.next().unwrap_or_default(), words.collect())
    }

    /// Ends the test over a step that cannot be carried out.
    pub(crate) fn refuse(&self, why: &str) -> ! {
        panic!("line {}: {}: {why}", self.line, self.text)
    }
}

/// The steps of a trace.
pub(crate) fn steps(text: &str) -> Vec<Step> {
    let lines = text.lines().enumerate();
    let steps = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with([' ', '#']));
    steps.map(|(at, line)| Step { line: at + 1, text: line.to_owned() }).collect()
}

/// The text of a trace with `results`, those of each step, in the place of the ones it had.
pub(crate) fn with_results(text: &str, results: &[Vec<String>]) -> String {
    let (mut results, mut whole) = (results.iter(), String::new());
    for line in text.lines().filter(|line| !line.starts_with(' ')) {
        whole += &format!("{line}\n");
        if !line.is_empty() && !line.starts_with('#') {
            let of_step = results.next().unwrap();
            of_step.iter().for_each(|result| whole += &format!("  {result}\n"));
        }
    }
    whole
}

/// The traces of a folder, by path.
fn traces(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(folder);
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut traces: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "txt")).collect();
    traces.sort();
    assert!(!traces.is_empty());
    traces
}

/// Carries out steps one after the other, on virtual time. Returns the results of each.
pub(crate) fn replay<R>(
    steps: &[Step],
    start: impl FnOnce() -> R,
    carry_out: impl AsyncFn(&mut R, &Step) -> Vec<String>,
) -> Vec<Vec<String>> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (mut run, mut results) = (start(), Vec::new());
        for step in steps {
            results.push(carry_out(&mut run, step).await);
        }
        results
    })
}

/// Carries out every trace of a folder: `run` gives the results of each step.
pub(crate) fn check(folder: &str, run: impl Fn(&[Step]) -> Vec<Vec<String>>) {
    let mut differing = String::new();
    for path in traces(folder) {
        let text = fs::read_to_string(&path).unwrap();
        let happened = with_results(&text, &run(&steps(&text)));
        if std::env::var_os("UPDATE_TRACES").is_some() {
            fs::write(&path, happened).unwrap();
        } else if happened != text {
            differing += &format!("{}\n{}\n", path.display(), difference(&text, &happened));
        }
    }
    assert!(differing.is_empty(), "{differing}UPDATE_TRACES=1 writes what happened into the files");
}

/// The first line in which two texts differ.
fn difference(written: &str, happened: &str) -> String {
    let (mut written, mut happened) = (written.lines(), happened.lines());
    for line in 1.. {
        match (written.next(), happened.next()) {
            (None, None) => break,
            (a, b) if a == b => {}
            (a, b) => {
                let [a, b] = [a, b].map(|line| line.unwrap_or("(end of file)").trim());
                return format!("line {line}:\n  written:  {a}\n  happened: {b}");
            }
        }
    }
    String::new()
}

#[test]
fn steps_are_the_lines_in_the_first_column() {
    let text = "# why\n\nadd a\n  waiting 1\nget\n";
    let step = |line, text: &str| Step { line, text: text.to_owned() };
    assert_eq!(steps(text), [step(3, "add a"), step(5, "get")]);
    assert_eq!(step(1, "add  a b").words(), ("add", vec!["a", "b"]));
}

#[test]
fn a_trace_with_the_results_it_has_is_the_same_text() {
    let text = "# why\n\nadd a\n  waiting 1\n\nget\n  worker 1 has a\n  waiting 0\n";
    let results = |of_get: &[&str]| {
        vec![vec!["waiting 1".to_owned()], of_get.iter().map(|&line| line.to_owned()).collect()]
    };
    assert_eq!(with_results(text, &results(&["worker 1 has a", "waiting 0"])), text);
    let other = with_results(text, &results(&["worker 1 has b", "waiting 0"]));
    assert_eq!(difference(text, &other), "line 7:\n  written:  worker 1 has a\n  happened: worker 1 has b");
    let shorter = with_results(text, &results(&["worker 1 has a"]));
    assert_eq!(difference(text, &shorter), "line 8:\n  written:  waiting 0\n  happened: (end of file)");
}
