//! Times, sizes, counts and states as people read them.

use jiff::Timestamp;
use maud::{Markup, html};

use crate::explain::{KeyState, KindView, Level};

/// Seconds from one time to another, negative if it is earlier; none if one of them is no time.
fn seconds(from: &str, to: &str) -> Option<f64> {
    let (from, to): (Timestamp, Timestamp) = (from.parse().ok()?, to.parse().ok()?);
    Some(to.duration_since(from).as_secs_f64())
}

/// A time in the past, as of `now`. The script counts on.
pub(super) fn ago(now: &str, at: &str) -> Markup {
    let Some(passed) = seconds(at, now).map(|passed| passed.max(0.0)) else { return html! { (at) } };
    html! { time datetime=(at) title=(at) data-ago=(millis(passed)) { (span(passed)) " ago" } }
}

/// A time since which something lasts.
pub(super) fn lasting(now: &str, since: &str) -> Markup {
    let Some(passed) = seconds(since, now).map(|passed| passed.max(0.0)) else { return html! { (since) } };
    html! { time datetime=(since) title=(since) data-for=(millis(passed)) { "for " (span(passed)) } }
}

/// A time in the future.
pub(super) fn ahead(now: &str, at: &str) -> Markup {
    let Some(left) = seconds(now, at).map(|left| left.max(0.0)) else { return html! { (at) } };
    html! {
        time datetime=(at) title=(at) data-in=(millis(left)) {
            @if left > 0.0 { "in " (span(left.ceil())) } @else { "now" }
        }
    }
}

/// A time in the past or in the future.
pub(super) fn moment(now: &str, at: &str) -> Markup {
    if seconds(now, at).is_some_and(|left| left > 0.0) { ahead(now, at) } else { ago(now, at) }
}

fn millis(seconds: f64) -> u64 {
    (seconds * 1e3).round() as u64
}

/// A duration to the second, as the script writes it.
pub(super) fn span(seconds: f64) -> String {
    let s = seconds as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3_600 => format!("{} min {} s", s / 60, s % 60),
        3_600..86_400 => format!("{} h {} min", s / 3_600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3_600 % 24),
    }
}

/// A short duration, such as that of a reconcile.
pub(super) fn short(seconds: f64) -> String {
    match seconds {
        s if s <= 0.0 => "0 ms".to_owned(),
        s if s < 0.000_1 => format!("{:.0} µs", s * 1e6),
        s if s < 0.01 => format!("{:.1} ms", s * 1e3),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 60.0 => format!("{s:.1} s"),
        s => span(s),
    }
}

/// A number with separators: `100,000`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things: `1 key`, `2 keys`.
pub(super) fn things(number: usize, one: &str) -> String {
    format!("{} {one}{}", count(number as u64), if number == 1 { "" } else { "s" })
}

/// A rate per second.
pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        r if r <= 0.0 => "0/s".to_owned(),
        r if r < 10.0 => format!("{r:.1}/s"),
        r => format!("{}/s", count(r.round() as u64)),
    }
}

/// A number of bytes: `1.5 MiB`.
pub(super) fn bytes(number: usize) -> String {
    let mut size = number as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size < 1024.0 {
            return if unit == "B" { format!("{number} B") } else { format!("{size:.1} {unit}") };
        }
        size /= 1024.0;
    }
    format!("{size:.1} TiB")
}

/// The name of a state, and the class of its colours.
pub(super) fn state(state: KeyState) -> (&'static str, &'static str) {
    match state {
        KeyState::Running => ("Running", "busy"),
        KeyState::Waiting => ("Waiting", "wait"),
        KeyState::Parked => ("Awaiting its writes", "wait"),
        KeyState::Retrying => ("Retrying", "warn"),
        KeyState::Delayed => ("Delayed", "busy"),
        KeyState::Failed => ("Failed", "bad"),
        KeyState::Idle => ("Idle", "ok"),
        KeyState::Cached => ("Cached", "still"),
        KeyState::Unknown => ("Unknown", "still"),
    }
}

pub(super) fn badge(of: KeyState) -> Markup {
    let (name, tone) = state(of);
    html! { span class={ "badge " (tone) } { (name) } }
}

pub(super) fn level(level: Level) -> &'static str {
    match level {
        Level::Ok => "ok",
        Level::Pending => "busy",
        Level::Notice => "warn",
        Level::Problem => "bad",
    }
}

/// A kind by its plural name and group, as a URL names it.
pub(super) fn kind(kind: &KindView) -> String {
    kind.resource()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(
            [count(0), count(999), count(1_000), count(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!([things(1, "key"), things(100_000, "key")], ["1 key", "100,000 keys"]);
        assert_eq!([bytes(12), bytes(1_536), bytes(1 << 30)], ["12 B", "1.5 KiB", "1.0 GiB"]);
        assert_eq!([rate(0.0), rate(0.25), rate(1_200.4)], ["0/s", "0.2/s", "1,200/s"]);
        assert_eq!(
            [span(59.9), span(61.0), span(7_260.0), span(90_000.0)],
            ["59 s", "1 min 1 s", "2 h 1 min", "1 d 1 h"]
        );
        assert_eq!(
            [short(0.000_02), short(0.004), short(0.25), short(2.0)],
            ["20 µs", "4.0 ms", "250 ms", "2.0 s"]
        );
    }

    #[test]
    fn times_are_relative_to_the_view() {
        let now = "2026-01-01T00:01:00.000Z";
        let text = |markup: Markup| markup.into_string();
        let past = text(ago(now, "2026-01-01T00:00:48.500Z"));
        assert!(past.contains(r#"data-ago="11500""#) && past.contains(">11 s ago<"), "{past}");
        let next = text(ahead(now, "2026-01-01T00:01:11.500Z"));
        assert!(next.contains(r#"data-in="11500""#) && next.contains(">in 12 s<"), "{next}");
        assert_eq!(text(moment(now, "2026-01-01T00:01:11.500Z")), next);
        assert_eq!(text(ago(now, "<soon>")), "&lt;soon&gt;");
    }
}
