use std::collections::BTreeMap;
use std::hash::Hash;

use proptest::prelude::*;

use super::super::occurrence::EventType;
use super::super::testing::event;
use super::*;
use crate::clock::Clock;

const SECOND: Duration = Duration::from_secs(1);

/// A correlator, and its current time.
struct TimedCorrelator {
    correlator: EventCorrelator,
    now: Instant,
    number: u64,
}

impl TimedCorrelator {
    fn new(options: CorrelatorOptions) -> Self {
        let correlator = EventCorrelator::new(options, &Generator::seeded(1));
        Self { correlator, now: Clock::system().now(), number: 0 }
    }

    /// Records an event, changed by `change`, one second after the previous one.
    fn record(
        &mut self,
        reason: &str,
        message: &str,
        change: impl FnOnce(&mut Occurrence),
    ) -> Option<Correlated> {
        self.now += SECOND;
        self.number += 1;
        let mut event = event(self.number, reason, message);
        change(&mut event);
        self.correlator.observe(&event, self.now)
    }

    /// Returns the count and message of an event.
    fn say(&mut self, reason: &str, message: &str) -> Option<(i32, String)> {
        self.record(reason, message, |_| {}).map(|correlated| (correlated.count, correlated.message))
    }
}

fn says(count: i32, message: &str) -> Option<(i32, String)> {
    Some((count, message.to_owned()))
}

const COMBINED: &str = "(combined from similar events): ";

// client-go: TestEventCorrelator (create-a-single-event, the-same-event-should-just-count)
#[test]
fn an_event_is_written_as_it_is_and_a_repetition_counts_it() {
    let mut timed = TimedCorrelator::new(CorrelatorOptions::default());
    let first = timed.record("Why", "because", |_| {}).unwrap();
    assert_eq!((&*first.name, first.count, &*first.message), ("pod.1", 1, "because"));
    assert!(!first.is_combined);
    let second = timed.record("Why", "because", |_| {}).unwrap();
    assert_eq!(second, Correlated { count: 2, ..first });
}

// client-go: TestEventCorrelator (the-same-event-should-just-count-even-if-more-than-aggregate)
#[test]
fn repetitions_are_counted_and_never_combined() {
    let mut timed = TimedCorrelator::new(CorrelatorOptions::default());
    for count in 1..=25 {
        assert_eq!(timed.say("Why", "because"), says(count, "because"));
    }
}

// client-go: TestEventCorrelator (the-same-event-is-spam-if-happens-too-frequently)
#[test]
fn an_object_with_too_many_events_is_filtered_and_its_events_are_still_counted() {
    let mut timed = TimedCorrelator::new(CorrelatorOptions::default());
    for _ in 1..=25 {
        assert!(timed.say("Why", "because").is_some());
    }
    assert_eq!(timed.say("Why", "because"), None);
    assert_eq!(timed.say("Another", "reason"), None);
    // 25 tokens were there 27 seconds ago, and there is one after 300.
    timed.now += 270 * SECOND;
    assert_eq!(timed.say("Why", "because"), None);
    timed.now += 2 * SECOND;
    assert_eq!(timed.say("Why", "because"), says(28, "because"));
    assert_eq!(timed.say("Why", "because"), None);
}

#[test]
fn an_event_whose_first_occurrences_were_filtered_is_created_with_their_count() {
    let mut timed = TimedCorrelator::new(CorrelatorOptions::default().spam_filter(1, 10 * SECOND));
    assert!(timed.say("Why", "because").is_some());
    assert_eq!((timed.say("Another", "reason"), timed.say("Another", "reason")), (None, None));
    timed.now += 10 * SECOND;
    let passed = timed.record("Another", "reason", |_| {}).unwrap();
    assert_eq!((passed.count, &*passed.name), (3, "pod.2"));
    assert_eq!(passed.first, event(2, "", "").at);
}

// client-go: TestEventCorrelator (create-many-unique-events, similar-events-should-aggregate-event,
// similar-events-many-times-should-count-the-aggregate), TestEventAggregatorByReasonMessageFunc
#[test]
fn the_tenth_different_message_and_all_after_it_are_combined() {
    let mut timed = TimedCorrelator::new(CorrelatorOptions::default());
    for number in 1..=9 {
        assert_eq!(timed.say("Why", &format!("{number}")), says(1, &format!("{number}")));
    }
    let tenth = timed.record("Why", "10", |event| drop(event.annotations.insert("a".into(), "b".into())));
    let tenth = tenth.unwrap();
    assert_eq!((tenth.count, &*tenth.name, &*tenth.message), (1, "pod.a", &*format!("{COMBINED}10")));
    assert!(tenth.is_combined);
    let eleventh = timed.record("Why", "11", |_| {}).unwrap();
    assert_eq!((eleventh.count, &*eleventh.message), (2, &*format!("{COMBINED}11")));
    assert!(eleventh.name == tenth.name && eleventh.first == tenth.first);
    // The first ones keep their own.
    assert_eq!(timed.say("Why", "1"), says(2, "1"));
    assert_eq!(timed.say("Why", "9"), says(2, "9"));
    // Another reason is not affected.
    assert_eq!(timed.say("Another", "12"), says(1, "12"));
    assert_eq!(timed.say("Why", "10"), says(3, &format!("{COMBINED}10")));
}

// client-go: TestEventCorrelator (similar-events-whose-interval-is-greater-than-aggregate-interval-do-not-aggregate)
#[test]
fn messages_further_apart_than_the_interval_are_not_combined() {
    let mut timed = TimedCorrelator::new(CorrelatorOptions::default().aggregate(2, 10 * SECOND));
    assert_eq!(timed.say("Why", "1"), says(1, "1"));
    timed.now += 9 * SECOND;
    assert_eq!(timed.say("Why", "2"), says(1, &format!("{COMBINED}2")));
    // Each event, combined or not, restarts the interval; more than an interval later everything is forgotten.
    timed.now += 9 * SECOND;
    assert_eq!(timed.say("Why", "3"), says(2, &format!("{COMBINED}3")));
    timed.now += 10 * SECOND;
    assert_eq!(timed.say("Why", "4"), says(1, "4"));
    assert_eq!(timed.say("Why", "5"), says(3, &format!("{COMBINED}5")));
}

// client-go: TestEventCorrelator (events-from-different-containers-do-not-aggregate)
#[test]
fn events_on_different_parts_of_an_object_are_different_events() {
    let mut timed = TimedCorrelator::new(CorrelatorOptions::default().aggregate(2, 600 * SECOND));
    for container in ["a", "b", "c", "d"] {
        let path = |event: &mut Occurrence| event.regarding.field_path = Some(container.to_owned());
        let correlated = timed.record("Why", "because", path).unwrap();
        assert_eq!((correlated.count, correlated.is_combined), (1, false));
    }
}

/// One change to each part of an event that distinguishes events.
type Change = fn(&mut Occurrence);
const IDENTITY: [(&str, Change); 8] = [
    ("component", |event| event.component = "x".into()),
    ("host", |event| event.host = "x".into()),
    ("kind", |event| event.regarding.kind = Some("x".into())),
    ("apiVersion", |event| event.regarding.api_version = Some("x".into())),
    ("namespace", |event| event.regarding.namespace = Some("x".into())),
    ("name", |event| event.regarding.name = Some("x".into())),
    ("uid", |event| event.regarding.uid = Some("x".into())),
    ("type", |event| event.event_type = EventType::Normal),
];

// client-go: TestEventAggregatorByReasonFunc
#[test]
fn what_tells_events_apart_is_in_each_key() {
    let options = CorrelatorOptions::default();
    let keys = Keys::new(&Generator::seeded(1));
    let base = event(1, "Why", "because");
    let changed = |change: Change| {
        let mut other = event(2, "Why", "because");
        change(&mut other);
        other
    };
    let differ =
        |change: Change, parts: &key::Parts| keys.of(&base, parts) != keys.of(&changed(change), parts);
    let all: [&key::Parts; 3] = [&*options.event_key, &*options.spam_key, &*options.aggregate_key];
    for (part, change) in IDENTITY {
        assert_eq!(all.map(|parts| differ(change, parts)), [true; 3], "{part}");
    }
    let others: [(&str, Change, [bool; 3]); 5] = [
        ("reason", |event| event.reason = "x".into(), [true, false, true]),
        ("message", |event| event.message = "x".into(), [true, false, false]),
        ("fieldPath", |event| event.regarding.field_path = Some("x".into()), [true, false, false]),
        ("resourceVersion", |event| event.regarding.resource_version = Some("x".into()), [false; 3]),
        ("nothing", |_| {}, [false; 3]),
    ];
    for (part, change, expected) in others {
        assert_eq!(all.map(|parts| differ(change, parts)), expected, "{part}");
    }
    assert!(differ(|event| event.message = "x".into(), &*options.local_key));
    assert!(!differ(|event| event.reason = "x".into(), &*options.local_key));
}

// client-go: TestEventSpamFilter
#[test]
fn what_the_spam_filter_counts_together_can_be_chosen() {
    let strict = || CorrelatorOptions::default().spam_filter(1, 3600 * SECOND);
    let mut by_object = TimedCorrelator::new(strict());
    assert!(by_object.say("Why", "because").is_some());
    assert!(by_object.say("Another", "because").is_none(), "another reason is spam too");
    let mut by_reason = TimedCorrelator::new(strict().spam_key(|event, key| event.reason.hash(key)));
    assert!(by_reason.say("Why", "because").is_some());
    assert!(by_reason.say("Another", "because").is_some(), "another reason is none");
    assert!(by_reason.say("Why", "another message").is_none(), "another message is");
}

#[test]
fn what_is_combined_and_what_it_says_can_be_chosen() {
    let options = CorrelatorOptions::default()
        .aggregate(2, 60 * SECOND)
        .aggregate_key(|event, key| event.regarding.uid.hash(key), |event, key| event.reason.hash(key))
        .combined_message(|event| format!("and {}", event.reason));
    let mut timed = TimedCorrelator::new(options);
    assert_eq!(timed.say("A", "1"), says(1, "1"));
    assert_eq!(timed.say("A", "2"), says(1, "2"));
    assert_eq!(timed.say("B", "3"), says(1, "and B"));
    assert_eq!(timed.say("C", "4"), says(2, "and C"));
}

#[test]
fn with_a_maximum_of_one_everything_is_combined() {
    for max in [0, 1] {
        let mut timed = TimedCorrelator::new(CorrelatorOptions::default().aggregate(max, 60 * SECOND));
        assert_eq!(timed.say("A", "1"), says(1, &format!("{COMBINED}1")));
        assert_eq!(timed.say("A", "1"), says(2, &format!("{COMBINED}1")));
    }
}

#[test]
fn what_was_used_last_is_remembered_and_the_rest_counted_anew() {
    let mut timed = TimedCorrelator::new(CorrelatorOptions::default().cache_size(2));
    assert_eq!([timed.say("A", "m"), timed.say("B", "m")], [says(1, "m"), says(1, "m")]);
    assert_eq!(timed.say("A", "m"), says(2, "m"));
    assert_eq!(timed.say("C", "m"), says(1, "m"), "and B is forgotten");
    assert_eq!(timed.say("A", "m"), says(3, "m"));
    let again = timed.record("B", "m", |_| {}).unwrap();
    assert_eq!((again.count, &*again.name), (1, "pod.6"));
    // A cache of size zero has size one.
    let mut small = TimedCorrelator::new(CorrelatorOptions::default().cache_size(0));
    assert_eq!([small.say("A", "m"), small.say("A", "m")], [says(1, "m"), says(2, "m")]);
}

#[test]
fn a_count_stops_at_its_highest_value() {
    let mut timed = TimedCorrelator::new(CorrelatorOptions::default());
    let first = timed.record("A", "m", |_| {}).unwrap();
    timed.correlator.counted.peek_mut(&first.key).unwrap().count = i32::MAX - 1;
    assert_eq!(timed.say("A", "m"), says(i32::MAX, "m"));
    assert_eq!(timed.say("A", "m"), says(i32::MAX, "m"));
}

#[test]
fn options_show_their_numbers() {
    let text = format!("{:?}", CorrelatorOptions::default().cache_size(17));
    assert!(text.contains("cache_size: 17") && text.contains("spam_burst: 25"), "{text}");
}

/// Events about one of a few objects, with one of a few reasons and messages, some seconds after the previous one.
fn any_events() -> impl Strategy<Value = Vec<(u8, u8, u8, u16)>> {
    prop::collection::vec((0..3_u8, 0..2_u8, 0..6_u8, 0..400_u16), 1..200)
}

/// Passes `events` to a correlator, and applies its decisions to a server of Events by name. Returns the Events on the
/// server, the number of filtered ones, and the correlator.
fn play(
    options: CorrelatorOptions,
    events: &[(u8, u8, u8, u16)],
) -> (BTreeMap<String, i32>, usize, EventCorrelator) {
    let mut timed = TimedCorrelator::new(options);
    let (mut server, mut filtered) = (BTreeMap::new(), 0);
    for (object, reason, message, pause) in events {
        timed.now += u32::from(*pause) * SECOND;
        let correlated = timed.record(&format!("r{reason}"), &format!("m{message}"), |event| {
            event.regarding.uid = Some(format!("u{object}"));
        });
        match correlated {
            Some(correlated) => {
                let before = server.insert(correlated.name.clone(), correlated.count);
                assert!(before.is_none() || correlated.count > 1, "an Event is created once, then patched");
                assert!(before.is_none_or(|before| before < correlated.count), "counts grow");
            }
            None => filtered += 1,
        }
    }
    (server, filtered, timed.correlator)
}

proptest! {
    #[test]
    fn unless_filtered_every_event_is_counted_once_on_the_server(
        events in any_events(), cache in 1..20_usize, max in 1..5_usize,
    ) {
        let options = CorrelatorOptions::default()
            .cache_size(cache).aggregate(max, 300 * SECOND).spam_filter(1, Duration::ZERO);
        let (server, filtered, _) = play(options, &events);
        prop_assert_eq!(filtered, 0);
        // This holds even if keys are forgotten: then there is another Event.
        prop_assert_eq!(server.values().sum::<i32>() as usize, events.len());
    }

    #[test]
    fn the_server_knows_all_that_was_not_filtered_and_what_was_filtered_before_it(
        events in any_events(), burst in 0..5_u32, max in 1..5_usize,
    ) {
        let options = CorrelatorOptions::default().aggregate(max, 300 * SECOND).spam_filter(burst, 600 * SECOND);
        let (server, filtered, correlator) = play(options, &events);
        // The filtered and still unwritten events are the difference between the counts and the server.
        let counted: i32 = correlator.counted.iter().map(|(_, counted)| counted.count).sum();
        prop_assert_eq!(counted as usize, events.len());
        let unwritten: i32 = correlator.counted.iter()
            .map(|(_, counted)| counted.count - server.get(&counted.name).copied().unwrap_or(0)).sum();
        prop_assert!(unwritten >= 0 && unwritten as usize <= filtered);
        prop_assert_eq!(server.values().sum::<i32>() + unwritten, events.len() as i32);
        prop_assert!(server.values().sum::<i32>() as usize >= events.len() - filtered);
    }

    #[test]
    fn memory_is_bounded_whatever_is_recorded(events in any_events(), cache in 1..6_usize, max in 1..5_usize) {
        let options = CorrelatorOptions::default().cache_size(cache).aggregate(max, 300 * SECOND);
        let (_, _, correlator) = play(options, &events);
        let sizes = [correlator.similar.len(), correlator.counted.len(), correlator.buckets.len()];
        prop_assert!(sizes.iter().all(|size| *size <= cache), "{:?}", sizes);
        prop_assert!(correlator.similar.iter().all(|(_, similar)| similar.messages.len() < max));
    }
}
