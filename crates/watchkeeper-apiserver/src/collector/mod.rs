//! Who removes what nobody owns any more? A controller like any other, over the metadata of all kinds, those made at run time included.
//!
//! `kinds.rs` keeps an informer for each kind that the server has, `live.rs` asks the server where those are not enough, `decide.rs` says what is
//! to be done with an object, and this file does it.

mod decide;
mod kinds;
mod live;

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
use watchkeeper::{Clients, ObjectName};

use decide::{Action, Dependent, OwnerState, decide, needs_all_dependents};
use kinds::{Item, Kinds, Meta};

/// Kinds come and go; those that no CustomResourceDefinition tells of are looked for this often.
const DISCOVERY: Duration = Duration::from_secs(30);
const WORKERS: usize = 2;

/// Deletes objects whose owners are all gone, and carries out foreground and orphaning deletions, until `stop`. Returns when all its tasks have
/// ended; dropping the future ends them too.
///
/// An owner is known by its uid: one that was made anew under the same name is another.
///
/// What cannot be seen is not taken for absent. While a kind cannot be listed, owners that are deleted in the foreground or orphaning stay; all
/// else goes on.
pub async fn collect_garbage(clients: &Clients, stop: &CancellationToken) {
    let env = clients.env().fork("garbage collector");
    let queue = RateLimitingQueue::new("garbage_collector", limiter::default_controller(), &env);
    let changed = Arc::new(Notify::new());
    let collector =
        Arc::new(Collector { clients: clients.clone(), kinds: Kinds::new(clients, &queue, &changed), queue });
    let discover = async {
        loop {
            if let Err(error) = collector.kinds.discover(&env).await {
                env.reporter.error("garbage collector", "discovery", &error);
            }
            let again = env.clock.timeout(DISCOVERY, changed.notified());
            if stop.run_until_cancelled(again).await.is_none() {
                break;
            }
        }
        collector.kinds.stop().await;
    };
    let this = collector.clone();
    let work =
        run_workers(WORKERS, &collector.queue, stop, &env, move |item| this.clone().process_item(item));
    tokio::join!(discover, work);
}

struct Collector {
    clients: Clients,
    kinds: Kinds,
    queue: RateLimitingQueue<Item>,
}

/// Why an object could not be dealt with, for now.
#[derive(Debug, thiserror::Error)]
enum CollectError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("the kind {0} of an owner is not served")]
    UnknownOwnerKind(String),
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
    /// Whether somebody else's next change may settle it: then nothing is said at first.
    fn may_pass(&self) -> bool {
        match self {
            Self::Api(error) => error.class() == Class::Conflict,
            Self::Circle => true,
            _ => false,
        }
    }
}

impl Collector {
    async fn process_item(self: Arc<Self>, item: WorkItem<Item>) {
        match self.process(item.key()).await {
            Ok(()) => item.forget(),
            // Its kind may be made later. There is nothing to be said about it each time.
            Err(CollectError::UnknownOwnerKind(kind)) => {
                tracing::debug!(object = %item.key(), kind, "the kind of an owner is not served");
                item.retry_after(DISCOVERY);
            }
            // The informer of the kind that is missing tells why.
            Err(CollectError::NotSynced) => {
                let key = item.key().clone();
                item.forget();
                self.kinds.add_when_synced(key);
            }
            Err(error) if error.may_pass() => item.retry_quietly(error),
            Err(error) => item.retry(error),
        }
    }

    /// Decides by the caches first; only where there is something to do is the server asked for the newest state.
    async fn process(&self, item: &Item) -> Result<(), CollectError> {
        let Some(cached) = self.kinds.cached(item) else { return Ok(()) };
        if let Action::Nothing = self.action(item, &cached).await? {
            return Ok(());
        }
        let objects = self.clients.requests().of_kind::<Meta>(item.kind.resource.clone());
        let newest = match objects.get(&item.key).await {
            Err(error) if error.class() == Class::NotFound => return Ok(()),
            found => found?,
        };
        if newest.metadata.uid.as_deref() != Some(&*item.uid) {
            return Ok(());
        }
        let action = self.action(item, &newest).await?;
        match self.carry_out(item, &newest, action).await {
            Err(CollectError::Api(error)) if error.class() == Class::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    async fn action(&self, item: &Item, object: &Meta) -> Result<Action, CollectError> {
        let mut owners = Vec::new();
        // What is being deleted goes whoever owns it.
        let is_deleting = object.metadata.deletion_timestamp.is_some();
        for owner in object.metadata.owner_references.iter().flatten().filter(|_| !is_deleting) {
            owners.push((owner.uid.clone(), self.owner_state(item, owner).await?));
        }
        // Asked before the caches are.
        let is_synced = self.kinds.are_synced();
        let dependents = self.kinds.dependents(item).into_iter();
        let dependents: Vec<_> =
            dependents.map(|(_, dependent)| Dependent::of(&dependent, &item.uid)).collect();
        let action = decide(&object.metadata, &owners, &dependents);
        if !is_synced && needs_all_dependents(&action, &owners) {
            return Err(CollectError::NotSynced);
        }
        Ok(action)
    }

    /// Whether an owner is there, by the cache, or where that does not know it, by the server.
    async fn owner_state(
        &self,
        item: &Item,
        owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference,
    ) -> Result<OwnerState, CollectError> {
        let Some(kind) = self.kinds.of_owner(owner) else {
            return Err(CollectError::UnknownOwnerKind(format!("{} {}", owner.api_version, owner.kind)));
        };
        let Some(key) = kind.key_of_owner(item, owner) else {
            // What has no namespace cannot be owned by what has one. Nobody can tell which is meant: it stays.
            return Ok(OwnerState::Solid);
        };
        if let Some(cached) = kind.cached(&key, &owner.uid) {
            return Ok(OwnerState::of(&cached.metadata));
        }
        match self.clients.requests().of_kind::<Meta>(kind.resource.clone()).get(&key).await {
            Ok(found) if found.metadata.uid.as_deref() == Some(&owner.uid) => {
                Ok(OwnerState::of(&found.metadata))
            }
            Ok(_) => Ok(OwnerState::Absent),
            Err(error) if error.class() == Class::NotFound => Ok(OwnerState::Absent),
            Err(error) => Err(error.into()),
        }
    }

    async fn carry_out(&self, item: &Item, object: &Meta, action: Action) -> Result<(), CollectError> {
        let objects = self.clients.requests().of_kind::<Meta>(item.kind.resource.clone());
        let metadata = &object.metadata;
        match action {
            Action::Nothing => {}
            Action::Delete(policy) => {
                tracing::debug!(object = %item, ?policy, "deleting what nobody owns");
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
                // One that waits for its own dependents is told by their deletion, and not by us.
                let mut idle = self.kinds.dependents(item);
                idle.retain(|(_, dependent)| !decide::is_waiting(&dependent.metadata));
                if idle.is_empty() && self.kinds.waits_for_itself(item) {
                    return Err(CollectError::Circle);
                }
                idle.into_iter().for_each(|(dependent, _)| self.queue.add(dependent));
            }
            Action::Orphan => {
                for (kind, dependent) in self.kinds.dependents_now(item).await? {
                    let ObjectMeta { owner_references, uid, resource_version, .. } = &dependent.metadata;
                    let owners = owner_references.iter().flatten().filter(|owner| owner.uid != *item.uid);
                    let change = json!({
                        "ownerReferences": owners.collect::<Vec<_>>(), "uid": uid, "resourceVersion": resource_version,
                    });
                    let key = ObjectName::of(&dependent).map_err(ApiError::undecodable)?;
                    match self.patch(kind, &key, change).await {
                        Err(error) if error.is_not_found() => {}
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

    /// Changes metadata, of that version and of that object only.
    async fn patch_item(
        &self,
        item: &Item,
        object: &Meta,
        mut change: serde_json::Value,
    ) -> Result<(), CollectError> {
        change["uid"] = (*item.uid).into();
        change["resourceVersion"] = object.metadata.resource_version.as_deref().into();
        Ok(self.patch(item.kind.resource.clone(), &item.key, change).await?)
    }

    async fn patch(
        &self,
        kind: ApiResource,
        key: &ObjectName,
        metadata: serde_json::Value,
    ) -> Result<(), ApiError> {
        let objects = self.clients.requests().of_kind::<Meta>(kind);
        objects.patch(key, &Patch::Merge(json!({ "metadata": metadata }))).await.map(drop)
    }
}

/// As the server would choose, were it asked without a policy.
fn policy_of(finalizers: &[String]) -> PropagationPolicy {
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    match () {
        () if has(decide::ORPHAN) => PropagationPolicy::Orphan,
        () if has(decide::FOREGROUND) => PropagationPolicy::Foreground,
        () => PropagationPolicy::Background,
    }
}
