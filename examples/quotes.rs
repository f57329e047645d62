//! The code in the documents is that of the examples, and the names in them are those of the toolkit.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

/// The lines of `text` without what they are indented by.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// Every file of Rust below `folder`, together.
fn code(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let texts = entries.map(|path| match path.is_dir() {
        true => code(&path),
        false if path.extension().is_some_and(|extension| extension == "rs") => {
            fs::read_to_string(&path).unwrap()
        }
        false => String::new(),
    });
    texts.collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The pieces of code in a document, in their order.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    text.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Whether a line is more than an import or the header of a file.
fn is_code(line: &&str) -> bool {
    !["//!", "use ", "mod ", "#[cfg(test)]"].iter().any(|start| line.starts_with(start))
}

/// The files of the operator of the guide.
const WEBSITE: [&str; 5] = ["main.rs", "types.rs", "reconcile.rs", "children.rs", "tests.rs"];

#[test]
fn the_guide_shows_all_that_wires_the_operator_and_all_that_reconciles() {
    let guide = read("docs/guide.md");
    let blocks = blocks(&guide, "rust");
    let shown: Vec<_> = blocks.iter().flat_map(|block| lines(block)).collect();
    for file in ["main.rs", "reconcile.rs"] {
        let text = read(&format!("examples/website/{file}"));
        for line in lines(&text).into_iter().filter(is_code) {
            assert!(shown.contains(&line), "the guide does not show: {line}");
        }
    }
}

#[test]
fn the_wiring_of_an_operator_takes_thirty_lines() {
    let main = read("examples/website/main.rs");
    let wiring = lines(&main).into_iter().filter(is_code).count();
    assert!(wiring <= 30, "{wiring} lines");
}

#[test]
fn the_guide_names_the_dependencies_at_the_versions_of_the_workspace() {
    let (guide, workspace) = (read("docs/guide.md"), read("Cargo.toml"));
    let shown = blocks(&guide, "toml").concat();
    let version = |line: &str| line.split('"').nth(1).unwrap().to_owned();
    let mut seen = 0;
    for line in lines(&shown).into_iter().filter(|line| line.contains(" = ") && !line.contains("path = ")) {
        let name = line.split(" = ").next().unwrap();
        let ours = workspace.lines().find(|ours| ours.starts_with(&format!("{name} = "))).unwrap();
        assert_eq!(version(line), version(ours), "{name}");
        seen += 1;
    }
    assert!(seen > 4, "{seen} dependencies");
}

#[test]
fn the_code_that_documents_show_is_that_of_an_example() {
    let website = WEBSITE.iter().map(|file| format!("website/{file}"));
    let files = website.chain(["otlp/main.rs".to_owned()]);
    let examples: Vec<_> = files.map(|file| read(&format!("examples/{file}"))).collect();
    let examples: Vec<_> = examples.iter().map(|text| lines(text)).collect();
    for document in ["README.md", "docs/guide.md", "docs/from-controller-runtime.md", "docs/from-kube-rs.md"]
    {
        let text = read(document);
        let blocks = blocks(&text, "rust");
        assert!(!blocks.is_empty(), "{document} shows code");
        for block in blocks {
            let wanted = lines(block);
            let is_in = |example: &Vec<&str>| example.windows(wanted.len()).any(|window| window == wanted);
            assert!(examples.iter().any(is_in), "{document} shows what is in no example:\n{block}");
        }
    }
}

/// The second cells of the tables of a document, which are about this toolkit.
fn our_cells(text: &str) -> impl Iterator<Item = &str> {
    let rows = text.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    rows.map(|line| line.split(" | ").nth(1).unwrap())
}

#[test]
fn the_names_that_documents_compare_are_names_of_the_toolkit() {
    let crates = ["crates/watchkeeper/src", "crates/watchkeeper-test/src", "crates/watchkeeper-sim/src"];
    let folders = crates.into_iter().chain(["examples/website"]);
    let code: String = folders.map(|folder| code(&root().join(folder))).collect();
    let known: std::collections::BTreeSet<_> = words(&code).collect();
    let compared = [
        ("docs/guide.md", "## Coming from client-go", 100),
        ("docs/from-controller-runtime.md", "## Concepts", 80),
        ("docs/from-kube-rs.md", "## Concepts", 60),
    ];
    for (document, heading, at_least) in compared {
        let text = read(document);
        let (_, table) = text.split_once(heading).unwrap();
        // In backquotes stands code, every other piece of a cell.
        let names = our_cells(table).flat_map(|cell| cell.split('`').skip(1).step_by(2));
        let mut seen = 0;
        for name in names.flat_map(words).filter(|word| !word.starts_with(|c: char| c.is_ascii_digit())) {
            assert!(known.contains(name), "{document} names `{name}`, which the toolkit does not have");
            seen += 1;
        }
        assert!(seen > at_least, "{seen} names in {document}");
    }
}
