//! The garbage collector: deletes objects whose owners are gone, in all kinds, including those of
//! CustomResourceDefinitions.

// `kinds.rs` finds the served kinds, `graph.rs` has a metadata informer for each, `live.rs` asks the server where caches are not enough, `decide.rs`
// chooses the action for an object, and this file carries it out.

mod decide;
mod graph;
mod kinds;
mod live;

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::core::ApiResource;
use kube_client::core::params::{DeleteParams, Patch, Preconditions, PropagationPolicy};
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use watchkeeper::process::run_workers;
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::workqueue::{RateLimitingQueue, WorkItem, limiter};
use watchkeeper::{Client, ObjectName};

use decide::{Action, Dependent, OwnerState, decide, needs_all_dependents};
use graph::{Graph, Item, Meta};
pub use kinds::Kinds;

/// How often discovery runs by default.
const DISCOVERY: Duration = Duration::from_secs(30);
const WORKERS: usize = 2;

/// Settings of the garbage collector.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Only objects of these resources are looked at, such as `pods` or `deployments.apps`; all by default. An object of another
    /// resource counts as absent.
    pub only: Option<BTreeSet<String>>,
    /// How often discovery runs, beside each change of a CustomResourceDefinition; every 30 s by default.
    pub discovery: Duration,
    /// The kinds to start with, instead of a discovery at the start.
    pub kinds: Option<Kinds>,
    /// How long watches last, and may be silent. By default they last five to ten minutes and are checked after two and a half minutes of
    /// silence; a longer time suits a server in the same process, to which no connection breaks unnoticed.
    pub watch: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self { only: None, discovery: DISCOVERY, kinds: None, watch: None }
    }
}

/// Runs the garbage collector until `stop`, as [`run`], with other settings.
pub async fn run_with(client: &Client, options: Options, stop: CancellationToken) {
    let env = client.env().fork("garbage collector");
    let queue = RateLimitingQueue::new("garbage_collector", limiter::default_controller(), &env);
    let changed = Arc::new(Notify::new());
    let graph = Graph::new(client, &queue, &changed, options.only, options.watch);
    let collector = Arc::new(Collector { client: client.clone(), graph, queue });
    let mut known = options.kinds;
    let discover = async {
        loop {
            let kinds = match known.take() {
                Some(kinds) => Ok(kinds),
                None => Kinds::discover(client).await,
            };
            match kinds {
                Ok(kinds) => collector.graph.watch(&kinds, &env),
                Err(error) => env.reporter.error("garbage collector", "discovery", &error),
            }
            let again = env.clock.timeout(options.discovery, changed.notified());
            if stop.run_until_cancelled(again).await.is_none() {
                break;
            }
        }
        collector.graph.stop().await;
    };
    let this = collector.clone();
    let work = run_workers(WORKERS, &collector.queue, stop.clone(), &env, move |item| {
        this.clone().process_item(item)
    });
    tokio::join!(discover, work);
}

/// Runs the garbage collector until `stop`: deletes objects whose owners are all gone, and carries out foreground and
/// orphaning deletions.
///
/// An owner is identified by its uid: an object created again under the same name is not the owner.
///
/// Absence must be proven. While a kind cannot be listed, owners in foreground or orphaning deletion stay; everything
/// else continues.
///
/// Returns when all tasks of the collector have ended. Dropping the future ends them too.
pub async fn run(client: &Client, stop: CancellationToken) {
    run_with(client, Options::default(), stop).await;
}

struct Collector {
    client: Client,
    graph: Graph,
    queue: RateLimitingQueue<Item>,
}

/// What was done about an object.
enum Done {
    Nothing,
    /// It was changed: the cache is to show it.
    Written,
}

/// The time after a write at which the cache is looked at again. If it shows no change, the write may have been undone, for example by
/// a restore from a backup that the cache did not have to notice.
const AGAIN: Duration = Duration::from_secs(60);

/// The reason why an object cannot be processed for now.
#[derive(Debug, thiserror::Error)]
enum CollectError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("the kind {0} of an owner is not served")]
    UnknownOwnerKind(String),
    #[error("an owner is not in the cache yet")]
    OwnerNotCached,
    #[error("not all kinds have been listed yet")]
    NotSynced,
    #[error("cannot see whether it owns any {kind}")]
    Unseen { kind: String, source: Box<dyn Error + Send + Sync> },
    #[error("cannot see which kinds there are")]
    Discovery(#[from] kube_client::Error),
    #[error(
        "it is deleted in the foreground and owns, directly or through others, an object that waits for it: take away an owner reference, or the finalizer foregroundDeletion"
    )]
    Circle,
}

impl CollectError {
    /// Returns whether another writer's next change, or the next discovery of a kind that is not served, may resolve the error, which
    /// is reported only after a few retries.
    fn may_pass(&self) -> bool {
        match self {
            Self::Api(error) => matches!(error.class(), Class::Conflict | Class::NotFound),
            Self::Circle => true,
            _ => false,
        }
    }
}

impl Collector {
    async fn process_item(self: Arc<Self>, item: WorkItem<Item>) {
        match self.process(item.key()).await {
            Ok(Done::Nothing) => item.forget(),
            Ok(Done::Written) => {
                let key = item.key().clone();
                item.forget();
                self.queue.add_after(key, AGAIN);
            }
            // The kind may be installed later; no error is reported for each attempt.
            Err(CollectError::UnknownOwnerKind(kind)) => {
                tracing::debug!(object = %item.key(), kind, "the kind of an owner is not served");
                item.retry_after(DISCOVERY);
            }
            // If the owner is deleted before the cache has it, nobody is notified.
            Err(CollectError::OwnerNotCached) => item.retry_after(DISCOVERY),
            // The informer that has not synced reports why.
            Err(CollectError::NotSynced) => {
                let key = item.key().clone();
                item.forget();
                self.graph.add_when_synced(key);
            }
            Err(error) if error.may_pass() => item.retry_quietly(error),
            Err(error) => item.retry(error),
        }
    }

    /// Decides by the caches first, and asks the server for the newest state only if there is something to do.
    async fn process(&self, item: &Item) -> Result<Done, CollectError> {
        let Some(cached) = self.graph.cached(item) else { return Ok(Done::Nothing) };
        if let Action::Nothing = self.action(item, &cached).await? {
            return Ok(Done::Nothing);
        }
        let objects = self.client.api_of::<Meta>(item.monitor.resource.clone());
        let newest = match objects.get(&item.key).await {
            Err(error) if error.is_missing_object() => return Ok(Done::Nothing),
            found => found?,
        };
        if newest.metadata.uid.as_deref() != Some(&*item.uid) {
            return Ok(Done::Nothing);
        }
        let action = self.action(item, &newest).await?;
        let is_write = !matches!(action, Action::Nothing | Action::DeleteDependents);
        match self.carry_out(item, &newest, action).await {
            Err(CollectError::Api(error)) if error.is_missing_object() => Ok(Done::Nothing),
            Ok(()) if is_write => Ok(Done::Written),
            outcome => outcome.map(|()| Done::Nothing),
        }
    }

    async fn action(&self, item: &Item, object: &Meta) -> Result<Action, CollectError> {
        let (mut owners, mut are_cached) = (Vec::new(), true);
        // An object in deletion goes whatever its owners are.
        let is_deleting = object.metadata.deletion_timestamp.is_some();
        for owner in object.metadata.owner_references.iter().flatten().filter(|_| !is_deleting) {
            let (state, is_cached) = self.owner_state(item, owner).await?;
            owners.push((owner.uid.clone(), state));
            are_cached &= is_cached;
        }
        // Before the caches are read: a sync in between must not count.
        let is_synced = self.graph.are_synced();
        let dependents = self.graph.dependents(item).into_iter();
        let dependents: Vec<_> =
            dependents.map(|(_, dependent)| Dependent::of(&dependent, &item.uid)).collect();
        let action = decide(&object.metadata, &owners, &dependents);
        if !is_synced && needs_all_dependents(&action, &owners) {
            return Err(CollectError::NotSynced);
        }
        if !are_cached && matches!(action, Action::Nothing) {
            return Err(CollectError::OwnerNotCached);
        }
        Ok(action)
    }

    /// The state of an owner by the cache or, if it is not cached, by the server; false if only the server has it.
    async fn owner_state(
        &self,
        item: &Item,
        owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference,
    ) -> Result<(OwnerState, bool), CollectError> {
        let Some(monitor) = self.graph.of_owner(owner) else {
            return Err(CollectError::UnknownOwnerKind(format!("{} {}", owner.api_version, owner.kind)));
        };
        let Some(key) = monitor.key_of_owner(item, owner) else {
            // A cluster-scoped object cannot have a namespaced owner. Which one is meant is unknown, so the object stays.
            return Ok((OwnerState::Solid, true));
        };
        if let Some(cached) = monitor.cached(&key, &owner.uid) {
            return Ok((OwnerState::of(&cached.metadata), true));
        }
        match self.client.api_of::<Meta>(monitor.resource.clone()).get(&key).await {
            Ok(found) if found.metadata.uid.as_deref() == Some(&owner.uid) => {
                Ok((OwnerState::of(&found.metadata), false))
            }
            Ok(_) => Ok((OwnerState::Absent, true)),
            Err(error) if error.is_missing_object() => Ok((OwnerState::Absent, true)),
            Err(error) => Err(error.into()),
        }
    }

    async fn carry_out(&self, item: &Item, object: &Meta, action: Action) -> Result<(), CollectError> {
        let objects = self.client.api_of::<Meta>(item.monitor.resource.clone());
        let metadata = &object.metadata;
        match action {
            Action::Nothing => {}
            Action::Delete(policy) => {
                tracing::debug!(object = %item, ?policy, "deleting an object without owners");
                let preconditions = Preconditions {
                    uid: metadata.uid.clone(),
                    resource_version: metadata.resource_version.clone(),
                };
                let params = DeleteParams {
                    propagation_policy: Some(policy),
                    preconditions: Some(preconditions),
                    ..DeleteParams::default()
                };
                objects.delete_with(&item.key, &params).await?;
            }
            Action::DropOwners(gone) => {
                let mut owners = metadata.owner_references.clone().unwrap_or_default();
                owners.retain(|owner| !gone.contains(&owner.uid));
                self.patch_item(item, object, json!({"ownerReferences": owners})).await?;
            }
            Action::DeleteDependents => {
                // A dependent that waits for its own dependents is enqueued when those are deleted.
                let mut idle = self.graph.dependents(item);
                idle.retain(|(_, dependent)| !decide::is_waiting(&dependent.metadata));
                if idle.is_empty() && self.graph.waits_for_itself(item) {
                    return Err(CollectError::Circle);
                }
                idle.into_iter().for_each(|(dependent, _)| self.queue.add(dependent));
            }
            Action::Orphan => {
                for (kind, dependent) in self.graph.dependents_now(item).await? {
                    let ObjectMeta { owner_references, uid, resource_version, .. } = &dependent.metadata;
                    let owners = owner_references.iter().flatten().filter(|owner| owner.uid != *item.uid);
                    let change = json!({
                        "ownerReferences": owners.collect::<Vec<_>>(), "uid": uid, "resourceVersion": resource_version,
                    });
                    let key = ObjectName::of(&dependent).map_err(ApiError::undecodable)?;
                    match self.patch(kind, &key, change).await {
                        Err(error) if error.is_missing_object() => {}
                        outcome => outcome?,
                    }
                }
                self.remove_finalizer(item, object, decide::ORPHAN).await?;
            }
            Action::Unblock => self.remove_finalizer(item, object, decide::FOREGROUND).await?,
        }
        Ok(())
    }

    async fn remove_finalizer(&self, item: &Item, object: &Meta, name: &str) -> Result<(), CollectError> {
        let mut finalizers = object.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != name);
        self.patch_item(item, object, json!({"finalizers": finalizers})).await
    }

    /// Patches the metadata of exactly this object in exactly this version.
    async fn patch_item(
        &self,
        item: &Item,
        object: &Meta,
        mut change: serde_json::Value,
    ) -> Result<(), CollectError> {
        change["uid"] = (*item.uid).into();
        change["resourceVersion"] = object.metadata.resource_version.as_deref().into();
        Ok(self.patch(item.monitor.resource.clone(), &item.key, change).await?)
    }

    async fn patch(
        &self,
        kind: ApiResource,
        key: &ObjectName,
        metadata: serde_json::Value,
    ) -> Result<(), ApiError> {
        let objects = self.client.api_of::<Meta>(kind);
        objects.patch(key, &Patch::Merge(json!({ "metadata": metadata }))).await.map(drop)
    }
}

/// The policy that the server chooses for a delete without one.
fn policy_of(finalizers: &[String]) -> PropagationPolicy {
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    match () {
        () if has(decide::ORPHAN) => PropagationPolicy::Orphan,
        () if has(decide::FOREGROUND) => PropagationPolicy::Foreground,
        () => PropagationPolicy::Background,
    }
}
