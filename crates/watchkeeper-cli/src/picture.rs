//! The live view: Foos and their Deployments, the work queue, failing keys, and the next command, in aligned columns.

use std::time::Duration;

use anstyle::Style;
use watchkeeper::ObjectName;
use watchkeeper::clock::Instant;
use watchkeeper::workqueue::{KeyRecord, QueueFigures};

use crate::columns::{Cell, cut, folded, heading, printable, table};
use crate::front::{BOLD, CYAN, DIM, GREEN, RED, YELLOW};

/// The minimum number of Foos, and the maximum number of failing keys, to show.
const FOOS: usize = 3;
const TROUBLES: usize = 3;
/// A reconcile that takes longer is shown.
const LONG: Duration = Duration::from_secs(1);

/// One Foo and its current state.
#[derive(Clone, Debug)]
pub(crate) struct FooRow {
    pub(crate) key: ObjectName,
    pub(crate) wanted: Option<i32>,
    pub(crate) deployment: String,
    /// The replicas of its Deployment; `None` if it has none, or if another object controls it.
    pub(crate) has: Option<i32>,
    pub(crate) available: Option<i32>,
    pub(crate) last_event: String,
}

/// The view, line by line, for a terminal of that width and height; a quarter of the height is left for the lines above it. If not all `foos` fit,
/// unhealthy ones come first. Commands are folded to the width of the terminal.
pub(crate) fn picture(
    (width, height): (usize, usize),
    foos: &[FooRow],
    queue: (&str, &QueueFigures),
    troubles: &[String],
    next: &(&str, String),
) -> Vec<String> {
    let headings =
        ["QUEUE", "WAITING", "DELAYED", "RUNNING", "LONGEST", "ADDS", "RETRIES", "SYNCS", "MEAN SYNC"];
    let mut below = vec![String::new()];
    below.extend(table(vec![heading(&headings), queue_cells(queue.0, queue.1)]));
    below.extend(troubles.iter().take(TROUBLES).map(|trouble| format!("{RED}!{RED:#} {trouble}")));
    let (what, command) = next;
    below.push(String::new());
    below.push(format!("{BOLD}next{BOLD:#}, in another terminal: {what}"));
    below.extend(folded(command, width).iter().map(|line| format!("  {CYAN}{line}{CYAN:#}")));

    // An empty line, the headings, the count of hidden Foos, and the row of the cursor.
    let room = height.saturating_sub(below.len() + 4 + height / 4).max(FOOS);
    let (ill, well): (Vec<_>, Vec<_>) = foos.iter().partition(|foo| foos.len() > room && !foo.is_well());
    let rows = ill.into_iter().chain(well).take(room).map(|foo| foo.cells(width));
    let headings = ["FOO", "WANTS", "DEPLOYMENT", "HAS", "AVAILABLE", "LAST EVENT"];
    let mut lines = vec![String::new()];
    lines.extend(table(std::iter::once(heading(&headings)).chain(rows).collect()));
    if foos.len() > room {
        lines.push(format!("{DIM}and {} more{DIM:#}", foos.len() - room));
    }
    lines.extend(below);
    lines
}

impl FooRow {
    /// Whether the Deployment has the desired replicas; any number will do if the Foo does not specify one.
    fn is_so(&self) -> bool {
        self.has.is_some() && self.wanted.is_none_or(|wanted| self.has == Some(wanted))
    }

    fn has_warning(&self) -> bool {
        self.last_event.starts_with("Warning")
    }

    fn is_well(&self) -> bool {
        self.is_so() && !self.has_warning()
    }

    /// Long names are truncated to leave room for the other columns.
    fn cells(&self, width: usize) -> Vec<Cell> {
        let plain = Style::new();
        let number = |number: Option<i32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        vec![
            (plain, cut(&self.key.to_string(), width / 3)),
            (plain, number(self.wanted)),
            (plain, cut(&self.deployment, width / 5)),
            (if self.is_so() { GREEN } else { YELLOW }, number(self.has)),
            (plain, number(self.available)),
            (if self.has_warning() { YELLOW } else { plain }, self.last_event.clone()),
        ]
    }
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

/// The queue in one line, for output without a live view.
pub(crate) fn queue_line(figures: &QueueFigures) -> String {
    let waiting: usize = figures.depth.iter().sum();
    format!(
        "{waiting} waiting, {} delayed, {} running; {} adds, {} retries",
        figures.delayed, figures.running.count, figures.adds, figures.retries
    )
}

/// A line about a key that fails or whose reconcile takes long, on a terminal of that width.
pub(crate) fn trouble(record: &KeyRecord<ObjectName>, now: Instant, width: usize) -> Option<String> {
    let key = cut(&record.key.to_string(), width / 3);
    if let Some(since) = record.worked_on_since
        && now.saturating_duration_since(since) > LONG
    {
        return Some(format!("{key} has been running for {}", short(now - since)));
    }
    let error = record.last_error.as_ref().filter(|_| record.retries > 0)?;
    let again = record.delayed_until.map(|due| short(due.saturating_duration_since(now)));
    let again = again.map_or_else(String::new, |delay| format!(", retry in {delay}"));
    let times = if record.retries == 1 { "once".to_owned() } else { format!("{} times", record.retries) };
    Some(format!("{key} failed {times}{again}: {}", printable(&error.message)))
}

/// A duration in the largest fitting unit.
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

    use watchkeeper::workqueue::{RateLimitingQueue, limiter};

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
        let mut figures = QueueFigures::default();
        (figures.adds, figures.retries) = (12_345, 1);
        let next = ("scale it", "kubectl patch foo".to_owned());
        let lines = picture((80, 24), &foos, ("foos", &figures), &["x".to_owned()], &next);
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

    fn shown(size: (usize, usize), foos: &[FooRow]) -> Vec<String> {
        let lines = picture(size, foos, ("foos", &QueueFigures::default()), &[], &("", String::new()));
        lines.iter().map(|line| strip_str(line).to_string()).collect()
    }

    fn well(name: &str) -> FooRow {
        FooRow {
            key: ObjectName::namespaced("default", name),
            wanted: Some(1),
            deployment: name.to_owned(),
            has: Some(1),
            available: None,
            last_event: String::new(),
        }
    }

    #[test]
    fn of_many_foos_some_are_shown_and_the_others_counted() {
        let foos: Vec<_> = (0..32).map(|number| well(&format!("foo{number}"))).collect();
        let rows =
            |height| shown((80, height), &foos).iter().filter(|line| line.contains("default/")).count();
        assert_eq!([1, 24, 50, 100].map(rows), [3, 8, 28, 32]);
        assert!(shown((80, 24), &foos).contains(&"and 24 more".to_owned()));
        assert_eq!(shown((80, 50), &foos).len(), 50 - 50 / 4 - 1);
    }

    #[test]
    fn of_too_many_foos_those_that_are_not_well_come_first() {
        let mut foos: Vec<_> = (0..32).map(|number| well(&format!("foo{number}"))).collect();
        foos[20].has = Some(7);
        foos[30].last_event = "Warning ErrResourceExists: it exists".to_owned();
        let lines = shown((80, 24), &foos);
        let names: Vec<_> = lines[2..5].iter().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(names, ["default/foo20", "default/foo30", "default/foo0"]);
    }

    #[test]
    fn a_long_name_leaves_room_for_the_rest() {
        let lines = shown((60, 24), &[well(&"x".repeat(54)), well("example-foo")]);
        assert_eq!(
            lines[1..4],
            [
                "FOO                   WANTS  DEPLOYMENT    HAS  AVAILABLE  LAST EVENT",
                "default/xxxxxxxxxxx…  1      xxxxxxxxxxx…  1    -          ",
                "default/example-foo   1      example-foo   1    -          ",
            ]
        );
    }

    #[test]
    fn a_key_in_trouble_says_how_often_until_when_and_why() {
        let env = watchkeeper::Env::system();
        let now = env.clock.now();
        let key = ObjectName::namespaced("default", "a");
        let queue = RateLimitingQueue::new("foos", limiter::default_controller(), &env);
        queue.add(key.clone());
        let mut record = queue.explain(&key).unwrap();
        record.waiting_since = None;
        record.delayed_until = Some(now + Duration::from_millis(40));
        record.retries = 4;
        record.last_error = Some(watchkeeper::workqueue::LastError { at: now, message: "no".into() });
        assert_eq!(
            trouble(&record, now, 80).as_deref(),
            Some("default/a failed 4 times, retry in 40 ms: no")
        );
        assert!(
            trouble(&record, now, 18).unwrap().starts_with("defau… failed"),
            "a long key leaves room for the rest"
        );
        record.worked_on_since = Some(now);
        let later = now + Duration::from_secs(5);
        assert_eq!(trouble(&record, later, 80).as_deref(), Some("default/a has been running for 5.0 s"));
        (record.retries, record.worked_on_since) = (0, None);
        assert_eq!(trouble(&record, now, 80), None, "what has succeeded since is no trouble");
    }
}
