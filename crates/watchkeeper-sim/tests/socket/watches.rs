//! Faults of watches and their events, as a client sees them.

use std::io::ErrorKind;

use crate::{Faulty, MAPS};

fn watch(parameters: &str) -> String {
    format!("{MAPS}?watch=true&{parameters}")
}

/// A watch that begins with the current state.
const STREAM: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

#[tokio::test]
async fn a_watch_can_be_refused_as_expired() {
    let faulty = Faulty::always("expire").await;
    assert_eq!(faulty.reasons_of_410(&watch("resourceVersion=1")).await, ["Expired", "Gone"]);
}

#[tokio::test]
async fn a_watch_can_expire_after_it_was_opened_with_either_reason() {
    let faulty = Faulty::always("expire-later").await;
    let mut reasons = Vec::new();
    for _ in 0..20 {
        let mut raw = faulty.send("GET", &watch("resourceVersion=1"), "").await;
        let text = raw.until("\r\n0\r\n").await;
        assert!(text.starts_with("HTTP/1.1 200") && text.contains(r#""type":"ERROR""#), "{text}");
        assert!(text.contains(r#""code":410"#), "{text}");
        reasons.push(text.contains(r#""reason":"Gone""#));
    }
    assert!(reasons.contains(&true) && reasons.contains(&false), "{reasons:?}");
}

#[tokio::test]
async fn a_watch_can_stay_without_an_answer() {
    let faulty = Faulty::always("never-open").await;
    let (seen, why) = faulty.send("GET", &watch(STREAM), "").await.end().await;
    assert_eq!((seen.as_str(), why), ("", ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn a_watch_can_break_within_an_event() {
    let faulty = Faulty::always("cut").await;
    faulty.create("a").await;
    let mut parts = 0;
    for _ in 0..10 {
        let (seen, why) = faulty.send("GET", &watch(STREAM), "").await.end().await;
        assert_eq!(why, ErrorKind::ConnectionReset, "{seen}");
        assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");
        parts += usize::from(seen.contains(r#"{"type":"AD"#) && !seen.contains("}}\n"));
    }
    assert!(parts > 0, "{:?}", faulty.faults());
}

#[tokio::test]
async fn a_watch_can_stall() {
    let faulty = Faulty::always("stall").await;
    faulty.create("a").await;
    let (seen, why) = faulty.send("GET", &watch(STREAM), "").await.end().await;
    assert!(seen.starts_with("HTTP/1.1 200") && !seen.contains("ADDED"), "{seen}");
    assert_eq!(why, ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn an_event_can_come_late_or_twice() {
    let late = Faulty::always("delay").await;
    late.create("a").await;
    let begun = late.env.clock.now();
    late.send("GET", &watch(STREAM), "").await.until(r#""name":"a""#).await;
    let passed = (late.env.clock.now() - begun).as_millis() as u64;
    let fault = late.faults().remove(0);
    let time = fault.split(['(', 'm']).nth(1).unwrap().parse::<u64>().unwrap();
    assert!(passed >= time, "{passed} ms, {fault}");

    let twice = Faulty::always("duplicate").await;
    twice.create("a").await;
    let text = twice.send("GET", &watch(STREAM), "").await.until("initial-events-end").await;
    assert_eq!(text.matches(r#""type":"ADDED""#).count(), 2, "{text}");
}

#[tokio::test]
async fn events_can_be_hidden_until_a_relist() {
    let faulty = Faulty::always("hide").await;
    faulty.create("a").await;
    let text = faulty.send("GET", &watch(STREAM), "").await.until("\r\n0\r\n").await;
    assert!(!text.contains("ADDED") && text.contains(r#""code":410"#), "{text}");
}

#[tokio::test]
async fn bookmarks_can_be_missing_but_not_the_one_that_ends_a_list() {
    let faulty = Faulty::always("no-bookmarks").await;
    faulty.create("a").await;
    let mut raw = faulty.send("GET", &watch(STREAM), "").await;
    raw.until("initial-events-end").await;
    // Meanwhile, others get bookmarks: one every 20 ms.
    let calm = Faulty::with(|faults| faults.rate(0.0)).await;
    let mut other = calm.send("GET", &watch(STREAM), "").await;
    while other.text().matches("BOOKMARK").count() < 4 {
        other.more().await;
    }
    faulty.create("b").await;
    let text = raw.until(r#""name":"b""#).await;
    assert_eq!(text.matches("BOOKMARK").count(), 1, "{text}");
}

#[tokio::test]
async fn a_restart_breaks_other_connections() {
    let faulty = Faulty::always("restart").await;
    // No fault happens to a watch of Leases itself.
    let leases = format!("/apis/coordination.k8s.io/v1/leases?watch=true&{STREAM}");
    let mut raw = faulty.send("GET", &leases, "").await;
    raw.until("initial-events-end").await;
    let lost = faulty.ask("GET", MAPS, "").await;
    assert!(lost.is_none(), "{lost:?}");
    assert_eq!(raw.end().await.1, ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn the_history_can_be_compacted() {
    let faulty = Faulty::always("compact").await;
    faulty.create("a").await;
    let before = faulty.server.revision() - 1;
    faulty.create("b").await;
    faulty.ask("GET", MAPS, "").await.unwrap();
    let text =
        faulty.send("GET", &watch(&format!("resourceVersion={before}")), "").await.until(r#""ERROR""#).await;
    assert!(text.contains(r#""code":410"#), "{text}");
}

#[tokio::test]
async fn an_object_can_become_undecodable_or_too_large() {
    let faulty = Faulty::always("undecodable").await;
    faulty.create("a").await;
    let text = faulty.send("GET", &watch(STREAM), "").await.until(r#""spec":7"#).await;
    assert!(text.contains(r#""type":"ADDED""#), "{text}");

    let faulty = Faulty::always("oversized").await;
    faulty.create("a").await;
    let mut raw = faulty.send("GET", &watch(STREAM), "").await;
    while raw.len() < 17 << 20 {
        raw.more().await;
    }
}
