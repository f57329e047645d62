//! The items that most controllers need, for one import.
//!
//! | To | there is |
//! |---|---|
//! | write a controller | [`Controller`] with [`Watch`]es, registered with a [`Manager`]; a [`Context`], an [`Action`] or an [`Error`] in its reconcile |
//! | reach a cluster | [`Env`], a clock and a random generator; [`ClientArgs`], which finds the cluster; a [`Client`] of it |
//! | cache objects | [`SharedInformerFactory`], [`SharedInformer`], [`Lister`] |
//! | name and read an object | [`Object`] as it was received, its [`ObjectName`], and [`Kind`], which every type of object is |
//! | react to changes | [`Handler`], made by [`on_change`] or [`on_apply`]; [`Change`] |
//! | queue work | [`RateLimitingQueue`] with a [`limiter`], filled by [`enqueue`] or [`enqueue_mapped`]; a worker gets a [`WorkItem`] |
//! | do the work | [`run_workers`]; an [`ApiError`] and its [`Class`] say what went wrong with a request |
//! | notify users | [`EventRecorder`], [`EventType`] |
//! | stop | [`signals`], a [`CancellationToken`] |
//!
//! With the feature of that name there are also `AdminArgs` (`admin`) and `LogArgs` (`logging`); with both and `clap`,
//! `ManagerArgs`.
//!
//! ```
//! use watchkeeper::k8s_openapi::api::core::v1::ConfigMap;
//! use watchkeeper::prelude::*;
//!
//! fn watch_config(client: &Client) -> RateLimitingQueue<ObjectName> {
//!     let queue = RateLimitingQueue::new("config", limiter::default_controller(), client.env());
//!     let factory = SharedInformerFactory::builder(client).build();
//!     let handler = factory.informer::<ConfigMap>().add_handler(enqueue(queue.clone()));
//!     assert!(handler.is_ok(), "an informer that has not been started takes handlers");
//!     queue
//! }
//! ```

pub use tokio_util::sync::CancellationToken;

#[cfg(all(feature = "admin", feature = "clap", feature = "logging"))]
pub use crate::controller::ManagerArgs;
pub use crate::controller::{
    Action, Conditions, Context, Controller, Error, IndexKey, Manager, SetupError, Watch, generation_changed,
};
pub use crate::env::Env;
pub use crate::informer::{
    Change, Handler, Lister, SharedInformer, SharedInformerFactory, on_apply, on_change,
};
pub use crate::object::{Kind, Object, ObjectName};
#[cfg(feature = "admin")]
pub use crate::process::AdminArgs;
#[cfg(feature = "logging")]
pub use crate::process::LogArgs;
pub use crate::process::{ClientArgs, run_workers, signals};
pub use crate::record::{EventRecorder, EventType};
pub use crate::source::Client;
pub use crate::wire::{ApiError, Class};
pub use crate::workqueue::{RateLimitingQueue, WorkItem, enqueue, enqueue_mapped, limiter};
