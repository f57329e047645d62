//! The timeline of a run: who did what, in words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::fault::{Fault, Planned};
use crate::site::Site;
use crate::trace::{Entry, Event};
use crate::violation::{Difference, Violation};

/// A run, line by line, and how its end differs from what it should be.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    pub(crate) lines: Vec<Line>,
    pub(crate) diffs: Vec<Diff>,
}

/// One line of a timeline.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) at: Duration,
    pub(crate) lane: Lane,
    pub(crate) text: String,
    /// Part of the short form.
    pub(crate) matters: bool,
}

/// Who did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    User,
    Fault,
    /// What the controller saw in its caches.
    Saw,
    /// What the controller asked for or wrote.
    Wrote,
    /// Starts and ends of the controller, and remarks.
    Life,
    Outside,
    /// What the cluster's own controllers did.
    Cluster,
    /// What the controller would have logged.
    Reported,
}

impl Lane {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Fault => "FAULT",
            Self::Saw => "saw",
            Self::Wrote => "controller",
            Self::Life => "",
            Self::Outside => "outside",
            Self::Cluster => "cluster",
            Self::Reported => "error",
        }
    }
}

/// How an object differs from what it should be.
#[derive(Clone, Debug)]
pub(crate) struct Diff {
    pub(crate) what: String,
    /// Lines with `-` for what is missing, `+` for what should not be, and a space for what is right.
    pub(crate) lines: Vec<String>,
}

/// The most lines of the short form.
const SHORT: usize = 60;
/// The most of them before the first fault.
const BEFORE: usize = 20;

impl Timeline {
    pub(crate) fn new(entries: &[Entry], violation: &Violation) -> Self {
        let first_fault =
            entries.iter().position(|entry| matches!(entry.event, Event::Fault(_))).unwrap_or(0);
        let unseen = unseen(entries);
        let mut lines = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            lines.extend(line(entry, at >= first_fault));
            lines.extend(listed(entry, &unseen, at >= first_fault));
        }
        count_reports(&mut lines);
        let diffs = match violation {
            Violation::Differs(differences) => differences.iter().map(Diff::of).collect(),
            _ => Vec::new(),
        };
        Self { lines, diffs }
    }
}

/// Keeps the first of equal reports, with their number.
fn count_reports(lines: &mut Vec<Line>) {
    let mut counts = BTreeMap::<String, usize>::new();
    lines.retain(|line| {
        let count = (line.lane == Lane::Reported).then(|| counts.entry(line.text.clone()).or_default());
        count.is_none_or(|count| {
            *count += 1;
            *count == 1
        })
    });
    for line in lines.iter_mut().filter(|line| line.lane == Lane::Reported) {
        let count = counts.get(&line.text).copied().unwrap_or(1);
        if count > 1 {
            line.text.push_str(&format!(" ({count} times)"));
        }
    }
}

/// A request: its replica, what it asks for, and its number.
type Request = (usize, Arc<str>, u32);

/// The requests whose answers of the server did not reach the controller.
fn unseen(entries: &[Entry]) -> BTreeSet<Request> {
    let lost = entries.iter().filter_map(|entry| match &entry.event {
        Event::Got { replica, what, nth, status } if *status != 200 => Some((*replica, what.clone(), *nth)),
        Event::Failed { replica, what, nth, .. } => Some((*replica, what.clone(), *nth)),
        Event::Fault(Planned { site: Site::Request { replica, what, nth }, fault: Fault::CrashAfter }) => {
            Some((*replica, what.clone(), *nth))
        }
        _ => None,
    });
    lost.collect()
}

/// The most objects of a list that a line names.
const LISTED: usize = 5;

/// The line of a list that the controller has seen.
fn listed(entry: &Entry, unseen: &BTreeSet<Request>, matters: bool) -> Option<Line> {
    let Event::Acted { replica, what, nth, status: 200, body, .. } = &entry.event else { return None };
    let listed = what.strip_prefix("list ")?;
    if unseen.contains(&(*replica, what.clone(), *nth)) {
        return None;
    }
    let list: Value = serde_json::from_slice(body).ok()?;
    let items = list["items"].as_array()?;
    let mut names: Vec<String> =
        items.iter().take(LISTED).map(|item| identified(&item["metadata"])).collect();
    match items.len() - names.len() {
        0 if items.is_empty() => names.push("nothing".to_owned()),
        0 => {}
        more => names.push(format!("{more} more")),
    }
    let text = format!("{}listed {listed}: {}", of(*replica), names.join(", "));
    Some(Line { at: entry.at, lane: Lane::Saw, text, matters })
}

/// An object by its metadata: `default/a (version ..0006)`.
fn identified(meta: &Value) -> String {
    let text = |field: &str| meta[field].as_str().unwrap_or_default();
    let (namespace, version) = (text("namespace"), text("resourceVersion"));
    let slash = if namespace.is_empty() { "" } else { "/" };
    let deleting = if meta["deletionTimestamp"].is_string() { ", being deleted" } else { "" };
    let short = version.get(version.len().saturating_sub(4)..).unwrap_or_default();
    format!("{namespace}{slash}{} (version ..{short}{deleting})", text("name"))
}

/// The line of an entry, if it has one.
pub(crate) fn line(entry: &Entry, since_fault: bool) -> Option<Line> {
    let (lane, text, matters) = match &entry.event {
        Event::Step { number, what, status, body } => {
            (Lane::User, format!("step {number}: {what}{}{}", named(what, body), unless_ok(*status)), true)
        }
        Event::Sent { .. } | Event::Restored { .. } => return None,
        Event::Acted { replica, what, status, body, changed, .. } => {
            let is_noise = what.contains(" events") || what.contains(" leases");
            let is_read = ["get ", "list ", "watch "].iter().any(|verb| what.starts_with(verb));
            let effect = match changed {
                None if !is_read && *status < 300 => ", nothing changed",
                _ => "",
            };
            let text = format!("{}{what}{}{}{effect}", of(*replica), named(what, body), unless_ok(*status));
            (Lane::Wrote, text, !is_noise && !is_read)
        }
        Event::Got { replica, what, status, .. } => {
            (Lane::Wrote, format!("{}{what} gets {status}", of(*replica)), since_fault)
        }
        Event::Failed { replica, what, error, .. } => {
            (Lane::Wrote, format!("{}{what} fails: {error}", of(*replica)), since_fault)
        }
        Event::Saw { replica, line, length, .. } => {
            let (text, matters) = saw(line)?;
            let padded = if *length > line.len() { format!(", {length} bytes") } else { String::new() };
            (Lane::Saw, format!("{}{text}{padded}", of(*replica)), matters && since_fault)
        }
        Event::Fault(planned) => (Lane::Fault, planned.to_string(), true),
        Event::Begins { replica, life } => {
            (Lane::Life, format!("{}the controller starts (life {life})", of(*replica)), true)
        }
        Event::Ends { replica, life, why } => {
            (Lane::Life, format!("{}the controller {why} (life {life})", of(*replica)), true)
        }
        Event::BuiltIn { what, status } => {
            (Lane::Cluster, format!("{what}{}", unless_ok(*status)), since_fault)
        }
        Event::Outside { what, now } => {
            let now = now.as_ref().map(|now| String::from_utf8_lossy(now).into_owned());
            let text =
                now.map_or_else(|| format!("{what} is removed"), |now| format!("{what} is set to {now}"));
            (Lane::Outside, text, true)
        }
        Event::Reported { replica, what } => {
            let text = what.lines().next().unwrap_or_default();
            (Lane::Reported, format!("{}{text}", of(*replica)), since_fault)
        }
        Event::Note(text) => (Lane::Life, text.to_string(), true),
    };
    Some(Line { at: entry.at, lane, text, matters })
}

fn of(replica: usize) -> String {
    if replica == 0 { String::new() } else { format!("[replica {replica}] ") }
}

fn unless_ok(status: u16) -> String {
    match status {
        200 => String::new(),
        201 => " (created)".to_owned(),
        other => format!(" -> {other}"),
    }
}

/// The name of an object that is created: its request does not say it.
fn named(what: &str, body: &[u8]) -> String {
    if !what.starts_with("create ") {
        return String::new();
    }
    let object: Value = serde_json::from_slice(body).unwrap_or_default();
    let meta = &object["metadata"];
    let name = meta["name"].as_str().or_else(|| meta["generateName"].as_str());
    name.unwrap_or_default().to_owned()
}

/// What an event of a watch says.
fn saw(line: &[u8]) -> Option<(String, bool)> {
    let event: Value = serde_json::from_slice(line).unwrap_or_default();
    let (kind, object) = (event["type"].as_str(), &event["object"]);
    let meta = &object["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match kind {
        Some("BOOKMARK") => None,
        Some("ERROR") => Some((format!("error {}: {}", object["code"], text(&object["message"])), true)),
        Some(kind) => {
            let what = text(&object["kind"]);
            Some((format!("{} {what} {}", kind.to_lowercase(), identified(meta)), true))
        }
        None => Some((format!("{} bytes of a broken event", line.len()), true)),
    }
}

impl Diff {
    fn of(difference: &Difference) -> Self {
        let text = |values: &[Value]| values.iter().map(yaml).collect::<Vec<_>>().join("---\n");
        let (expected, found) = (text(&difference.expected), text(&difference.found));
        let diff = similar::TextDiff::from_lines(&expected, &found);
        let mut lines = Vec::new();
        for (number, group) in diff.grouped_ops(3).iter().enumerate() {
            if number > 0 {
                lines.push("  ...".to_owned());
            }
            for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
                lines.push(format!("{} {}", change.tag(), change.value().trim_end_matches('\n')));
            }
        }
        Self { what: difference.what.clone(), lines }
    }
}

fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string())
}

/// The time of a line, as minutes, seconds and milliseconds.
pub(crate) fn time(at: Duration) -> String {
    let (seconds, millis) = (at.as_secs(), at.subsec_millis());
    format!("{:>3}:{:02}.{millis:03}", seconds / 60, seconds % 60)
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<&Line> = self.lines.iter().filter(|line| line.matters).collect();
        // What led to the first fault and what followed; the beginning and the end of a long run say the least.
        let fault = shown.iter().position(|line| line.lane == Lane::Fault).unwrap_or(0);
        let begin = if shown.len() > SHORT { fault.saturating_sub(BEFORE) } else { 0 };
        let end = shown.len().min(begin + SHORT);
        if begin > 0 {
            writeln!(f, "  ... {begin} lines before, in the page")?;
        }
        for line in &shown[begin..end] {
            writeln!(f, "  {}  {:<10} {}", time(line.at), line.lane.name(), line.text)?;
        }
        if end < shown.len() {
            writeln!(f, "  ... {} more lines, in the page", shown.len() - end)?;
        }
        for Diff { what, lines } in self.diffs.iter().take(5) {
            writeln!(f, "\n  {what}: expected (-), found (+)")?;
            for line in lines.iter().take(40) {
                writeln!(f, "    {line}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(event: Event) -> Entry {
        Entry { at: Duration::ZERO, event }
    }

    fn shown(entries: &[Entry]) -> String {
        Timeline::new(entries, &Violation::NotDeterministic).to_string()
    }

    #[test]
    fn a_long_timeline_is_cut_around_the_first_fault() {
        let note = |number: usize| entry(Event::Note(format!("note {number}").into()));
        let fault = Event::Fault("kill @ step 1".parse().unwrap());
        let entries: Vec<Entry> =
            (0..100).map(note).chain([entry(fault)]).chain((100..200).map(note)).collect();
        let text = shown(&entries);
        assert!(text.starts_with("  ... 80 lines before, in the page\n"), "{text}");
        assert!(text.contains("note 80\n") && !text.contains("note 79\n"), "{text}");
        assert!(text.contains("FAULT      kill @ step 1"), "{text}");
        assert!(text.ends_with("note 138\n  ... 61 more lines, in the page\n"), "{text}");
        assert!(!shown(&entries[..60]).contains("..."));
    }

    #[test]
    fn a_list_is_shown_if_the_controller_has_seen_it() {
        let list = |names: &[&str]| {
            let item = |name: &&str| json!({"metadata": {"name": name, "namespace": "d", "resourceVersion": "100012"}});
            json!({"items": names.iter().map(item).collect::<Vec<_>>()}).to_string()
        };
        let answer = |nth, names: &[&str]| {
            let (what, body) = ("list pods d/".into(), list(names).into());
            entry(Event::Acted { replica: 0, what, nth, status: 200, body, changed: None })
        };
        let lost = Event::Failed { replica: 0, what: "list pods d/".into(), nth: 2, error: "answer lost" };
        let crash = Event::Fault("crash-after @ list pods d/ #4".parse().unwrap());
        let many = ["a", "b", "c", "d", "e", "f", "g"];
        let kill = Event::Fault("kill @ step 1".parse().unwrap());
        let entries = [
            entry(kill),
            answer(1, &[]),
            answer(2, &["x"]),
            entry(lost),
            answer(3, &many),
            entry(crash),
            answer(4, &["y"]),
        ];
        let text = shown(&entries);
        assert!(text.contains("saw        listed pods d/: nothing\n"), "{text}");
        let some = "saw        listed pods d/: d/a (version ..0012), d/b (version ..0012)";
        assert!(text.contains(some) && text.contains("d/e (version ..0012), 2 more\n"), "{text}");
        assert!(!text.contains("d/x") && !text.contains("d/y"), "{text}");
    }

    #[test]
    fn equal_reports_are_one_line_with_their_number() {
        let report = |what: &str| entry(Event::Reported { replica: 0, what: what.into() });
        let text = shown(&[report("a: no bucket"), report("b: late"), report("a: no bucket")]);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("error      a: no bucket (2 times)"), "{text}");
    }
}
