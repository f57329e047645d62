//! Kubernetes controllers in Rust with the guarantees of client-go.
//!
//! One watch event takes this way, and the modules stand in its order: [`wire`] cuts the bytes of an API server into objects
//! ([`object`]) that a [`source`] delivers; a [`reflector`] lists and watches for ever and puts what it finds into a [`queue`]; the
//! [`informer`] applies that to its [`store`] and tells handlers, which put keys into a [`workqueue`]; workers ([`process`]) take them out,
//! and tell users about it by [`record`]ing events. A [`controller`] is made of all that.
//!
//! Time, chance and error reports are handed in with an [`Env`], so that every run can be repeated.
#![forbid(unsafe_code)]

pub mod clock;
pub mod controller;
mod env;
mod fair;
pub mod informer;
pub mod object;
pub mod process;
pub mod queue;
pub mod record;
pub mod reflector;
pub mod report;
pub mod source;
pub mod store;
mod sync;
pub mod wire;
pub mod workqueue;

pub use env::Env;
pub use informer::{Informer, SharedInformer, SharedInformerFactory};
pub use object::{Kind, Object, ObjectName, ResourceVersion, Transform};
pub use source::Clients;
pub use workqueue::RateLimitingQueue;
