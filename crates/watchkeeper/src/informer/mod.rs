//! How do many handlers share one watch and one cache of a kind?
//!
//! A [`SharedInformer`] owns a reflector, its queue and its store, and tells every handler what changed. A [`SharedInformerFactory`] makes
//! one informer per kind, on first use. A [`Lister`] reads typed objects from an informer's store.

mod apply;
mod factory;
mod handler;
mod latch;
mod listener;
mod lister;
mod processor;
mod shared;

pub use factory::{FactoryBuilder, NotSynced, SharedInformerFactory};
pub use handler::{Change, Handler, on_apply, on_change};
pub use listener::Registration;
pub use lister::{Lister, LookupError, NamespaceLister};
pub use processor::HandlerOptions;
pub use shared::{InformerBuilder, InformerStopped, QueueKind, SharedInformer};
