//! How do many handlers share one watch and one cache of a kind?
//!
//! A [`SharedInformer`] owns a reflector, its queue and its store, and tells every handler what changed. A [`SharedInformerFactory`] makes
//! one informer per kind, on first use. A [`Lister`] reads typed objects from an informer's store.
//!
//! Where one handler is enough, an [`Informer`] calls it in the loop itself. Below all of them is the loop of a [`Controller`], which takes
//! any queue and any process function, and below that a [`DeltaQueue`], where producer and consumer wait for each other.

mod apply;
mod controller;
mod factory;
mod factory_settings;
mod guarded;
mod handler;
mod handover;
mod ingest;
mod intake;
mod latch;
mod listener;
mod lister;
mod processor;
mod pump;
mod ring;
mod shared;
mod unshared;

pub use controller::{Controller, ControllerBuilder, process_deltas};
pub use factory::{Caches, InformerPanicked, NotSynced, SharedInformerFactory, Unsynced};
pub use factory_settings::FactoryBuilder;
pub use handler::{Change, Filtered, Handler, OnApply, OnChange, filtered, on_apply, on_change};
pub use intake::{DeltaQueue, ProcessError};
pub use listener::Registration;
pub use lister::{Lister, LookupError, NamespaceLister};
pub use processor::HandlerOptions;
pub use shared::{InformerBuilder, InformerStopped, QueueKind, SharedInformer, UnknownQueue};
pub use unshared::{Informer, UnsharedBuilder};
