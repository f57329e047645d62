//! The recorder of events, which never waits and never fails.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;

use super::broadcaster::Hub;
use super::counts::EventCounts;
use super::occurrence::{EventType, Occurrence};
use super::recent::RecentEvents;
use crate::object::Kind;

/// Records events on objects. Never blocks and never fails: events that a sink cannot take are dropped and counted.
/// Clones share everything.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use watchkeeper::Env;
/// use watchkeeper::record::{EventBroadcaster, EventType};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let events = EventBroadcaster::new(&Env::system());
/// let mut stream = events.subscribe();
/// let recorder = events.recorder("my-controller");
/// recorder.event(&Pod::default(), EventType::Normal, "Synced", "the pod is up to date");
/// assert_eq!(stream.recv().await.unwrap().to_string(), "Normal Synced the pod is up to date");
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct EventRecorder {
    component: Arc<str>,
    host: Arc<str>,
    hub: Arc<Hub>,
}

impl EventRecorder {
    pub(super) fn new(component: &str, hub: &Arc<Hub>) -> Self {
        Self { component: component.into(), host: "".into(), hub: hub.clone() }
    }

    /// Sets the node or pod that the component runs on, for all events.
    #[must_use]
    pub fn host(mut self, host: &str) -> Self {
        self.host = host.into();
        self
    }

    /// Sets the component that records, for all events of this recorder and its clones.
    #[must_use]
    pub fn component(mut self, component: &str) -> Self {
        self.component = component.into();
        self
    }

    /// Records an event on an object of a kind known at compile time.
    pub fn event<K: Kind<DynamicType: Default>>(
        &self,
        object: &K,
        event: EventType,
        reason: &str,
        message: &str,
    ) {
        self.about(object).send(event, reason, message);
    }

    /// Records an event on an object of a kind known at run time.
    pub fn event_of<K: Kind>(
        &self,
        object: &K,
        kind: &K::DynamicType,
        event: EventType,
        reason: &str,
        message: &str,
    ) {
        self.about_reference(reference(object, kind)).send(event, reason, message);
    }

    /// Starts an event on `object` with more than a reason and a message.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::{Node, Pod};
    /// # use watchkeeper::record::{EventRecorder, EventType};
    /// # fn example(recorder: &EventRecorder, pod: &Pod, node: &Node) {
    /// recorder
    ///     .about(pod)
    ///     .action("Binding")
    ///     .related(node)
    ///     .send(EventType::Normal, "Scheduled", "found a node");
    /// # }
    /// ```
    pub fn about<K: Kind<DynamicType: Default>>(&self, object: &K) -> Draft<'_> {
        self.about_reference(reference(object, &K::DynamicType::default()))
    }

    /// Starts an event on the referenced object, which may be of a kind known at run time, or a part of an object.
    pub fn about_reference(&self, regarding: ObjectReference) -> Draft<'_> {
        Draft {
            recorder: self,
            regarding,
            related: None,
            action: String::new(),
            annotations: BTreeMap::new(),
        }
    }

    /// Returns the number of events that were dropped because a sink was full, or because all sinks had ended.
    pub fn dropped(&self) -> u64 {
        self.counts().dropped
    }

    /// Returns the counts of this recorder's broadcaster.
    pub fn counts(&self) -> EventCounts {
        self.hub.counters.now()
    }

    /// Returns the last events of this recorder's broadcaster.
    pub fn recent(&self) -> RecentEvents {
        self.hub.recent.clone()
    }

    /// Returns the counters behind [`Self::counts`], which do not keep the broadcaster alive.
    #[cfg(feature = "prometheus")]
    pub(crate) fn counters(&self) -> &Arc<super::Counters> {
        &self.hub.counters
    }
}

/// An event that is recorded by [`Draft::send`].
#[derive(Debug)]
#[must_use = "an event is recorded when it is sent"]
pub struct Draft<'a> {
    recorder: &'a EventRecorder,
    regarding: ObjectReference,
    related: Option<ObjectReference>,
    action: String,
    annotations: BTreeMap<String, String>,
}

impl Draft<'_> {
    /// Sets the action, in one CamelCase word. If the API demands one and none is set, it is the reason.
    pub fn action(mut self, action: &str) -> Self {
        action.clone_into(&mut self.action);
        self
    }

    /// Sets a related object.
    pub fn related<K: Kind<DynamicType: Default>>(self, object: &K) -> Self {
        self.related_reference(reference(object, &K::DynamicType::default()))
    }

    /// Sets a related object by reference.
    pub fn related_reference(mut self, object: ObjectReference) -> Self {
        self.related = Some(object);
        self
    }

    /// Adds an annotation of the Event object.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Records the event.
    pub fn send(self, event_type: EventType, reason: &str, message: &str) {
        let Self { recorder, regarding, related, action, annotations } = self;
        let at = recorder.hub.env.clock.wall();
        recorder.hub.send(Occurrence {
            name: recorder.hub.name(regarding.name.as_deref().unwrap_or_default(), at.as_nanosecond()),
            at,
            event_type,
            reason: reason.to_owned(),
            action,
            message: message.to_owned(),
            regarding,
            related,
            annotations,
            component: recorder.component.clone(),
            host: recorder.host.clone(),
        });
    }
}

/// Returns a reference to an object. The kind comes from the type, as items of lists have none.
fn reference<K: Kind>(object: &K, kind: &K::DynamicType) -> ObjectReference {
    let resource_version = object.meta().resource_version.clone();
    ObjectReference { resource_version, ..object.object_ref(kind) }
}
