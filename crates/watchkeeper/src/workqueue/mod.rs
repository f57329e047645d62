//! Which keys need work, when, and who does it?
//!
//! Producers add keys, workers take them, and [`RateLimitingQueue`] stands between: it collapses repeated adds, never gives a key to two
//! workers at once, and holds back keys that failed. It is made of three layers, each with one idea: `queue` (order and ownership),
//! `delaying` (due times), and `rate_limiting` (per-key backoff by a [`limiter`], and the waiting).

mod bucket;
mod delaying;
mod item;
pub mod limiter;
mod metrics;
mod queue;
mod rate_limiting;
mod waiting;

pub use item::{Key, WorkItem};
pub use limiter::RateLimiter;
pub use metrics::{QueueMetrics, Running};
pub use rate_limiting::RateLimitingQueue;
