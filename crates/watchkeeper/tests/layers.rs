//! The modules of this crate import each other in one direction only, and the pages that name them agree on their
//! order.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::fs;
use std::path::Path;

use rooms::{breaches, breaches_in, mentions_all_in_order, names_in, rooms_of_folder, rooms_of_table};

#[path = "support/rooms.rs"]
mod rooms;

const CRATE: &str = "crates/watchkeeper";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The order, from the one place where it stands.
fn order() -> Vec<String> {
    rooms_of_table(&read("ARCHITECTURE.md"), CRATE)
}

#[test]
fn no_room_imports_one_that_stands_behind_it() {
    let found = breaches(&root().join(CRATE).join("src"), &order());
    assert!(found.is_empty(), "{}", found.iter().map(|breach| format!("{breach}\n")).collect::<String>());
}

#[test]
fn the_table_of_rooms_has_every_room_once() {
    let mut order = order();
    order.sort();
    assert!(order.into_iter().eq(rooms_of_folder(&root().join(CRATE).join("src"))));
}

#[test]
fn the_crate_documentation_names_the_public_rooms_in_their_order() {
    let library = read("crates/watchkeeper/src/lib.rs");
    let is_public = |room: &String| library.contains(&format!("pub mod {room};"));
    let public: Vec<_> = order().into_iter().filter(is_public).collect();
    let docs: String = library.lines().filter_map(|line| line.strip_prefix("//!")).collect();
    assert!(mentions_all_in_order(&names_in(&docs), &public), "expected {public:?} in this order");
}

#[test]
fn the_page_for_contributors_names_the_rooms_in_their_order() {
    let src = root().join(CRATE).join("src");
    let folders: Vec<_> = order().into_iter().filter(|room| src.join(room).join("mod.rs").exists()).collect();
    assert!(
        mentions_all_in_order(&names_in(&read("CONTRIBUTING.md")), &folders),
        "expected {folders:?} in this order"
    );
}

/// What is found in `text` as the file `path`, between the rooms `early`, `own` and `late`.
fn found(path: &str, text: &str) -> Vec<(usize, String)> {
    let rooms = ["early", "own", "late"].map(str::to_owned);
    breaches_in(path, text, &rooms).into_iter().map(|breach| (breach.line, breach.import)).collect()
}

fn late(line: usize) -> Vec<(usize, String)> {
    vec![(line, "late".to_owned())]
}

#[test]
fn a_forward_import_is_found_in_whatever_form_it_is_written() {
    assert_eq!(found("own/mod.rs", "use crate::early::A;\nuse crate::late::B;"), late(2));
    assert_eq!(found("own.rs", "use crate::late::B;"), late(1));
    assert_eq!(found("own/a.rs", "use crate::{early::A, own::{self, B},\n late};"), late(2));
    assert_eq!(found("own/a.rs", "fn f() {\n    crate::late::g();\n}"), late(2));
    assert_eq!(found("own/a.rs", "pub(crate) use crate::late;"), late(1));
    assert_eq!(found("own/mod.rs", "use super::late::B;"), late(1));
    assert_eq!(found("own/a.rs", "use super::super::late::B;"), late(1));
    assert_eq!(found("own/a.rs", "use super::{b::C, super::late::{D as _, E}};"), late(1));
    assert_eq!(found("own/a.rs", "mod tests {\n    use super::super::super::late::B;\n}"), late(2));
    assert_eq!(found("own/a.rs", "mod tests { mod x { } }\nuse super::super::late::B;"), late(2));
    assert_eq!(found("own/a.rs", "macro_rules! m { () => { $crate::late::B } }"), late(1));
}

#[test]
fn imports_of_earlier_rooms_and_of_the_own_one_are_fine() {
    let text =
        "use crate::early::A;\nuse super::late::Inner;\nuse crate::own::b;\nmod late { use super::x; }";
    assert_eq!(found("own/a.rs", text), []);
    assert_eq!(found("lib.rs", "pub use crate::late::A;"), [], "the root may import everything");
}

#[test]
fn comments_and_literals_import_nothing() {
    let text = r##"
        //! See [`B`](crate::late::B).
        /* crate::late /* in */ crate::late */
        const A: &str = "crate::late::B \" crate::late";
        const B: &str = r#"crate::late " crate::late"#;
        const C: (char, &'static str) = ('"', "crate::late");
        const D: &[u8] = b"crate::late";
    "##;
    assert_eq!(found("own/a.rs", text), []);
    assert_eq!(found("own/a.rs", "const A: &str = \"\n\";\nuse crate::late::B;"), late(3));
    assert_eq!(found("own/a.rs", "fn f<'a>(c: &'a str) { c == '\\''; crate::late::f() }"), late(1));
}

#[test]
fn what_is_imported_from_the_root_itself_must_name_its_room() {
    assert_eq!(found("own/a.rs", "use crate::Thing;"), [(1, "Thing".to_owned())]);
    assert_eq!(found("other/a.rs", ""), [(1, "other".to_owned())], "a room that the table does not have");
}

#[test]
fn a_breach_says_where_and_why() {
    let found = breaches_in("own/a.rs", "use crate::late::B;", &["own", "late"].map(str::to_owned));
    assert!(found.iter().map(ToString::to_string).eq(["own/a.rs:1: imports late, a room behind `own`"]));
}

#[test]
fn the_order_is_that_of_the_first_column_of_the_marked_table() {
    let page = "| room |\n|---|\n| `no` |\n\n<!-- rooms: x -->\n\n| room | text |\n|---|---|\n\
                | `a.rs`, `b/` | `no` |\n| `c/` | |\n\n| `no` |";
    assert_eq!(rooms_of_table(page, "x"), ["a", "b", "c"]);
    assert_eq!(rooms_of_table(page, "y"), [""; 0]);
}
