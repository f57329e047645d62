//! The modules of this crate use one another in one direction only.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rooms::{breaches, rooms_of_folder, rooms_of_table};

#[path = "../../watchkeeper/tests/support/rooms.rs"]
mod rooms;

const CRATE: &str = "crates/watchkeeper-apiserver";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The order, from the one place where it stands.
fn order() -> Vec<String> {
    rooms_of_table(&fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap(), CRATE)
}

#[test]
fn no_module_imports_one_that_comes_after_it() {
    let found = breaches(&root().join(CRATE).join("src"), &order());
    assert!(found.is_empty(), "{}", found.iter().map(|breach| format!("{breach}\n")).collect::<String>());
}

#[test]
fn the_table_has_every_module_once() {
    let mut order = order();
    order.sort();
    assert!(order.into_iter().eq(rooms_of_folder(&root().join(CRATE).join("src"))));
}

/// The files of the steps under "The path of an apply", in order.
fn path_of_an_apply() -> Vec<String> {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let lines = page.lines().skip_while(|line| *line != "### The path of an apply").skip(1);
    let section = lines.take_while(|line| !line.starts_with('#'));
    let steps = section.filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
    steps.map(|step| step.split('`').nth(1).unwrap().to_owned()).collect()
}

#[test]
fn the_path_of_an_apply_is_short_and_leads_forward() {
    let steps = path_of_an_apply();
    for file in &steps {
        assert!(root().join(CRATE).join("src").join(file).is_file(), "{file} does not exist");
    }
    let files: BTreeSet<_> = steps.iter().collect();
    assert!((1..=20).contains(&files.len()), "{} files", files.len());
    let mut rooms: Vec<_> = steps.iter().map(|file| file.split('/').next().unwrap()).collect();
    rooms.dedup();
    let returns = rooms.len() - rooms.iter().collect::<BTreeSet<_>>().len();
    assert!(returns <= 5, "{returns} returns: {rooms:?}");
}
