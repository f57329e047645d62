//! `watchkeeper demo`: the story of a Foo, step by step, each waited for and seen.

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
use watchkeeper::{Clients, Env, Kind, ObjectName, SharedInformerFactory};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_controllers::garbage_collector;

use crate::args::DemoArgs;
use crate::front::{BOLD, DIM, GREEN, RED};

/// What is not seen within this time does not happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why the story has no good end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error("not seen within {PATIENCE:?}: {0}")]
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

/// Plays the story on a control plane of its own, and ends when it is told.
pub(crate) async fn run(args: &DemoArgs, env: &Env, stop: &CancellationToken) -> Result<(), DemoError> {
    let clients = Clients::from_client(ApiServer::new(env).client(), env);
    // Whichever ends first ends the others too.
    let stop = &stop.child_token();
    let requests = clients.requests().clone().manager("watchkeeper");
    requests.of::<CustomResourceDefinition>().create(&api::crd()).await.map_err(request("create the CRD"))?;
    let story = async {
        let _stop = stop.clone().drop_guard();
        tell(&clients, stop).await
    };
    let controller = async {
        let _stop = stop.clone().drop_guard();
        sample_controller::run(&clients, &args.options, stop).await
    };
    let collector = garbage_collector::run(&clients, stop.clone());
    let (story, controller, ()) = tokio::join!(story, controller, collector);
    controller.map_err(DemoError::from).and(story)
}

fn request(what: &'static str) -> impl FnOnce(ApiError) -> DemoError {
    move |source| DemoError::Request { what, source }
}

async fn tell(clients: &Clients, stop: &CancellationToken) -> Result<(), DemoError> {
    let mut stage = Stage::set(clients, stop).await?;
    let (foos, deployments) = (clients.requests().of::<Foo>(), clients.requests().of::<Deployment>());
    let (foo, web) = (key("demo"), key("web"));

    stage.step("a Foo is created");
    foos.create(&new_foo("demo", "web")).await.map_err(request("create a Foo"))?;
    stage.until("its Deployment is made, with 1 replica", |now| now.replicas("web") == Some(1)).await?;
    stage.until("its status is written", |now| now.has_status("demo")).await?;
    stage.until("the user is told: Synced", |now| now.is_told("demo", "Synced")).await?;

    stage.step("the Foo is scaled to 3");
    let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
    foos.patch(&foo, &scale).await.map_err(request("scale the Foo"))?;
    stage.until("the Deployment follows", |now| now.replicas("web") == Some(3)).await?;

    stage.step("somebody edits the Deployment by hand: 7 replicas");
    let edit = Patch::Merge(json!({"spec": {"replicas": 7}}));
    let edited = deployments.patch(&web, &edit).await.map_err(request("edit the Deployment"))?;
    // Before that the cache shows 3 replicas, too.
    let version = edited.metadata.resource_version.unwrap_or_default();
    stage.deployments.indexer().wait_until_fresh(&version.as_str().into()).await;
    stage.until("it is set back to 3", |now| now.replicas("web") == Some(3)).await?;

    stage.step("somebody deletes the Deployment");
    let before = stage.uid("web");
    deployments.delete(&web).await.map_err(request("delete the Deployment"))?;
    stage.until("it is made again", |now| now.uid("web").is_some_and(|uid| Some(uid) != before)).await?;

    stage.step("another Foo wants a name that somebody else's Deployment has");
    let mut foreign = new_deployment(&new_foo("nobody", "taken"));
    foreign.metadata.owner_references = None;
    deployments.create(&foreign).await.map_err(request("create a Deployment"))?;
    foos.create(&new_foo("second", "taken")).await.map_err(request("create a Foo"))?;
    stage
        .until("the user is warned: ErrResourceExists", |now| now.is_told("second", "ErrResourceExists"))
        .await?;
    deployments.delete(&key("taken")).await.map_err(request("delete a Deployment"))?;
    stage.until("the name is free, and the Foo has its own", |now| now.is_owned("taken")).await?;

    stage.step("the Foo is deleted");
    foos.delete(&foo).await.map_err(request("delete the Foo"))?;
    stage.until("its Deployment goes along", |now| now.uid("web").is_none()).await?;

    println!("\n{GREEN}all seen{GREEN:#} in {:.2} s", stage.seconds());
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

/// What the audience sees: the caches of three informers.
struct Stage {
    env: Env,
    began: watchkeeper::clock::Instant,
    stop: CancellationToken,
    foos: Lister<Foo>,
    deployments: Lister<Deployment>,
    events: Lister<Event>,
    changed: Arc<Notify>,
    /// Ends the informers with the stage.
    _factory: SharedInformerFactory,
    steps: u32,
}

impl Stage {
    async fn set(clients: &Clients, stop: &CancellationToken) -> Result<Self, DemoError> {
        let factory = SharedInformerFactory::builder(clients).build();
        let changed = Arc::new(Notify::new());
        let (foos, deployments, events) =
            (watch(&factory, &changed), watch(&factory, &changed), watch(&factory, &changed));
        factory.start(stop);
        factory.wait_for_sync(stop).await?;
        let env = clients.env().clone();
        let (began, stop) = (env.clock.now(), stop.clone());
        Ok(Self { env, began, stop, foos, deployments, events, changed, _factory: factory, steps: 0 })
    }

    fn step(&mut self, what: &str) {
        self.steps += 1;
        println!("\n{BOLD}{}. {what}{BOLD:#}", self.steps);
    }

    /// Waits until `wanted` is seen, and says so.
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
            Ok(()) => println!("   {GREEN}✓{GREEN:#} {what:<48} {DIM}{:.3}s{DIM:#}", self.seconds()),
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

    fn has_status(&self, foo: &str) -> bool {
        self.foos.get(&key(foo)).is_ok_and(|foo| foo.status.is_some())
    }

    fn is_told(&self, foo: &str, reason: &str) -> bool {
        let events = self.events.list(&Selector::default()).ignore_unreadable();
        let is_it = |event: &Arc<Event>| {
            event.involved_object.name.as_deref() == Some(foo) && event.reason.as_deref() == Some(reason)
        };
        events.iter().any(is_it)
    }
}

fn watch<K: Kind<DynamicType: Default>>(factory: &SharedInformerFactory, changed: &Arc<Notify>) -> Lister<K> {
    let (informer, changed) = (factory.informer::<K>(), changed.clone());
    // A new factory's informers take handlers.
    if informer.add_handler(on_change(move |_: Change<'_, K>| changed.notify_waiters())).is_err() {
        tracing::warn!(kind = informer.name(), "not watched");
    }
    informer.lister()
}
