//! A whole controller: a Namespace with the label `size` has a ResourceQuota that matches the label.
//!
//! `cargo run -p examples --bin quotas` runs on the cluster of your kubeconfig until Ctrl-C; quotas_story.rs shows it
//! at work without a cluster. docs/guide.md explains it part by part.

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, ResourceQuota, ResourceQuotaSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::Resource;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{InformerStopped, Lister};
use watchkeeper::process::{ClientArgs, LogArgs, run_workers, signals};
use watchkeeper::record::{self, EventRecorder, EventType};
use watchkeeper::workqueue::{RateLimitingQueue, WorkItem, enqueue, enqueue_mapped, limiter};
use watchkeeper::{Client, Env, Object, ObjectName, SharedInformerFactory};

/// How many Pods a namespace of that size may have.
fn pods(size: &str) -> Option<&'static str> {
    match size {
        "small" => Some("10"),
        "large" => Some("100"),
        _ => None,
    }
}

/// The quota that a namespace shall have, owned by it.
fn new_quota(namespace: &Namespace, pods: &str) -> ResourceQuota {
    let hard = BTreeMap::from([("pods".to_owned(), Quantity(pods.to_owned()))]);
    ResourceQuota {
        metadata: ObjectMeta {
            name: Some("size".to_owned()),
            namespace: namespace.metadata.name.clone(),
            owner_references: namespace.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(ResourceQuotaSpec { hard: Some(hard), ..ResourceQuotaSpec::default() }),
        status: None,
    }
}

/// Whether the quota is of this very namespace: the uid decides, not the name.
fn is_controlled_by(quota: &ResourceQuota, namespace: &Namespace) -> bool {
    let mut owners = quota.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && Some(&owner.uid) == namespace.metadata.uid.as_ref())
}

struct Controller {
    namespaces: Lister<Namespace>,
    quotas: Lister<ResourceQuota>,
    queue: RateLimitingQueue<ObjectName>,
    client: Client,
    recorder: EventRecorder,
}

impl Controller {
    /// A controller whose handlers hear of all changes, once the factory is started.
    fn new(
        client: &Client,
        factory: &SharedInformerFactory,
        recorder: EventRecorder,
    ) -> Result<Arc<Self>, InformerStopped> {
        let (namespaces, quotas) = (factory.informer::<Namespace>(), factory.informer::<ResourceQuota>());
        let queue = RateLimitingQueue::new("namespaces", limiter::default_controller(), client.env());
        // A namespace that changed is looked at,
        namespaces.add_handler(enqueue(queue.clone()))?;
        // and so is the one that owns a quota that changed.
        let owner = Object::<ResourceQuota>::controller_of::<Namespace>;
        quotas.add_handler(enqueue_mapped(queue.clone(), owner))?;
        let (namespaces, quotas) = (namespaces.lister(), quotas.lister());
        Ok(Arc::new(Self { namespaces, quotas, queue, client: client.clone(), recorder }))
    }
}

impl Controller {
    /// Makes the quota of one namespace as the label says, whatever has happened to either.
    async fn sync(&self, key: &ObjectName) -> Result<(), Box<dyn Error + Send + Sync>> {
        let namespace = match self.namespaces.get(key) {
            // It is gone, and what it owned went along.
            Err(error) if error.is_not_found() => return Ok(()),
            found => found?,
        };
        let is_leaving = namespace.metadata.deletion_timestamp.is_some();
        let size = namespace.metadata.labels.as_ref().and_then(|labels| labels.get("size"));
        // Without a size it keeps the quota that it has.
        let (Some(size), false) = (size, is_leaving) else { return Ok(()) };
        let Some(pods) = pods(size) else {
            // Trying again would not help: another label brings the key back.
            let message = format!("size {size:?} is not known: say small or large");
            self.recorder.event(&*namespace, EventType::Warning, "UnknownSize", &message);
            return Ok(());
        };
        let (quota, requests) = (new_quota(&namespace, pods), self.client.api::<ResourceQuota>());
        match self.quotas.get(&ObjectName::of(&quota)?) {
            Err(error) if error.is_not_found() => requests.create(&quota).await?,
            Ok(found) if !is_controlled_by(&found, &namespace) => {
                let message = "there is a quota \"size\" already, of somebody else: remove it";
                self.recorder.event(&*namespace, EventType::Warning, "QuotaExists", message);
                return Err(message.into());
            }
            Ok(found) if found.spec == quota.spec => return Ok(()),
            found => requests.replace(&ResourceQuota { spec: quota.spec, ..(*found?).clone() }).await?,
        };
        self.recorder.event(&*namespace, EventType::Normal, "QuotaSet", &format!("{pods} Pods allowed"));
        Ok(())
    }
}

impl Controller {
    /// What a worker does with a key.
    async fn work(self: Arc<Self>, item: WorkItem<ObjectName>) {
        match self.sync(item.key()).await {
            Ok(()) => item.forget(),
            Err(error) => item.retry(error), // reported, and tried again later
        }
    }
}

/// The whole program, until `stop`.
pub(crate) async fn run(
    client: &Client,
    stop: &CancellationToken,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let factory = SharedInformerFactory::builder(client).build();
    let (recorder, sink) = record::recorder("quotas", client);
    let controller = Controller::new(client, &factory, recorder)?;
    // An informer that panics ends the others, and the workers, by this token.
    let stop = &stop.child_token();
    factory.start(stop);
    // The sink stops after the workers: what they record last is written too.
    let worked = CancellationToken::new();
    let work = async {
        let _worked = worked.clone().drop_guard();
        factory.wait_for_sync(stop).await?;
        let queue = controller.queue.clone();
        run_workers(2, &queue, stop.clone(), client.env(), move |item| controller.clone().work(item)).await;
        Ok(())
    };
    let (result, ()) = tokio::join!(work, sink.run(worked.clone()));
    // An informer that panicked is why anything else ended.
    factory.join().await?;
    result
}

#[tokio::main]
async fn main() -> ExitCode {
    if let Err(error) = start().await {
        tracing::error!(error = &*error, "cannot go on");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Works on a cluster until a signal comes.
async fn start() -> Result<(), Box<dyn Error + Send + Sync>> {
    LogArgs::default().install("info")?;
    let env = Env::system();
    // KUBECONFIG, or the service account of the pod, or ~/.kube/config.
    let client = ClientArgs::default().connect(&env).await?;
    run(&client, &signals::install(&env)?).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use tokio::sync::mpsc;
    use watchkeeper::informer::on_apply;
    use watchkeeper_apiserver::ApiServer;

    use super::*;

    #[tokio::test]
    async fn a_small_namespace_may_have_ten_pods() -> Result<(), Box<dyn Error + Send + Sync>> {
        let (env, stop) = (Env::system(), CancellationToken::new());
        let client = Client::from_kube(ApiServer::new(&env).client(), &env);
        // Every quota that is seen comes through a channel.
        let (quotas, mut seen) = mpsc::unbounded_channel();
        let factory = SharedInformerFactory::builder(&client).build();
        factory.informer().add_handler(on_apply(move |quota: &Object<ResourceQuota>| {
            let _closed = quotas.send(quota.get());
        }))?;
        factory.start(&stop);
        let small = json!({"metadata": {"name": "team-a", "labels": {"size": "small"}}});
        let namespace = client.api::<Namespace>().create(&serde_json::from_value(small)?).await?;
        tokio::select! {
            quota = seen.recv() => assert_eq!(quota.ok_or("none")??.spec, new_quota(&namespace, "10").spec),
            ended = run(&client, &stop) => panic!("{ended:?}"),
            () = env.clock.sleep(Duration::from_secs(60)) => panic!("no quota"),
        }
        Ok(())
    }
}
