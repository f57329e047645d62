//! A whole operator: a Website owns a Deployment, a Service and a ConfigMap, reads a Secret, and has a bucket outside the cluster.
//!
//! `cargo run -p examples --bin website` runs on the cluster of your kubeconfig until Ctrl-C. docs/guide.md explains it part by part.

mod buckets;
mod children;
mod reconcile;
#[cfg(test)]
mod tests;
mod types;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use watchkeeper::clap::{self, Parser};
use watchkeeper::prelude::*;

use crate::buckets::{Buckets, InMemory};
use crate::reconcile::{clean_up, reconcile};
use crate::types::Website;

/// Runs websites: a Deployment, a Service and a ConfigMap for each Website
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    manager: ManagerArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    let buckets = Arc::new(InMemory::default());
    Args::parse().manager.run("website-operator", |manager| register(manager, buckets)).await
}

const SECRET: IndexKey<Website> = IndexKey::field("secret", "spec.secret");

fn register(manager: &mut Manager, buckets: Arc<impl Buckets>) -> Result<(), SetupError> {
    manager.crd::<Website>();
    let cleaned = buckets.clone();
    Controller::<Website>::new(manager)
        .owns(Watch::<Deployment>::new())
        .owns(Watch::<Service>::new())
        .owns(Watch::<ConfigMap>::new().labels("app=website"))
        .index(&SECRET)
        .watches(Watch::<Secret>::new(), |secret, sites| {
            sites.keys_in(&SECRET, secret.namespace(), secret.name())
        })
        .when(generation_changed())
        .finalizer("example.dev/bucket", move |_, cx| clean_up(cx, cleaned.clone()))
        .workers(4)
        .timeout(Duration::from_secs(60))
        .reconcile(move |site, cx| reconcile(site, cx, buckets.clone()))
}
