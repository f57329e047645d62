//! `watchkeeper demo`: a scripted scenario whose every step is checked.

use std::sync::Arc;
use std::time::Duration;

use anstream::println;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::api::Patch;
use kube_client::core::Selector;
use sample_controller::api::{self, Foo, FooSpec};
use sample_controller::{RunError, new_deployment};
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, Lister, NotSynced, on_change};
use watchkeeper::wire::ApiError;
use watchkeeper::{Client, Env, Kind, ObjectName, SharedInformerFactory};
use watchkeeper_apiserver::ApiServer;

use crate::args::DemoArgs;
use crate::controllers::Selected;
use crate::front::{BOLD, DIM, GREEN, RED};

/// How long to wait for each expected state.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why the demo failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error("timed out after {PATIENCE:?} waiting for: {0}")]
    NotSeen(&'static str),
    #[error("cannot {what}")]
    Request {
        what: &'static str,
        #[source]
        source: ApiError,
    },
    #[error(transparent)]
    NotSynced(#[from] NotSynced),
    #[error("the controller ended too early: {0}")]
    Controller(#[from] RunError),
    #[error("stopped")]
    Stopped,
}

/// Runs the scenario on its own control plane, to its end or until `stop`.
pub(crate) async fn run(args: &DemoArgs, env: &Env, stop: &CancellationToken) -> Result<(), DemoError> {
    let client = Client::from_kube(ApiServer::new(env).client(), env);
    // Whichever ends first stops the others.
    let stop = &stop.child_token();
    let requests = client.requests().clone().manager("watchkeeper");
    requests
        .api::<CustomResourceDefinition>()
        .create(&api::crd())
        .await
        .map_err(request("create the CRD"))?;
    let scenario = async {
        let _stop = stop.clone().drop_guard();
        scenario(&client, stop).await
    };
    let controller = async {
        let _stop = stop.clone().drop_guard();
        sample_controller::run(&client, &args.options, stop.clone()).await
    };
    let controllers = Selected::default().start(1, &client, "");
    let (scenario, controller) = tokio::join!(scenario, controller);
    controllers.stop().await;
    controller.map_err(DemoError::from).and(scenario)
}

fn request(what: &'static str) -> impl FnOnce(ApiError) -> DemoError {
    move |source| DemoError::Request { what, source }
}

async fn scenario(client: &Client, stop: &CancellationToken) -> Result<(), DemoError> {
    let mut stage = Stage::set(client, stop).await?;
    let (foos, deployments) = (client.api::<Foo>(), client.api::<Deployment>());
    let (foo, web) = (key("demo"), key("web"));

    stage.step("create a Foo");
    foos.create(&new_foo("demo", "web")).await.map_err(request("create a Foo"))?;
    stage.until("its Deployment is created with 1 replica", |now| now.replicas("web") == Some(1)).await?;
    stage.until("its Pod runs: the status says 1 of 1 available", |now| now.available("demo") == 1).await?;
    stage.until("an event is recorded: Synced", |now| now.has_event("demo", "Synced")).await?;

    stage.step("scale the Foo to 3 replicas");
    let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
    foos.patch(&foo, &scale).await.map_err(request("scale the Foo"))?;
    stage.until("the Deployment is scaled to 3", |now| now.replicas("web") == Some(3)).await?;
    stage.until("the status says 3 of 3 available", |now| now.available("demo") == 3).await?;

    stage.step("scale the Deployment by hand to 7");
    let edit = Patch::Merge(json!({"spec": {"replicas": 7}}));
    let edited = deployments.patch(&web, &edit).await.map_err(request("edit the Deployment"))?;
    // Before that the cache shows 3 replicas, too.
    let version = edited.metadata.resource_version.unwrap_or_default();
    stage.deployments.indexer().wait_until_fresh(&version.as_str().into()).await;
    stage.until("the controller restores 3 replicas", |now| now.replicas("web") == Some(3)).await?;

    stage.step("delete the Deployment");
    let before = stage.uid("web");
    deployments.delete(&web).await.map_err(request("delete the Deployment"))?;
    stage
        .until("the controller creates it again", |now| now.uid("web").is_some_and(|uid| Some(uid) != before))
        .await?;
    stage.until("its Pods run again: 3 of 3 available", |now| now.running("web") == 3).await?;

    stage.step("create a Foo whose Deployment name is taken");
    let mut foreign = new_deployment(&new_foo("nobody", "taken"));
    foreign.metadata.owner_references = None;
    deployments.create(&foreign).await.map_err(request("create a Deployment"))?;
    foos.create(&new_foo("second", "taken")).await.map_err(request("create a Foo"))?;
    stage
        .until("a warning is recorded: ErrResourceExists", |now| now.has_event("second", "ErrResourceExists"))
        .await?;
    deployments.delete(&key("taken")).await.map_err(request("delete a Deployment"))?;
    stage.until("once the name is free, the Foo gets its Deployment", |now| now.is_owned("taken")).await?;

    stage.step("delete the Foo");
    foos.delete(&foo).await.map_err(request("delete the Foo"))?;
    stage.until("its Deployment is garbage collected", |now| now.uid("web").is_none()).await?;

    println!("\n{GREEN}all steps passed{GREEN:#} in {:.2} s", stage.seconds());
    Ok(())
}

fn key(name: &str) -> ObjectName {
    ObjectName::namespaced("default", name)
}

fn new_foo(name: &str, deployment: &str) -> Foo {
    let mut foo = Foo::new(name, FooSpec { deployment_name: deployment.to_owned(), replicas: Some(1) });
    foo.metadata.namespace = Some("default".to_owned());
    foo
}

/// The observer: the caches of three informers.
struct Stage {
    env: Env,
    began: watchkeeper::clock::Instant,
    stop: CancellationToken,
    foos: Lister<Foo>,
    deployments: Lister<Deployment>,
    events: Lister<Event>,
    changed: Arc<Notify>,
    /// Stops the informers when dropped.
    _factory: SharedInformerFactory,
    steps: u32,
}

impl Stage {
    async fn set(client: &Client, stop: &CancellationToken) -> Result<Self, DemoError> {
        let factory = SharedInformerFactory::builder(client).build();
        let changed = Arc::new(Notify::new());
        let (foos, deployments, events) =
            (watch(&factory, &changed), watch(&factory, &changed), watch(&factory, &changed));
        factory.start(stop);
        factory.wait_for_sync(stop).await?;
        let env = client.env().clone();
        let (began, stop) = (env.clock.now(), stop.clone());
        Ok(Self { env, began, stop, foos, deployments, events, changed, _factory: factory, steps: 0 })
    }

    fn step(&mut self, what: &str) {
        self.steps += 1;
        println!("\n{BOLD}{}. {what}{BOLD:#}", self.steps);
    }

    /// Waits until `wanted` holds, and prints it.
    async fn until(&self, what: &'static str, wanted: impl Fn(&Self) -> bool) -> Result<(), DemoError> {
        let seen = async {
            loop {
                let changed = self.changed.notified();
                if wanted(self) {
                    return;
                }
                changed.await;
            }
        };
        let in_time = self.stop.run_until_cancelled(self.env.clock.timeout(PATIENCE, seen)).await;
        match in_time.ok_or(DemoError::Stopped)? {
            Ok(()) => println!("   {GREEN}✓{GREEN:#} {what:<50} {DIM}{:.3}s{DIM:#}", self.seconds()),
            Err(_) => {
                println!("   {RED}✗{RED:#} {what}");
                return Err(DemoError::NotSeen(what));
            }
        }
        Ok(())
    }

    fn seconds(&self) -> f64 {
        (self.env.clock.now() - self.began).as_secs_f64()
    }

    fn deployment(&self, name: &str) -> Option<Arc<Deployment>> {
        self.deployments.get(&key(name)).ok()
    }

    fn replicas(&self, name: &str) -> Option<i32> {
        self.deployment(name)?.spec.as_ref()?.replicas
    }

    fn uid(&self, name: &str) -> Option<String> {
        self.deployment(name)?.metadata.uid.clone()
    }

    fn is_owned(&self, name: &str) -> bool {
        self.deployment(name).is_some_and(|deployment| deployment.metadata.owner_references.is_some())
    }

    /// The available replicas, as a Foo says.
    fn available(&self, foo: &str) -> i32 {
        let status = self.foos.get(&key(foo)).ok().and_then(|foo| foo.status.clone());
        status.map_or(0, |status| status.available_replicas)
    }

    /// The available replicas, as a Deployment says.
    fn running(&self, name: &str) -> i32 {
        let status = self.deployment(name).and_then(|deployment| deployment.status.clone());
        status.and_then(|status| status.available_replicas).unwrap_or_default()
    }

    fn has_event(&self, foo: &str, reason: &str) -> bool {
        let events = self.events.list(&Selector::default()).ignore_unreadable();
        let is_it = |event: &Arc<Event>| {
            event.involved_object.name.as_deref() == Some(foo) && event.reason.as_deref() == Some(reason)
        };
        events.iter().any(is_it)
    }
}

fn watch<K: Kind<DynamicType: Default>>(factory: &SharedInformerFactory, changed: &Arc<Notify>) -> Lister<K> {
    let (informer, changed) = (factory.informer::<K>(), changed.clone());
    // The informers of a new factory accept handlers.
    if informer.add_handler(on_change(move |_: Change<'_, K>| changed.notify_waiters())).is_err() {
        tracing::warn!(kind = informer.name(), "cannot add handler");
    }
    informer.lister()
}
