//! An embedded, Kubernetes-compatible API server for development and tests.
//!
//! It keeps objects in memory, and in a folder if it is given one, with one version counter, optimistic concurrency, watches that resume without gaps, server-side apply,
//! and CustomResourceDefinitions with their schemas and rules. It runs in process, on a paused clock if need be, or on a loopback socket for
//! kubectl and other clients. It is not a cluster: controllers, such as the garbage collector, are in the crate
//! `watchkeeper-controllers`, and whoever has the token may do everything.
//!
//! It answers as a real kube-apiserver 1.36 does; `docs/apiserver-conformance.md` names every answer that is known to differ. Bodies may
//! come in JSON, YAML or protobuf; answers are JSON or YAML. Not served: RBAC, tokens of service accounts, webhooks, and what needs a
//! kubelet (logs, exec, port-forward). What is not served is refused or left to the client's second choice; it is never half done.
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

pub use http::reply::ReplyBody;
pub use listen::credentials::{Credentials, CredentialsError};
pub use listen::serve::{ListenOptions, Listening, ServeError};
pub use persist::disk::DataDirError;
pub use server::{ApiServer, ApiServerBuilder, ApiService};
pub use state::store::encodings;
