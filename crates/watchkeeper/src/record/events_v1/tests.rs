use super::super::testing::event;
use super::*;
use crate::clock::Clock;

const MINUTE: Duration = Duration::from_secs(60);

/// A correlation, its current time, and a server that accepts every write.
struct TimedSeries {
    correlation: SeriesCorrelation,
    start: Instant,
}

impl TimedSeries {
    fn new(size: usize) -> Self {
        let start = Clock::system().now();
        let size = NonZeroUsize::new(size).unwrap();
        Self { correlation: SeriesCorrelation::new(size, &Generator::seeded(1), start), start }
    }

    fn record(&mut self, minute: u32, event: &Occurrence) -> Vec<String> {
        match self.correlation.observe(event, self.start + minute * MINUTE) {
            Decision::Write(jobs) => self.written(jobs),
            Decision::Hold => Vec::new(),
            Decision::Filter => panic!("nothing is filtered"),
        }
    }

    fn tick(&mut self, minute: u32) -> Vec<String> {
        let jobs = self.correlation.tick(self.start + minute * MINUTE);
        self.written(jobs)
    }

    /// Returns the writes: the name, whether by patch, and the count.
    fn written(&mut self, jobs: Vec<Job<Event>>) -> Vec<String> {
        jobs.iter().for_each(|job| self.correlation.written(job));
        jobs.iter().map(shown).collect()
    }
}

fn shown(job: &Job<Event>) -> String {
    let name = job.event.metadata.name.as_deref().unwrap();
    match (&job.patch, &job.event.series) {
        (None, None) => format!("create {name}"),
        (Some(patch), Some(series)) => {
            assert_eq!(patch["series"]["count"], series.count);
            assert_eq!(patch["series"], serde_json::to_value(series).unwrap());
            format!("patch {name} {}", series.count)
        }
        other => panic!("{other:?}"),
    }
}

// client-go: TestEventSeriesf
#[test]
fn the_first_is_created_the_second_patched_and_the_others_held() {
    let mut timed = TimedSeries::new(9);
    assert_eq!(timed.record(0, &event(1, "Why", "a")), ["create pod.1"]);
    // The message is not part of the identity of a series.
    assert_eq!(timed.record(0, &event(2, "Why", "b")), ["patch pod.1 2"]);
    assert_eq!(timed.record(0, &event(3, "Why", "c")), [""; 0]);
    assert_eq!(timed.record(0, &event(4, "Another", "c")), ["create pod.4"]);
    let jobs = timed.correlation.flush();
    assert_eq!(jobs.iter().map(shown).collect::<Vec<_>>(), ["patch pod.1 3"]);
    let series = jobs[0].event.series.as_ref().unwrap();
    assert_eq!(series.last_observed_time.0, event(3, "", "").at);
}

#[test]
fn a_changed_object_or_another_related_one_begins_another_series() {
    let changes: [fn(&mut Occurrence); 9] = [
        |event| event.regarding.resource_version = Some("8".into()),
        |event| event.regarding.uid = Some("another".into()),
        |event| event.regarding.field_path = Some("another".into()),
        |event| event.related = Some(event.regarding.clone()),
        |event| event.related = Some(ObjectReference::default()),
        |event| event.action = "Another".into(),
        |event| event.component = "another".into(),
        |event| event.host = "another".into(),
        |event| event.event_type = super::super::EventType::Normal,
    ];
    let mut timed = TimedSeries::new(99);
    timed.record(0, &event(1, "Why", "a"));
    for change in changes {
        let mut changed = event(2, "Why", "a");
        change(&mut changed);
        assert_eq!(timed.record(0, &changed), ["create pod.2"]);
        assert_eq!(timed.record(0, &changed), ["patch pod.2 2"]);
    }
    assert_eq!(timed.record(0, &event(3, "Why", "a")), ["patch pod.1 2"]);
}

// client-go: TestFinishSeries
#[test]
fn a_series_that_is_quiet_for_six_minutes_is_written_a_last_time_and_forgotten() {
    let mut timed = TimedSeries::new(9);
    for number in 1..=3 {
        timed.record(0, &event(number, "Series", "a"));
    }
    timed.record(0, &event(4, "Single", "a"));
    timed.record(1, &event(5, "Later", "a"));
    assert_eq!(timed.correlation.due(), Some(timed.start + 6 * MINUTE));
    assert_eq!(timed.tick(5), [""; 0]);
    // Six minutes are not more than six minutes.
    assert_eq!(timed.tick(6), [""; 0]);
    assert_eq!(
        (timed.correlation.due(), timed.correlation.series.len()),
        (Some(timed.start + 12 * MINUTE), 3)
    );
    assert_eq!(timed.tick(12), ["patch pod.1 3"]);
    assert_eq!(timed.correlation.series.len(), 0);
    assert_eq!(timed.record(13, &event(6, "Series", "a")), ["create pod.6"]);
}

#[test]
fn a_last_state_that_the_server_knows_is_not_written_again() {
    let mut timed = TimedSeries::new(9);
    timed.record(0, &event(1, "Why", "a"));
    timed.record(0, &event(2, "Why", "a"));
    assert_eq!(timed.tick(7), [""; 0]);
    assert!(timed.correlation.series.is_empty());
}

// client-go: TestRefreshExistingEventSeries
#[test]
fn a_series_that_goes_on_is_written_every_half_hour() {
    let mut timed = TimedSeries::new(9);
    for minute in 0..=30 {
        timed.record(minute, &event(1 + u64::from(minute), "Why", "a"));
        if minute < 30 {
            assert_eq!(timed.tick(minute), [""; 0]);
        }
    }
    timed.record(30, &event(98, "Single", "a"));
    assert_eq!(timed.tick(30), ["patch pod.1 31"]);
    assert_eq!(timed.correlation.series.len(), 2);
    assert_eq!(timed.correlation.due(), Some(timed.start + 36 * MINUTE));
    // Again, whether something was added or not.
    timed.record(59, &event(99, "Why", "a"));
    assert_eq!(timed.tick(60), ["patch pod.1 32"]);
}

#[test]
fn a_state_that_could_not_be_written_is_written_later() {
    let mut timed = TimedSeries::new(9);
    for number in 1..=2 {
        // These are not marked as written.
        timed.correlation.observe(&event(number, "Why", "a"), timed.start);
    }
    // A single event has no later state: only its next occurrence would have been written.
    timed.correlation.observe(&event(3, "Single", "a"), timed.start);
    assert_eq!(timed.tick(7), ["patch pod.1 2"]);
}

#[test]
fn when_there_are_too_many_the_one_that_was_quiet_for_longest_is_over() {
    let mut timed = TimedSeries::new(2);
    for number in 1..=3 {
        timed.record(0, &event(number, "A", "a"));
    }
    timed.record(0, &event(4, "B", "a"));
    assert_eq!(timed.record(0, &event(5, "C", "a")), ["patch pod.1 3", "create pod.5"]);
    // A single event has no remaining write.
    assert_eq!(timed.record(0, &event(6, "D", "a")), ["create pod.6"]);
    assert_eq!(timed.correlation.series.len(), 2);
}

// client-go: TestEventf (events)
#[test]
fn an_event_has_what_the_server_demands() {
    let mut long = event(1, &"R".repeat(200), &"ä".repeat(600));
    long.annotations.insert("a".into(), "b".into());
    let made = new_event(&long);
    assert_eq!(made.reason.as_deref(), Some(&*"R".repeat(128)));
    assert_eq!(made.action, made.reason, "there is no other");
    assert_eq!(made.note.as_deref(), Some(&*"ä".repeat(512)));
    let mut short = event(1, "Why", "a");
    short.action = "Do".into();
    short.related = Some(ObjectReference { name: Some("other".into()), ..ObjectReference::default() });
    let made = serde_json::to_value(new_event(&short)).unwrap();
    let regarding = serde_json::to_value(&short.regarding).unwrap();
    assert_eq!(
        made,
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": "pod.1", "namespace": "ns"},
            "eventTime": "2026-01-01T00:00:01.000000Z",
            "type": "Warning", "reason": "Why", "action": "Do", "note": "a",
            "regarding": regarding, "related": {"name": "other"}, "reportingController": "me", "reportingInstance": "me-here",
        })
    );
    short.host = "".into();
    short.component = "ü".repeat(80).into();
    assert_eq!(new_event(&short).reporting_instance.as_deref(), Some(&*"ü".repeat(64)));
    assert_eq!(new_event(&long).metadata.annotations, Some(long.annotations));
}
