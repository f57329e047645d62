//! Command-line options of the controller, and how it is run with them.

use std::num::NonZeroUsize;

use k8s_openapi::api::core::v1::Pod;
use tokio_util::sync::CancellationToken;
use watchkeeper::object::IdentityError;
use watchkeeper::queue::QueueKind;
use watchkeeper::source::{ApiSource, Scope, Selection};
use watchkeeper::{Client, Object, ObjectName};

use crate::controller::{Controller, NotSynced};
use crate::output::Output;

/// Options of the controller, for `#[command(flatten)]`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Namespace of the Pods to watch; "" for all namespaces
    #[arg(short, long, default_value = "default", value_name = "NAME")]
    pub namespace: String,
    /// Label selector, such as app=web,tier!=cache
    #[arg(short = 'l', long, default_value = "", hide_default_value = true, value_name = "LABELS")]
    pub selector: String,
    /// Field selector, such as spec.nodeName=node-1
    #[arg(long, default_value = "", hide_default_value = true, value_name = "FIELDS")]
    pub field_selector: String,
    /// Number of keys to process concurrently
    #[arg(long, default_value = "1", value_name = "N")]
    pub workers: NonZeroUsize,
    /// Queue between watch and cache: changes in stream order, or grouped by object
    #[arg(long, default_value_t, value_name = "ordered|delta")]
    pub queue: QueueKind,
    /// Let the sync of this key fail, to see five retries and the drop
    #[arg(long, hide = true, value_name = "NAMESPACE/NAME")]
    pub fail: Option<ObjectName>,
}

/// Why the controller did not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The cache did not sync.
    #[error(transparent)]
    NotSynced(#[from] NotSynced),
    /// The Pod added by hand is invalid.
    #[error(transparent)]
    Pod(#[from] IdentityError),
}

/// Runs the controller until `stop`, and returns when all its tasks have ended. Dropping the future ends them too.
pub async fn run(
    client: &Client,
    options: &Options,
    output: Output,
    stop: CancellationToken,
) -> Result<(), RunError> {
    let scope = Scope::Namespace(options.namespace.clone());
    let selection = Selection { labels: options.selector.clone(), fields: options.field_selector.clone() };
    let source = ApiSource::new::<Pod>(client, &(), &scope).select(selection);
    let controller = Controller::new(source, options, output, client.env());
    // As if a previous run had left it behind: if the cluster has no such Pod, the first list deletes it.
    let my_pod = serde_json::json!({"metadata": {"name": "mypod", "namespace": options.namespace}});
    controller.indexer().add(Object::from_json(my_pod.to_string().as_bytes())?);
    Ok(controller.run(options.workers.get(), stop).await?)
}
