//! The Website operator on our `Controller`, as a process of its own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube_client::Config;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use watchkeeper::controller::{Action, Conditions, Context, Controller, Error, Manager, Watch, WriteError};
use watchkeeper::kube_core::Resource;
use watchkeeper::kube_core::params::Patch;
use watchkeeper::object::Kind;
use watchkeeper::{Client, Env, ObjectName};

use super::website::{Website, config_map, deployment, service};
use crate::informer::Failure;

/// Run the Website operator, triggered and asked through standard input.
///
/// The line `count` prints how many reconciles have ended; `enqueue NAMESPACE/NAME` reconciles a Website; the end stops the program.
#[derive(Debug, Args)]
pub struct OperatorArgs {
    /// URL of the API server
    #[arg(long, value_name = "URL")]
    server: http::Uri,
    /// Number of Websites to reconcile at once
    #[arg(long, value_name = "N", default_value_t = 4)]
    workers: usize,
    /// Apply the children though nothing has changed
    #[arg(long)]
    always: bool,
}

/// Runs the operator until the end of standard input.
pub fn run(args: &OperatorArgs) -> Result<(), Failure> {
    tokio::runtime::Runtime::new()?.block_on(operate(args))
}

async fn operate(args: &OperatorArgs) -> Result<(), Failure> {
    let client = Client::from_config(Config::new(args.server.clone()), &Env::system())?;
    let mut manager = Manager::builder("website-operator", &client).build();
    let (reconciles, stop) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
    let (sender, keys) = mpsc::channel(1024);
    let (counter, always) = (reconciles.clone(), args.always);
    Controller::<Website>::new(&mut manager)
        .owns(Watch::<Deployment>::new())
        .owns(Watch::<Service>::new())
        .owns(Watch::<ConfigMap>::new())
        .events(keys)
        .workers(args.workers)
        .reconcile(move |site, cx| {
            let counter = counter.clone();
            async move {
                let outcome = reconcile(&site, &cx, always).await;
                counter.fetch_add(1, Relaxed);
                outcome
            }
        })?;
    let told = stop.clone();
    // Not joined: nothing else can end a read of standard input.
    thread::spawn(move || obey(told, &reconciles, &sender));
    Ok(manager.run(stop).await?)
}

/// Follows standard input to its end.
fn obey(stop: CancellationToken, reconciles: &AtomicU64, keys: &mpsc::Sender<ObjectName>) {
    let _stop = stop.drop_guard();
    for line in io::stdin().lines().map_while(Result::ok) {
        match line.split_once(' ') {
            None if line == "count" => println!("{}", reconciles.load(Relaxed)),
            Some(("enqueue", key)) => {
                let (namespace, name) = key.split_once('/').unwrap_or(("", key));
                if keys.blocking_send(ObjectName::namespaced(namespace, name)).is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}

async fn reconcile(site: &Website, cx: &Context<Website>, always: bool) -> Result<Action, Error> {
    let deployment = if always {
        apply(cx, site, config_map(site)).await?;
        let deployment = apply(cx, site, deployment(site)).await?;
        apply(cx, site, service(site)).await?;
        deployment
    } else {
        cx.apply(&config_map(site)).await?;
        let deployment = cx.apply(&deployment(site)).await?;
        cx.apply(&service(site)).await?;
        deployment
    };
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    cx.status(|status| {
        status.ready_replicas = ready;
        status.conditions.set(cx.condition("Ready", true, "Applied"));
    })
    .await?;
    Ok(Action::done())
}

/// Applies a child without asking whether it has changed. `Context::apply` sets the owner itself.
async fn apply<W>(cx: &Context<Website>, site: &Website, mut child: W) -> Result<Arc<W>, WriteError>
where
    W: Kind<DynamicType = ()> + Serialize,
{
    child.meta_mut().owner_references = site.controller_owner_ref(&()).map(|owner| vec![owner]);
    let name = child.meta().name.clone().unwrap_or_default();
    cx.patch::<W, _>(&name, &Patch::Apply(&child)).await
}
