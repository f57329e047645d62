//! Events, in their two views: `v1`, in which they are stored, and `events.k8s.io/v1`.

use serde_json::{Map, Value, json};

use super::{Behaviour, Change, Findings};
use crate::failure::Cause;
use crate::kinds::cells::{Row, number, or, text};
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::types;

const HEADERS: &str = "Last_Seen Type Reason Object Subobject* Source* Message First_Seen* Count* Name*";

/// The names of the same field in `v1` and `events.k8s.io/v1`.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// The immutable fields of an Event of `events.k8s.io/v1`, by their stored names.
const IMMUTABLE: [&str; 11] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "action",
    "related",
    "eventTime",
];

/// The view `v1`.
#[derive(Debug)]
pub(in crate::kinds) struct CoreEvent;

impl Behaviour for CoreEvent {
    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        let about = text(&change.new["involvedObject"]["namespace"]);
        let own = meta::text(change.new, "namespace");
        let cluster_scoped = about.is_empty() && ["default", "kube-system"].contains(&own);
        if about != own && !cluster_scoped {
            let problem = "does not match event.namespace";
            findings.causes.push(Cause::invalid("involvedObject.namespace", &about.into(), problem));
        }
    }

    fn has_dependents(&self) -> bool {
        false
    }

    fn free_fields(&self) -> &'static [&'static str] {
        &["count", "lastTimestamp", "message"]
    }

    fn field_value(&self, event: &Value, path: &str) -> Option<String> {
        field_value(event, path)
    }

    fn headers(&self) -> &'static str {
        HEADERS
    }

    fn row(&self, row: &Row<'_>) -> Value {
        event_row(row)
    }
}

/// The view `events.k8s.io/v1`.
#[derive(Debug)]
pub(in crate::kinds) struct Event;

impl Behaviour for Event {
    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        let (old, new) = (core_view(old.clone()), core_view(new.clone()));
        let changed = IMMUTABLE.into_iter().filter(|field| old.get(field) != new.get(field));
        changed.map(|field| Cause::invalid(field, &new[field], "field is immutable")).collect()
    }

    fn has_dependents(&self) -> bool {
        false
    }

    fn to_served(&self, _kind: &Kind, event: &mut Value) {
        rename(event, NAMES.iter().copied());
        normalize_as("events.k8s.io/v1", event);
    }

    fn to_storage(&self, _kind: &Kind, event: &mut Value) {
        *event = core_view(event.take());
    }

    fn stored_field(&self, field: &str) -> String {
        let (first, rest) = field.split_once('.').unwrap_or((field, ""));
        match NAMES.iter().find(|(_, new)| *new == first) {
            Some((old, _)) if rest.is_empty() => (*old).to_owned(),
            Some((old, _)) => format!("{old}.{rest}"),
            None => field.to_owned(),
        }
    }

    fn field_value(&self, event: &Value, path: &str) -> Option<String> {
        field_value(event, path)
    }

    fn headers(&self) -> &'static str {
        HEADERS
    }

    fn row(&self, row: &Row<'_>) -> Value {
        event_row(row)
    }
}

/// An Event of `events.k8s.io/v1` in the view `v1`.
fn core_view(mut event: Value) -> Value {
    rename(&mut event, NAMES.iter().map(|(old, new)| (*new, *old)));
    event["apiVersion"] = "v1".into();
    normalize_as("v1", &mut event);
    event
}

fn rename(event: &mut Value, pairs: impl Iterator<Item = (&'static str, &'static str)>) {
    let Value::Object(map) = event else { return };
    let renamed: Map<String, Value> =
        pairs.filter_map(|(from, to)| map.remove(from).map(|value| (to.to_owned(), value))).collect();
    map.extend(renamed);
}

/// Normalizes the zero values of an Event.
fn normalize_as(api_version: &str, event: &mut Value) {
    if let Some(id) = types::of_kind(api_version, "Event") {
        // Both versions have the same fields under different names, so normalization cannot fail.
        let _fits = types::normalize::normalize(id, event);
    }
}

fn field_value(event: &Value, path: &str) -> Option<String> {
    let source = || or(text(&event["source"]["component"]), text(&event["reportingComponent"])).to_owned();
    (path == "source").then(source)
}

/// The cells of a stored Event.
fn event_row(row: &Row<'_>) -> Value {
    let event = row.object;
    let first = time(row, "firstTimestamp", &row.since(&event["eventTime"]));
    let last = match &event["series"] {
        Value::Object(series) => row.since(&series["lastObservedTime"]),
        _ => time(row, "lastTimestamp", &first),
    };
    let times = match (&event["series"]["count"], number(&event["count"])) {
        (Value::Number(times), _) => times.as_i64().unwrap_or(1),
        (_, 0) => 1,
        (_, times) => times,
    };
    let about = &event["involvedObject"];
    json!([
        last,
        text(&event["type"]),
        text(&event["reason"]),
        format!("{}/{}", text(&about["kind"]).to_lowercase(), text(&about["name"])),
        text(&about["fieldPath"]),
        source(event),
        text(&event["message"]).trim(),
        first,
        times,
        row.name(),
    ])
}

/// The time since a timestamp of the Event, or `instead` where there is none.
fn time(row: &Row<'_>, field: &str, instead: &str) -> String {
    let value = &row.object[field];
    if value.is_string() { row.since(value) } else { instead.to_owned() }
}

/// Returns `component, host` of the Event's reporter.
fn source(event: &Value) -> String {
    match (text(&event["source"]["component"]), text(&event["source"]["host"])) {
        ("", _) => text(&event["reportingComponent"]).to_owned(),
        (component, "") => component.to_owned(),
        (component, host) => format!("{component}, {host}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::registry::Registry;

    #[test]
    fn an_event_has_two_views_and_loses_nothing() {
        let registry = Registry::new();
        let new = registry.find("events.k8s.io", "v1", "events").unwrap();
        let mut core = json!({"apiVersion": "v1", "kind": "Event", "message": "m", "involvedObject": {"name": "p"}, "reason": "R"});
        normalize_as("v1", &mut core);
        let seen = new.to_served(core.clone());
        assert_eq!(
            (&seen["apiVersion"], &seen["note"], &seen["regarding"], &seen["reason"]),
            (&json!("events.k8s.io/v1"), &json!("m"), &json!({"name": "p"}), &json!("R"))
        );
        assert_eq!(new.to_storage(seen), core);
    }
}
