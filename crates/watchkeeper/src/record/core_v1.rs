//! Events of core/v1: the old form, with a count.

use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::json;

use super::correlator::{Correlated, EventCorrelator};
use super::occurrence::Occurrence;
use super::write::{Correlation, Decision, Job};
use crate::clock::Instant;

impl Correlation for EventCorrelator {
    type Event = Event;

    fn observe(&mut self, event: &Occurrence, now: Instant) -> Decision<Event> {
        match EventCorrelator::observe(self, event, now) {
            Some(correlated) => Decision::Write(vec![job(event, correlated)]),
            None => Decision::Filter,
        }
    }
}

fn job(event: &Occurrence, correlated: Correlated) -> Job<Event> {
    let Correlated { key, name, first, count, message, is_combined } = correlated;
    let last = Time(event.at);
    let patch = (count > 1).then(|| json!({"count": count, "lastTimestamp": &last, "message": &message}));
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    // The annotations of one event do not apply to several.
    let annotations = Some(&event.annotations).filter(|all| !is_combined && !all.is_empty()).cloned();
    let event = Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(event.namespace().to_owned()),
            annotations,
            ..ObjectMeta::default()
        },
        involved_object: event.regarding.clone(),
        related: event.related.clone(),
        type_: Some(event.event_type.as_str().to_owned()),
        reason: Some(event.reason.clone()),
        action: given(&event.action),
        message: Some(message),
        count: Some(count),
        first_timestamp: Some(Time(first)),
        last_timestamp: Some(last),
        source: Some(EventSource { component: given(&event.component), host: given(&event.host) }),
        reporting_component: given(&event.component),
        reporting_instance: given(&event.host),
        ..Event::default()
    };
    Job { key, event, patch }
}
