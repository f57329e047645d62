//! `watchkeeper explain` and `watchkeeper status`: what a running program says, as text or JSON.

use std::error::Error;
use std::fmt::Write as _;

use anstream::println;
use anstyle::Style;
use watchkeeper::Env;
use watchkeeper::explain::{
    ChildView, ControllerView, Explanation, InformerView, KeyView, Level, Overview, TimelineKind,
    ViewRelation,
};
use watchkeeper::jiff::Timestamp;

use crate::args::{ExplainArgs, Output, StatusArgs};
use crate::ask::Program;
use crate::columns::{Cell, heading, printable, table};
use crate::front::{BOLD, CYAN, DIM, GREEN, RED, YELLOW};

const PLAIN: Style = Style::new();

/// `watchkeeper explain KIND [NAMESPACE/]NAME`.
pub(crate) async fn explain(args: &ExplainArgs, env: &Env) -> Result<(), Box<dyn Error>> {
    let program = Program::find(&args.ask, env).await?;
    let path = format!("/debug/explain?kind={}&key={}", encoded(&args.kind), encoded(&args.key));
    let explanation: serde_json::Value = program.get(&path).await?;
    if args.ask.output == Output::Json {
        println!("{explanation:#}");
        return Ok(());
    }
    let explanation: Explanation = serde_json::from_value(explanation)?;
    show(&explained(&explanation));
    Ok(())
}

/// `watchkeeper status`.
pub(crate) async fn status(args: &StatusArgs, env: &Env) -> Result<(), Box<dyn Error>> {
    let program = Program::find(&args.ask, env).await?;
    let overview: serde_json::Value = program.get("/debug/controllers").await?;
    let informers: serde_json::Value = program.get("/debug/informers").await?;
    if args.ask.output == Output::Json {
        let both = serde_json::json!({"overview": overview, "informers": informers});
        println!("{both:#}");
        return Ok(());
    }
    let informers: Vec<InformerView> = serde_json::from_value(informers)?;
    show(&overviewed(&serde_json::from_value(overview)?, &informers));
    Ok(())
}

/// Prints lines, without colours if the output is not a terminal.
fn show(lines: &[String]) {
    for line in lines {
        println!("{line}");
    }
}

/// Text in the query of a URL.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'/' => encoded.push(byte.into()),
            // Writing to a string does not fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

fn colour(level: Level) -> Style {
    match level {
        Level::Ok => GREEN,
        Level::Pending => CYAN,
        Level::Notice => YELLOW,
        _ => RED,
    }
}

/// The lines of an explanation.
fn explained(explanation: &Explanation) -> Vec<String> {
    let mut lines = vec![format!("{BOLD}{} {}{BOLD:#}", explanation.kind.kind, printable(&explanation.key))];
    for view in &explanation.views {
        let style = colour(view.verdict.level);
        lines.push(String::new());
        lines.push(format!("{style}{}{style:#}", printable(&view.verdict.text)));
        lines.extend(table(facts(view, &explanation.at)));
        if !view.timeline.is_empty() {
            lines.push(format!("{DIM}timeline{DIM:#}"));
            lines.extend(table(
                view.timeline
                    .iter()
                    .map(|entry| {
                        let style = if entry.kind == TimelineKind::Error { RED } else { PLAIN };
                        let when = when(&explanation.at, &entry.at);
                        vec![(DIM, format!("  {when}")), (style, printable(&entry.text))]
                    })
                    .collect(),
            ));
        }
        if !view.children.is_empty() {
            lines.push(format!("{DIM}children{DIM:#}"));
            children(&view.children, 1, &mut lines);
        }
        if view.children_left_off > 0 {
            lines.push(format!("  and {} more", view.children_left_off));
        }
        if !view.children_unknown.is_empty() {
            let kinds = view.children_unknown.join(", ");
            lines.push(format!(
                "children of kind {kinds} are not known: the cache is too large to be searched"
            ));
        }
    }
    lines
}

fn facts(view: &KeyView, now: &str) -> Vec<Vec<Cell>> {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut row =
        |name: &str, text: String| rows.push(vec![(DIM, name.to_owned()), (PLAIN, printable(&text))]);
    row("controller", view.controller.clone());
    if view.relation == ViewRelation::Itself {
        row("state", view.state.as_str().to_owned());
    }
    let times = [("since", &view.since), ("until", &view.until), ("last success", &view.last_success)];
    for (name, at) in times {
        if let Some(at) = at {
            row(name, format!("{} ({} UTC)", when(now, at), time(at)));
        }
    }
    if let Some(worker) = view.worker {
        row("worker", worker.to_string());
    }
    if let Some(behind) = view.behind {
        row("before it", if behind == 1 { "1 key".to_owned() } else { format!("{behind} keys") });
    }
    if view.failures > 0 {
        row("failures", format!("{} in a row", view.failures));
    }
    if let Some(outcome) = &view.last_outcome {
        let when = when(now, &outcome.at);
        row("last run", format!("{} after {}, {when}", outcome.result, lasting(outcome.seconds)));
    }
    if let Some(error) = &view.last_error {
        row("last error", format!("{}: {}", when(now, &error.at), error.message));
    }
    let versions = &view.versions;
    let versions = [
        ("cached", &versions.cached),
        ("last run saw", &versions.reconciled),
        ("last success saw", &versions.succeeded),
        ("awaited write", &versions.written),
    ];
    let known = versions.iter().filter_map(|(name, version)| Some(format!("{name} {}", version.as_ref()?)));
    let known: Vec<_> = known.collect();
    if !known.is_empty() {
        row("versions", known.join(", "));
    }
    if !view.finalizers.is_empty() {
        row("finalizers", view.finalizers.join(", "));
    }
    for write in &view.waits_for {
        let version =
            write.version.as_ref().map(|version| format!(" in version {version}")).unwrap_or_default();
        row("waits for", format!("{} {}{version}", write.kind, write.name));
    }
    if view.waits_for_left_off > 0 {
        row("waits for", format!("{} more", view.waits_for_left_off));
    }
    if !view.maps_to.is_empty() {
        row("reconciles", format!("{}{}", view.maps_to.join(", "), left_off(view.maps_to_left_off)));
    }
    rows
}

/// How many more there are than are printed.
fn left_off(number: usize) -> String {
    if number == 0 { String::new() } else { format!(" and {number} more") }
}

/// How long ago a time is, as of `now`, or in which time it comes.
fn when(now: &str, at: &str) -> String {
    let (Ok(now), Ok(then)) = (now.parse::<Timestamp>(), at.parse::<Timestamp>()) else {
        return at.to_owned();
    };
    let passed = now.duration_since(then);
    let seconds = passed.unsigned_abs().as_secs();
    let span = match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    };
    if passed.is_negative() { format!("in {span}") } else { format!("{span} ago") }
}

/// A duration, in the unit that suits it.
fn lasting(seconds: f64) -> String {
    match seconds {
        0.0..0.001 => format!("{:.0} µs", seconds * 1e6),
        0.001..1.0 => format!("{:.0} ms", seconds * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

/// The time of day of a time in RFC 3339.
fn time(at: &str) -> &str {
    at.get(11..23).unwrap_or(at)
}

fn children(of: &[ChildView], depth: usize, lines: &mut Vec<String>) {
    for child in of {
        let state = child.state.map(|state| format!("  {}", state.as_str())).unwrap_or_default();
        let deleting = if child.deleting { "  being deleted" } else { "" };
        let margin = "  ".repeat(depth);
        lines.push(format!("{margin}{} {}{DIM}{state}{deleting}{DIM:#}", child.kind, printable(&child.key)));
        children(&child.children, depth + 1, lines);
    }
}

/// The lines of an overview.
fn overviewed(overview: &Overview, informers: &[InformerView]) -> Vec<String> {
    let phase = format!("{:?}", overview.phase).to_lowercase();
    let mut lines = vec![format!("{BOLD}{}{BOLD:#}  {phase}", printable(&overview.program))];
    if let Some(leader) = &overview.leader {
        let who = match (leader.is_leader, leader.leader.as_str()) {
            (true, _) => "this replica leads".to_owned(),
            (false, "") => "nobody leads".to_owned(),
            (false, other) => format!("{} leads", printable(other)),
        };
        lines.push(format!("{who}, by the Lease {}", printable(&leader.lease)));
    }
    lines.push(String::new());
    let names = [
        "CONTROLLER",
        "KIND",
        "RUNNING",
        "WAITING",
        "PARKED",
        "RETRYING",
        "DELAYED",
        "FAILED",
        "IDLE",
        "CACHED",
        "OLDEST WAITING",
    ];
    let rows = overview.controllers.iter().map(controller);
    lines.extend(table(std::iter::once(heading(&names)).chain(rows).collect()));
    lines.push(String::new());
    let names = ["INFORMER", "PHASE", "OBJECTS", "MIB", "LISTS", "LAST CONTACT", "PROBLEM"];
    let rows = informers.iter().map(|view| informer(view, &overview.at));
    lines.extend(table(std::iter::once(heading(&names)).chain(rows).collect()));
    lines
}

fn controller(view: &ControllerView) -> Vec<Cell> {
    let keys = &view.keys;
    let number = |count: usize, style: Style| (if count > 0 { style } else { DIM }, count.to_string());
    let paused = if view.paused { " (paused)" } else { "" };
    let oldest = view.oldest_waiting_seconds.map(|seconds| format!("{seconds:.1} s")).unwrap_or_default();
    vec![
        (PLAIN, format!("{}{paused}", printable(&view.name))),
        (PLAIN, view.kind.kind.clone()),
        number(keys.running, CYAN),
        number(keys.waiting, CYAN),
        number(keys.parked, CYAN),
        number(keys.retrying, YELLOW),
        number(keys.delayed, PLAIN),
        number(keys.failed, RED),
        number(keys.idle, PLAIN),
        number(keys.cached, PLAIN),
        (PLAIN, oldest),
    ]
}

fn informer(view: &InformerView, now: &str) -> Vec<Cell> {
    let lists: u64 = view.lists.values().sum();
    let problem =
        view.degraded.as_ref().map(|degraded| format!("{}: {}", when(now, &degraded.since), degraded.why));
    let phase = if view.synced { view.phase.clone() } else { format!("{} (not synced)", view.phase) };
    vec![
        (PLAIN, printable(&view.name)),
        (PLAIN, phase),
        (PLAIN, view.objects.to_string()),
        (PLAIN, format!("{:.1}", view.bytes as f64 / 1_048_576.0)),
        (PLAIN, lists.to_string()),
        (PLAIN, view.last_contact.as_deref().map(|at| when(now, at)).unwrap_or_default()),
        (RED, printable(&problem.unwrap_or_default())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_relative_to_the_answer() {
        let now = "2026-01-01T00:10:00.000Z";
        assert_eq!(when(now, "2026-01-01T00:09:48.500Z"), "11 s ago");
        assert_eq!(when(now, "2026-01-01T00:10:36.000Z"), "in 36 s");
        assert_eq!(when(now, "2025-12-31T20:00:00.000Z"), "4 h ago");
        assert_eq!(when(now, "never"), "never");
    }

    #[test]
    fn a_duration_is_given_in_the_unit_that_suits_it() {
        let durations = [0.000_079, 0.038, 4.25].map(lasting);
        assert_eq!(durations, ["79 µs", "38 ms", "4.2 s"]);
    }
}
