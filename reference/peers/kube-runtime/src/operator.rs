//! An operator for Boats: finalizer, owned and watched kinds, server-side apply, status, events, requeues.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Config};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::finalizer::{Event as Finalizer, finalizer};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{Controller, Predicate, WatchStreamExt, predicates, watcher};
use kube::{Api, Client, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::Outcome;

const FINALIZER: &str = "harbour.example.com/berth";
const MANAGER: &str = "kube-runtime-peer";
const NAMESPACE: &str = "default";

#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[kube(group = "harbour.example.com", version = "v1", kind = "Boat", namespaced, status = "BoatStatus")]
struct BoatSpec {
    /// The ConfigMap that says how deep the water is.
    port: String,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct BoatStatus {
    depth: Option<String>,
    observed_generation: Option<i64>,
}

struct Context {
    client: Client,
    recorder: Recorder,
    applied: Mutex<HashMap<String, usize>>,
}

impl Context {
    fn api<K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn tell(&self, boat: &Boat, reason: &str) -> Result<(), kube::Error> {
        let event = Event {
            type_: EventType::Normal,
            reason: reason.to_owned(),
            note: Some(format!("{reason} {}", boat.name_any())),
            action: "Reconciling".to_owned(),
            secondary: None,
        };
        self.recorder.publish(&event, &boat.object_ref(&())).await
    }
}

#[derive(Debug)]
enum Failure {
    Request(kube::Error),
    Stuck(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Request(error) => write!(f, "{error}"),
            Self::Stuck(boat) => write!(f, "{boat} is stuck"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        Self::Request(error)
    }
}

async fn reconcile(
    boat: Arc<Boat>,
    context: Arc<Context>,
) -> Result<Action, kube::runtime::finalizer::Error<Failure>> {
    let had = boat.finalizers().iter().any(|name| name == FINALIZER);
    let name = boat.name_any();
    let action = finalizer(&context.api(), FINALIZER, boat, |event| async {
        match event {
            Finalizer::Apply(boat) => apply(&boat, &context).await,
            Finalizer::Cleanup(boat) => clean_up(&boat, &context).await,
        }
    })
    .await?;
    if !had {
        println!("finalizer of {name} added");
    }
    Ok(action)
}

/// Gives a Boat its berth, a Secret that nobody owns, and its log, which it owns.
async fn apply(boat: &Boat, context: &Context) -> Result<Action, Failure> {
    let name = boat.name_any();
    let force = PatchParams::apply(MANAGER).force();
    let port = context.api::<ConfigMap>().get_opt(&boat.spec.port).await?;
    let depth = port.and_then(|port| port.data?.get("depth").cloned());
    let log = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": format!("log-of-{name}"), "ownerReferences": [boat.controller_owner_ref(&())]},
        "data": {"depth": depth.as_deref().unwrap_or("unknown")},
    });
    context.api::<ConfigMap>().patch(&format!("log-of-{name}"), &force, &Patch::Apply(&log)).await?;
    let berth = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": format!("berth-of-{name}")},
        "stringData": {"boat": name},
    });
    context.api::<Secret>().patch(&format!("berth-of-{name}"), &force, &Patch::Apply(&berth)).await?;
    let status = json!({
        "apiVersion": "harbour.example.com/v1",
        "kind": "Boat",
        "status": {"depth": depth, "observedGeneration": boat.metadata.generation},
    });
    context.api::<Boat>().patch_status(&name, &force, &Patch::Apply(&status)).await?;
    context.tell(boat, "Applied").await?;
    let times = {
        let mut applied = context.applied.lock().expect("no panic");
        let times = applied.entry(name.clone()).or_default();
        *times += 1;
        *times
    };
    println!("applied {name} at depth {depth:?}, {times} times");
    // Once again soon: the scheduler brings it back without any change.
    Ok(if times == 1 { Action::requeue(Duration::from_millis(200)) } else { Action::await_change() })
}

async fn clean_up(boat: &Boat, context: &Context) -> Result<Action, Failure> {
    let name = boat.name_any();
    if boat.annotations().contains_key("stuck") {
        return Err(Failure::Stuck(name));
    }
    context.tell(boat, "CleanedUp").await?;
    let berth = context.api::<Secret>().delete(&format!("berth-of-{name}"), &DeleteParams::default()).await;
    match berth {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        answered => drop(answered?),
    }
    println!("cleaned up {name}");
    Ok(Action::await_change())
}

/// The Boats at a port that has changed.
fn boats_at(port: ConfigMap, boats: &Store<Boat>) -> Vec<ObjectRef<Boat>> {
    let port = port.name_any();
    boats
        .state()
        .iter()
        .filter(|boat| boat.spec.port == port)
        .map(|boat| ObjectRef::from_obj(&**boat))
        .collect()
}

/// Every line of standard input, until its end.
fn told() -> impl futures::Stream<Item = ()> + Send {
    let lines = BufReader::new(tokio::io::stdin()).lines();
    stream::unfold(lines, |mut lines| async move { lines.next_line().await.ok()?.map(|_| ((), lines)) })
}

/// Prints each generation of a Boat once: a status, a label or a finalizer is no new generation.
async fn follow_generations(client: Client) {
    let (reader, writer) = reflector::store();
    let boats = watcher(Api::<Boat>::namespaced(client, NAMESPACE), watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .applied_objects()
        .predicate_filter(predicates::generation.combine(predicates::labels), Default::default());
    let print = |boat: Arc<Boat>, ()| async move {
        let labels = boat.labels().len();
        println!(
            "generation {} of {} with {labels} labels",
            boat.metadata.generation.unwrap_or(0),
            boat.name_any()
        );
        Ok::<_, Infallible>(Action::await_change())
    };
    Controller::for_stream(boats, reader)
        .shutdown_on_signal()
        .run(move |boat, _| print(boat, ()), |_, never, _| match *never {}, Arc::new(()))
        .for_each(|_| std::future::ready(()))
        .await;
}

pub(crate) async fn run(client: Client) -> Outcome {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &Boat::crd()).await?;
    let name = Boat::crd().name_any();
    await_condition(definitions, &name, conditions::is_crd_established()).await?;
    println!("kind established");
    let generations = tokio::spawn(follow_generations(client.clone()));

    let context = Arc::new(Context {
        client: client.clone(),
        recorder: Recorder::new(client.clone(), "harbour".into()),
        applied: Mutex::default(),
    });
    let everything = watcher::Config::default;
    let controller = Controller::new(context.api::<Boat>(), everything().streaming_lists())
        .with_config(Config::default().debounce(Duration::from_millis(20)).concurrency(4));
    let boats = controller.store();
    controller
        .owns(context.api::<ConfigMap>(), everything())
        .watches(context.api::<ConfigMap>(), everything().labels("role=port"), move |port| {
            boats_at(port, &boats)
        })
        .reconcile_all_on(told())
        .shutdown_on_signal()
        .run(
            reconcile,
            |boat, error, _| {
                println!("failed {}: {error}", boat.name_any());
                Action::requeue(Duration::from_millis(500))
            },
            context,
        )
        .for_each(|_| std::future::ready(()))
        .await;
    generations.await?;
    println!("stopped");
    Ok(())
}
