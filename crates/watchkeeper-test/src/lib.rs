//! Tests of operators on an embedded API server, in process.
//!
//! [`TestCluster`] starts the server with its built-in controllers and the operator under test.
//!
//! ```
//! use k8s_openapi::api::core::v1::{ConfigMap, Secret};
//! use watchkeeper::controller::{Action, Controller, Manager, SetupError, Watch};
//! use watchkeeper_test::TestCluster;
//!
//! fn register(manager: &mut Manager) -> Result<(), SetupError> {
//!     Controller::<ConfigMap>::new(manager).owns(Watch::<Secret>::new()).reconcile(|map, cx| async move {
//!         let mut secret = Secret::default();
//!         secret.metadata.name = map.metadata.name.clone();
//!         cx.apply(&secret).await?;
//!         Ok(Action::done())
//!     })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let cluster = TestCluster::start(register).await;
//! cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}").await;
//! cluster.eventually::<Secret>("default/web", |secret| secret.metadata.owner_references.is_some()).await;
//! cluster.stop().await;
//! # }
//! ```
#![forbid(unsafe_code)]

mod cluster;
mod manifest;
mod permissions;

pub use cluster::{TestCluster, TestClusterBuilder};
pub use permissions::Permissions;
pub use watchkeeper_apiserver::{Admission, User};
