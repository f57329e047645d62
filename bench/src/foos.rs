//! Time and writes that a running sample controller needs for many Foos, as observed at the API server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures::stream::{self, StreamExt, TryStreamExt};
use http::Request;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use parking_lot::Mutex;
use sample_controller::api::{Foo, FooSpec, FooStatus};
use serde::{Deserialize, Serialize};
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use watchkeeper::clock::Clock;
use watchkeeper::informer::on_apply;
use watchkeeper::process::ClientArgs;
use watchkeeper::{Client, Env, Object, ObjectName, SharedInformerFactory};

use crate::informer::Failure;
use crate::measure::{print, rounded};
use crate::requests::counters;

/// Create Foos on a cluster where the sample controller runs, and wait until all are reconciled.
#[derive(Debug, Args)]
pub struct FoosArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// Number of Foos
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Number of concurrent creates
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..))]
    at_once: u64,
    /// Timeout in seconds
    #[arg(long, value_name = "S", default_value_t = 600)]
    patience: u64,
}

#[derive(Debug, Serialize)]
struct Line {
    count: u64,
    /// From the first create until a watch has shown the Deployment and the status of the last Foo.
    seconds: f64,
    /// Writes by other programs: to Deployments, Foos and Events.
    writes_per_foo: f64,
    /// How many of those failed as Conflict or AlreadyExists.
    conflicts: u64,
}

/// Which Foos have a Deployment and a status.
#[derive(Default)]
struct Seen {
    deployments: BTreeSet<String>,
    statuses: BTreeSet<String>,
    /// Number of Foos with both.
    served: u64,
}

impl Seen {
    fn deployment(&mut self, name: &str) {
        self.served += u64::from(self.deployments.insert(name.to_owned()) && self.statuses.contains(name));
    }

    fn status(&mut self, name: &str) {
        self.served += u64::from(self.statuses.insert(name.to_owned()) && self.deployments.contains(name));
    }
}

/// Writes counted by the server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Writes {
    made: u64,
    refused: u64,
}

/// Runs the benchmark and prints its line.
pub fn run(args: &FoosArgs) -> Result<(), Failure> {
    Builder::new_multi_thread().worker_threads(1).enable_all().build()?.block_on(measure(args))
}

async fn measure(args: &FoosArgs) -> Result<(), Failure> {
    let env = Env::system();
    let kube = kube_client::Client::try_from(args.client.config().await?)?;
    let client = args.client.connect(&env).await?;
    let namespace = format!("bench-{}", &env.generator.uuid()[..8]);
    let object: Namespace = serde_json::from_value(serde_json::json!({"metadata": {"name": namespace}}))?;
    client.api::<Namespace>().create(&object).await?;

    let (seen, stop) = (Arc::new((Mutex::<Seen>::default(), Notify::new())), CancellationToken::new());
    let factory = SharedInformerFactory::builder(&client).namespace(&namespace).build();
    observe(&factory, &seen)?;
    factory.start(&stop);
    factory.wait_for_sync(&stop).await?;

    let before = writes(&kube).await?;
    let start = env.clock.now();
    create(&client, &namespace, args).await?;
    let all = async {
        loop {
            let changed = seen.1.notified();
            if seen.0.lock().served == args.count {
                return;
            }
            changed.await;
        }
    };
    let in_time = env.clock.timeout(Duration::from_secs(args.patience), all).await;
    let seconds = (env.clock.now() - start).as_secs_f64();
    let after = settled(&kube, &env.clock).await?;
    clean_up(&client, &namespace, args).await?;
    stop.cancel();
    factory.join().await?;
    if in_time.is_err() {
        let seen = seen.0.lock();
        let (deployments, statuses) = (seen.deployments.len(), seen.statuses.len());
        return Err(format!(
            "after {} s, of {} Foos {deployments} have a Deployment and {statuses} a status: does a sample-controller run there?",
            args.patience, args.count
        )
        .into());
    }
    // A server that was restarted in between counts from zero.
    let made = after.made.saturating_sub(before.made).saturating_sub(args.count);
    print(&Line {
        count: args.count,
        seconds: rounded(seconds, 3),
        writes_per_foo: rounded(made as f64 / args.count as f64, 2),
        conflicts: after.refused.saturating_sub(before.refused),
    })?;
    Ok(())
}

fn observe(factory: &SharedInformerFactory, seen: &Arc<(Mutex<Seen>, Notify)>) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct View {
        status: Option<FooStatus>,
    }
    let theirs = seen.clone();
    factory.informer::<Foo>().add_handler(on_apply(move |foo: &Object<Foo>| {
        if foo.view::<View>().is_ok_and(|view| view.status.is_some()) {
            theirs.0.lock().status(foo.name());
            theirs.1.notify_waiters();
        }
    }))?;
    let theirs = seen.clone();
    factory.informer::<Deployment>().add_handler(on_apply(move |deployment: &Object<Deployment>| {
        theirs.0.lock().deployment(deployment.name());
        theirs.1.notify_waiters();
    }))?;
    Ok(())
}

fn name(number: u64) -> String {
    format!("foo-{number:05}")
}

async fn create(client: &Client, namespace: &str, args: &FoosArgs) -> Result<(), Failure> {
    let creates = stream::iter(0..args.count).map(|number| async move {
        let spec = FooSpec { deployment_name: name(number), replicas: Some(1) };
        let mut foo = Foo::new(&name(number), spec);
        foo.metadata.namespace = Some(namespace.to_owned());
        client.api::<Foo>().create(&foo).await.map(drop)
    });
    Ok(creates.buffer_unordered(args.at_once as usize).try_collect().await?)
}

async fn clean_up(client: &Client, namespace: &str, args: &FoosArgs) -> Result<(), Failure> {
    let deletes = stream::iter(0..args.count).map(|number| async move {
        client.api::<Foo>().delete(&ObjectName::namespaced(namespace, &name(number))).await
    });
    deletes.buffer_unordered(args.at_once as usize).try_collect::<()>().await?;
    Ok(client.api::<Namespace>().delete(&ObjectName::cluster(namespace)).await?)
}

/// The writes, once their number no longer changes: events are written a little later than what they report.
async fn settled(kube: &kube_client::Client, clock: &Clock) -> Result<Writes, Failure> {
    let (mut last, mut equal) = (writes(kube).await?, 0);
    for _ in 0..20 {
        clock.sleep(Duration::from_millis(500)).await;
        let now = writes(kube).await?;
        equal = if now == last { equal + 1 } else { 0 };
        if equal == 3 {
            break;
        }
        last = now;
    }
    Ok(last)
}

async fn writes(kube: &kube_client::Client) -> Result<Writes, Failure> {
    let request = Request::get("/metrics").body(Vec::new())?;
    Ok(count(&kube.request_text(request).await?))
}

/// Parses the writes to the controller's kinds from `/metrics`.
fn count(text: &str) -> Writes {
    const RESOURCES: [&str; 3] = ["deployments", "foos", "events"];
    const VERBS: [&str; 4] = ["POST", "PUT", "PATCH", "APPLY"];
    let mut writes = Writes::default();
    for counter in counters(text) {
        if RESOURCES.contains(&counter.label("resource")) && VERBS.contains(&counter.label("verb")) {
            writes.made += counter.count;
            writes.refused += if counter.label("code") == "409" { counter.count } else { 0 };
        }
    }
    writes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_of_the_kinds_that_matter_are_counted_and_refusals_too() {
        let text = "# TYPE apiserver_request_total counter\n\
            apiserver_request_total{code=\"201\",group=\"apps\",resource=\"deployments\",verb=\"POST\"} 3\n\
            apiserver_request_total{code=\"409\",resource=\"foos\",subresource=\"status\",verb=\"PUT\"} 2\n\
            apiserver_request_total{code=\"200\",resource=\"events\",verb=\"PATCH\"} 1e1\n\
            apiserver_request_total{code=\"200\",resource=\"foos\",verb=\"LIST\"} 7\n\
            apiserver_request_total{code=\"200\",resource=\"leases\",verb=\"PUT\"} 7\n\
            apiserver_request_duration_seconds_count{resource=\"foos\",verb=\"PUT\"} 9\n";
        assert_eq!(count(text), Writes { made: 15, refused: 2 });
    }
}
