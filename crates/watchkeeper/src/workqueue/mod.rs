//! Which keys need work, when, and who does it?
//!
//! Producers add keys, workers take them, and [`RateLimitingQueue`] stands between: it collapses repeated adds, never gives a key to two
//! workers at once, and holds back keys that failed. It is made of layers, each with one idea: `slots` (what is known of a key),
//! `ready` (whose turn it is), `queue` (who has it), `delaying` (due times), `keys` (backoff by a [`limiter`]), `shared` (the lock, and who
//! is woken), and `rate_limiting` (what users see of it).

mod bucket;
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
mod shared;
mod slots;
mod tick;
mod waiting;

pub use enqueue::{Enqueue, EnqueueMapped, enqueue, enqueue_mapped};
pub use item::{Key, WorkItem};
pub use known::{KeyRecord, LastError};
pub use limiter::RateLimiter;
pub use metrics::{Histogram, QueueFigures, QueueMetrics, Running};
pub use priority::Priority;
pub use rate_limiting::RateLimitingQueue;
