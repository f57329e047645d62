//! A small controller of built-in kinds: a Namespace with the label `size` has a ResourceQuota that matches the label.
//!
//! `cargo run -p examples --bin quotas` runs on the cluster of your kubeconfig until Ctrl-C; quotas_story.rs shows it at work
//! without a cluster.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, ResourceQuota, ResourceQuotaSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use watchkeeper::clap::{self, Parser};
use watchkeeper::controller::labels_changed;
use watchkeeper::prelude::*;

/// Gives namespaces the quota that their label `size` says
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    manager: ManagerArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    Args::parse().manager.run("quotas", register).await
}

pub(crate) fn register(manager: &mut Manager) -> Result<(), SetupError> {
    Controller::<Namespace>::new(manager)
        .when(labels_changed())
        .owns(Watch::<ResourceQuota>::new())
        .reconcile(reconcile)
}

async fn reconcile(namespace: Arc<Namespace>, cx: Context<Namespace>) -> Result<Action, Error> {
    let size = namespace.metadata.labels.as_ref().and_then(|labels| labels.get("size"));
    // Without a size a namespace keeps the quota that it has.
    let (Some(size), None) = (size, &namespace.metadata.deletion_timestamp) else {
        return Ok(Action::done());
    };
    let pods = match &**size {
        "small" => "10",
        "large" => "100",
        size => {
            return Err(Error::terminal("UnknownSize", format!("size {size:?} is neither small nor large")));
        }
    };
    cx.apply(&quota(cx.key().name(), pods)).await?;
    Ok(Action::done())
}

fn quota(namespace: &str, pods: &str) -> ResourceQuota {
    let hard = BTreeMap::from([("pods".to_owned(), Quantity(pods.to_owned()))]);
    ResourceQuota {
        metadata: ObjectMeta {
            name: Some("size".to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(ResourceQuotaSpec { hard: Some(hard), ..ResourceQuotaSpec::default() }),
        ..ResourceQuota::default()
    }
}
