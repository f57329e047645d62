//! Mirrors one kind: lists it, then watches it, for as long as the program runs.
//!
//! The plan decides the next request from the outcome of the last one, without IO. The reflector sends it, reads the
//! answer, and passes on the objects.

mod backoff;
mod bad;
mod compare;
mod events;
mod health;
mod initial;
mod kind;
mod list;
mod metadata;
mod metrics;
mod options;
mod plan;
mod run;
mod verify;
mod watch;

pub use backoff::Backoff;
pub(crate) use health::SharedHealth;
pub use health::{Cause, Health, Phase};
pub(crate) use metadata::list_metadata;
pub use metrics::ListReason;
pub(crate) use metrics::ReflectorMetrics;
pub(crate) use options::Options;
pub use options::{ErrorHook, ListMode};
pub(crate) use run::Reflector;
pub(crate) use verify::VerifyRequests;
pub use verify::{Verified, VerifyError};
