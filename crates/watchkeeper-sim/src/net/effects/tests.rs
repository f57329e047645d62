use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube_client::client::Body;
use serde_json::{Value, json};
use tower::{Service, ServiceExt};
use watchkeeper::wire::{BadEvent, WatchSplitter};
use watchkeeper::{Env, ObjectName};
use watchkeeper_apiserver::ApiServer;

use crate::fault::Planned;
use crate::net::{AnswerBody, Net};
use crate::script::Script;
use crate::trace::{Event, Trace};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server with an object, behind a network with these faults.
struct Setup {
    env: Env,
    server: ApiServer,
    trace: Trace,
    net: Net,
}

impl Setup {
    async fn with(faults: &[&str]) -> Self {
        let env = Env::simulated(1);
        let server = ApiServer::new(&env);
        let planned: Vec<Planned> = faults.iter().map(|text| text.parse().unwrap()).collect();
        let trace = Trace::new(&env.clock);
        let net = Net::scripted(&server, &env.clock, Script::planned(&planned), &trace, 1);
        let setup = Self { env, server, trace, net };
        setup.create("a").await;
        setup
    }

    async fn create(&self, name: &str) {
        let map = json!({"metadata": {"name": name}, "data": {"key": "value"}}).to_string();
        let request = Request::post(MAPS).header("content-type", "application/json");
        let Ok(answer) =
            self.server.service().oneshot(request.body(Body::from(map.into_bytes())).unwrap()).await;
        assert_eq!(answer.status(), 201);
    }

    async fn get(&self, path: &str) -> Option<Response<AnswerBody>> {
        self.net.service().call(Request::get(path).body(Body::empty()).unwrap()).await.ok()
    }

    /// The answer to a request, as JSON.
    async fn read(&self, path: &str) -> (u16, Value) {
        let answer = self.get(path).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn watch(&self) -> http_body_util::BodyDataStream<AnswerBody> {
        let path = format!("{MAPS}?watch=true&resourceVersion=0&allowWatchBookmarks=true");
        self.get(&path).await.unwrap().into_body().into_data_stream()
    }

    fn effects(&self) -> Vec<String> {
        self.net.effects().iter().map(ToString::to_string).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_is_taken_away_when_a_request_is_refused() {
    for fault in
        ["forbid(configmaps) @ step 0", "unserve(configmaps) @ step 0", "unreachable(1000ms) @ step 0"]
    {
        let setup = Setup::with(&[fault]).await;
        setup.net.after_step(0);
        assert!(setup.effects().is_empty(), "{fault}");
        let answer = setup.get(MAPS).await;
        assert!(answer.is_none_or(|answer| matches!(answer.status().as_u16(), 403 | 404)), "{fault}");
        assert_eq!(setup.effects(), [fault]);
    }
}

/// Whether the watch delivers a change of an object, or breaks.
async fn goes_on(setup: &Setup, watch: &mut http_body_util::BodyDataStream<AnswerBody>) -> bool {
    setup.net.touch(&format!("{MAPS}/a")).await;
    loop {
        match watch.next().await.unwrap() {
            Ok(line) if line.windows(8).any(|part| part == b"MODIFIED") => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_outlives_its_permission_but_not_its_kind() {
    let cases = [("forbid(configmaps)", true), ("unserve(configmaps)", false), ("unserve(secrets)", true)];
    for (fault, lives) in cases {
        let setup = Setup::with(&[&format!("{fault} @ step 0")]).await;
        let mut watch = setup.watch().await;
        setup.net.after_step(0);
        assert_eq!(goes_on(&setup, &mut watch).await, lives, "{fault}");
    }
    let setup = Setup::with(&["unserve(configmaps) @ step 0", "unreachable(1ms) @ step 1"]).await;
    setup.net.after_step(0);
    setup.env.clock.sleep(Duration::from_secs(61)).await;
    let mut later = setup.watch().await;
    assert!(goes_on(&setup, &mut later).await, "it was opened when the kind was served again");
    setup.net.after_step(1);
    assert!(!goes_on(&setup, &mut later).await);
}

#[tokio::test(start_paused = true)]
async fn history_is_forgotten_when_a_version_has_expired() {
    for fault in ["compact @ step 0", "restart @ step 0"] {
        let setup = Setup::with(&[fault]).await;
        setup.create("b").await;
        setup.net.after_step(0);
        let (status, _) = setup.read(MAPS).await;
        assert_eq!((status, setup.effects().len()), (200, 0), "{fault}");
        let mut watch = setup
            .get(&format!("{MAPS}?watch=true&resourceVersion=1"))
            .await
            .unwrap()
            .into_body()
            .into_data_stream();
        let _refused_or_ended = watch.next().await;
        assert_eq!(setup.effects(), [fault]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_has_an_effect_on_an_open_watch() {
    let fault = "restart @ step 0";
    let setup = Setup::with(&[fault]).await;
    let mut watch = setup.watch().await;
    watch.next().await.unwrap().unwrap();
    setup.net.after_step(0);
    assert!(watch.next().await.unwrap().is_err());
    assert_eq!(setup.effects(), [fault]);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_are_missing_when_one_is_left_out() {
    let fault = "no-bookmarks @ watch configmaps default/ #1 event 1";
    let setup = Setup::with(&[fault]).await;
    let mut watch = setup.watch().await;
    watch.next().await.unwrap().unwrap();
    let end_of_list = watch.next().await.unwrap().unwrap();
    assert!(end_of_list.ends_with(b"\"BOOKMARK\"}\n"), "a part of the list, which no server leaves out");
    assert!(setup.effects().is_empty());
    let silence = setup.env.clock.timeout(Duration::from_secs(150), watch.next()).await;
    assert!(silence.is_err(), "{silence:?}");
    assert_eq!(setup.effects(), [fault]);
}

#[tokio::test(start_paused = true)]
async fn a_replica_is_killed_only_while_it_lives() {
    for (fault, is_early) in [("kill @ step 0", false), ("clock-offset(3600) @ step 0", true)] {
        let setup = Setup::with(&[fault]).await;
        let _over = setup.net.begin_life(0);
        setup.net.kill(0);
        setup.net.after_step(0);
        assert!(setup.effects().is_empty(), "{fault}");
        setup.net.clock_of(0);
        assert_eq!(setup.effects().len(), usize::from(is_early), "the next life begins with another clock");
    }
    let setup = Setup::with(&["kill @ step 0"]).await;
    let _over = setup.net.begin_life(0);
    setup.net.after_step(0);
    assert_eq!(setup.effects(), ["kill @ step 0"]);
}

#[tokio::test(start_paused = true)]
async fn a_replica_is_suspended_when_something_waits() {
    let fault = "pause(60000ms) @ step 0";
    let setup = Setup::with(&[fault]).await;
    setup.net.after_step(0);
    assert!(setup.effects().is_empty());
    setup.read(MAPS).await;
    assert_eq!(setup.effects(), [fault]);
}

#[tokio::test(start_paused = true)]
async fn an_old_state_is_served_when_there_is_a_newer_one() {
    let fault = "crash-stale(0) @ get configmaps default/a #1";
    for is_newer in [false, true] {
        let setup = Setup::with(&[fault]).await;
        setup.net.after_step(0);
        let _over = setup.net.begin_life(0);
        let path = format!("{MAPS}/a");
        let crash = setup.env.clock.timeout(Duration::from_secs(1), setup.read(&path));
        assert!(crash.await.is_err());
        setup.net.begin_life(0);
        if is_newer {
            setup.create("b").await;
        }
        let (_, list) = setup.read(&format!("{MAPS}?resourceVersion=0")).await;
        assert_eq!(list["items"].as_array().unwrap().len(), 1);
        assert_eq!(setup.effects().len(), usize::from(is_newer));
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_has_an_item_that_cannot_be_decoded_until_it_is_changed() {
    let fault = "undecodable @ list configmaps default/ #1";
    let setup = Setup::with(&[fault]).await;
    let (status, list) = setup.read(MAPS).await;
    assert_eq!((status, &list["items"][0]["data"]), (200, &json!(7)), "{list}");
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
    assert_eq!(setup.effects(), [fault]);
    setup.env.clock.sleep(Duration::from_secs(31)).await;
    let (_, list) = setup.read(MAPS).await;
    assert_eq!(list["items"][0]["data"]["key"], "value");
    assert!(list["items"][0]["metadata"]["annotations"][crate::net::TOUCHED].is_string());
}

#[tokio::test(start_paused = true)]
async fn an_event_has_an_object_that_cannot_be_decoded_until_it_is_changed() {
    let faults = [1, 4].map(|event| format!("undecodable @ watch configmaps default/ #1 event {event}"));
    let setup = Setup::with(&faults.each_ref().map(String::as_str)).await;
    let mut watch = setup.watch().await;
    let mut next = async || serde_json::from_slice::<Value>(&watch.next().await.unwrap().unwrap()).unwrap();
    let initial = next().await;
    assert_eq!((initial["type"].as_str(), &initial["object"]["data"]), (Some("ADDED"), &json!(7)));
    assert_eq!(initial["object"]["metadata"]["name"], "a");
    assert_eq!(setup.effects(), faults[..1]);
    let mut mended = next().await;
    while mended["type"] == "BOOKMARK" {
        mended = next().await;
    }
    assert_eq!(
        (mended["type"].as_str(), &mended["object"]["data"]["key"]),
        (Some("MODIFIED"), &json!("value"))
    );
    assert_eq!(setup.trace.elapsed().as_secs(), 30);
    // Nothing would mend it.
    let request = Request::delete(format!("{MAPS}/a")).body(Body::empty()).unwrap();
    let Ok(answer) = setup.server.service().oneshot(request).await;
    assert_eq!(answer.status(), 200);
    let deleted = next().await;
    assert_eq!(
        (deleted["type"].as_str(), &deleted["object"]["data"]["key"]),
        (Some("DELETED"), &json!("value"))
    );
    assert_eq!(setup.net.with_script(|script| script.hits().len()), 2);
    assert_eq!(setup.effects(), faults[..1]);
}

#[tokio::test(start_paused = true)]
async fn an_oversized_event_is_kept_without_its_padding() {
    let setup = Setup::with(&["oversized @ watch configmaps default/ #1 event 1"]).await;
    let mut watch = setup.watch().await;
    assert!(watch.next().await.unwrap().unwrap().starts_with(b"{"));
    let _end_of_list = watch.next().await.unwrap().unwrap();
    assert!(setup.effects().is_empty(), "the next event is the one that is spoiled");
    let mut event: Vec<Bytes> = Vec::new();
    while event.last().is_none_or(|part| !part.ends_with(b"\n")) {
        event.push(watch.next().await.unwrap().unwrap());
    }
    assert_eq!(setup.effects().len(), 1);
    assert!(event.iter().all(|part| part.len() <= 64 << 10), "in shared chunks");
    let event = event.concat();
    assert!(event.len() > 16 << 20);
    assert_eq!(serde_json::from_slice::<Value>(&event).unwrap()["object"]["metadata"]["name"], "a");
    let mut read = Vec::new();
    WatchSplitter::with_cap(16 << 20).feed(&event, |line| read.push(line.map(|line| line.event))).unwrap();
    let named = Some(ObjectName::namespaced("default", "a"));
    assert!(matches!(&read[..], [Err(BadEvent::TooLarge(large))] if large.name == named), "{read:?}");
    let seen: Vec<(usize, usize)> = setup.trace.since(0, |entries| {
        let seen = entries.iter().filter_map(|entry| match &entry.event {
            Event::Saw { line, length, .. } => Some((line.len(), *length)),
            _ => None,
        });
        seen.collect()
    });
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[2].1, event.len());
    assert!(seen[2].0 < 4096, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn refusals_are_as_servers_write_them() {
    let cases = [
        ("refuse(401)", 401, "Unauthorized"),
        ("refuse(403)", 403, "Forbidden"),
        ("refuse(504)", 504, "Timeout"),
        ("refuse-after(503)", 503, "ServiceUnavailable"),
        ("expire", 410, "Expired"),
        ("expire(Gone)", 410, "Gone"),
    ];
    for (fault, status, reason) in cases {
        let fault = format!("{fault} @ list configmaps default/ #1");
        let setup = Setup::with(&[&fault]).await;
        let (code, body) = setup.read(MAPS).await;
        assert_eq!(
            (code, body["reason"].as_str(), body["code"].as_u64()),
            (status, Some(reason), Some(status.into()))
        );
        assert_eq!(setup.effects(), [fault]);
    }
}
