//! Events are written to the API server once and completely, whatever happens to the requests.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::ObjectReference;
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use watchkeeper::record::{
    self, ApiSink, CorrelatorOptions, EventApi, EventBroadcaster, EventCounts, EventRecorder, EventType,
};
use watchkeeper::{Client, Env};

mod recorder_server;
use recorder_server::{Fate, Server, node, pod};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// A server, a broadcaster, and what is needed for a sink between them.
struct RecordedEvents {
    server: Server,
    client: Client,
    events: EventBroadcaster,
    recorder: EventRecorder,
}

impl RecordedEvents {
    fn new(fates: &[Fate]) -> Self {
        let (server, env) = (Server::new(fates), Env::simulated(1));
        let events = EventBroadcaster::new(&env);
        Self { client: server.client(&env), server, recorder: events.recorder("me"), events }
    }

    fn sink(&self) -> ApiSink {
        ApiSink::new(self.client.requests(), self.client.env())
    }

    /// Runs a sink until all that `record` records is written.
    async fn run(&self, sink: ApiSink, record: impl Future<Output = ()>) {
        let written = sink.run(self.events.subscribe(), CancellationToken::new());
        let recorded = async {
            record.await;
            self.events.shut_down();
        };
        let done = async { tokio::join!(recorded, written) };
        // On the paused clock: until nothing else can happen.
        self.client.env().clock.timeout(DAY, done).await.expect("the sink has an end");
    }

    fn counts(&self) -> (u64, u64, u64) {
        let EventCounts { written, failed, filtered, .. } = self.events.counts();
        (written, failed, filtered)
    }

    /// What has been reported from now on.
    fn reports(&self) -> Arc<Mutex<Vec<String>>> {
        let told = Arc::new(Mutex::new(Vec::new()));
        let into = told.clone();
        self.client.env().reporter.add_hook(move |report| into.lock().push(report.incident.to_string()));
        told
    }
}

// client-go: TestEventf, TestEventfNoNamespace
#[tokio::test(start_paused = true)]
async fn the_first_of_an_event_is_created_and_its_repetitions_are_patched() {
    let recorded = RecordedEvents::new(&[]);
    let part = |path: &str| ObjectReference {
        field_path: Some(path.to_owned()),
        name: Some("p".into()),
        ..ObjectReference::default()
    };
    recorded
        .run(recorded.sink(), async {
            let recorder = recorded.recorder.clone().host("here");
            let draft = || recorder.about(&node()).action("Do").related(&pod("p")).annotation("a", "b");
            draft().send(EventType::Warning, "Why", "because");
            recorded.client.env().clock.sleep(3 * SECOND).await;
            draft().send(EventType::Warning, "Why", "because");
            recorder.about_reference(part("x")).send(EventType::Normal, "Why", "because");
            recorder.about_reference(part("y")).send(EventType::Normal, "Why", "because");
            draft().send(EventType::Warning, "Why", "because");
            draft().send(EventType::Warning, "Another", "because");
        })
        .await;
    let asked = recorded.server.asked();
    let methods: Vec<_> = asked.iter().map(|(method, ..)| method.clone()).collect();
    use Method as M;
    assert_eq!(methods, [M::POST, M::PATCH, M::POST, M::POST, M::PATCH, M::POST]);
    let name = asked[0].2["metadata"]["name"].as_str().unwrap();
    assert_eq!(
        asked[0].2,
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": "default", "annotations": {"a": "b"}},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u", "resourceVersion": "4"},
            "related": {
                "apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "p", "uid": "p-uid", "resourceVersion": "7",
            },
            "type": "Warning", "reason": "Why", "action": "Do", "message": "because", "count": 1,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
            "source": {"component": "me", "host": "here"},
            "reportingComponent": "me", "reportingInstance": "here",
        })
    );
    assert_eq!(asked[1].1, format!("/api/v1/namespaces/default/events/{name}"));
    assert_eq!(
        asked[1].2,
        json!({"count": 2, "lastTimestamp": "2026-01-01T00:00:03Z", "message": "because"})
    );
    assert_eq!(asked[4].2["count"], 3);
    assert_eq!(recorded.counts(), (6, 0, 0));
}

// client-go: TestWriteEventError
#[tokio::test(start_paused = true)]
async fn an_event_is_tried_again_unless_the_server_has_decided() {
    use Fate::*;
    let cases: [(&[Fate], usize, (u64, u64)); 11] = [
        (&[Refused(403, "Forbidden")], 1, (0, 1)),
        (&[Refused(422, "Invalid")], 1, (0, 1)),
        (&[Refused(405, "MethodNotAllowed")], 1, (0, 1)),
        (&[Refused(409, "AlreadyExists")], 1, (0, 1)),
        (&[Refused(500, "InternalError")], 1, (0, 1)),
        (&[Lost], 12, (0, 1)),
        (&[Refused(503, "ServiceUnavailable")], 12, (0, 1)),
        (&[Lost, Refused(429, "TooManyRequests"), Refused(502, ""), Served], 4, (1, 0)),
        (&[Busy(500, 1), Served], 2, (1, 0)),
        // It was served, and only the answer went wrong.
        (&[AnswerLost, Served], 2, (1, 0)),
        // What the server says beyond that is not read.
        (&[Garbled], 1, (1, 0)),
    ];
    for (fates, tries, counts) in cases {
        let recorded = RecordedEvents::new(fates);
        recorded
            .run(recorded.sink(), async { recorded.recorder.event(&node(), EventType::Normal, "Why", "a") })
            .await;
        assert_eq!(recorded.server.methods().len(), tries, "{fates:?}");
        assert_eq!(recorded.counts(), (counts.0, counts.1, 0), "{fates:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_can_help_is_not_reported_and_all_else_is() {
    let cases = [
        (Fate::Refused(409, "AlreadyExists"), 0),
        (Fate::Terminating, 0),
        (Fate::Refused(403, "Forbidden"), 1),
        (Fate::Lost, 1),
    ];
    for (fate, reports) in cases {
        let recorded = RecordedEvents::new(&[fate]);
        let told = recorded.reports();
        recorded
            .run(recorded.sink(), async { recorded.recorder.event(&node(), EventType::Normal, "Why", "a") })
            .await;
        let told = told.lock().clone();
        assert_eq!(told.len(), reports, "{fate:?}: {told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn tries_are_ten_seconds_apart_but_for_the_first() {
    let recorded = RecordedEvents::new(&[Fate::Lost]);
    let clock = recorded.client.env().clock.clone();
    let before = clock.now();
    recorded
        .run(recorded.sink(), async { recorded.recorder.event(&node(), EventType::Normal, "Why", "a") })
        .await;
    let took = clock.now() - before;
    assert!(took >= 100 * SECOND && took < 110 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_time_gets_it_within_reason() {
    for (asked_for, paused) in [(30, 30), (1000, 60)] {
        let recorded = RecordedEvents::new(&[Fate::Busy(429, asked_for), Fate::Served]);
        let clock = recorded.client.env().clock.clone();
        let before = clock.now();
        recorded
            .run(recorded.sink(), async { recorded.recorder.event(&node(), EventType::Normal, "Why", "a") })
            .await;
        assert_eq!(((clock.now() - before).as_secs(), recorded.server.total()), (paused, 1));
    }
}

// client-go: TestUpdateExpiredEvent
#[tokio::test(start_paused = true)]
async fn an_event_that_has_gone_from_the_server_is_created_anew_with_its_count() {
    let recorded = RecordedEvents::new(&[]);
    recorded
        .run(recorded.sink(), async {
            let say = || recorded.recorder.event(&node(), EventType::Normal, "Why", "because");
            say();
            say();
            recorded.client.env().clock.sleep(3600 * SECOND).await;
            recorded.server.expire();
            say();
            say();
        })
        .await;
    assert_eq!(recorded.server.methods(), ["POST", "PATCH", "PATCH", "POST", "PATCH"]);
    let asked = recorded.server.asked();
    assert_eq!(asked[3].2["metadata"]["resourceVersion"], json!(null));
    assert_eq!((recorded.server.events().len(), recorded.server.total()), (1, 4));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_could_not_be_written_is_written_with_its_next_occurrence() {
    let recorded = RecordedEvents::new(&[Fate::Refused(403, "Forbidden"), Fate::Served]);
    recorded
        .run(recorded.sink(), async {
            recorded.recorder.event(&node(), EventType::Normal, "Why", "because");
            recorded.recorder.event(&node(), EventType::Normal, "Why", "because");
        })
        .await;
    assert_eq!(
        (recorded.server.methods(), recorded.server.total()),
        (["POST", "PATCH", "POST"].map(String::from).to_vec(), 2)
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_answers_were_all_lost_is_counted_at_its_next_occurrence() {
    let fates: Vec<_> = [Fate::Lost; 11].into_iter().chain([Fate::AnswerLost, Fate::Served]).collect();
    let recorded = RecordedEvents::new(&fates);
    recorded
        .run(recorded.sink(), async {
            recorded.recorder.event(&node(), EventType::Normal, "Why", "because");
            recorded.recorder.event(&node(), EventType::Normal, "Why", "because");
        })
        .await;
    assert_eq!(
        (recorded.server.methods().last().map(String::as_str), recorded.server.total()),
        (Some("PATCH"), 2)
    );
    assert_eq!(recorded.counts(), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_another_made_again_meanwhile_is_patched() {
    use Fate::*;
    let recorded =
        RecordedEvents::new(&[Served, Refused(404, "NotFound"), Refused(409, "AlreadyExists"), Served]);
    recorded
        .run(recorded.sink(), async {
            recorded.recorder.event(&node(), EventType::Normal, "Why", "because");
            recorded.recorder.event(&node(), EventType::Normal, "Why", "because");
        })
        .await;
    assert_eq!(recorded.server.methods(), ["POST", "PATCH", "POST", "PATCH"]);
    assert_eq!((recorded.server.total(), recorded.counts()), (2, (2, 0, 0)));
}

// client-go: TestCancelEvent
#[tokio::test(start_paused = true)]
async fn after_a_stop_each_event_is_tried_once() {
    let recorded = RecordedEvents::new(&[Fate::Lost]);
    let (stop, events) = (CancellationToken::new(), recorded.events.subscribe());
    (0..3).for_each(|_| recorded.recorder.event(&node(), EventType::Normal, "Why", "because"));
    stop.cancel();
    recorded.sink().run(events, stop).await;
    assert_eq!((recorded.server.methods().len(), recorded.counts()), (3, (0, 3, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_pause_between_two_tries() {
    let recorded = RecordedEvents::new(&[Fate::Lost, Fate::Lost, Fate::Served]);
    let stop = CancellationToken::new();
    let clock = recorded.client.env().clock.clone();
    recorded.recorder.event(&node(), EventType::Normal, "Why", "nobody listens yet");
    let events = recorded.events.subscribe();
    recorded.recorder.event(&node(), EventType::Normal, "Why", "a");
    recorded.recorder.event(&node(), EventType::Normal, "Why", "b");
    let before = clock.now();
    let stopped = async {
        // Past the first pause, in the midst of the second.
        clock.sleep(11 * SECOND).await;
        stop.cancel();
    };
    tokio::join!(recorded.sink().run(events, stop.clone()), stopped);
    assert_eq!((clock.now() - before, recorded.counts()), (11 * SECOND, (2, 0, 0)));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_written_within_the_grace_period_is_given_up_and_told() {
    for (grace, seconds) in [(None, 5), (Some(2 * SECOND), 2)] {
        let recorded = RecordedEvents::new(&[Fate::Silence]);
        let (told, stop, events) =
            (recorded.reports(), CancellationToken::new(), recorded.events.subscribe());
        (0..100).for_each(|number| {
            recorded.recorder.event(&node(), EventType::Normal, "Why", &number.to_string());
        });
        stop.cancel();
        let sink = grace.into_iter().fold(recorded.sink(), ApiSink::grace);
        let before = recorded.client.env().clock.now();
        sink.run(events, stop).await;
        assert_eq!((recorded.client.env().clock.now() - before).as_secs(), seconds);
        assert_eq!((told.lock().len(), recorded.counts()), (1, (0, 100, 0)));
        assert!(told.lock()[0].contains("100 or more"), "{:?}", told.lock());
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_under_way_at_the_stop_has_no_more_time_than_the_others() {
    let recorded = RecordedEvents::new(&[Fate::Silence]);
    let (clock, stop, events) =
        (recorded.client.env().clock.clone(), CancellationToken::new(), recorded.events.subscribe());
    recorded.recorder.event(&node(), EventType::Normal, "Why", "because");
    let before = clock.now();
    let stopped = async {
        clock.sleep(SECOND).await;
        stop.cancel();
    };
    tokio::join!(recorded.sink().run(events, stop.clone()), stopped);
    assert_eq!(((clock.now() - before).as_secs(), recorded.counts()), (6, (0, 1, 0)));
}

// client-go: TestLotsOfEvents
#[tokio::test(start_paused = true)]
async fn a_thousand_events_that_each_fail_four_times_are_all_written() {
    let mut fates = [Fate::Lost; 4].to_vec();
    fates.push(Fate::Served);
    let recorded = RecordedEvents::new(&fates.repeat(1001));
    let mut other_sink = recorded.events.subscribe();
    recorded
        .run(recorded.sink(), async {
            for number in 0..1000 {
                recorded.recorder.event(&pod(&format!("p{number}")), EventType::Normal, "Why", "because");
            }
        })
        .await;
    let heard = async {
        let mut heard = 0;
        while other_sink.recv().await.is_some() {
            heard += 1;
        }
        heard
    };
    let heard = recorded.client.env().clock.timeout(DAY, heard).await.expect("the other sink has an end");
    assert_eq!((recorded.server.events().len(), recorded.server.methods().len(), heard), (1000, 5000, 1000));
    assert_eq!(recorded.events.counts().dropped, 0);
}

// client-go: TestMultiSinkCache
#[tokio::test(start_paused = true)]
async fn each_sink_counts_for_itself() {
    let recorded = RecordedEvents::new(&[]);
    let say = || recorded.recorder.event(&node(), EventType::Normal, "Why", "because");
    let (stop, events) = (CancellationToken::new(), recorded.events.subscribe());
    say();
    say();
    stop.cancel();
    recorded.sink().run(events, stop).await;
    assert_eq!(recorded.server.methods(), ["POST", "PATCH"]);
    recorded
        .run(recorded.sink(), async {
            say();
            say();
        })
        .await;
    assert_eq!(recorded.server.methods(), ["POST", "PATCH", "POST", "PATCH"]);
    assert_eq!((recorded.server.events().len(), recorded.server.total()), (2, 4));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_stands_for_several_carries_the_annotations_of_none() {
    let recorded = RecordedEvents::new(&[]);
    let sink = recorded.sink().correlator(CorrelatorOptions::default().aggregate(2, 60 * SECOND));
    recorded
        .run(sink, async {
            for message in ["a", "b", "c"] {
                recorded.recorder.about(&node()).annotation("a", "b").send(EventType::Normal, "Why", message);
            }
        })
        .await;
    let asked = recorded.server.asked();
    assert_eq!(recorded.server.methods(), ["POST", "POST", "PATCH"]);
    assert_eq!(asked[0].2["metadata"]["annotations"], json!({"a": "b"}));
    assert_eq!(asked[1].2["metadata"]["annotations"], json!(null));
    assert_eq!(asked[2].2["message"], "(combined from similar events): c");
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_filtered_and_counted() {
    let recorded = RecordedEvents::new(&[]);
    recorded
        .run(recorded.sink(), async {
            (0..100).for_each(|_| recorded.recorder.event(&node(), EventType::Normal, "Why", "because"));
        })
        .await;
    assert_eq!((recorded.counts(), recorded.server.total()), ((25, 0, 75), 25));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_panics_costs_one_event() {
    let recorded = RecordedEvents::new(&[]);
    let picky = CorrelatorOptions::default().spam_key(|event, _| assert_ne!(event.message, "bad"));
    recorded
        .run(recorded.sink().correlator(picky), async {
            ["bad", "good"].iter().for_each(|message| {
                recorded.recorder.event(&node(), EventType::Normal, "Why", message);
            });
        })
        .await;
    assert_eq!((recorded.counts(), recorded.client.env().reporter.panics()), ((1, 1, 0), 1));
}

// client-go: TestRecordEventToSink
#[tokio::test(start_paused = true)]
async fn an_event_of_the_new_api_is_created_becomes_a_series_and_is_written_to_its_end() {
    let recorded = RecordedEvents::new(&[]);
    let sink = recorded.sink().api(EventApi::EventsV1);
    let clock = recorded.client.env().clock.clone();
    let say = || recorded.recorder.event(&pod("p"), EventType::Normal, "Why", "because");
    recorded
        .run(sink, async {
            (0..5).for_each(|_| say());
            clock.sleep(13 * 60 * SECOND).await;
            assert_eq!(recorded.server.methods(), ["POST", "PATCH", "PATCH"], "the last when it was quiet");
            assert_eq!(recorded.server.events()[0]["series"]["count"], 5);
            // And another, whose last count is written at the end.
            (0..3).for_each(|_| say());
        })
        .await;
    let path = "/apis/events.k8s.io/v1/namespaces/ns/events";
    let asked = recorded.server.asked();
    assert_eq!((&*asked[0].1, asked[1].1.starts_with(path)), (path, true));
    assert_eq!(
        asked[1].2,
        json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}})
    );
    let counts: Vec<_> =
        recorded.server.events().iter().map(|event| event["series"]["count"].clone()).collect();
    assert_eq!(counts, [5, 3]);
}

// client-go: TestEventSeriesWithEventSinkImplRace
#[tokio::test(start_paused = true)]
async fn a_series_whose_first_event_was_lost_on_the_way_is_created_as_a_series() {
    use Fate::*;
    let recorded = RecordedEvents::new(&[Refused(403, "Forbidden"), Served]);
    recorded
        .run(recorded.sink().api(EventApi::EventsV1), async {
            (0..2).for_each(|_| recorded.recorder.event(&pod("p"), EventType::Normal, "Why", "because"));
        })
        .await;
    assert_eq!(recorded.server.methods(), ["POST", "PATCH", "POST"]);
    assert_eq!(recorded.server.events()[0]["series"]["count"], 2);
}

#[tokio::test(start_paused = true)]
async fn the_short_way_logs_and_writes() {
    let (server, env) = (Server::new(&[]), Env::simulated(1));
    let (recorder, sink) = record::recorder("me", &server.client(&env));
    recorder.event(&node(), EventType::Normal, "Why", "because");
    let stop = CancellationToken::new();
    stop.cancel();
    sink.run(stop).await;
    recorder.event(&node(), EventType::Normal, "Why", "too late");
    assert_eq!((server.total(), recorder.counts().written), (1, 1));
    assert_eq!(recorder.dropped(), 2, "once for each of its two sinks");
}

// client-go: TestBroadcasterShutdown
#[tokio::test(start_paused = true)]
async fn a_sink_ends_at_a_stop_and_when_nobody_can_record() {
    let (server, env) = (Server::new(&[]), Env::simulated(1));
    let (recorder, sink) = record::recorder("me", &server.client(&env));
    let stop = CancellationToken::new();
    stop.cancel();
    env.clock.timeout(DAY, sink.run(stop)).await.expect("a stop ends a sink");
    drop(recorder);
    let (recorder, sink) = record::recorder("me", &server.client(&env));
    drop(recorder);
    let ended = env.clock.timeout(DAY, sink.run(CancellationToken::new())).await;
    ended.expect("without recorders a sink ends");
}

/// What becomes of requests, with no more than five failures in a row.
fn any_fates() -> impl Strategy<Value = Vec<Fate>> {
    let failure = prop_oneof![
        Just(Fate::Lost),
        Just(Fate::AnswerLost),
        Just(Fate::Garbled),
        Just(Fate::Refused(503, "ServiceUnavailable")),
    ];
    let failures = prop::collection::vec(failure, 0..=5);
    prop::collection::vec(failures, 0..20).prop_map(|rows| {
        let rows = rows.into_iter().chain([Vec::new()]);
        rows.flat_map(|failures| failures.into_iter().chain([Fate::Served])).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn through_any_faults_every_event_is_counted_once(
        occurrences in prop::collection::vec((0..3_u8, 0..4_u8), 1..40),
        fates in any_fates(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let (total, counts) = runtime.unwrap().block_on(async {
            let recorded = RecordedEvents::new(&fates);
            let options = CorrelatorOptions::default().aggregate(3, 600 * SECOND).spam_filter(1, Duration::ZERO);
            recorded.run(recorded.sink().correlator(options), async {
                for (object, message) in &occurrences {
                    let pod = pod(&format!("p{object}"));
                    recorded.recorder.event(&pod, EventType::Normal, "Why", &message.to_string());
                }
            }).await;
            (recorded.server.total(), recorded.counts())
        });
        prop_assert_eq!(counts, (occurrences.len() as u64, 0, 0));
        prop_assert_eq!(total, occurrences.len() as u64);
    }
}
