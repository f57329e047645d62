//! Events of events.k8s.io/v1: the new form, where repetitions are a series.

use std::hash::Hash;
use std::num::NonZeroUsize;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use serde_json::json;

use super::correlator::{Cache, EventKey, KeyHasher, Keys, cache};
use super::occurrence::Occurrence;
use super::write::{Correlation, Decision, Job};
use crate::clock::{Generator, Instant};

/// The quiet time after which a series is over, and its last state is written.
const FINISH: Duration = Duration::from_secs(6 * 60);
/// The interval at which an ongoing series is written.
const REFRESH: Duration = Duration::from_secs(30 * 60);

/// The ongoing series.
///
/// The first event of a series is created, the second makes it a series, and the others are counted and written from
/// time to time and at the end. The message is not part of the identity of a series; the object's version is, so a
/// changed object begins another series.
///
/// At most 4,096 series are kept: beyond that, the one that was quiet for longest is over.
#[derive(Debug)]
pub(super) struct SeriesCorrelation {
    series: Cache<Series>,
    keys: Keys,
    finish_at: Instant,
    refresh_at: Instant,
}

#[derive(Debug)]
struct Series {
    event: Event,
    count: i32,
    last: MicroTime,
    seen: Instant,
    /// The count that was written to the server.
    written: i32,
}

impl Series {
    /// Returns a write of the current state, if it is a series.
    fn job(&self, key: EventKey) -> Option<Job<Event>> {
        let series = EventSeries { count: self.count, last_observed_time: self.last.clone() };
        let patch = Some(json!({"series": &series}));
        let event = Event { series: Some(series), ..self.event.clone() };
        (self.count > 1).then_some(Job { key, event, patch })
    }

    /// Returns a write of the current state, if the server does not have it.
    fn last_job(&self, key: EventKey) -> Option<Job<Event>> {
        self.job(key).filter(|_| self.written < self.count)
    }
}

impl SeriesCorrelation {
    pub(super) fn new(size: NonZeroUsize, generator: &Generator, now: Instant) -> Self {
        Self {
            series: cache(size, generator),
            keys: Keys::new(generator),
            finish_at: now + FINISH,
            refresh_at: now + REFRESH,
        }
    }
}

impl Correlation for SeriesCorrelation {
    type Event = Event;

    fn observe(&mut self, event: &Occurrence, now: Instant) -> Decision<Event> {
        let key = self.keys.of(event, &series_key);
        if let Some(series) = self.series.get_mut(&key) {
            series.count = series.count.saturating_add(1);
            (series.last, series.seen) = (MicroTime(event.at), now);
            return match series.count {
                2 => Decision::Write(series.job(key).into_iter().collect()),
                _ => Decision::Hold,
            };
        }
        let made = new_event(event);
        let series =
            Series { event: made.clone(), count: 1, last: MicroTime(event.at), seen: now, written: 0 };
        let over = self.series.push(key, series).and_then(|(key, series)| series.last_job(key));
        Decision::Write(over.into_iter().chain([Job { key, event: made, patch: None }]).collect())
    }

    fn written(&mut self, job: &Job<Event>) {
        if let Some(series) = self.series.peek_mut(&job.key) {
            series.written = job.event.series.as_ref().map_or(1, |series| series.count);
        }
    }

    fn due(&self) -> Option<Instant> {
        Some(self.finish_at.min(self.refresh_at))
    }

    fn tick(&mut self, now: Instant) -> Vec<Job<Event>> {
        let mut jobs = Vec::new();
        if now >= self.finish_at {
            self.finish_at = now + FINISH;
            let is_over = |series: &Series| now.saturating_duration_since(series.seen) > FINISH;
            let over: Vec<_> =
                self.series.iter().filter(|(_, series)| is_over(series)).map(|(key, _)| *key).collect();
            jobs.extend(over.iter().filter_map(|key| self.series.pop(key)?.last_job(*key)));
        }
        if now >= self.refresh_at {
            self.refresh_at = now + REFRESH;
            jobs.extend(self.series.iter().filter_map(|(key, series)| series.job(*key)));
        }
        jobs
    }

    fn flush(&mut self) -> Vec<Job<Event>> {
        self.series.iter().filter_map(|(key, series)| series.last_job(*key)).collect()
    }
}

fn series_key(event: &Occurrence, key: &mut KeyHasher) {
    (&event.component, &event.host, event.event_type, &event.action, &event.reason).hash(key);
    reference_key(&event.regarding, key);
    if let Some(related) = &event.related {
        reference_key(related, key);
    }
}

fn reference_key(object: &ObjectReference, key: &mut KeyHasher) {
    let ObjectReference { api_version, field_path, kind, name, namespace, resource_version, uid } = object;
    (api_version, field_path, kind, name, namespace, resource_version, uid).hash(key);
}

fn new_event(event: &Occurrence) -> Event {
    let action = if event.action.is_empty() { &event.reason } else { &event.action };
    let instance = match &*event.host {
        "" => event.component.to_string(),
        host => format!("{}-{host}", event.component),
    };
    Event {
        metadata: ObjectMeta {
            name: Some(event.name.clone()),
            namespace: Some(event.namespace().to_owned()),
            annotations: (!event.annotations.is_empty()).then(|| event.annotations.clone()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(event.at)),
        regarding: Some(event.regarding.clone()),
        related: event.related.clone(),
        type_: Some(event.event_type.as_str().to_owned()),
        // An API server refuses longer ones.
        action: Some(shortened(action, 128)),
        reason: Some(shortened(&event.reason, 128)),
        note: Some(shortened(&event.message, 1024)),
        reporting_controller: Some(event.component.to_string()),
        reporting_instance: Some(shortened(&instance, 128)),
        ..Event::default()
    }
}

/// Returns `text`, truncated to `length` bytes.
fn shortened(text: &str, length: usize) -> String {
    text[..text.floor_char_boundary(length)].to_owned()
}

#[cfg(test)]
mod tests;
