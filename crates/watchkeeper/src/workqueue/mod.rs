//! The work queue: the keys to reconcile, deduplicated, delayed and rate limited.
//!
//! Producers add keys and workers take them. The [`RateLimitingQueue`] between them collapses repeated adds, never
//! gives a key to two workers at once, and delays keys that failed. An add can carry its [`Trigger`], which the worker
//! reads from [`WorkItem::triggers`].
//!
//! Each layer of the queue adds one idea: `slots` (the state of a key; `extra` and `recent` for the parts that few keys
//! have, `runs` for the last runs of all), `ready` (the order of ready keys), `queue` (the keys with workers), `delaying` (due times), `keys` (backoff
//! by a [`limiter`]), `shared` (the lock and the wake-ups), and `rate_limiting` (the public API).

mod bucket;
mod buckets;
mod delaying;
mod enqueue;
mod extra;
mod item;
mod keys;
mod known;
pub mod limiter;
mod metrics;
mod priority;
mod queue;
mod rate_limiting;
mod ready;
mod recent;
mod runs;
mod shared;
mod slots;
mod state;
mod tick;
mod trigger;
mod waiting;

pub use enqueue::{Enqueue, EnqueueMapped, enqueue, enqueue_mapped};
pub use item::{Key, WorkItem};
pub(crate) use known::Glance;
pub use known::{KeyRecord, LastError, LastRun, PastRun, RunResult};
pub use limiter::RateLimiter;
pub use metrics::{Histogram, Latencies, QueueFigures, QueueMetrics, Running};
pub use priority::Priority;
pub use rate_limiting::RateLimitingQueue;
pub use state::KeyState;
pub use trigger::{Cause, ObjectRef, Reason, Relation, Trigger, TriggerRecord};
