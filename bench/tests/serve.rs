//! The benchmark server delivers all Pods and all events to every client, unbroken.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

use std::collections::BTreeSet;

use bench::serve::{Pace, Service, World};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use watchkeeper::clock::{Clock, Generator};

fn service(objects: u32, events: u32) -> Service {
    Service::new(World::synthetic(objects, events, &Generator::seeded(1)), Clock::system())
}

fn get(service: &Service, path: &str) -> Response<bench::serve::Body> {
    service.handle(&Request::get(path).body(()).unwrap())
}

async fn text(response: Response<bench::serve::Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

async fn json(service: &Service, path: &str) -> Value {
    serde_json::from_str(&text(get(service, path)).await).unwrap()
}

/// Reads a watch until it has given `count` lines.
async fn lines(response: Response<bench::serve::Body>, count: usize) -> Vec<Value> {
    assert_eq!(response.status(), StatusCode::OK);
    let (mut body, mut lines) = (response.into_body(), Vec::new());
    while lines.len() < count {
        let frame = body.frame().await.expect("the watch stays open").unwrap().into_data().unwrap();
        lines.extend(
            frame.split_inclusive(|byte| *byte == b'\n').map(|line| serde_json::from_slice(line).unwrap()),
        );
    }
    lines
}

fn key(object: &Value) -> String {
    let metadata = &object["metadata"];
    format!("{}/{}", metadata["namespace"].as_str().unwrap(), metadata["name"].as_str().unwrap())
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// All pages of a list with `limit`, as (items, the list's version).
async fn pages(service: &Service, limit: usize) -> (Vec<Value>, u64) {
    let (mut items, mut token) = (Vec::new(), String::new());
    loop {
        let page = json(service, &format!("/api/v1/pods?limit={limit}&continue={token}")).await;
        assert_eq!((page["kind"].as_str(), page["apiVersion"].as_str()), (Some("PodList"), Some("v1")));
        items.extend(page["items"].as_array().unwrap().clone());
        match page["metadata"]["continue"].as_str() {
            Some(next) => token = next.to_owned(),
            None => return (items, version(&page)),
        }
        assert!(page["metadata"]["remainingItemCount"].as_u64().unwrap() > 0);
    }
}

#[tokio::test]
async fn five_hundred_synthetic_pods_decode_and_have_the_size_of_real_ones() {
    let service = service(500, 0);
    let list = json(&service, "/api/v1/pods").await;
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 500);
    let (mut all, mut managed) = (0, 0);
    for item in items {
        let pod: Pod = serde_json::from_value(item.clone()).unwrap();
        assert!(pod.status.unwrap().container_statuses.unwrap().len() == pod.spec.unwrap().containers.len());
        assert!(item.get("kind").is_none() && item.get("apiVersion").is_none());
        all += item.to_string().len();
        managed += item["metadata"]["managedFields"].to_string().len();
    }
    let average = all / items.len();
    assert!((6300..=7300).contains(&average), "{average} bytes on average");
    let share = managed * 100 / all;
    assert!((20..=40).contains(&share), "{share} % are managedFields");
    let namespaces: BTreeSet<_> =
        items.iter().map(|item| item["metadata"]["namespace"].to_string()).collect();
    assert!(namespaces.len() > 3, "{namespaces:?}");
}

#[tokio::test]
async fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let list = async |seed| {
        let world = World::synthetic(50, 20, &Generator::seeded(seed));
        let service = Service::new(world, Clock::system());
        get(&service, "/start");
        text(get(&service, "/api/v1/pods")).await
    };
    assert_eq!(list(1).await, list(1).await);
    assert_ne!(list(1).await, list(2).await);
}

#[tokio::test]
async fn paging_returns_every_pod_exactly_once_and_in_order() {
    let service = service(503, 0);
    let (items, _) = pages(&service, 100).await;
    let keys: Vec<_> = items.iter().map(key).collect();
    let unique: BTreeSet<_> = keys.iter().cloned().collect();
    assert_eq!((keys.len(), unique.len()), (503, 503));
    assert!(keys.is_sorted());
    let versions: BTreeSet<_> = items.iter().map(version).collect();
    assert_eq!(versions.len(), 503);
    assert_eq!(pages(&service, 0).await.0, items);
}

#[tokio::test]
async fn a_list_goes_on_in_the_state_in_which_it_began() {
    let service = service(20, 100);
    let first = json(&service, "/api/v1/pods?limit=10").await;
    get(&service, "/start");
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = json(&service, &format!("/api/v1/pods?limit=10&continue={token}")).await;
    assert_eq!(version(&first), version(&second));
    let now = json(&service, "/api/v1/pods").await;
    assert_eq!(version(&now), version(&first) + 100);
}

#[tokio::test]
async fn a_watch_replays_all_events_in_order_and_ends_at_the_state_of_the_next_list() {
    let service = service(60, 1000);
    let (items, start) = pages(&service, 0).await;
    let watch =
        get(&service, &format!("/api/v1/pods?watch=1&resourceVersion={start}&allowWatchBookmarks=true"));
    assert_eq!(text(get(&service, "/start")).await, "started");
    let events = lines(watch, 1000).await;
    let mut world: std::collections::BTreeMap<_, _> =
        items.into_iter().map(|item| (key(&item), item)).collect();
    let mut kinds = [0; 3];
    for (number, event) in events.iter().enumerate() {
        let mut object = event["object"].clone();
        serde_json::from_value::<Pod>(object.clone()).unwrap();
        assert_eq!(version(&object), start + number as u64 + 1);
        object.as_object_mut().unwrap().retain(|field, _| field != "kind" && field != "apiVersion");
        let (kind, before) = match event["type"].as_str().unwrap() {
            "ADDED" => (0, world.insert(key(&object), object)),
            "MODIFIED" => {
                (1, Some(world.insert(key(&object), object).expect("only what is there is modified")))
            }
            "DELETED" => (2, world.remove(&key(&object))),
            other => panic!("unexpected {other}"),
        };
        kinds[kind] += 1;
        assert_eq!(before.is_some(), kind != 0, "event {number}");
    }
    assert_eq!(kinds[0], kinds[2]);
    assert!(kinds[0] > 5 && kinds[1] > 900, "{kinds:?}");
    let (after, end) = pages(&service, 7).await;
    assert_eq!(end, start + 1000);
    assert_eq!(after, world.into_values().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_watch_that_starts_later_gets_the_rest() {
    let service = service(10, 50);
    get(&service, "/start");
    let start = World::BEFORE + 30;
    let watch = get(&service, &format!("/api/v1/pods?watch=true&resourceVersion={start}"));
    let versions: Vec<_> = lines(watch, 20).await.iter().map(|event| version(&event["object"])).collect();
    assert_eq!(versions, (start + 1..=start + 20).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_watch_without_a_version_begins_with_all_pods() {
    let service = service(30, 0);
    let events = lines(get(&service, "/api/v1/pods?watch=1"), 30).await;
    assert!(events.iter().all(|event| event["type"] == "ADDED"));
    assert_eq!(events.iter().map(|event| key(&event["object"])).collect::<BTreeSet<_>>().len(), 30);
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_sends_bookmarks_and_ends_at_its_time_out() {
    let service = service(5, 0);
    let path = "/api/v1/pods?watch=1&resourceVersion=10000000&allowWatchBookmarks=true&timeoutSeconds=150";
    let body = text(get(&service, path)).await;
    let events: Vec<Value> = body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        events.iter().map(|event| event["type"].as_str().unwrap()).collect::<Vec<_>>(),
        ["BOOKMARK", "BOOKMARK"]
    );
    assert!(events.iter().all(|event| version(&event["object"]) == World::BEFORE));
}

#[tokio::test]
async fn a_watch_from_before_the_history_is_told_so_and_ends() {
    let service = service(5, 0);
    let body = text(get(&service, "/api/v1/pods?watch=1&resourceVersion=7")).await;
    let event: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&"ERROR".into(), &410.into()));
}

const STREAMING: &str = "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// Asserts that `event` is the bookmark that ends the initial events of a state at `expected`.
fn assert_initial_end(event: &Value, expected: u64) {
    assert_eq!(event["type"], "BOOKMARK");
    serde_json::from_value::<Pod>(event["object"].clone()).unwrap();
    assert_eq!((&event["object"]["kind"], &event["object"]["apiVersion"]), (&"Pod".into(), &"v1".into()));
    assert_eq!(event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(version(&event["object"]), expected);
}

#[tokio::test]
async fn a_streaming_list_has_the_pods_of_a_list_and_then_goes_on_as_a_watch() {
    let service = service(60, 200);
    let (items, start) = pages(&service, 0).await;
    let streaming = get(&service, STREAMING);
    get(&service, "/start");
    let events = lines(streaming, 60 + 1 + 200).await;
    for (event, item) in events[..60].iter().zip(&items) {
        assert_eq!(event["type"], "ADDED");
        let mut object = event["object"].clone();
        assert_eq!((&object["kind"], &object["apiVersion"]), (&"Pod".into(), &"v1".into()));
        object.as_object_mut().unwrap().retain(|field, _| field != "kind" && field != "apiVersion");
        assert_eq!(object, *item);
    }
    assert_initial_end(&events[60], start);
    let versions: Vec<_> = events[61..].iter().map(|event| version(&event["object"])).collect();
    assert_eq!(versions, (start + 1..=start + 200).collect::<Vec<_>>());
    let watched = lines(get(&service, &format!("/api/v1/pods?watch=1&resourceVersion={start}")), 200).await;
    assert_eq!(events[61..], watched);
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_after_the_events_has_the_state_after_them_and_no_event_twice() {
    let service = service(30, 100);
    get(&service, "/start");
    let (items, end) = pages(&service, 0).await;
    for from in ["", "&resourceVersion=0", "&resourceVersion=7", "&resourceVersion=10000100"] {
        let body = text(get(&service, &format!("{STREAMING}{from}&timeoutSeconds=5"))).await;
        let events: Vec<Value> = body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(events.len(), 31, "{from}");
        assert!(events.iter().zip(&items).all(|(event, item)| {
            key(&event["object"]) == key(item) && version(&event["object"]) == version(item)
        }));
        assert_initial_end(&events[30], end);
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_of_nothing_is_its_bookmark_and_only_for_those_who_take_bookmarks() {
    let service = service(0, 0);
    let body = text(get(&service, &format!("{STREAMING}&timeoutSeconds=5"))).await;
    assert_initial_end(&serde_json::from_str(&body).unwrap(), World::BEFORE);
    let path = STREAMING.replace("&allowWatchBookmarks=true", "&timeoutSeconds=5");
    assert_eq!(text(get(&service, &path)).await, "");
}

#[tokio::test]
async fn a_streaming_list_is_made_while_it_is_read() {
    let service = service(200, 0);
    let (mut body, mut frames, mut lines) = (get(&service, STREAMING).into_body(), 0, 0);
    while lines < 201 {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(frame.len() < 256 * 1024, "{} bytes", frame.len());
        lines += frame.iter().filter(|byte| **byte == b'\n').count();
        frames += 1;
    }
    assert!(frames > 5, "{frames}");
}

#[tokio::test]
async fn a_watch_without_initial_events_begins_now() {
    let service = service(5, 3);
    let path = STREAMING.replace("sendInitialEvents=true", "sendInitialEvents=false");
    let watch = get(&service, &path);
    get(&service, "/start");
    let versions: Vec<_> = lines(watch, 3).await.iter().map(|event| version(&event["object"])).collect();
    assert_eq!(versions, (World::BEFORE + 1..=World::BEFORE + 3).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_streaming_list_is_refused_if_it_cannot_be_what_was_asked_for() {
    let service = service(5, 0);
    for (path, code, reason) in [
        (STREAMING.replace("&resourceVersionMatch=NotOlderThan", ""), 422, "Invalid"),
        (STREAMING.replace("NotOlderThan", "Exact"), 422, "Invalid"),
        (STREAMING.replace("watch=true&", ""), 422, "Invalid"),
        (format!("{STREAMING}&resourceVersion=10000001"), 504, "Timeout"),
    ] {
        let response = get(&service, &path);
        assert_eq!(response.status(), code, "{path}");
        let status: Value = serde_json::from_str(&text(response).await).unwrap();
        assert_eq!((&status["kind"], &status["reason"]), (&"Status".into(), &reason.into()), "{path}");
    }
}

#[tokio::test]
async fn a_streaming_list_is_refused_by_a_server_without_them() {
    let service = service(5, 0).streaming(false);
    let response = get(&service, STREAMING);
    assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let status: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!((&status["kind"], &status["reason"]), (&"Status".into(), &"Invalid".into()));
    assert_eq!(lines(get(&service, "/api/v1/pods?watch=1&allowWatchBookmarks=true"), 5).await.len(), 5);
}

#[tokio::test]
async fn events_start_only_once() {
    let service = service(5, 3);
    assert_eq!(text(get(&service, "/start")).await, "started");
    assert_eq!(text(get(&service, "/start")).await, "already started");
    assert_eq!(get(&service, "/nowhere").status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn foreign_manifests_become_pods_with_names_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write(
        "pods.yaml",
        "kind: Pod\napiVersion: v1\nmetadata: {name: one, namespace: a, labels: {app: x}}\nspec:\n  containers: [{name: c, image: i}]\n---\n\
         kind: Deployment\napiVersion: apps/v1\nmetadata: {name: web}\nspec:\n  selector: {}\n  template:\n    metadata: {labels: {app: web, version: 1.0}}\n    \
         spec: {containers: [{name: c, image: nginx}]}\n",
    );
    write("service.json", r#"{"kind":"Service","apiVersion":"v1","metadata":{"name":"s"}}"#);
    write(
        "list.json",
        r#"{"kind":"PodList","items":[{"metadata":{"name":"two"},"spec":{"containers":[]},"status":{"phase":"Running"}}]}"#,
    );
    write("README.md", "not a manifest");
    let world = World::from_manifests(directory.path(), 9, 40, &Generator::seeded(1)).unwrap();
    let service = Service::new(world, Clock::system());
    get(&service, "/start");
    let (items, start) = (pages(&service, 4).await.0, World::BEFORE);
    let keys: Vec<_> = items.iter().map(key).collect();
    assert_eq!(keys.len(), 9);
    for part in ["a/one-", "default/web-", "default/two-"] {
        assert_eq!(keys.iter().filter(|key| key.starts_with(part)).count(), 3, "{keys:?}");
    }
    for event in lines(get(&service, &format!("/api/v1/pods?watch=1&resourceVersion={start}")), 40).await {
        serde_json::from_value::<Pod>(event["object"].clone()).unwrap();
    }
}

#[test]
fn a_directory_without_pods_and_a_broken_manifest_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let error =
        |directory| World::from_manifests(directory, 1, 0, &Generator::seeded(1)).unwrap_err().to_string();
    assert!(error(directory.path()).starts_with("no Pod and no workload"));
    std::fs::write(directory.path().join("broken.json"), "{").unwrap();
    assert!(error(directory.path()).contains("broken.json is not valid"));
    assert!(error(std::path::Path::new("/nonexistent")).starts_with("cannot read /nonexistent"));
}

#[tokio::test]
async fn small_pods_decode_are_all_different_and_have_a_thousand_bytes() {
    let world = World::small(500, 100, &Generator::seeded(1));
    let average = world.json_bytes() / world.len();
    assert!((970..=1030).contains(&average), "{average} bytes on average");
    let service = Service::new(world, Clock::system());
    let (items, start) = pages(&service, 100).await;
    assert_eq!(items.iter().map(key).collect::<BTreeSet<_>>().len(), 500);
    assert_eq!(items.iter().map(version).collect::<BTreeSet<_>>().len(), 500);
    for item in &items {
        let pod: Pod = serde_json::from_value(item.clone()).unwrap();
        assert!(pod.metadata.managed_fields.is_none());
        assert_eq!(pod.status.unwrap().container_statuses.unwrap().len(), 1);
    }
    get(&service, "/start");
    for event in lines(get(&service, &format!("/api/v1/pods?watch=1&resourceVersion={start}")), 100).await {
        serde_json::from_value::<Pod>(event["object"].clone()).unwrap();
    }
}

/// All lines of a watch that ends by itself, as (type, HTTP code of a Status).
async fn ended(watch: Response<bench::serve::Body>) -> Vec<(String, Option<u64>)> {
    let body = text(watch).await;
    let events = body.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events
        .map(|event| (event["type"].as_str().unwrap().to_owned(), event["object"]["code"].as_u64()))
        .collect()
}

#[tokio::test]
async fn an_expired_history_ends_watches_and_leaves_pods_as_they_were() {
    let service = service(20, 0);
    let (before, start) = pages(&service, 0).await;
    let watch = get(&service, &format!("/api/v1/pods?watch=1&resourceVersion={start}"));
    let first_page = json(&service, "/api/v1/pods?limit=5").await;
    let expired: u64 = text(get(&service, "/expire")).await.parse().unwrap();
    assert_eq!(ended(watch).await, [("ERROR".to_owned(), Some(410))]);
    let again = get(&service, &format!("/api/v1/pods?watch=1&resourceVersion={start}"));
    assert_eq!(ended(again).await, [("ERROR".to_owned(), Some(410))]);
    let token = first_page["metadata"]["continue"].as_str().unwrap();
    assert_eq!(get(&service, &format!("/api/v1/pods?continue={token}")).status(), StatusCode::GONE);
    assert!(expired > start);
    assert_eq!(pages(&service, 6).await, (before, expired));
}

#[tokio::test(start_paused = true)]
async fn a_changed_world_has_every_pod_under_its_name_and_in_another_version() {
    let service = service(20, 10);
    let (before, start) = pages(&service, 0).await;
    let mut past = BTreeSet::from_iter(before.iter().map(version));
    let mut latest = start;
    for _ in 0..2 {
        let changed: u64 = text(get(&service, "/change")).await.parse().unwrap();
        let (after, now) = pages(&service, 6).await;
        assert_eq!((now, changed > latest), (changed, true));
        assert_eq!(after.iter().map(key).collect::<Vec<_>>(), before.iter().map(key).collect::<Vec<_>>());
        assert!(after.iter().all(|item| past.insert(version(item)) && version(item) <= now));
        let streamed = lines(get(&service, STREAMING), 21).await;
        assert!(streamed.iter().zip(&after).all(|(event, item)| version(&event["object"]) == version(item)));
        assert_initial_end(&streamed[20], now);
        latest = now;
    }
    // Nothing more happens: a watch from here only has bookmarks.
    let path =
        format!("/api/v1/pods?watch=1&resourceVersion={latest}&allowWatchBookmarks=true&timeoutSeconds=90");
    assert_eq!(ended(get(&service, &path)).await, [("BOOKMARK".to_owned(), None)]);
}

#[tokio::test(start_paused = true)]
async fn a_paced_watch_sends_each_event_when_it_is_due_and_tells_of_it() {
    let (sent, told) = std::sync::mpsc::channel();
    let (clock, every) = (Clock::system(), std::time::Duration::from_millis(100));
    let service = service(10, 30).paced(Pace { every, sent });
    let watch = get(&service, &format!("/api/v1/pods?watch=1&resourceVersion={}", World::BEFORE));
    let start = clock.now();
    get(&service, "/start");
    lines(watch, 30).await;
    assert_eq!(clock.now() - start, every * 29);
    let told: Vec<_> = told.try_iter().collect();
    assert_eq!(told.iter().map(|sent| sent.number).collect::<Vec<_>>(), (1..=30).collect::<Vec<_>>());
    assert!(told.iter().zip(0..).all(|(sent, n)| sent.due == start + every * n && sent.at == sent.due));
}
