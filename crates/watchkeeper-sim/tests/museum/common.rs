//! What the exhibits share: a custom resource, the frame of an operator as many are built, and the one configuration of all checks.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::Selector;
use kube_core::params::{DeleteParams, Patch, Preconditions};
use kube_derive::CustomResource;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use watchkeeper::clock::Instant;
use watchkeeper::informer::Lister;
use watchkeeper::prelude::{
    Client, Kind, Object, ObjectName, RateLimitingQueue, SharedInformerFactory, WorkItem, enqueue,
    enqueue_mapped, limiter, run_workers,
};
use watchkeeper::reflector::ListMode;
use watchkeeper::wire::{ApiError, Class as ErrorClass};
use watchkeeper_sim::{Check, Class, Failure, FaultKind, Life, Outside, Report, User};

/// A database cluster, as most operators of the museum have one.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize)]
#[kube(group = "museum.dev", version = "v1", kind = "Cluster", namespaced, status = "ClusterStatus")]
#[kube(schema = "disabled")]
#[kube(crates(kube_core = "kube_core", k8s_openapi = "k8s_openapi"))]
#[serde(default)]
pub(crate) struct ClusterSpec {
    pub(crate) replicas: usize,
    /// The size of each volume.
    pub(crate) storage: i32,
    /// A setting that reaches the members.
    pub(crate) config: String,
    /// Whether an optional part is wanted: a proxy, TLS, an arbiter.
    pub(crate) enabled: bool,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct ClusterStatus {
    pub(crate) phase: String,
}

impl Cluster {
    pub(crate) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn phase(&self) -> &str {
        self.status.as_ref().map(|status| status.phase.as_str()).unwrap_or_default()
    }
}

fn definition() -> CustomResourceDefinition {
    let part = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": part, "status": part}});
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
    });
    let names = json!({"plural": "clusters", "singular": "cluster", "kind": "Cluster"});
    let spec = json!({"group": "museum.dev", "scope": "Namespaced", "names": names, "versions": [version]});
    serde_json::from_value(json!({"metadata": {"name": "clusters.museum.dev"}, "spec": spec})).unwrap()
}

/// The cluster of all stories.
pub(crate) fn cluster(spec: Value) -> Cluster {
    let object = json!({"metadata": {"name": "db", "namespace": "default"}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

/// The key of the cluster of all stories.
pub(crate) const DB: &str = "default/db";

/// A kind of which a cluster has some.
pub(crate) trait Child:
    Kind<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug + Send + Sync
{
    /// What an object of this kind must have, beside its metadata.
    fn body() -> Value;
}

impl Child for Secret {
    fn body() -> Value {
        json!({})
    }
}

impl Child for ConfigMap {
    fn body() -> Value {
        json!({})
    }
}

impl Child for PersistentVolumeClaim {
    fn body() -> Value {
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
    }
}

impl Child for Service {
    fn body() -> Value {
        json!({"spec": {"clusterIP": "None", "ports": [{"port": 80}]}})
    }
}

impl Child for PodDisruptionBudget {
    fn body() -> Value {
        json!({"spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"cluster": "db"}}}})
    }
}

impl Child for Pod {
    fn body() -> Value {
        json!({"spec": {"containers": [{"name": "db", "image": "db"}]}})
    }
}

impl Child for StatefulSet {
    fn body() -> Value {
        let labels = json!({"cluster": "db"});
        let template = json!({"metadata": {"labels": labels}, "spec": Pod::body()["spec"]});
        json!({"spec": {"serviceName": "db", "selector": {"matchLabels": labels}, "template": template}})
    }
}

/// A child called `name`, with this annotation.
pub(crate) fn child<C: Child>(name: &str, annotation: &str) -> C {
    let mut object = C::body();
    object["metadata"] = json!({
        "name": name, "namespace": "default", "labels": {"cluster": "db"}, "annotations": {NOTE: annotation},
    });
    serde_json::from_value(object).unwrap()
}

/// The annotation in which operators of the museum note what an object was made for.
pub(crate) const NOTE: &str = "museum.dev/note";

/// What an object was made for.
pub(crate) fn note<C: Child>(object: &C) -> &str {
    object.meta().annotations.as_ref().and_then(|all| all.get(NOTE)).map_or("", String::as_str)
}

pub(crate) fn name<C: Child>(object: &C) -> &str {
    object.meta().name.as_deref().unwrap_or_default()
}

pub(crate) fn key(name: &str) -> ObjectName {
    ObjectName::namespaced("default", name)
}

pub(crate) type Failed = Box<dyn Error + Send + Sync>;
pub(crate) type Done = Result<(), Failed>;

/// Which state the first list of an informer may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// That of any replica of the API server, however old, as client-go's informers did until 1.35, and as kube-rs' do with
    /// `any_semantic` or `streaming_lists`. The informers of watchkeeper never do; a hook on their queries makes them.
    Any,
    /// The latest.
    Latest,
}

/// What a reconcile works with. Its reads come from caches without read-your-writes, and its writes are plain requests, unlike
/// those of watchkeeper's own `Context`.
pub(crate) struct Cx<C: Child> {
    pub(crate) client: Client,
    clusters: Lister<Cluster>,
    children: Lister<C>,
    pub(crate) outside: Outside,
    queue: RateLimitingQueue<ObjectName>,
    /// What this life of the operator has in memory: when it did what.
    pub(crate) memory: Mutex<BTreeMap<String, Instant>>,
    /// The mistake is mended.
    pub(crate) mended: bool,
}

impl<C: Child> Cx<C> {
    /// The cluster. One that cannot be decoded is an error: it is there.
    pub(crate) fn cluster(&self) -> Result<Option<Arc<Cluster>>, Failed> {
        match self.clusters.get(&key("db")) {
            Err(error) if error.is_not_found() => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    pub(crate) fn child(&self, name: &str) -> Option<Arc<C>> {
        self.children.get(&key(name)).ok()
    }

    /// All children, by name.
    pub(crate) fn children(&self) -> Vec<Arc<C>> {
        let (mut all, _unreadable) =
            self.children.list(&Selector::from_iter([("cluster", "db")])).into_parts();
        all.sort_by(|one, other| name(&**one).cmp(name(&**other)));
        all
    }

    pub(crate) fn now(&self) -> Instant {
        self.client.env().clock.now()
    }

    /// Reconciles again after this time.
    pub(crate) fn again_after(&self, delay: Duration) -> Done {
        self.queue.add_after(key("db"), delay);
        Ok(())
    }

    /// Creates an object, if there is none of its name.
    pub(crate) async fn create<W: Child>(&self, object: &W) -> Done {
        match self.client.api::<W>().create(object).await {
            Err(error) if error.class() == ErrorClass::AlreadyExists => Ok(()),
            created => Ok(created.map(drop)?),
        }
    }

    /// Deletes whatever has this name, as most operators do.
    pub(crate) async fn delete_by_name<W: Child>(&self, name: &str) -> Done {
        match self.client.api::<W>().delete(&key(name)).await {
            Err(error) if is_gone(&error) => Ok(()),
            deleted => Ok(deleted?),
        }
    }

    /// Deletes a cached object: by name, or, where the mistake is mended, exactly this one, as `Context::delete` does.
    pub(crate) async fn delete(&self, object: &C) -> Done {
        if !self.mended {
            return self.delete_by_name::<C>(name(object)).await;
        }
        let preconditions = Preconditions { uid: object.meta().uid.clone(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.client.api::<C>().delete_with(&key(name(object)), &params).await {
            Err(error) if is_gone(&error) || error.class() == ErrorClass::Conflict => Ok(()),
            deleted => Ok(deleted?),
        }
    }

    pub(crate) async fn patch<W: Child>(&self, name: &str, patch: Value) -> Done {
        self.client.api::<W>().patch(&key(name), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Reads an object from the server.
    pub(crate) async fn read<W: Child>(&self, name: &str) -> Result<Option<W>, Failed> {
        Ok(self.client.api::<W>().get_opt(&key(name)).await?)
    }

    pub(crate) async fn set_phase(&self, phase: &str) -> Done {
        let patch = Patch::Merge(json!({"status": {"phase": phase}}));
        self.client.api::<Cluster>().patch_status(&key("db"), &patch).await?;
        Ok(())
    }

    /// Puts the operator's finalizer on the cluster.
    pub(crate) async fn hold(&self, cluster: &Cluster) -> Done {
        if cluster.metadata.finalizers.is_some() {
            return Ok(());
        }
        Ok(self.set_finalizers(cluster, json!([FINALIZER])).await?)
    }

    /// Takes the operator's finalizer off the cluster.
    pub(crate) async fn release(&self, cluster: &Cluster) -> Done {
        match self.set_finalizers(cluster, Value::Null).await {
            Err(error) if is_gone(&error) => Ok(()),
            released => Ok(released?),
        }
    }

    /// Sets the finalizers of this version of the cluster.
    async fn set_finalizers(&self, cluster: &Cluster, finalizers: Value) -> Result<(), ApiError> {
        let version = cluster.metadata.resource_version.as_deref();
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers, "resourceVersion": version}}));
        self.client.api::<Cluster>().patch(&key("db"), &patch).await.map(drop)
    }
}

const FINALIZER: &str = "museum.dev/clean-up";

/// Whether there is no such object; a server that does not serve its kind says less.
fn is_gone(error: &ApiError) -> bool {
    error.is_not_found() && error.reason() == "NotFound"
}

/// The frame of most operators: informers of the custom resource and of its children, a work queue, and a worker.
async fn operate<C: Child>(
    life: Life,
    outside: Outside,
    mended: bool,
    reads: Reads,
    reconcile: Reconcile<C>,
) {
    let Life { client, stop, .. } = life;
    let (env, stop) = (client.env().clone(), stop.child_token());
    let _stops_with_this_life = stop.clone().drop_guard();
    let factory = SharedInformerFactory::builder(&client).list_mode(ListMode::Paged);
    let factory = factory.edit_options(move |query| {
        let is_first =
            ["continue", "resourceVersion"].iter().all(|it| query.get(it).is_none_or(str::is_empty));
        if reads == Reads::Any && !query.is_watch() && is_first {
            query.set("resourceVersion", "0");
        }
    });
    let factory = factory.build();
    let queue = RateLimitingQueue::new("clusters", limiter::default_controller(), &env);
    let clusters = factory.informer::<Cluster>();
    let children = factory.informer::<C>();
    clusters.add_handler(enqueue(queue.clone())).unwrap();
    children.add_handler(enqueue_mapped(queue.clone(), |_: &Object<C>| [key("db")])).unwrap();
    factory.start(&stop);
    if factory.wait_for_sync(&stop).await.is_err() {
        return;
    }
    let (clusters, children, memory) = (clusters.lister(), children.lister(), Mutex::default());
    let cx = Arc::new(Cx { client, clusters, children, outside, queue: queue.clone(), memory, mended });
    run_workers(1, &queue, stop, &env, move |item: WorkItem<ObjectName>| {
        let work = reconcile(cx.clone());
        async move {
            match work.await {
                Ok(()) => item.forget(),
                Err(error) => item.retry(error),
            }
        }
    })
    .await;
}

type Reconcile<C> = Arc<dyn Fn(Arc<Cx<C>>) -> BoxFuture<'static, Done> + Send + Sync>;
type Run = Box<dyn Fn(Check, bool) -> Result<Report, Failure>>;

/// A known mistake: a small operator that makes it, and a story in which it matters.
pub(crate) struct Exhibit {
    pub(crate) name: &'static str,
    /// Where the mistake was found.
    pub(crate) source: &'static str,
    pub(crate) class: Class,
    pub(crate) run: Run,
}

/// An operator with the usual frame. If the mistake is one of [`Reads::Any`], it is mended by [`Reads::Latest`].
pub(crate) fn operator<C, F, Fut, S>(
    (name, source, class): (&'static str, &'static str, Class),
    reads: Reads,
    reconcile: F,
    story: S,
) -> Exhibit
where
    C: Child,
    F: Fn(Arc<Cx<C>>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Done> + Send + 'static,
    S: AsyncFn(&User) + Clone + Send + Sync + 'static,
{
    let reconcile: Reconcile<C> = Arc::new(move |cx| reconcile(cx).boxed());
    program((name, source, class), story, move |life, outside, mended| {
        let reads = if mended { Reads::Latest } else { reads };
        operate(life, outside, mended, reads, reconcile.clone())
    })
}

/// Any program.
pub(crate) fn program<S, P, Fut>(
    (name, source, class): (&'static str, &'static str, Class),
    story: S,
    program: P,
) -> Exhibit
where
    S: AsyncFn(&User) + Clone + Send + Sync + 'static,
    P: Fn(Life, Outside, bool) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()>,
{
    let program = Arc::new(program);
    let run = move |check: Check, mended: bool| {
        let program = program.clone();
        check.run_program(
            Outside::clone,
            async move |life, outside: &Outside| program(life, outside.clone(), mended).await,
            story.clone(),
        )
    };
    Exhibit { name, source, class, run: Box::new(run) }
}

/// The configuration of all checks. Operators retry after up to 1,000 s, as client-go does: with one fault after the other, a story
/// waits for hours.
fn configuration(name: &str) -> Check {
    let check = Check::builder().name(&format!("museum-{name}")).definition(definition());
    let check = check.converge(Duration::from_secs(3 * 3600));
    check.pairs(50).seeds(100).without(FaultKind::ALL.into_iter().filter(|kind| kind.name() == "set-back"))
}

/// The configuration where the mistake is mended: the same if `MUSEUM=complete`, and otherwise so little that it takes seconds.
fn mended(name: &str) -> Check {
    match std::env::var("MUSEUM").as_deref() {
        Ok("complete") => configuration(name),
        _ => configuration(name).singles(false).pairs(10).seeds(30),
    }
}

/// The most schedules to find a mistake in.
const MOST: u64 = 2_000;

/// Shows that each mistake is found and named as it should be, and that it is not found where it is mended.
pub(crate) fn visit(exhibits: &[Exhibit]) {
    let only = std::env::var("MUSEUM_ONLY").unwrap_or_default();
    let mut wrong = Vec::new();
    for Exhibit { name, source, class, run } in exhibits.iter().filter(|it| it.name.contains(&only)) {
        match run(configuration(name), false) {
            Ok(report) => wrong.push(format!("{name} is not found in {} schedules", report.schedules())),
            Err(failure) => {
                let (found, schedules) = (failure.class(), failure.schedules().unwrap_or_default());
                let is_right = found == Some(*class) && schedules <= MOST;
                let replay = failure.replay().unwrap_or_default();
                let found = found.map(|class| format!("{class:?}")).unwrap_or_default();
                println!("{name:<50} {source:<44} {found:<18} {schedules:>5}  SIM_REPLAY='{replay}'");
                if !is_right {
                    wrong.push(format!("{name} is not found as {class:?}:\n{failure}"));
                }
            }
        }
        if let Err(failure) = run(mended(name), true) {
            wrong.push(format!("{name} is found though it is mended:\n{failure}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
