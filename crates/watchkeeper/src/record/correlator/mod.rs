//! Which events are worth a write? Similar ones are combined, repetitions counted, floods filtered.

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
/// - The tenth message of one reason on one object within ten minutes, and each further one, is *combined*: they share one Event, which shows the
///   newest. The nine before keep Events of their own.
/// - An event that came before is *counted*: its Event gets another count, and nothing new is made.
/// - An object about which a component has more to say than a burst of 25 and then one event in five minutes is *filtered*. What is filtered
///   is still counted: the next event of its kind that passes carries the whole count.
///
/// All numbers, and what counts as similar, are [options](CorrelatorOptions). It waits for nothing and reads no clock; it remembers the 4,096 keys of
/// each step that were used last, and of each no more than a few words, however long the messages are.
#[derive(Debug)]
pub struct EventCorrelator {
    options: CorrelatorOptions,
    keys: Keys,
    similar: Cache<Similar>,
    counted: Cache<Counted>,
    buckets: Cache<Bucket>,
}

/// Keeps the values of the keys that were used last.
pub(super) type Cache<V> = LruCache<EventKey, V, FixedState>;

/// An empty cache, which takes memory only for what is in it.
pub(super) fn cache<V>(size: NonZeroUsize, generator: &Generator) -> Cache<V> {
    let mut cache = LruCache::unbounded_with_hasher(generator.hasher());
    cache.resize(size);
    cache
}

/// The messages of one reason on one object that have Events of their own: one fewer than may be different.
#[derive(Debug)]
struct Similar {
    messages: Vec<EventKey>,
    last: Instant,
}

/// An Event, as it was written or will be.
#[derive(Debug)]
struct Counted {
    name: String,
    first: Timestamp,
    count: i32,
}

/// What to write of an event: an Event of this name, count and message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Correlated {
    /// What is the same for all that this Event tells of.
    pub key: EventKey,
    /// The name of the Event.
    pub name: String,
    /// When it was first recorded.
    pub first: Timestamp,
    /// How often it was recorded until now. If more than once, the Event may be on the server, and a patch will do.
    pub count: i32,
    /// What it says now.
    pub message: String,
    /// Whether it stands for several similar events.
    pub is_combined: bool,
}

impl EventCorrelator {
    /// A correlator that has seen nothing yet.
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

    /// Takes note of an event; what to write of it, or nothing if it is filtered.
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

    /// Whether there have been too many messages like this one.
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
