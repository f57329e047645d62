//! Settings of the correlation of events: numbers, rates, and the definition of similar.

use std::fmt;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use super::super::occurrence::Occurrence;
use super::key::{KeyHasher, Parts};

/// Settings of an [`EventCorrelator`](super::EventCorrelator); the defaults are those of client-go.
///
/// ```
/// # use std::hash::Hash;
/// # use std::time::Duration;
/// # use watchkeeper::record::CorrelatorOptions;
/// // Reasons do not use up each other's events: each has ten, and then one a minute.
/// let options = CorrelatorOptions::default()
///     .spam_filter(10, Duration::from_secs(60))
///     .spam_key(|event, key| (&event.regarding.uid, &event.reason).hash(key));
/// ```
#[derive(Clone)]
pub struct CorrelatorOptions {
    pub(super) cache_size: NonZeroUsize,
    pub(super) spam_burst: u32,
    pub(super) spam_refill: Duration,
    pub(super) max_similar: usize,
    pub(super) aggregate_interval: Duration,
    pub(super) event_key: Arc<Parts>,
    pub(super) spam_key: Arc<Parts>,
    pub(super) aggregate_key: Arc<Parts>,
    pub(super) local_key: Arc<Parts>,
    pub(super) combined_message: Arc<dyn Fn(&Occurrence) -> String + Send + Sync>,
}

impl Default for CorrelatorOptions {
    fn default() -> Self {
        const SIZE: NonZeroUsize = NonZeroUsize::new(4096).expect("is not zero");
        Self {
            cache_size: SIZE,
            spam_burst: 25,
            spam_refill: Duration::from_secs(300),
            max_similar: 10,
            aggregate_interval: Duration::from_secs(600),
            event_key: Arc::new(|event, key| {
                source_and_object(event, key);
                (&event.regarding.field_path, event.event_type, &event.reason, &event.message).hash(key);
            }),
            spam_key: Arc::new(|event, key| {
                source_and_object(event, key);
                event.event_type.hash(key);
            }),
            aggregate_key: Arc::new(|event, key| {
                source_and_object(event, key);
                (event.event_type, &event.reason).hash(key);
            }),
            local_key: Arc::new(|event, key| event.message.hash(key)),
            combined_message: Arc::new(|event| format!("(combined from similar events): {}", event.message)),
        }
    }
}

/// Hashes the parts that all keys begin with.
fn source_and_object(event: &Occurrence, key: &mut KeyHasher) {
    let Occurrence { component, host, regarding, .. } = event;
    (component, host, &regarding.api_version, &regarding.kind).hash(key);
    (&regarding.namespace, &regarding.name, &regarding.uid).hash(key);
}

impl CorrelatorOptions {
    /// Sets the number of keys that each step remembers, at least one; 4,096 by default. A forgotten event is counted
    /// from one again.
    #[must_use]
    pub fn cache_size(mut self, size: usize) -> Self {
        self.cache_size = NonZeroUsize::new(size).unwrap_or(NonZeroUsize::MIN);
        self
    }

    /// Lets `burst` events on one object pass, and then one per `refill`; 25 and five minutes by default. With a
    /// `refill` of zero all events pass.
    #[must_use]
    pub fn spam_filter(mut self, burst: u32, refill: Duration) -> Self {
        (self.spam_burst, self.spam_refill) = (burst, refill);
        self
    }

    /// Sets the key by which events share the tokens of the spam filter; component, type and object by default.
    #[must_use]
    pub fn spam_key(mut self, parts: impl Fn(&Occurrence, &mut KeyHasher) + Send + Sync + 'static) -> Self {
        self.spam_key = Arc::new(parts);
        self
    }

    /// Combines similar events from the `max`th different one on, as long as at most `interval` passes between two of
    /// them; ten and ten minutes by default.
    #[must_use]
    pub fn aggregate(mut self, max: usize, interval: Duration) -> Self {
        (self.max_similar, self.aggregate_interval) = (max, interval);
        self
    }

    /// Sets the key by which events are similar, and the key by which similar events are different. By default events
    /// of one component, type and reason on one object are similar, and differ by their messages.
    #[must_use]
    pub fn aggregate_key(
        mut self,
        similar: impl Fn(&Occurrence, &mut KeyHasher) + Send + Sync + 'static,
        different: impl Fn(&Occurrence, &mut KeyHasher) + Send + Sync + 'static,
    ) -> Self {
        (self.aggregate_key, self.local_key) = (Arc::new(similar), Arc::new(different));
        self
    }

    /// Sets the message of a combined Event, made by `message` from the newest event.
    #[must_use]
    pub fn combined_message(
        mut self,
        message: impl Fn(&Occurrence) -> String + Send + Sync + 'static,
    ) -> Self {
        self.combined_message = Arc::new(message);
        self
    }
}

impl fmt::Debug for CorrelatorOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CorrelatorOptions")
            .field("cache_size", &self.cache_size)
            .field("spam_burst", &self.spam_burst)
            .field("spam_refill", &self.spam_refill)
            .field("max_similar", &self.max_similar)
            .field("aggregate_interval", &self.aggregate_interval)
            .finish_non_exhaustive()
    }
}
