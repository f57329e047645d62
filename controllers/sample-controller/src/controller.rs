//! How does the world come to be as a Foo wishes? Handlers put keys into a queue, workers take them out and sync.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use tokio_util::sync::CancellationToken;
use watchkeeper::controller::{Behind, Ledger};
use watchkeeper::informer::{Change, HandlerOptions, InformerStopped, Lister, LookupError, on_change};
use watchkeeper::process::run_workers;
use watchkeeper::record::{EventRecorder, EventType};
use watchkeeper::source::Requests;
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::workqueue::{Priority, WorkItem, enqueue_mapped, limiter};
use watchkeeper::{Clients, Env, Object, ObjectName, RateLimitingQueue, SharedInformerFactory};

use crate::COMPONENT;
use crate::api::{Foo, FooStatus};
use crate::deployment::{is_controlled_by, new_deployment};

const SYNCED: &str = "Synced";
const MESSAGE_SYNCED: &str = "Foo synced successfully";
const ERR_RESOURCE_EXISTS: &str = "ErrResourceExists";

/// The controller of Foos.
#[derive(Debug)]
pub struct Controller {
    foos: Lister<Foo>,
    deployments: Lister<Deployment>,
    queue: RateLimitingQueue<ObjectName>,
    writes: Ledger,
    requests: Requests,
    recorder: EventRecorder,
    env: Env,
}

/// Why a Foo could not be synced, for now.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The cache has no readable object.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The cache has not seen yet what was written last for the Foo.
    #[error(transparent)]
    Behind(#[from] Behind),
    /// A Deployment of the name that the Foo asks for belongs to somebody else.
    #[error("Resource {0:?} already exists and is not managed by Foo")]
    ResourceExists(String),
    /// The API server refused, or could not be reached.
    #[error("cannot {what}")]
    Api {
        /// What was tried.
        what: &'static str,
        /// What came of it.
        #[source]
        source: ApiError,
    },
}

impl SyncError {
    /// Whether the server knows something that the cache does not know yet, such as a user's change.
    fn is_stale(&self) -> bool {
        match self {
            Self::Behind(_) => true,
            Self::Api { source, .. } => matches!(source.class(), Class::Conflict | Class::AlreadyExists),
            _ => false,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("deployment name missing from the Foo's spec: set spec.deploymentName")]
struct NoDeploymentName;

impl Controller {
    /// A controller whose handlers are registered at the informers of `factory`, which the caller starts.
    pub fn new(
        clients: &Clients,
        factory: &SharedInformerFactory,
        recorder: EventRecorder,
    ) -> Result<Arc<Self>, InformerStopped> {
        let env = clients.env().fork(COMPONENT);
        let (foos, deployments) = (factory.informer::<Foo>(), factory.informer::<Deployment>());
        let controller = Arc::new(Self {
            foos: foos.lister(),
            deployments: deployments.lister(),
            queue: RateLimitingQueue::new("foos", limiter::sample_controller(), &env),
            writes: Ledger::new(&env),
            requests: clients.requests().clone().manager(COMPONENT),
            recorder,
            env,
        });
        let this = controller.clone();
        foos.add_handler(on_change(move |change: Change<'_, Foo>| {
            // Of a Foo that is gone nothing is left to do: its Deployment goes along.
            if !matches!(change, Change::Deleted(_))
                && let Some(foo) = change.last_known()
            {
                // What is found by a first list or a resync waits for what has changed.
                this.queue.add_with(foo.key(), Priority::of(&change));
            }
        }))?;
        // The Foo that controls a Deployment is looked at, and so is the one that did before. A Deployment without one is none of ours, and
        // a resync tells nothing new of it.
        let foos = controller.foos.clone();
        let owner_of = move |deployment: &Object<Deployment>| {
            let owner = deployment.controller_of::<Foo>()?;
            let is_known = foos.contains(&owner);
            if !is_known {
                tracing::debug!(deployment = %deployment.key(), foo = %owner, "ignoring an orphaned object");
            }
            is_known.then_some(owner)
        };
        let options = HandlerOptions { resync: Some(Duration::ZERO), ..HandlerOptions::default() };
        deployments.add_handler_with(enqueue_mapped(controller.queue.clone(), owner_of), options)?;
        Ok(controller)
    }

    /// The Foos that wait to be synced.
    pub fn queue(&self) -> &RateLimitingQueue<ObjectName> {
        &self.queue
    }

    /// Works with `workers` workers until `stop`. The caches must have synced.
    pub async fn run(self: Arc<Self>, workers: usize, stop: &CancellationToken) {
        tracing::info!(workers, "starting workers");
        let this = self.clone();
        let work = run_workers(workers, &self.queue, stop, &self.env, move |item| this.clone().process(item));
        let log = async {
            stop.cancelled().await;
            tracing::info!("shutting down workers");
        };
        tokio::join!(work, log);
    }

    /// Syncs the Foo of one key, and decides what becomes of the key.
    async fn process(self: Arc<Self>, item: WorkItem<ObjectName>) {
        match self.sync_handler(item.key()).await {
            Ok(()) => {
                tracing::info!(foo = %item.key(), "successfully synced");
                item.forget();
            }
            // Nothing is wrong yet: the next try comes after what the cache has not seen.
            Err(error) if error.is_stale() => item.retry_quietly(error),
            Err(error) => item.retry(error),
        }
    }

    /// Makes the world as the Foo of that key wishes, and writes what it found into the Foo's status.
    async fn sync_handler(&self, key: &ObjectName) -> Result<(), SyncError> {
        self.writes.settled(key).await?;
        let foo = match self.foos.get(key) {
            Err(error) if error.is_not_found() => {
                tracing::debug!(foo = %key, "the Foo in the queue no longer exists");
                return Ok(());
            }
            found => found?,
        };
        let name = &foo.spec.deployment_name;
        if name.is_empty() {
            // Trying again would not help: the Foo comes back into the queue when it is changed.
            self.env.reporter.error(COMPONENT, &key.to_string(), &NoDeploymentName);
            return Ok(());
        }
        let mut deployment = match self.deployments.get(&key.sibling(name)) {
            Err(error) if error.is_not_found() => {
                let created = self.requests.of::<Deployment>().create(&new_deployment(&foo)).await;
                let created = created.map_err(api("create the Deployment"))?;
                self.writes.wrote(key, self.deployments.indexer(), &created);
                Arc::new(created)
            }
            found => found?,
        };
        if !is_controlled_by(&deployment, &foo) {
            let error = SyncError::ResourceExists(name.clone());
            self.recorder.event(&*foo, EventType::Warning, ERR_RESOURCE_EXISTS, &error.to_string());
            return Err(error);
        }
        let current = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        if foo.spec.replicas.is_some() && foo.spec.replicas != current {
            tracing::debug!(foo = %key, ?current, desired = ?foo.spec.replicas, "updating the Deployment's replicas");
            let updated = self.requests.of::<Deployment>().replace(&new_deployment(&foo)).await;
            let updated = updated.map_err(api("update the Deployment"))?;
            self.writes.wrote(key, self.deployments.indexer(), &updated);
            deployment = Arc::new(updated);
        }
        self.update_foo_status(key, &foo, &deployment).await?;
        self.recorder.event(&*foo, EventType::Normal, SYNCED, MESSAGE_SYNCED);
        Ok(())
    }

    /// Writes the status through its subresource, if it has changed.
    async fn update_foo_status(
        &self,
        key: &ObjectName,
        foo: &Foo,
        deployment: &Deployment,
    ) -> Result<(), SyncError> {
        let available = deployment.status.as_ref().and_then(|status| status.available_replicas);
        let status = Some(FooStatus { available_replicas: available.unwrap_or_default() });
        if foo.status == status {
            return Ok(());
        }
        let changed = Foo { status, ..foo.clone() };
        let written = self.requests.of::<Foo>().replace_status(&changed).await;
        let written = written.map_err(api("update the Foo's status"))?;
        self.writes.wrote(key, self.foos.indexer(), &written);
        Ok(())
    }
}

fn api(what: &'static str) -> impl FnOnce(ApiError) -> SyncError {
    move |source| SyncError::Api { what, source }
}
