//! Events for the tests of this module: warnings about a Pod.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;

use super::occurrence::{EventType, Occurrence};

const NEW_YEAR: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// Returns the event `number`, recorded that many seconds after New Year.
pub(super) fn event(number: u64, reason: &str, message: &str) -> Occurrence {
    let some = |text: &str| Some(text.to_owned());
    let regarding = ObjectReference {
        api_version: some("v1"),
        kind: some("Pod"),
        namespace: some("ns"),
        name: some("pod"),
        uid: some("uid"),
        resource_version: some("7"),
        field_path: None,
    };
    Occurrence {
        name: format!("pod.{number:x}"),
        at: NEW_YEAR + SignedDuration::from_secs(number as i64),
        event_type: EventType::Warning,
        reason: reason.to_owned(),
        action: String::new(),
        message: message.to_owned(),
        regarding,
        related: None,
        annotations: Default::default(),
        component: "me".into(),
        host: "here".into(),
    }
}
