//! Informers: one watch and one cache of a kind, for many handlers.
//!
//! A [`SharedInformer`] owns a reflector, its queue and its store, and notifies every handler of changes. A
//! [`SharedInformerFactory`] makes one informer per kind, on first use. A [`Lister`] reads typed objects from an
//! informer's store.
//!
//! If one handler is enough, an [`Informer`] calls it in the loop itself. All of them use the loop of a
//! [`DeltaController`], which takes any queue and any process function.

mod apply;
mod caches;
mod catch_up;
mod delta_controller;
mod factory;
mod factory_settings;
mod guarded;
mod handler;
mod handover;
mod listener;
mod lister;
mod metrics;
mod pipeline;
mod processor;
mod pump;
mod ring;
#[cfg(test)]
mod rotation;
mod shared;
mod synced;
mod unshared;

pub(crate) use caches::CacheDetail;
pub use caches::{CacheState, Caches, Degraded};
pub use delta_controller::{DeltaController, DeltaControllerBuilder, process_deltas};
pub use factory::{CachesBehind, InformerPanicked, SharedInformerFactory};
pub use factory_settings::SharedInformerFactoryBuilder;
pub use handler::{Change, Filtered, Handler, OnApply, OnChange, filtered, on_apply, on_change};
pub use listener::Registration;
pub use lister::{Lister, LookupError, NamespaceLister};
pub use metrics::{
    HandlerStats, InformerId, InformerMetrics, InformerStats, MetricsProvider, NoMetrics, Observed,
};
pub use processor::HandlerOptions;
pub use shared::{InformerStopped, SharedInformer, SharedInformerBuilder};
pub use synced::{NotSynced, Synced, Unsynced, wait_for_sync};
pub use unshared::{Informer, InformerBuilder};
