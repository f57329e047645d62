//! What does a whole controller look like? A Namespace with the label `size` has a ResourceQuota, which stays as the label says.
//!
//! `cargo run -p examples --example quotas` plays a story on an API server of its own. With `--cluster` it works on the cluster of your
//! kubeconfig until Ctrl-C. docs/guide.md goes through it part by part.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Namespace, ResourceQuota, ResourceQuotaSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::Resource;
use kube_core::params::Patch;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use watchkeeper::clock::Clock;
use watchkeeper::informer::{Change, InformerStopped, Lister, on_apply, on_change};
use watchkeeper::process::{ClientArgs, run_workers, signals};
use watchkeeper::record::{self, EventRecorder, EventType};
use watchkeeper::workqueue::{Priority, RateLimitingQueue, enqueue, limiter};
use watchkeeper::{Clients, Env, Object, ObjectName, SharedInformerFactory};

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

struct Controller {
    namespaces: Lister<Namespace>,
    quotas: Lister<ResourceQuota>,
    queue: RateLimitingQueue<ObjectName>,
    clients: Clients,
    recorder: EventRecorder,
}

impl Controller {
    fn new(
        clients: &Clients,
        factory: &SharedInformerFactory,
        recorder: EventRecorder,
    ) -> Result<Arc<Self>, InformerStopped> {
        let (namespaces, quotas) = (factory.informer::<Namespace>(), factory.informer::<ResourceQuota>());
        let queue = RateLimitingQueue::new("namespaces", limiter::default_controller(), clients.env());
        // A namespace that changed is looked at,
        namespaces.add_handler(enqueue(queue.clone()))?;
        // and so is the one that owns a quota that changed.
        let owners = queue.clone();
        quotas.add_handler(on_change(move |change: Change<'_, ResourceQuota>| {
            if let Some(owner) = change.last_known().and_then(Object::controller_of::<Namespace>) {
                owners.add_with(owner, Priority::of(&change));
            }
        }))?;
        let (namespaces, quotas) = (namespaces.lister(), quotas.lister());
        Ok(Arc::new(Self { namespaces, quotas, queue, clients: clients.clone(), recorder }))
    }

    /// Makes the quota of one namespace as the label says, whatever has happened to either.
    async fn sync(&self, key: &ObjectName) -> Result<(), Box<dyn Error + Send + Sync>> {
        let namespace = match self.namespaces.get(key) {
            // It is gone, and what it owned went along.
            Err(error) if error.is_not_found() => return Ok(()),
            found => found?,
        };
        let is_leaving = namespace.metadata.deletion_timestamp.is_some();
        let size = namespace.metadata.labels.as_ref().and_then(|labels| labels.get("size"));
        let (Some(size), false) = (size, is_leaving) else { return Ok(()) };
        let Some(pods) = pods(size) else {
            // Trying again would not help: another label brings the key back.
            let message = format!("size {size:?} is not known: say small or large");
            self.recorder.event(&*namespace, EventType::Warning, "UnknownSize", &message);
            return Ok(());
        };
        let (quota, requests) = (new_quota(&namespace, pods), self.clients.requests().of::<ResourceQuota>());
        match self.quotas.get(&ObjectName::of(&quota)?) {
            Err(error) if error.is_not_found() => requests.create(&quota).await?,
            found if found.as_ref().is_ok_and(|found| found.spec == quota.spec) => return Ok(()),
            _ => requests.replace(&quota).await?,
        };
        self.recorder.event(&*namespace, EventType::Normal, "QuotaSet", &format!("{pods} Pods allowed"));
        Ok(())
    }

    /// What one worker does: one key after the other, until the queue is shut down.
    async fn work(self: Arc<Self>) {
        while let Some(item) = self.queue.get().await {
            match self.sync(item.key()).await {
                Ok(()) => item.forget(),
                Err(error) => item.retry(error), // reported, and tried again later
            }
        }
    }
}

/// The whole program, until `stop`.
async fn run(clients: &Clients, stop: &CancellationToken) -> Result<(), Box<dyn Error>> {
    let factory = SharedInformerFactory::builder(clients).build();
    let (recorder, sink) = record::recorder("quotas", clients);
    let controller = Controller::new(clients, &factory, recorder)?;
    factory.start(stop);
    factory.wait_for_sync(stop).await?;
    let workers = run_workers(2, stop, clients.env(), || controller.clone().work());
    let worked = CancellationToken::new();
    let work = async {
        workers.await;
        worked.cancel();
    };
    let shut_down = async {
        stop.cancelled().await;
        controller.queue.shut_down();
    };
    // The sink stops after the workers: what they recorded last is written too.
    tokio::join!(work, shut_down, sink.run(worked.clone()));
    factory.shut_down().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let env = Env::system();
    if std::env::args().nth(1).as_deref() == Some("--cluster") {
        // KUBECONFIG, or the service account of the pod, or ~/.kube/config.
        let clients = ClientArgs::default().connect(&env).await?;
        return run(&clients, &signals::install(&env)?).await;
    }
    let (clients, stop) = (examples::clients(&env), CancellationToken::new());
    let story = async {
        let _stop = stop.clone().drop_guard();
        tell(&clients, &stop).await
    };
    let (story, program) = tokio::join!(story, run(&clients, &stop));
    story.and(program)
}

/// The story: a namespace comes, grows, and is given a size that does not exist.
async fn tell(clients: &Clients, stop: &CancellationToken) -> Result<(), Box<dyn Error>> {
    let (namespaces, quotas) =
        (clients.requests().of::<Namespace>(), clients.requests().of::<ResourceQuota>());
    let mut seen = Seen::of(clients, stop)?;
    let (key, quota) = (ObjectName::cluster("team-a"), ObjectName::namespaced("team-a", "size"));

    println!("a small namespace is created");
    let small = json!({"metadata": {"name": "team-a", "labels": {"size": "small"}}});
    namespaces.create(&serde_json::from_value(small)?).await?;
    seen.until("quota team-a/size allows 10 Pods").await?;

    println!("it becomes a large one");
    namespaces.patch(&key, &Patch::Merge(json!({"metadata": {"labels": {"size": "large"}}}))).await?;
    seen.until("quota team-a/size allows 100 Pods").await?;

    println!("somebody edits the quota");
    quotas.patch(&quota, &Patch::Merge(json!({"spec": {"hard": {"pods": "500"}}}))).await?;
    seen.until("quota team-a/size allows 500 Pods").await?;
    seen.until("quota team-a/size allows 100 Pods").await?;

    println!("somebody asks for a size that does not exist");
    namespaces.patch(&key, &Patch::Merge(json!({"metadata": {"labels": {"size": "huge"}}}))).await?;
    seen.until("Warning UnknownSize: size \"huge\" is not known: say small or large").await?;
    Ok(())
}

/// What quotas and events an informer of the story's own sees.
struct Seen {
    lines: mpsc::UnboundedReceiver<String>,
    clock: Clock,
    _factory: SharedInformerFactory,
}

impl Seen {
    fn of(clients: &Clients, stop: &CancellationToken) -> Result<Self, InformerStopped> {
        let factory = SharedInformerFactory::builder(clients).build();
        let (sender, lines) = mpsc::unbounded_channel();
        let (quotas, events) = (sender.clone(), sender);
        factory.informer().add_handler(on_apply(move |object: &Object<ResourceQuota>| {
            let pods = || object.get().ok()?.spec.as_ref()?.hard.as_ref()?.get("pods").cloned();
            let Some(Quantity(pods)) = pods() else { return };
            let _closed = quotas.send(format!("quota {} allows {pods} Pods", object.key()));
        }))?;
        factory.informer().add_handler(on_apply(move |object: &Object<Event>| {
            let Ok(event) = object.get() else { return };
            let [kind, reason, message] =
                [&event.type_, &event.reason, &event.message].map(|part| part.as_deref().unwrap_or_default());
            let _closed = events.send(format!("{kind} {reason}: {message}"));
        }))?;
        factory.start(stop);
        Ok(Self { lines, clock: clients.env().clock.clone(), _factory: factory })
    }

    /// Prints what is seen, until it is `wanted`.
    async fn until(&mut self, wanted: &str) -> Result<(), Box<dyn Error>> {
        loop {
            let next = self.clock.timeout(Duration::from_secs(20), self.lines.recv()).await;
            let line = next.ok().flatten().ok_or_else(|| format!("not seen: {wanted}"))?;
            println!("  {line}");
            if line == wanted {
                return Ok(());
            }
        }
    }
}

#[test]
fn it_runs_to_its_end() {
    assert!(main().is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_records_after_the_stop_is_written() {
    use tower::{Service, service_fn};
    let (env, stop) = (Env::simulated(1), CancellationToken::new());
    let (server, clock, stopping) =
        (watchkeeper_apiserver::ApiServer::new(&env), env.clock.clone(), stop.clone());
    let slow = server.service();
    let service = service_fn(move |request: http::Request<kube_client::client::Body>| {
        let (mut server, clock, stop) = (slow.clone(), clock.clone(), stopping.clone());
        async move {
            if request.method() == "POST" && request.uri().path().ends_with("/resourcequotas") {
                stop.cancel();
                clock.sleep(Duration::from_secs(1)).await;
            }
            server.call(request).await
        }
    });
    let clients = Clients::from_client(kube_client::Client::new(service, "default"), &env);
    let small = json!({"metadata": {"name": "team-a", "labels": {"size": "small"}}});
    clients.requests().of::<Namespace>().create(&serde_json::from_value(small).unwrap()).await.unwrap();
    run(&clients, &stop).await.unwrap();
    let events = kube_client::Api::<Event>::all(server.client()).list(&Default::default()).await.unwrap();
    assert_eq!(
        events.items.iter().map(|event| event.reason.as_deref()).collect::<Vec<_>>(),
        [Some("QuotaSet")]
    );
}
