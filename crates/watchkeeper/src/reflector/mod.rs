//! How does a kind stay mirrored? List it, then watch it, for ever.
//!
//! The plan decides, without IO, what to ask next after each outcome; the reflector asks, reads the bytes, and hands objects on.

mod backoff;
mod bad;
mod initial;
mod metrics;
mod options;
mod plan;
mod run;

pub use backoff::Backoff;
pub use metrics::{
    HandlerStats, InformerId, InformerMetrics, InformerStats, ListReason, MetricsProvider, NoMetrics,
    Observed,
};
pub(crate) use options::Options;
pub use options::{ErrorHook, ListMode};
pub use run::{Health, Phase};
pub(crate) use run::{Reflector, Sink};
