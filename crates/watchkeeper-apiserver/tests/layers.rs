//! The modules of this crate use one another in one direction only.
#![allow(clippy::unwrap_used, reason = "a test may")]

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
