//! What the view shows: a table per kind with the last event of each object, and the commands to type.

use std::collections::BTreeMap;

use anstyle::Style;
use jiff::Timestamp;
use watchkeeper::ObjectName;

use super::rows::{Row, Rows, age};
use crate::columns::{Cell, cut, folded, heading, table};
use crate::discovery::Found;
use crate::front::{BOLD, CYAN, DIM, GREEN, YELLOW};

/// The minimum number of rows of a kind.
const ROWS: usize = 2;

/// A kind without its version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KindName {
    group: String,
    kind: String,
}

impl KindName {
    pub(super) fn new(api_version: &str, kind: &str) -> Self {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        Self { group: group.to_owned(), kind: kind.to_owned() }
    }
}

/// What is known of a name.
#[derive(Debug)]
pub(super) enum Section {
    Unserved,
    Ambiguous(Vec<String>),
    Served { full_name: String, kind: KindName, rows: Rows },
}

impl Section {
    pub(super) fn of(found: &Found) -> Self {
        match found {
            Found::Nothing => Self::Unserved,
            Found::Several(names) => Self::Ambiguous(names.clone()),
            Found::Kind(served) => Self::Served {
                full_name: served.full_name(),
                kind: KindName::new(&served.api.api_version, &served.api.kind),
                rows: Rows::default(),
            },
        }
    }

    /// Whether both show the same, apart from rows.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unserved, Self::Unserved) => true,
            (Self::Ambiguous(names), Self::Ambiguous(others)) => names == others,
            _ => false,
        }
    }
}

/// All sections, and the last event of every object.
pub(super) struct Board {
    sections: Vec<(String, Option<Section>)>,
    /// By kind and object: the name of the event, and its text. Events of kinds that are not served yet are kept, too.
    events: BTreeMap<(KindName, ObjectName), (String, String)>,
    commands: Vec<String>,
}

impl Board {
    pub(super) fn new(names: &[String], commands: Vec<String>) -> Self {
        let sections = names.iter().map(|name| (name.clone(), None)).collect();
        Self { sections, events: BTreeMap::new(), commands }
    }

    /// Replaces a section; returns whether it differs.
    pub(super) fn set(&mut self, section: usize, now: Section) -> bool {
        let (_, known) = &mut self.sections[section];
        let differs = known.as_ref().is_none_or(|known| !known.is_like(&now));
        *known = Some(now);
        differs
    }

    /// Replaces the rows of a kind; returns a line for each one whose cells have changed.
    pub(super) fn update(&mut self, section: usize, now: Rows) -> Vec<(ObjectName, String)> {
        let Some(Section::Served { rows, .. }) = &mut self.sections[section].1 else { return Vec::new() };
        let lines = now.lines_since(rows);
        *rows = now;
        lines
    }

    /// Keeps the event; returns whether its object is of a shown kind.
    pub(super) fn note_event(&mut self, kind: &KindName, about: &ObjectName, name: &str, text: &str) -> bool {
        self.events.insert((kind.clone(), about.clone()), (name.to_owned(), text.to_owned()));
        let is_its = |section: &Option<Section>| matches!(section, Some(Section::Served { kind: own, .. }) if own == kind);
        self.sections.iter().any(|(_, section)| is_its(section))
    }

    pub(super) fn forget_event(&mut self, kind: &KindName, about: &ObjectName, name: &str) {
        let key = (kind.clone(), about.clone());
        if self.events.get(&key).is_some_and(|(own, _)| own == name) {
            self.events.remove(&key);
        }
    }

    /// The view, line by line; a quarter of the height is left for the lines above it.
    pub(super) fn picture(&self, (width, height): (usize, usize), now: Timestamp) -> Vec<String> {
        let mut below = vec![String::new(), format!("{BOLD}next{BOLD:#}, in another terminal:")];
        for command in &self.commands {
            below.extend(folded(command, width).iter().map(|line| format!("  {CYAN}{line}{CYAN:#}")));
        }
        // Each section has an empty line, its headings and a count of hidden rows; the cursor has a row, too.
        let (sections, fixed) = (self.sections.len().max(1), below.len() + 1 + height / 4);
        let room = (height.saturating_sub(fixed) / sections).saturating_sub(3).max(ROWS);
        let mut lines = Vec::new();
        for (name, section) in &self.sections {
            lines.push(String::new());
            match section {
                None => lines.push(format!("{DIM}{name}{DIM:#}")),
                Some(Section::Unserved) => lines.push(format!(
                    "{name} {YELLOW}not served yet{YELLOW:#}: it appears when its CustomResourceDefinition does"
                )),
                Some(Section::Ambiguous(names)) => {
                    lines.push(format!("{name} {YELLOW}ambiguous{YELLOW:#}: use {}", names.join(" or ")));
                }
                Some(Section::Served { full_name, kind, rows }) => {
                    lines.extend(self.table(full_name, kind, rows, (width, room), now));
                }
            }
        }
        lines.extend(below);
        lines
    }

    /// The rows of a kind; if not all of them fit, unhealthy ones come first.
    fn table(
        &self,
        full_name: &str,
        kind: &KindName,
        rows: &Rows,
        (width, room): (usize, usize),
        now: Timestamp,
    ) -> Vec<String> {
        let event =
            |key: &ObjectName| self.events.get(&(kind.clone(), key.clone())).map(|(_, text)| text.as_str());
        let is_ill = |(key, row): &(&ObjectName, &Row)| {
            rows.rows.len() > room
                && (row.ready.as_deref() == Some("False") || event(key).is_some_and(is_warning))
        };
        let (ill, well): (Vec<_>, Vec<_>) = rows.rows.iter().partition(is_ill);
        let columns: Vec<_> = rows.columns.iter().map(|column| column.to_uppercase()).collect();
        let (name, mut headings) = (full_name.to_uppercase(), Vec::new());
        headings.push(name.as_str());
        headings.extend(columns.iter().map(String::as_str));
        headings.extend(["AGE", "LAST EVENT"]);
        let shown = ill.into_iter().chain(well).take(room).map(|(key, row)| {
            let mut cells: Vec<Cell> = vec![(Style::new(), cut(&key.to_string(), width / 3))];
            let styled = rows.columns.iter().zip(&row.cells);
            cells.extend(styled.map(|(column, cell)| (style(column, cell), cut(cell, width / 4))));
            cells.push((Style::new(), age(row.created, now)));
            let text = event(key).unwrap_or_default();
            cells.push((if is_warning(text) { YELLOW } else { Style::new() }, text.to_owned()));
            cells
        });
        let mut lines = table(std::iter::once(heading(&headings)).chain(shown).collect());
        match rows.rows.len() {
            0 => lines.push(format!("{DIM}none yet{DIM:#}")),
            all if all > room => lines.push(format!("{DIM}and {} more{DIM:#}", all - room)),
            _ => {}
        }
        lines
    }
}

fn is_warning(event: &str) -> bool {
    event.starts_with("Warning")
}

fn style(column: &str, cell: &str) -> Style {
    match (column.eq_ignore_ascii_case("ready"), cell) {
        (true, "True") => GREEN,
        (true, "False" | "Unknown") => YELLOW,
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::*;

    fn row(ready: &str) -> Row {
        let cells = vec![ready.to_owned(), "http://a".to_owned()];
        Row { cells, created: Some(Timestamp::UNIX_EPOCH), ready: Some(ready.to_owned()) }
    }

    fn board(rows: Vec<(&str, Row)>) -> Board {
        let mut board =
            Board::new(&["websites".to_owned(), "others".to_owned()], vec!["cargo run".to_owned()]);
        let rows =
            rows.into_iter().map(|(name, row)| (ObjectName::namespaced("default", name), row)).collect();
        let kind = KindName::new("example.dev/v1", "Website");
        let rows = Rows { columns: vec!["Ready".to_owned(), "URL".to_owned()], rows };
        board.set(0, Section::Served { full_name: "websites.example.dev".to_owned(), kind, rows });
        board.set(1, Section::Unserved);
        board
    }

    fn shown(board: &Board, size: (usize, usize)) -> Vec<String> {
        let now: Timestamp = "1970-01-01T00:00:07Z".parse().unwrap();
        board.picture(size, now).iter().map(|line| strip_str(line).to_string()).collect()
    }

    #[test]
    fn each_kind_has_a_table_and_one_that_is_missing_is_said_to_be() {
        let mut board = board(vec![("a", row("True")), ("b-long", row("False"))]);
        let (kind, about) =
            (KindName::new("example.dev/v1", "Website"), ObjectName::namespaced("default", "a"));
        assert!(board.note_event(&kind, &about, "a.1", "Normal Synced: well"));
        assert!(!board.note_event(&KindName::new("v1", "Pod"), &about, "p.1", "Normal Pulled: x"));
        let lines = [
            "",
            "WEBSITES.EXAMPLE.DEV  READY  URL       AGE  LAST EVENT",
            "default/a             True   http://a  7s   Normal Synced: well",
            "default/b-long        False  http://a  7s   ",
            "",
            "others not served yet: it appears when its CustomResourceDefinition does",
            "",
            "next, in another terminal:",
            "  cargo run",
        ];
        assert_eq!(shown(&board, (80, 40)), lines);
        board.forget_event(&kind, &about, "a.0");
        assert!(shown(&board, (80, 40))[2].contains("Synced"), "that was another event");
        board.forget_event(&kind, &about, "a.1");
        assert!(!shown(&board, (80, 40))[2].contains("Synced"));
    }

    #[test]
    fn of_too_many_rows_those_that_are_not_ready_come_first() {
        let mut rows: Vec<_> = ["a", "b", "c", "d", "e", "f"].map(|name| (name, row("True"))).into();
        rows[4].1 = row("False");
        let lines = shown(&board(rows), (80, 10));
        assert!(lines[2].starts_with("default/e ") && lines[3].starts_with("default/a "), "{lines:#?}");
        assert_eq!(lines[4], "and 4 more");
        assert!(shown(&board(Vec::new()), (80, 10)).contains(&"none yet".to_owned()));
    }
}
