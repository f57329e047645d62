//! An embedded, Kubernetes-compatible API server for development and tests.
//!
//! It stores objects in memory or in a data directory, with one revision counter, optimistic concurrency, watches that
//! resume without gaps, server-side apply, and CustomResourceDefinitions with schemas and validation rules. It runs in
//! process, also on a paused clock, or on a loopback socket for kubectl and other clients. It is not a cluster:
//! the garbage collector and the other controllers are in the crate `watchkeeper-controllers`. Roles decide what users
//! may do if [`ApiServerBuilder::authorization`] says so.
//!
//! It answers as kube-apiserver 1.36 does; `docs/apiserver-conformance.md` lists the known differences. Request bodies
//! may be JSON, YAML or protobuf; responses are JSON or YAML. Not served: client certificates, and
//! subresources that need a kubelet (logs, exec, port-forward). Such requests are refused, or negotiated down to a
//! format that is served.
//!
//! ```
//! use watchkeeper::Env;
//! use watchkeeper_apiserver::ApiServer;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ApiServer::new(&Env::simulated(1));
//! let version = server.client().apiserver_version().await?;
//! assert_eq!(version.minor, "36");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod access;
mod admission;
mod codec;
mod failure;
mod fields;
mod http;
mod kinds;
mod listen;
mod persist;
mod server;
mod state;
#[cfg(test)]
mod tests;
mod types;
mod verbs;

pub use access::authorize::Authorization;
pub use access::user::User;
pub use admission::selection::Admission;
pub use http::reply::ReplyBody;
pub use listen::credentials::{Credentials, CredentialsError};
pub use listen::serve::{ListenOptions, Listening, ServeError};
pub use persist::disk::DataDirError;
pub use server::{ApiServer, ApiServerBuilder, ApiService};
pub use state::checkpoint::Checkpoint;
