//! Objects and events that are malformed, too large or of another kind.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::json;
use watchkeeper::ObjectName;
use watchkeeper::source::{Reply, ScriptedSource};

use crate::{ScriptedReflector, bookmark, event, list, object};

#[tokio::test(start_paused = true)]
async fn poison_among_good_objects_is_reported_by_place_and_name_and_nothing_loops() {
    let big = format!(
        r#"{{"metadata":{{"name":"big","namespace":"ns"}},"data":{{"k":"{}"}}}}"#,
        "x".repeat(17 << 20)
    );
    let mut body = br#"{"metadata":{"resourceVersion":"5"},"items":["#.to_vec();
    let items: [&[u8]; 6] = [
        br#"{"metadata":{"name":"good-1","namespace":"ns"}}"#,
        br#"{"metadata":{"labels":{}}}"#,
        b"{\"metadata\":{\"name\":\"bad\xff\",\"namespace\":\"ns\"}}",
        big.as_bytes(),
        br#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"other","namespace":"ns"}}"#,
        br#"{"metadata":{"name":"good-2","namespace":"ns"},"data":7}"#,
    ];
    body.extend(items.join(&b","[..]));
    body.extend(b"]}");
    let source = ScriptedSource::new();
    let watch = format!(
        "{}{}",
        event("ADDED", &object("good-3", 6)),
        r#"{"type":"MODIFIED","object":{"metadata":{}}}"#
    );
    let huge = format!(r#"{{"type":"ADDED","object":{big}}}"#);
    let last = event("ADDED", &object("good-4", 7));
    source
        .on_list(Reply::body(body).in_pieces(100_000))
        .on_watch(Reply::body(watch + &huge + &last).then_hang());
    let env_reports = Arc::new(Mutex::new(Vec::new()));
    let scripted = ScriptedReflector::start(source, |builder| builder);
    let log = env_reports.clone();
    scripted
        .env
        .reporter
        .add_hook(move |report| log.lock().push(format!("{} {}", report.subject, report.incident)));
    scripted.until_synced().await;
    scripted.settle().await;
    assert_eq!(scripted.cached(), ["good-1@", "good-2@", "good-3@6", "good-4@7"]);
    let reports = env_reports.lock().join("\n");
    for said in [
        "configmaps skipped item 1: object has no metadata.name",
        "configmaps skipped item 2: malformed JSON: a string that is not UTF-8",
        "configmaps skipped item 3, ns/big: 17825",
        "configmaps skipped item 4, ns/other: expected kind v1 ConfigMap, found v1 Secret",
        "configmaps skipped a Modified event: object has no metadata.name",
        "configmaps skipped an event, ns/big: 17825",
    ] {
        assert!(reports.contains(said), "{said:?} is not in\n{reports}");
    }
    assert_eq!((env_reports.lock().len(), scripted.source.asked().len()), (6, 2));
    let undecodable = scripted.informer.lister().get(&ObjectName::namespaced("ns", "good-2")).unwrap_err();
    assert!(undecodable.to_string().contains("ns/good-2"), "{undecodable}");
    scripted.stop.cancel();
}

/// An object over the cap, or one with half a character in its uid.
fn unreadable(name: &str, large: bool) -> String {
    let (uid, size) = if large { ("u", 17 << 20) } else { (r"\ud800", 1) };
    let data = "x".repeat(size);
    format!(r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"{uid}"}},"data":"{data}"}}"#)
}

#[tokio::test(start_paused = true)]
async fn what_is_there_but_cannot_be_taken_in_keeps_its_old_state_over_a_list() {
    for streams in [false, true] {
        let source = ScriptedSource::new();
        let source = if streams { source.streaming() } else { source };
        let gone = event("ERROR", &json!({"kind": "Status", "code": 410}));
        let items = ["large", "broken", "gone"];
        let bad = [unreadable("large", true), unreadable("never-seen", true), unreadable("broken", false)];
        if streams {
            let added = |object: &String| format!(r#"{{"type":"ADDED","object":{object}}}"#);
            let first: String = items.iter().map(|name| event("ADDED", &object(name, 1))).collect();
            source.on_watch(Reply::body(first + &bookmark(5, Some("true")) + &gone));
            let second: String = bad.iter().map(added).collect();
            source.on_watch(Reply::body(second + &bookmark(9, Some("true"))).then_hang());
        } else {
            source.on_list(list(5, &items)).on_watch(Reply::body(gone));
            let second = bad.join(",");
            source.on_list(Reply::body(format!(
                r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{second}]}}"#
            )));
        }
        let scripted = ScriptedReflector::start(source, |builder| builder);
        scripted.until_asked(if streams { 2 } else { 4 }).await;
        scripted.settle().await;
        assert_eq!(scripted.informer.health().lists, 2);
        assert_eq!(
            (scripted.cached(), scripted.env.reporter.errors()),
            (vec!["broken@1".into(), "large@1".into()], 3)
        );
        scripted.stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn the_largest_object_that_is_taken_in_can_be_set() {
    let sized = |name: &str, version: u64, size: usize| {
        let mut object = object(name, version);
        object["data"] = json!({"k": "x".repeat(size)});
        object
    };
    for (cap, expected) in [
        (None, vec!["listed@3", "small@3", "watched@6"]),
        (Some(100 << 10), vec!["small@3"]),
        // Below the minimum: 64 KiB is used.
        (Some(0), vec!["small@3"]),
    ] {
        let source = ScriptedSource::new();
        let items = [sized("listed", 3, 200 << 10), sized("small", 3, 60 << 10)];
        source
            .on_list(Reply::body(json!({"items": items, "metadata": {"resourceVersion": "5"}}).to_string()));
        source.on_watch(Reply::body(event("ADDED", &sized("watched", 6, 200 << 10))).then_hang());
        let scripted = ScriptedReflector::start(source, |builder| match cap {
            Some(cap) => builder.max_object_size(cap),
            None => builder,
        });
        scripted.until_synced().await;
        scripted.settle().await;
        assert_eq!(scripted.cached(), expected);
        assert_eq!(scripted.env.reporter.errors(), 3 - expected.len() as u64);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_is_gone_though_its_last_state_cannot_be_taken_in() {
    let source = ScriptedSource::new();
    let deleted = |object: &str| format!(r#"{{"type":"DELETED","object":{object}}}"#);
    let mut other = object("stays", 9);
    other["kind"] = "Secret".into();
    let events = deleted(&unreadable("large", true)) + &deleted(&unreadable("broken", false));
    source.on_list(list(5, &["large", "broken", "stays"]));
    source.on_watch(Reply::body(events + &event("DELETED", &other)).then_hang());
    let deleted = Arc::new(Mutex::new(Vec::new()));
    let scripted = ScriptedReflector::start(source, |builder| builder);
    let log = deleted.clone();
    let handler =
        watchkeeper::informer::on_change(move |change: watchkeeper::informer::Change<'_, ConfigMap>| {
            if let watchkeeper::informer::Change::Deleted(deleted) = change {
                log.lock().push((deleted.key().name().to_owned(), deleted.is_tombstone()));
            }
        });
    scripted.informer.add_handler(handler).unwrap();
    scripted.until_asked(2).await;
    scripted.settle().await;
    // An event about an object of another kind is ignored.
    assert_eq!((scripted.cached(), scripted.env.reporter.errors()), (vec!["stays@1".to_owned()], 3));
    assert_eq!(deleted.lock()[..], [("large".to_owned(), true), ("broken".to_owned(), true)]);
}
