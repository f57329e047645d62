use super::super::trigger::{ObjectRef, Reason, Relation};
use super::*;
use crate::clock::Clock;
use crate::object::ObjectName;

struct Fixture {
    recent: Recent,
    epoch: Instant,
}

impl Fixture {
    fn new() -> Self {
        Self { recent: Recent::default(), epoch: Clock::system().now() }
    }

    /// A change of the object called `name`, or of the object itself if that is empty.
    fn note(&mut self, name: &str, version: u64) {
        let mut trigger = if name.is_empty() {
            Trigger::itself(Reason::Changed, &version.into())
        } else {
            let object = ObjectRef::new("Pod", ObjectName::cluster(name));
            Trigger::related(Relation::Mapping, object, Reason::Changed, &version.into())
        };
        self.recent.note(&mut trigger, Tick::at(self.epoch, self.epoch));
    }

    fn all(&self) -> Vec<String> {
        self.recent.records(self.epoch).iter().map(short).collect()
    }

    /// Lets a worker take the key; returns what led to that.
    fn take(&mut self) -> Vec<String> {
        self.recent.take();
        self.current()
    }

    fn current(&self) -> Vec<String> {
        self.recent.of_current_run(self.epoch).iter().map(short).collect()
    }
}

/// Such as `a@7 x2`.
fn short(record: &TriggerRecord) -> String {
    let Trigger::Object { object, version, .. } = &record.trigger else { return record.to_string() };
    let name = object.as_ref().map_or(String::new(), |object| object.name().to_string());
    format!("{name}@{} x{}", version.map_or(0, u64::from), record.times)
}

#[test]
fn like_triggers_of_one_run_are_counted_with_the_last_version() {
    let mut of = Fixture::new();
    (1..=3).for_each(|version| of.note("", version));
    of.note("a", 9);
    of.note("", 4);
    of.note("a", 10);
    assert_eq!(of.take(), ["a@10 x2", "@4 x4"]);
    assert_eq!(of.all(), ["a@10 x2", "@4 x4"]);
}

#[test]
fn a_run_has_what_led_to_it_and_not_what_came_later() {
    let mut of = Fixture::new();
    of.note("", 1);
    assert_eq!(of.take(), ["@1 x1"]);
    of.note("", 2);
    of.note("a", 3);
    assert_eq!(of.current(), ["@1 x1"]);
    of.note("", 4);
    assert_eq!(of.take(), ["@4 x2", "a@3 x1"]);
    assert_eq!(of.take(), Vec::<String>::new());
    assert_eq!(of.all(), ["@4 x2", "a@3 x1", "@1 x1"], "they are kept all the same");
}

#[test]
fn counting_starts_again_with_each_run() {
    let mut of = Fixture::new();
    for version in 1..=3 {
        of.note("", version);
        of.note("a", version);
        of.note("a", version);
        assert_eq!(of.take(), [format!("a@{version} x2"), format!("@{version} x1")]);
    }
    assert_eq!(of.all(), ["a@3 x2", "@3 x1", "a@2 x2", "@2 x1"]);
}

#[test]
fn what_led_to_a_run_that_was_put_off_leads_to_the_next() {
    let mut of = Fixture::new();
    of.note("", 1);
    assert_eq!(of.take(), ["@1 x1"]);
    of.note("a", 2);
    of.recent.give_back();
    of.note("", 3);
    assert_eq!(of.take(), ["@3 x2", "a@2 x1"]);
}

#[test]
fn the_last_four_are_kept() {
    let mut of = Fixture::new();
    for name in ["a", "b", "c", "d", "e"] {
        of.note(name, 1);
    }
    assert_eq!(of.all(), ["e@1 x1", "d@1 x1", "c@1 x1", "b@1 x1"]);
    of.note("c", 2);
    assert_eq!(of.all(), ["c@2 x2", "e@1 x1", "d@1 x1", "b@1 x1"]);
    of.note("f", 1);
    assert_eq!(of.all(), ["f@1 x1", "c@2 x2", "e@1 x1", "d@1 x1"]);
    assert_eq!(of.take(), of.all());
    of.note("g", 1);
    assert_eq!(of.current(), ["f@1 x1", "c@2 x2", "e@1 x1"], "the oldest of the run made room");
}

#[test]
fn the_counter_may_wrap() {
    let mut of = Fixture::new();
    (of.recent.next, of.recent.run, of.recent.noted) = (u32::MAX - 1, u32::MAX - 2, u32::MAX - 2);
    for version in 1..=6 {
        of.note("", version);
        of.note("a", version);
        of.note("", version);
        assert_eq!(of.take(), [format!("@{version} x2"), format!("a@{version} x1")]);
    }
}

#[test]
fn a_key_with_one_trigger_needs_little_space() {
    let mut of = Fixture::new();
    of.note("a", 1);
    of.note("a", 2);
    assert!(of.recent.others.is_none());
    assert_eq!(size_of::<Recent>(), 112);
}
