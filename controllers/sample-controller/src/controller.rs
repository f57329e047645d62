//! The Foo controller: handlers enqueue keys, workers reconcile them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use tokio_util::sync::CancellationToken;
use watchkeeper::controller::Writes;
use watchkeeper::explain::Explained;
use watchkeeper::informer::{Change, HandlerOptions, InformerStopped, Lister, on_change};
use watchkeeper::object::DecodeError;
use watchkeeper::process::Workers;
use watchkeeper::record::{EventRecorder, EventType};
use watchkeeper::source::Requests;
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::workqueue::{Priority, Reason, Trigger, WorkItem, enqueue_mapped, limiter};
use watchkeeper::{Client, Env, Object, ObjectName, RateLimitingQueue, SharedInformerFactory};

use crate::COMPONENT;
use crate::api::{Foo, FooStatus};
use crate::deployment::{is_controlled_by, new_deployment};

const SYNCED: &str = "Synced";
const MESSAGE_SYNCED: &str = "Foo synced successfully";
const ERR_RESOURCE_EXISTS: &str = "ErrResourceExists";

/// How long reconciles under way may take to finish after the stop. What follows fits into the 30 s that a kubelet waits, too.
const DRAIN: Duration = Duration::from_secs(20);

/// The controller of Foos.
#[derive(Debug)]
pub struct Controller {
    foos: Lister<Foo>,
    deployments: Lister<Deployment>,
    queue: RateLimitingQueue<ObjectName>,
    writes: Writes,
    requests: Requests,
    recorder: EventRecorder,
    env: Env,
}

/// Why a Foo could not be reconciled.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// A cached object does not fit its type.
    #[error(transparent)]
    Undecodable(#[from] DecodeError),
    /// The Foo names no Deployment.
    #[error("deployment name missing from the Foo's spec: set spec.deploymentName")]
    NoDeploymentName,
    /// The Deployment that the Foo names exists, and the Foo does not control it.
    #[error("Resource {0:?} already exists and is not managed by Foo")]
    ResourceExists(String),
    /// The API server refused, or could not be reached.
    #[error("cannot {what}")]
    Api {
        /// The operation.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: ApiError,
    },
}

impl SyncError {
    /// Whether the cache lags behind the server, for example behind a user's change.
    fn is_stale(&self) -> bool {
        match self {
            Self::Api { source, .. } => matches!(source.class(), Class::Conflict | Class::AlreadyExists),
            _ => false,
        }
    }

    /// Whether a retry cannot help: only a change of the Foo can.
    fn is_final(&self) -> bool {
        matches!(self, Self::NoDeploymentName)
    }
}

impl Controller {
    /// Creates a controller and registers its handlers with the informers of `factory`, which the caller starts.
    pub fn new(
        client: &Client,
        factory: &SharedInformerFactory,
        recorder: EventRecorder,
    ) -> Result<Arc<Self>, InformerStopped> {
        let env = client.env().fork(COMPONENT);
        let (foos, deployments) = (factory.informer::<Foo>(), factory.informer::<Deployment>());
        let queue = RateLimitingQueue::new("foos", limiter::sample_controller(), &env);
        let controller = Arc::new(Self {
            foos: foos.lister(),
            deployments: deployments.lister(),
            writes: Writes::new(&queue, &env),
            queue,
            requests: client.requests().clone().manager(COMPONENT),
            recorder,
            env,
        });
        let this = controller.clone();
        foos.add_handler(on_change(move |change: Change<'_, Foo>| {
            // A deleted Foo needs no work: its Deployment is garbage collected.
            if !matches!(change, Change::Deleted(_))
                && let Some(foo) = change.last_known()
            {
                // Changes overtake the initial list and resyncs.
                let trigger = Trigger::itself(Reason::of(&change), foo.version());
                this.queue.add_because(foo.key(), Priority::of(&change), trigger);
            }
        }))?;
        // A changed Deployment enqueues the Foo that controls it and the one that did before; others are ignored. A resync would bring nothing
        // new.
        let foos = controller.foos.clone();
        let owner_of = move |deployment: &Object<Deployment>| {
            let owner = deployment.controller_of::<Foo>()?;
            let is_known = foos.contains(&owner);
            if !is_known {
                tracing::debug!(deployment = %deployment.key(), foo = %owner, "ignoring an orphaned object");
            }
            is_known.then_some(owner)
        };
        let options = HandlerOptions::default().resync(Duration::ZERO);
        deployments.add_handler_with(enqueue_mapped(controller.queue.clone(), owner_of), options)?;
        Ok(controller)
    }

    /// The controller, to be explained.
    pub(crate) fn explained(&self, factory: &SharedInformerFactory) -> Explained<Foo> {
        let (foos, deployments) = (factory.informer::<Foo>(), factory.informer::<Deployment>());
        Explained::new("foos", &self.queue, &foos).owns(&deployments).writes(self.writes.clone())
    }

    /// The queue of Foos to reconcile.
    pub fn queue(&self) -> &RateLimitingQueue<ObjectName> {
        &self.queue
    }

    /// Runs `workers` workers until `stop`. The caches must have synced.
    pub async fn run(self: Arc<Self>, workers: usize, stop: CancellationToken) {
        tracing::info!(workers, "starting workers");
        let this = self.clone();
        let workers = Workers::new(workers).grace(DRAIN);
        let work =
            workers.run_queue(&self.queue, stop.clone(), &self.env, move |item| this.clone().process(item));
        let log = async {
            stop.cancelled().await;
            tracing::info!("shutting down workers");
        };
        tokio::join!(work, log);
    }

    /// Reconciles the Foo of one key, and finishes or retries the key.
    async fn process(self: Arc<Self>, item: WorkItem<ObjectName>) {
        // A Foo whose last writes are not cached yet goes back to the queue.
        let Some(mut item) = self.writes.admit(item) else { return };
        if let Ok(foo) = self.foos.object(item.key()) {
            item.saw(foo.version());
        }
        match self.sync_handler(item.key()).await {
            Ok(()) => {
                tracing::info!(foo = %item.key(), "successfully synced");
                item.forget();
            }
            // Expected now and then: the retry comes when the cache has caught up.
            Err(error) if error.is_stale() => item.retry_quietly(error),
            Err(error) if error.is_final() => item.give_up(error),
            Err(error) => item.retry(error),
        }
    }

    /// Reconciles the Deployment of a Foo, and updates the Foo's status.
    async fn sync_handler(&self, key: &ObjectName) -> Result<(), SyncError> {
        // The controller's own writes count, whether the cache has seen them or not.
        let Some(foo) = self.writes.get(key, self.foos.indexer(), key) else {
            tracing::debug!(foo = %key, "the Foo in the queue no longer exists");
            return Ok(());
        };
        let foo = foo.get()?;
        let name = &foo.spec.deployment_name;
        if name.is_empty() {
            return Err(SyncError::NoDeploymentName);
        }
        let mut deployment = match self.writes.get(key, self.deployments.indexer(), &key.sibling(name)) {
            None => {
                let created = self.requests.api::<Deployment>().create(&new_deployment(&foo)).await;
                let created = created.map_err(api("create the Deployment"))?;
                self.writes.wrote(key, self.deployments.indexer(), &created);
                Arc::new(created)
            }
            Some(deployment) => deployment.get()?,
        };
        if !is_controlled_by(&deployment, &foo) {
            let error = SyncError::ResourceExists(name.clone());
            self.recorder.event(&*foo, EventType::Warning, ERR_RESOURCE_EXISTS, &error.to_string());
            return Err(error);
        }
        let current = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        if foo.spec.replicas.is_some() && foo.spec.replicas != current {
            tracing::debug!(foo = %key, ?current, desired = ?foo.spec.replicas, "updating the Deployment's replicas");
            let updated = self.requests.api::<Deployment>().replace(&new_deployment(&foo)).await;
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
        let written = self.requests.api::<Foo>().replace_status(&changed).await;
        let written = written.map_err(api("update the Foo's status"))?;
        self.writes.wrote(key, self.foos.indexer(), &written);
        Ok(())
    }
}

fn api(what: &'static str) -> impl FnOnce(ApiError) -> SyncError {
    move |source| SyncError::Api { what, source }
}
