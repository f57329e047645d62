//! Events reach every sink that subscribed, without any waiting.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::ObjectReference;
use kube_core::ApiResource;
use kube_core::DynamicObject;
use kube_core::GroupVersionKind;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::Level;
use watchkeeper::Env;
use watchkeeper::record::{EventBroadcaster, EventRecorder, EventStream, EventType, LogSink};

#[allow(dead_code, reason = "the server is for other tests")]
mod recorder_server;
use recorder_server::{node, pod};

fn broadcaster(capacity: usize) -> EventBroadcaster {
    EventBroadcaster::with_capacity(&Env::simulated(1), capacity)
}

fn say(recorder: &EventRecorder, message: &str) {
    recorder.event(&node(), EventType::Normal, "Why", message);
}

/// What has arrived, and waits.
fn heard(events: &mut EventStream) -> Vec<String> {
    std::iter::from_fn(|| tokio::task::unconstrained(events.recv()).now_or_never().flatten())
        .map(|event| event.message.clone())
        .collect()
}

// client-go: TestBroadcaster
#[tokio::test]
async fn every_sink_gets_every_event_in_order() {
    let events = broadcaster(10);
    let mut sinks = [events.subscribe(), events.subscribe(), events.subscribe()];
    let recorder = events.recorder("me");
    ["a", "b", "c"].iter().for_each(|message| say(&recorder, message));
    for sink in &mut sinks {
        assert_eq!(heard(sink), ["a", "b", "c"]);
    }
    assert_eq!((events.counts().recorded, events.counts().dropped), (3, 0));
}

#[tokio::test]
async fn a_sink_gets_what_is_recorded_after_it_came() {
    let events = broadcaster(10);
    let (mut first, recorder) = (events.subscribe(), events.recorder("me"));
    say(&recorder, "a");
    let mut second = events.subscribe();
    say(&recorder, "b");
    assert_eq!((heard(&mut first), heard(&mut second)), (vec!["a".into(), "b".into()], vec!["b".to_owned()]));
}

// client-go: TestBroadcasterWatcherClose, TestBroadcasterWatcherStopDeadlock
#[tokio::test]
async fn a_sink_that_goes_away_disturbs_nobody() {
    let events = broadcaster(1);
    let (first, mut second, recorder) = (events.subscribe(), events.subscribe(), events.recorder("me"));
    say(&recorder, "a");
    drop(first);
    assert_eq!(heard(&mut second), ["a"]);
    say(&recorder, "b");
    assert_eq!(heard(&mut second), ["b"]);
    assert_eq!(recorder.dropped(), 1, "the one that has gone missed it");
    say(&recorder, "c");
    assert_eq!((heard(&mut second), recorder.dropped()), (vec!["c".to_owned()], 1));
    second.close();
    say(&recorder, "d");
    assert_eq!(second.recv().await, None);
}

// client-go: TestBroadcasterDropIfChannelFull
#[tokio::test]
async fn a_full_sink_misses_events_alone_and_that_is_counted_and_told_once() {
    let env = Env::simulated(1);
    let told = Arc::new(Mutex::new(Vec::new()));
    let into = told.clone();
    env.reporter.add_hook(move |report| into.lock().push(report.incident.to_string()));
    let events = EventBroadcaster::with_capacity(&env, 1);
    let (mut slow, mut quick) = (events.subscribe(), events.subscribe());
    let recorder = events.recorder("me");
    for message in ["a", "b", "c"] {
        say(&recorder, message);
        assert_eq!(heard(&mut quick), [message]);
    }
    assert_eq!(heard(&mut slow), ["a"]);
    assert_eq!((recorder.dropped(), told.lock().len()), (2, 1));
    assert!(told.lock()[0].contains("Normal Why b"), "{:?}", told.lock());
    // Caught up, and full again: that is reported again.
    ["d", "e"].iter().for_each(|message| say(&recorder, message));
    assert_eq!((recorder.dropped(), told.lock().len()), (4, 2), "once, though both missed it");
}

#[tokio::test]
async fn a_slow_sink_in_a_burst_is_told_of_once_until_it_has_caught_up() {
    let env = Env::simulated(1);
    let events = EventBroadcaster::with_capacity(&env, 10);
    let (mut slow, recorder) = (events.subscribe(), events.recorder("me"));
    for number in 0..100 {
        say(&recorder, &number.to_string());
        if number % 3 == 0 {
            slow.recv().await;
        }
    }
    assert!(recorder.dropped() > 40, "{}", recorder.dropped());
    assert_eq!(env.reporter.errors(), 1);
    for _ in 0..5 {
        slow.recv().await;
    }
    (0..10).for_each(|number| say(&recorder, &number.to_string()));
    assert_eq!(env.reporter.errors(), 2, "half of the queue was free");
}

#[tokio::test]
async fn a_broadcaster_of_no_capacity_has_room_for_one_and_one_without_sinks_counts_what_it_drops() {
    let events = broadcaster(0);
    let recorder = events.recorder("me");
    say(&recorder, "a");
    assert_eq!((recorder.counts().recorded, recorder.counts().dropped), (1, 1));
    let mut sink = events.subscribe();
    say(&recorder, "b");
    assert_eq!((heard(&mut sink), recorder.dropped()), (vec!["b".to_owned()], 1));
    assert!(format!("{events:?}").contains("recorded: 2"), "{events:?}");
}

#[tokio::test]
async fn a_thousand_events_may_wait_for_a_sink() {
    let events = EventBroadcaster::new(&Env::simulated(1));
    let (mut sink, recorder) = (events.subscribe(), events.recorder("me"));
    (0..1001).for_each(|number| say(&recorder, &number.to_string()));
    assert_eq!((recorder.dropped(), heard(&mut sink).len()), (1, 1000));
}

// client-go: TestBroadcasterSendEventAfterShutdown, TestBroadcasterWatchAfterShutdown
#[tokio::test]
async fn after_a_shut_down_sinks_take_what_is_left_and_nothing_more_is_taken() {
    let events = broadcaster(10);
    let (mut before, recorder) = (events.subscribe(), events.recorder("me"));
    say(&recorder, "a");
    events.shut_down();
    events.shut_down();
    say(&recorder, "b");
    let mut after = events.subscribe();
    say(&recorder, "c");
    assert_eq!(before.recv().await.unwrap().message, "a");
    assert_eq!((before.recv().await, after.recv().await), (None, None));
    assert_eq!((recorder.counts().recorded, recorder.dropped()), (3, 2));
}

#[tokio::test]
async fn when_broadcaster_and_recorders_are_gone_the_sinks_end() {
    let events = broadcaster(10);
    let (mut sink, recorder) = (events.subscribe(), events.recorder("me"));
    drop(events);
    let another = recorder.clone();
    say(&recorder, "a");
    drop(recorder);
    assert_eq!(heard(&mut sink), ["a"]);
    assert!(sink.recv().now_or_never().is_none(), "there is another recorder");
    drop(another);
    assert_eq!(sink.recv().now_or_never(), Some(None));
}

// client-go: TestNonRacyShutdown, TestBroadcasterShutdownRace
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn events_from_many_tasks_and_a_shut_down_amid_them_get_along() {
    let (env, events) = (Env::simulated(1), broadcaster(1000));
    let mut sink = events.subscribe();
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let (events, recorder) = (events.clone(), events.recorder("me"));
            tokio::spawn(async move {
                say(&recorder, &number.to_string());
                if number == 50 {
                    events.shut_down();
                }
            })
        })
        .collect();
    let received = async {
        let mut received = 0;
        while sink.recv().await.is_some() {
            received += 1;
        }
        received
    };
    let received = env.clock.timeout(Duration::from_secs(60), received).await.expect("the sink has an end");
    for task in tasks {
        task.await.unwrap();
    }
    let counts = events.counts();
    assert_eq!((counts.recorded, counts.dropped + received), (100, 100));
    assert!(received >= 1);
}

#[tokio::test]
async fn a_stop_lets_a_sink_take_what_was_recorded_before_it() {
    let events = broadcaster(10);
    let (mut sink, recorder) = (events.subscribe(), events.recorder("me"));
    let stop = CancellationToken::new();
    ["a", "b"].iter().for_each(|message| say(&recorder, message));
    stop.cancel();
    assert_eq!(sink.recv_until(&stop).await.unwrap().message, "a");
    say(&recorder, "too late");
    assert_eq!(sink.recv_until(&stop).await.unwrap().message, "b");
    assert_eq!((sink.recv_until(&stop).await, recorder.dropped()), (None, 1));
}

#[tokio::test(start_paused = true)]
async fn an_event_says_who_saw_what_about_which_object() {
    let events = broadcaster(10);
    let mut sink = events.subscribe();
    let recorder = events.recorder("me").host("here");
    recorder.about(&pod("p")).action("Binding").related(&node()).annotation("a", "b").send(
        EventType::Warning,
        "Why",
        "because",
    );
    let event = sink.recv().await.unwrap();
    assert_eq!(event.to_string(), "Warning Why because");
    assert_eq!((&*event.component, &*event.host, &*event.action), ("me", "here", "Binding"));
    assert_eq!(event.annotations["a"], "b");
    let some = |text: &str| Some(text.to_owned());
    let expected = ObjectReference {
        api_version: some("v1"),
        kind: some("Pod"),
        namespace: some("ns"),
        name: some("p"),
        uid: some("p-uid"),
        resource_version: some("7"),
        field_path: None,
    };
    assert_eq!(event.regarding, expected);
    let related = event.related.as_ref().unwrap();
    assert_eq!((related.kind.as_deref(), related.name.as_deref()), (Some("Node"), Some("n1")));
    assert_eq!((event.namespace(), event.object().to_string()), ("ns", "ns/p".to_owned()));
    assert_eq!(event.at.to_string(), "2026-01-01T00:00:00Z");
}

#[tokio::test]
async fn the_kind_of_an_object_known_at_run_time_comes_from_its_description() {
    let events = broadcaster(10);
    let (mut sink, recorder) = (events.subscribe(), events.recorder("me"));
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.org", "v1", "Thing"));
    let thing = DynamicObject::new("t", &kind);
    recorder.event_of(&thing, &kind, EventType::Normal, "Why", "because");
    let part =
        ObjectReference { field_path: Some("spec.containers{web}".into()), ..ObjectReference::default() };
    recorder.about_reference(part.clone()).related_reference(part.clone()).send(
        EventType::Normal,
        "Why",
        "because",
    );
    let regarding = sink.recv().await.unwrap().regarding.clone();
    assert_eq!(
        (regarding.api_version.as_deref(), regarding.kind.as_deref()),
        (Some("example.org/v1"), Some("Thing"))
    );
    let event = sink.recv().await.unwrap();
    assert_eq!((&event.regarding, event.related.as_ref()), (&part, Some(&part)));
    assert_eq!(event.namespace(), "default");
}

#[tokio::test(start_paused = true)]
async fn every_event_has_a_name_of_its_own() {
    let events = broadcaster(100);
    let (mut sink, recorders) = (events.subscribe(), [events.recorder("me"), events.recorder("you")]);
    // The clock stands still.
    (0..50).for_each(|number| say(&recorders[number % 2], "a"));
    let mut names = std::collections::BTreeSet::new();
    while let Some(Some(event)) = sink.recv().now_or_never() {
        assert!(event.name.starts_with("n1.18"), "{}", event.name);
        names.insert(event.name.clone());
    }
    assert_eq!(names.len(), 50);
}

/// Collects what is logged, a line of JSON for each event.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// client-go: TestEventf, TestStartEventWatcherExitsOnDirectShutdown
#[tokio::test]
async fn events_are_logged_with_their_parts_at_the_level_asked_for() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .without_time()
        .with_max_level(Level::TRACE)
        .with_writer({
            let log = log.clone();
            move || log.clone()
        })
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
        let events = broadcaster(10);
        let (sink, recorder) = (events.subscribe(), events.recorder("me"));
        recorder.event(&pod("p"), EventType::Warning, "Why", "because");
        events.shut_down();
        let logged = LogSink::new(level).run(sink, CancellationToken::new());
        Env::simulated(1).clock.timeout(Duration::from_secs(60), logged).await.expect("the sink has an end");
        let lines = String::from_utf8(std::mem::take(&mut *log.0.lock())).unwrap();
        let line: Value = serde_json::from_str(&lines).unwrap();
        let expected = json!({
            "message": "event occurred", "object": "ns/p", "kind": "Pod", "apiVersion": "v1",
            "type": "Warning", "reason": "Why", "note": "because",
        });
        assert_eq!((&line["level"], &line["fields"]), (&json!(level.as_str()), &expected));
    }
}
