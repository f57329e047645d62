//! Where two runs of one schedule go apart.

use crate::timeline;
use crate::trace::{Entry, Event, hash};

/// The second of two runs, with a remark where it is first not as the other.
pub(crate) fn mark(first: &[Entry], mut second: Vec<Entry>) -> Vec<Entry> {
    let counts = |entry: &Entry| hash(entry.at, &entry.event);
    let mut others = first.iter().filter(|entry| counts(entry).is_some());
    let mut other = None;
    let differs = second.iter().position(|entry| {
        let Some(hash) = counts(entry) else { return false };
        other = others.next();
        other.and_then(&counts) != Some(hash)
    });
    let at = differs.unwrap_or_else(|| {
        other = others.next();
        second.len()
    });
    let other = match other {
        Some(entry) => format!("goes on with {} at {}", what(entry), timeline::time(entry.at).trim()),
        None => "has ended".to_owned(),
    };
    let text = format!("the other run of the schedule is different from here on: it {other}");
    let time = second.get(at).or(second.last()).map(|entry| entry.at).unwrap_or_default();
    second.insert(at, Entry { at: time, event: Event::Note(text.into()) });
    second
}

fn what(entry: &Entry) -> String {
    match (&entry.event, timeline::line(entry, true)) {
        (_, Some(line)) => format!("{:?}", format!("{} {}", line.lane.name(), line.text).trim()),
        (Event::Sent { what, .. }, None) => format!("the request {what:?}"),
        (Event::Saw { what, .. }, None) => format!("a bookmark of {what:?}"),
        _ => "something else".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sent(seconds: u64, what: &str) -> Entry {
        let event = Event::Sent { replica: 0, what: what.into(), nth: 1, body: Default::default() };
        Entry { at: Duration::from_secs(seconds), event }
    }

    fn note(text: &str) -> Entry {
        Entry { at: Duration::ZERO, event: Event::Note(text.into()) }
    }

    fn remark(first: &[Entry], second: Vec<Entry>) -> (usize, String) {
        let marked = mark(first, second);
        let texts = marked.iter().enumerate().filter_map(|(at, entry)| match &entry.event {
            Event::Note(text) if text.starts_with("the other run") => Some((at, text.to_string())),
            _ => None,
        });
        texts.last().unwrap()
    }

    #[test]
    fn the_remark_stands_where_two_runs_first_differ() {
        let first = [sent(1, "get a"), note("one"), sent(2, "get b"), sent(3, "get c")];
        let (at, text) = remark(&first, vec![sent(1, "get a"), sent(2, "get x"), sent(3, "get c")]);
        assert_eq!(at, 1);
        assert!(text.ends_with("it goes on with the request \"get b\" at 0:02.000"), "{text}");
        let (at, text) = remark(&first, vec![sent(1, "get a"), sent(2, "get b")]);
        assert_eq!(at, 2);
        assert!(text.contains("the request \"get c\""), "{text}");
        let (at, text) = remark(&first[..1], vec![sent(1, "get a"), note("two"), sent(2, "get b")]);
        assert_eq!(at, 2);
        assert!(text.ends_with("it has ended"), "{text}");
    }
}
