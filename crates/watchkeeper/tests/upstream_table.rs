//! Every row of `docs/upstream-tests.md` has a text, and every test that it names exists.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Upstream's tests, benchmarks and examples in the files that the table covers; some share a row, and `TestWatchList`
/// has one for each of its eleven cases.
const ROWS: usize = 418;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All tests in the `.rs` files below `directory`, as `path/of/file.rs::name`.
fn tests(directory: &Path, into: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            tests(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            into.extend(tests_in(&text).map(|name| format!("{}::{name}", path.display())));
        }
    }
}

/// The names of the functions that have an attribute of a test and are not ignored; attributes and comments may stand
/// in between.
fn tests_in(text: &str) -> impl Iterator<Item = String> {
    let (mut is_test, mut is_ignored) = (false, false);
    text.lines().map(str::trim).filter_map(move |line| {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if line.starts_with("#[ignore") {
            is_ignored = true;
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            let counts = std::mem::take(&mut is_test) & !std::mem::take(&mut is_ignored);
            let (_, rest) = line.split_once("fn ").filter(|_| counts)?;
            return Some(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
        None
    })
}

/// The cells of each row: upstream's test, what it asserts, what answers it.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix('|'));
    rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>())
        .filter(|cells| cells[0] != "upstream test" && !cells[0].starts_with("--"))
        .collect()
}

/// What is wrong with the table, in words.
fn mistakes(text: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let mut mistakes = Vec::new();
    let rows = rows(text);
    if rows.len() < ROWS {
        mistakes.push(format!("{} rows, expected at least {ROWS}", rows.len()));
    }
    let mut seen = BTreeSet::new();
    for cells in rows {
        let [upstream, _, answer] = cells[..] else {
            mistakes.push(format!("{} has {} cells", cells[0], cells.len()));
            continue;
        };
        if !seen.insert(upstream) {
            mistakes.push(format!("{upstream} has two rows"));
        }
        let named: Vec<_> = answer.split('`').skip(1).step_by(2).collect();
        if named.is_empty() && !answer.contains("**does not apply**") && !answer.contains("**missing**") {
            mistakes.push(format!("{upstream} is not answered"));
        }
        for name in named {
            let end = format!("/{name}");
            if !tests.iter().any(|test| test.ends_with(&end)) {
                mistakes.push(format!("{upstream} is answered by {name}, which is no test"));
            }
        }
    }
    mistakes
}

fn table() -> String {
    fs::read_to_string(root().join("docs/upstream-tests.md")).unwrap()
}

fn all_tests() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for directory in ["crates", "controllers"] {
        tests(&root().join(directory), &mut all);
    }
    all
}

#[test]
fn every_row_of_the_table_of_upstream_tests_is_answered_by_tests_that_exist() {
    assert_eq!(mistakes(&table(), &all_tests()), [""; 0]);
}

#[test]
fn the_counts_above_the_table_are_those_of_its_rows() {
    let text = table();
    let (mut missing, mut not_applicable, mut answered) = (0, 0, 0);
    for cells in rows(&text) {
        match cells[2] {
            answer if answer.contains("**missing**") => missing += 1,
            answer if answer.contains("**does not apply**") => not_applicable += 1,
            _ => answered += 1,
        }
    }
    let counts =
        format!("{answered} rows are answered, {not_applicable} do not apply, {missing} are missing.");
    assert!(text.contains(&counts), "{counts}");
}

#[test]
fn a_table_with_a_mistake_is_found_out() {
    let (text, tests) = (table(), all_tests());
    let without_a_row: String =
        text.lines().filter(|line| !line.contains("TestRunUntil")).map(|line| format!("{line}\n")).collect();
    assert_eq!(mistakes(&without_a_row, &tests).len(), 1);
    let misspelt =
        text.replace("after_a_stop_nothing_is_asked_at_all", "after_a_stop_nothing_is_asked_at_al");
    assert!(misspelt != text && !mistakes(&misspelt, &tests).is_empty());
    let row = text.lines().find(|line| line.contains("TestRunUntil")).unwrap();
    let emptied = text.replace(row, "| TestRunUntil | cancel stops it | |");
    assert_eq!(mistakes(&emptied, &tests), ["TestRunUntil is not answered"]);
    // A function that is there, and no test.
    let helped = text.replace(row, "| TestRunUntil | cancel stops it | `upstream_table.rs::mistakes` |");
    let found = ["TestRunUntil is answered by upstream_table.rs::mistakes, which is no test"];
    assert_eq!(mistakes(&helped, &tests), found);
}

#[test]
fn a_test_is_a_function_that_runs() {
    let text = "#[tokio::test(start_paused = true)]\n// why\n#[should_panic]\nasync fn one() {}\n\
                fn helper() {}\n#[ignore]\n#[test]\nfn never() {}\n    #[test]\n    fn two() {\n\
                // #[test]\nfn commented() {}";
    assert!(tests_in(text).eq(["one", "two"]));
}
