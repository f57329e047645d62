//! Correlation of events: similar ones are combined, repetitions counted, floods filtered.

mod key;
mod options;
mod spam;

use std::mem;
use std::num::NonZeroUsize;
use std::time::Duration;

use foldhash::fast::FixedState;
use jiff::Timestamp;
use lru::LruCache;

pub(super) use key::Keys;
pub use key::{EventKey, KeyHasher};
pub use options::CorrelatorOptions;

use self::spam::Bucket;
use super::occurrence::Occurrence;
use crate::clock::{Generator, Instant};

/// Decides what to write of a stream of events: it combines, then counts, then filters.
///
/// - The tenth message of one reason on one object within ten minutes, and each further one, is *combined*: they share
///   one Event, which shows the newest. The nine before keep their own Events.
/// - A repeated event is *counted*: the count of its Event increases, and nothing new is created.
/// - An object with more events of a component than a burst of 25 and then one in five minutes is *filtered*. Filtered
///   events are still counted: the next one of the same kind that passes carries the whole count.
///
/// All numbers, and the definition of similar, are [options](CorrelatorOptions). The correlator waits for nothing and
/// reads no clock. It remembers the 4,096 most recently used keys of each step, in a few words each, however long the
/// messages are.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use watchkeeper::Env;
/// use watchkeeper::record::{CorrelatorOptions, EventBroadcaster, EventCorrelator, EventType};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let env = Env::simulated(1);
/// let events = EventBroadcaster::new(&env);
/// let mut stream = events.subscribe();
/// let mut correlator = EventCorrelator::new(CorrelatorOptions::default(), &env.generator);
/// for count in 1..=2 {
///     events.recorder("my-controller").event(&Pod::default(), EventType::Warning, "Failed", "no space left");
///     let event = stream.recv().await.unwrap();
///     assert_eq!(correlator.observe(&event, env.clock.now()).unwrap().count, count);
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct EventCorrelator {
    options: CorrelatorOptions,
    keys: Keys,
    similar: Cache<Similar>,
    counted: Cache<Counted>,
    buckets: Cache<Bucket>,
}

/// The values of the most recently used keys.
pub(super) type Cache<V> = LruCache<EventKey, V, FixedState>;

/// Returns an empty cache, which takes memory only for its entries.
pub(super) fn cache<V>(size: NonZeroUsize, generator: &Generator) -> Cache<V> {
    let mut cache = LruCache::unbounded_with_hasher(generator.hasher());
    cache.resize(size);
    cache
}

/// The messages of one reason on one object that have their own Events: one fewer than the maximum.
#[derive(Debug)]
struct Similar {
    messages: Vec<EventKey>,
    last: Instant,
}

/// An Event, as it was or will be written.
#[derive(Debug)]
struct Counted {
    name: String,
    first: Timestamp,
    count: i32,
}

/// The Event to write: its name, count and message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Correlated {
    /// The key that all events of this Event share.
    pub key: EventKey,
    /// The name of the Event.
    pub name: String,
    /// The time of the first event.
    pub first: Timestamp,
    /// The number of events so far. If there was more than one, the Event may be on the server, and a patch is enough.
    pub count: i32,
    /// The current message.
    pub message: String,
    /// Whether it combines several similar events.
    pub is_combined: bool,
}

impl EventCorrelator {
    /// Returns an empty correlator.
    pub fn new(options: CorrelatorOptions, generator: &Generator) -> Self {
        let size = options.cache_size;
        Self {
            options,
            keys: Keys::new(generator),
            similar: cache(size, generator),
            counted: cache(size, generator),
            buckets: cache(size, generator),
        }
    }

    /// Records an event, and returns what to write, or nothing if it is filtered.
    pub fn observe(&mut self, event: &Occurrence, now: Instant) -> Option<Correlated> {
        let is_combined = self.is_combined(event, now);
        let key = match is_combined {
            true => self.keys.of(event, &*self.options.aggregate_key),
            false => self.keys.of(event, &*self.options.event_key),
        };
        let counted = self.count(key, event);
        if self.is_spam(event, now) {
            return None;
        }
        let message = match is_combined {
            true => (self.options.combined_message)(event),
            false => event.message.clone(),
        };
        let (name, first, count) = counted;
        Some(Correlated { key, name, first, count, message, is_combined })
    }

    /// Returns whether there have been too many messages like this one.
    fn is_combined(&mut self, event: &Occurrence, now: Instant) -> bool {
        let Self { options, keys, similar, .. } = self;
        let fresh = || Similar { messages: Vec::new(), last: now };
        let similar = similar.get_or_insert_mut(keys.of(event, &*options.aggregate_key), fresh);
        let since: Duration = now.saturating_duration_since(mem::replace(&mut similar.last, now));
        if since > options.aggregate_interval {
            similar.messages.clear();
        }
        let message = keys.of(event, &*options.local_key);
        let (is_known, has_room) =
            (similar.messages.contains(&message), similar.messages.len() + 1 < options.max_similar);
        if !is_known && has_room {
            similar.messages.push(message);
        }
        !is_known && !has_room
    }

    fn count(&mut self, key: EventKey, event: &Occurrence) -> (String, Timestamp, i32) {
        let first = || Counted { name: event.name.clone(), first: event.at, count: 0 };
        let counted = self.counted.get_or_insert_mut(key, first);
        counted.count = counted.count.saturating_add(1);
        (counted.name.clone(), counted.first, counted.count)
    }

    fn is_spam(&mut self, event: &Occurrence, now: Instant) -> bool {
        let Self { options, keys, buckets, .. } = self;
        let full = || Bucket::full(options.spam_burst, now);
        let bucket = buckets.get_or_insert_mut(keys.of(event, &*options.spam_key), full);
        !bucket.take(options.spam_burst, options.spam_refill, now)
    }
}

#[cfg(test)]
mod tests;
