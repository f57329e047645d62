//! How do things stand? The Foos and their Deployments, the work queue, what is in trouble, and what to type next, in aligned columns.

use std::time::Duration;

use anstyle::Style;
use watchkeeper::ObjectName;
use watchkeeper::clock::Instant;
use watchkeeper::workqueue::{KeyRecord, QueueFigures};

use crate::front::{BOLD, CYAN, DIM, GREEN, RED, YELLOW};
use crate::view::printable;

/// So many Foos are shown, and so many keys in trouble.
const FOOS: usize = 6;
const TROUBLES: usize = 3;
/// A sync that takes longer is shown.
const LONG: Duration = Duration::from_secs(1);

/// One Foo and what has become of it.
#[derive(Clone, Debug)]
pub(crate) struct FooRow {
    pub(crate) key: ObjectName,
    pub(crate) wanted: Option<i32>,
    pub(crate) deployment: String,
    /// The replicas of the Deployment; none while there is none, or one of somebody else.
    pub(crate) has: Option<i32>,
    pub(crate) available: Option<i32>,
    pub(crate) last_event: String,
}

type Cell = (Style, String);

/// The picture, line by line. `foos` are all there are; no command is wider than `width`.
pub(crate) fn picture(
    width: usize,
    foos: &[FooRow],
    queue: (&str, &QueueFigures),
    troubles: &[String],
    next: &(&str, String),
) -> Vec<String> {
    let mut lines = vec![String::new()];
    let headings = ["FOO", "WANTS", "DEPLOYMENT", "HAS", "AVAILABLE", "LAST EVENT"];
    let rows = foos.iter().take(FOOS).map(FooRow::cells);
    lines.extend(table(std::iter::once(heading(&headings)).chain(rows).collect()));
    if foos.len() > FOOS {
        lines.push(format!("{DIM}and {} more{DIM:#}", foos.len() - FOOS));
    }
    let headings =
        ["QUEUE", "WAITING", "DELAYED", "RUNNING", "LONGEST", "ADDS", "RETRIES", "SYNCS", "MEAN SYNC"];
    lines.push(String::new());
    lines.extend(table(vec![heading(&headings), queue_cells(queue.0, queue.1)]));
    lines.extend(troubles.iter().take(TROUBLES).map(|trouble| format!("{RED}!{RED:#} {trouble}")));
    let (what, command) = next;
    lines.push(String::new());
    lines.push(format!("{BOLD}next{BOLD:#}, in another terminal: {what}"));
    lines.extend(folded(command, width).iter().map(|line| format!("  {CYAN}{line}{CYAN:#}")));
    lines
}

/// A command in lines that a shell takes for one, broken before a word where it would be too wide with its margin.
fn folded(command: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in command.split(' ') {
        let line = &mut lines[0];
        // Room for the margin, the space and the backslash.
        if !line.is_empty() && line.chars().count() + word.chars().count() + 5 > width {
            line.push_str(" \\");
            lines.insert(0, format!("  {word}"));
        } else {
            line.extend(if line.is_empty() { vec![word] } else { vec![" ", word] });
        }
    }
    lines.reverse();
    lines
}

impl FooRow {
    fn cells(&self) -> Vec<Cell> {
        let plain = Style::new();
        let number = |number: Option<i32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let is_so = self.has.is_some() && self.wanted.is_none_or(|wanted| self.has == Some(wanted));
        let event = if self.last_event.starts_with("Warning") { YELLOW } else { plain };
        vec![
            (plain, self.key.to_string()),
            (plain, number(self.wanted)),
            (plain, self.deployment.clone()),
            (if is_so { GREEN } else { YELLOW }, number(self.has)),
            (plain, number(self.available)),
            (event, self.last_event.clone()),
        ]
    }
}

fn heading(names: &[&str]) -> Vec<Cell> {
    names.iter().map(|name| (DIM, (*name).to_owned())).collect()
}

fn queue_cells(name: &str, figures: &QueueFigures) -> Vec<Cell> {
    let plain = Style::new();
    let busy = |number: u64, style| (if number == 0 { plain } else { style }, number.to_string());
    let waiting: usize = figures.depth.iter().sum();
    let longest = (figures.running.count > 0).then(|| short(figures.running.longest));
    let (syncs, all) = (figures.work_duration.count(), figures.work_duration.sum());
    let mean = (syncs > 0).then(|| short(all / u32::try_from(syncs).unwrap_or(u32::MAX)));
    vec![
        (plain, name.to_owned()),
        busy(waiting as u64, YELLOW),
        busy(figures.delayed as u64, YELLOW),
        busy(figures.running.count as u64, GREEN),
        (plain, longest.unwrap_or_else(|| "-".to_owned())),
        (plain, figures.adds.to_string()),
        busy(figures.retries, YELLOW),
        (plain, syncs.to_string()),
        (plain, mean.unwrap_or_else(|| "-".to_owned())),
    ]
}

/// The queue in one line, for those who see lines only.
pub(crate) fn queue_line(figures: &QueueFigures) -> String {
    let waiting: usize = figures.depth.iter().sum();
    format!(
        "{waiting} waiting, {} delayed, {} running; {} adds, {} retries",
        figures.delayed, figures.running.count, figures.adds, figures.retries
    )
}

/// What is to be said of a key that fails, or whose sync takes long.
pub(crate) fn trouble(record: &KeyRecord<ObjectName>, now: Instant) -> Option<String> {
    let key = &record.key;
    if let Some(since) = record.worked_on_since
        && now.saturating_duration_since(since) > LONG
    {
        return Some(format!("{key} has been with a worker for {}", short(now - since)));
    }
    let error = record.last_error.as_ref().filter(|_| record.retries > 0)?;
    let again = record.delayed_until.map(|due| short(due.saturating_duration_since(now)));
    let again = again.map_or_else(String::new, |delay| format!(", again in {delay}"));
    let times = if record.retries == 1 { "once".to_owned() } else { format!("{} times", record.retries) };
    Some(format!("{key} failed {times}{again}: {}", printable(&error.message)))
}

/// Cells in columns, each as wide as its widest cell; the last one ends where it ends.
fn table(rows: Vec<Vec<Cell>>) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.1.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: Vec<Cell>| {
        let last = row.len().saturating_sub(1);
        let cells = row.into_iter().enumerate().map(|(column, (style, text))| {
            let width = if column == last { 0 } else { widths[column] + 2 };
            let padding = " ".repeat(width.saturating_sub(text.chars().count()));
            format!("{style}{text}{style:#}{padding}")
        });
        cells.collect()
    };
    rows.clone().into_iter().map(line).collect()
}

/// A duration for people.
fn short(duration: Duration) -> String {
    match duration {
        short if short < Duration::from_millis(1) => format!("{} µs", short.as_micros()),
        short if short < Duration::from_secs(1) => format!("{} ms", short.as_millis()),
        long => format!("{:.1} s", long.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::*;

    #[test]
    fn columns_are_aligned_and_the_next_command_stands_last() {
        let row = |name: &str, has| FooRow {
            key: ObjectName::namespaced("default", name),
            wanted: Some(3),
            deployment: "web".to_owned(),
            has,
            available: Some(0),
            last_event: "Normal Synced".to_owned(),
        };
        let foos = [row("a", Some(3)), row("a-long-name", None)];
        let figures = QueueFigures { adds: 12_345, retries: 1, ..QueueFigures::default() };
        let next = ("scale it", "kubectl patch foo".to_owned());
        let lines = picture(80, &foos, ("foos", &figures), &["x".to_owned()], &next);
        let lines: Vec<_> = lines.iter().map(|line| strip_str(line).to_string()).collect();
        assert_eq!(
            lines,
            [
                "",
                "FOO                  WANTS  DEPLOYMENT  HAS  AVAILABLE  LAST EVENT",
                "default/a            3      web         3    0          Normal Synced",
                "default/a-long-name  3      web         -    0          Normal Synced",
                "",
                "QUEUE  WAITING  DELAYED  RUNNING  LONGEST  ADDS   RETRIES  SYNCS  MEAN SYNC",
                "foos   0        0        0        -        12345  1        0      -",
                "! x",
                "",
                "next, in another terminal: scale it",
                "  kubectl patch foo",
            ]
        );
    }

    #[test]
    fn a_command_that_is_too_wide_is_folded_as_a_shell_takes_it() {
        assert_eq!(folded("kubectl get foos", 80), ["kubectl get foos"]);
        assert_eq!(
            folded("kubectl --kubeconfig f get foos", 28),
            ["kubectl --kubeconfig f \\", "  get foos"]
        );
        assert_eq!(folded("kubectl get foos", 3), ["kubectl \\", "  get \\", "  foos"]);
    }

    #[test]
    fn of_many_foos_some_are_shown_and_the_others_counted() {
        let row = |number: usize| FooRow {
            key: ObjectName::cluster(&number.to_string()),
            wanted: None,
            deployment: String::new(),
            has: None,
            available: None,
            last_event: String::new(),
        };
        let foos: Vec<_> = (0..10).map(row).collect();
        let lines = picture(80, &foos, ("foos", &QueueFigures::default()), &[], &("", String::new()));
        assert!(lines.iter().any(|line| line.contains("and 4 more")));
    }

    #[test]
    fn a_key_in_trouble_says_how_often_until_when_and_why() {
        let now = watchkeeper::Env::system().clock.now();
        let key = ObjectName::namespaced("default", "a");
        let mut record = KeyRecord {
            key,
            waiting_since: None,
            delayed_until: Some(now + Duration::from_millis(40)),
            worked_on_since: None,
            priority: watchkeeper::workqueue::Priority::Normal,
            retries: 4,
            last_error: Some(watchkeeper::workqueue::LastError { at: now, message: "no".into() }),
            last_success: None,
        };
        assert_eq!(trouble(&record, now).as_deref(), Some("default/a failed 4 times, again in 40 ms: no"));
        record.worked_on_since = Some(now);
        let later = now + Duration::from_secs(5);
        assert_eq!(trouble(&record, later).as_deref(), Some("default/a has been with a worker for 5.0 s"));
        (record.retries, record.worked_on_since) = (0, None);
        assert_eq!(trouble(&record, now), None, "what has succeeded since is no trouble");
    }
}
