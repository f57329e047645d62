//! What is an event made of? An object, a type, a reason and a message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::env::Env;
use crate::object::Kind;

/// Whether an event is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Things go their way.
    Normal,
    /// Somebody should have a look.
    Warning,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Records events on objects. Never blocks and never fails: what the sink cannot take is dropped and counted. Clones share it.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    component: Arc<str>,
    sender: mpsc::Sender<Event>,
    dropped: Arc<AtomicU64>,
    /// The time in the last event's name: each has its own.
    stamp: Arc<Mutex<i128>>,
    env: Env,
}

impl EventRecorder {
    pub(super) fn new(component: &str, sender: mpsc::Sender<Event>, env: &Env) -> Self {
        Self {
            component: component.into(),
            sender,
            dropped: Arc::default(),
            stamp: Arc::default(),
            env: env.clone(),
        }
    }

    /// Records an event on an object of a kind known at compile time.
    pub fn event<K: Kind<DynamicType: Default>>(
        &self,
        object: &K,
        event: EventType,
        reason: &str,
        message: &str,
    ) {
        self.event_of(object, &K::DynamicType::default(), event, reason, message);
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
        let now = self.env.clock.wall();
        // The kind comes from the type: items of lists carry none.
        let mut regarding = object.object_ref(kind);
        regarding.resource_version.clone_from(&object.meta().resource_version);
        let name = self.name(regarding.name.as_deref().unwrap_or_default(), now.as_nanosecond());
        let made = Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(regarding.namespace.clone().unwrap_or_else(|| "default".to_owned())),
                ..ObjectMeta::default()
            },
            involved_object: regarding,
            type_: Some(event.as_str().to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            count: Some(1),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            source: Some(EventSource { component: Some(self.component.to_string()), host: None }),
            reporting_component: Some(self.component.to_string()),
            ..Event::default()
        };
        if self.sender.try_send(made).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// `object` and the time in hexadecimal, or a UUID where that is no name.
    fn name(&self, object: &str, now: i128) -> String {
        let stamp = {
            let mut last = self.stamp.lock();
            *last = now.max(*last + 1);
            *last
        };
        let name = format!("{object}.{stamp:x}");
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_label = |label: &str| {
            !label.is_empty() && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-')
        };
        let is_subdomain = name.len() <= 253 && name.split('.').all(is_label);
        if is_subdomain { name } else { self.env.generator.uuid() }
    }

    /// How many events were dropped because the sink was full or gone.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
