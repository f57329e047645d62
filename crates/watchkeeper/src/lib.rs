//! Kubernetes controllers in Rust with the guarantees of client-go.
#![forbid(unsafe_code)]

pub mod clock;
mod env;
pub mod informer;
pub mod object;
pub mod queue;
pub mod reflector;
pub mod report;
pub mod source;
pub mod store;
pub mod wire;

pub use env::Env;
pub use informer::{SharedInformer, SharedInformerFactory};
pub use object::{Kind, Object, ObjectName, ResourceVersion};
