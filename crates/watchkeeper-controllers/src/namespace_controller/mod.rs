//! The namespace controller: empties namespaces in deletion, and then removes their finalizer.

// `discover.rs` finds the resources, `content.rs` deletes the objects of one of them, `conditions.rs` describes what is
// left, and this file does all of it for a namespace.

mod conditions;
mod content;
pub(crate) mod discover;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::filtered;
use watchkeeper::process::run_workers;
use watchkeeper::source::{ApiSource, Scope};
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::workqueue::limiter::ItemExponential;
use watchkeeper::workqueue::{RateLimitingQueue, WorkItem, enqueue};
use watchkeeper::{Client, Env, Object, ObjectName, SharedInformer};

use conditions::Findings;
use content::{Contents, is_pods};
use discover::{Resource, discover};

/// The finalizer in the spec of a namespace that this controller removes.
const FINALIZER: &str = "kubernetes";
/// The number of namespaces that are emptied at the same time.
const WORKERS: usize = 5;
const FIRST_RETRY: Duration = Duration::from_millis(5);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// The delay before the informer is restarted after a panic.
const RESTART: Duration = Duration::from_secs(1);

/// Runs the namespace controller until `stop`: deletes everything in the namespaces that are being deleted, and then
/// removes the finalizer `kubernetes` of their spec, which lets the server remove them.
///
/// The resources are discovered anew for each attempt, so those of a CustomResourceDefinition that was added meanwhile
/// are emptied too. Pods are deleted first, and get their grace period; everything else follows when they are gone. The
/// controller waits for objects with finalizers. The conditions of the namespace describe what it waits for; a failed
/// attempt is retried with backoff, up to a minute, and reported.
///
/// A namespace stays while a resource cannot be discovered, listed or deleted: objects that cannot be seen are not
/// assumed to be gone.
///
/// Deletion starts as soon as a namespace is marked for it. With several API servers that share one etcd, another of
/// them could still accept an object for a moment then: on such a cluster, use kube-controller-manager instead.
///
/// Returns when all tasks of the controller have ended. Dropping the future ends them too.
pub async fn run(clients: &Client, stop: CancellationToken) {
    run_with(clients, Options::default(), stop).await;
}

/// Settings of the namespace controller.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// How long watches last, and may be silent. By default they last five to ten minutes and are checked after two and a half minutes of
    /// silence; a longer time suits a server in the same process, to which no connection breaks unnoticed.
    pub watch: Option<Duration>,
}

/// Runs the namespace controller until `stop`, as [`run`], with other settings.
pub async fn run_with(clients: &Client, options: Options, stop: CancellationToken) {
    let env = clients.env().fork("namespace controller");
    let queue =
        RateLimitingQueue::new("namespace_controller", ItemExponential::new(FIRST_RETRY, LAST_RETRY), &env);
    let controller = Arc::new(Controller { clients: clients.clone() });
    let work =
        run_workers(WORKERS, &queue, stop.clone(), &env, move |item| controller.clone().process_item(item));
    tokio::join!(watch(clients, &options, &queue, &env, &stop), work);
}

/// Enqueues namespaces in deletion.
async fn watch(
    clients: &Client,
    options: &Options,
    queue: &RateLimitingQueue<ObjectName>,
    env: &Env,
    stop: &CancellationToken,
) {
    while !stop.is_cancelled() {
        let source = ApiSource::new::<Namespace>(clients, &(), &Scope::Cluster);
        let mut informer = SharedInformer::<Namespace>::builder(source, env);
        if let Some(time) = options.watch {
            informer = informer.min_watch_timeout(time).max_watch_silence(time);
        }
        let informer = informer.build();
        let handler = filtered(|object: &Object<Namespace>| object.is_deleting(), enqueue(queue.clone()));
        // A new informer accepts handlers.
        let _registered = informer.add_handler(handler);
        let run = AssertUnwindSafe(informer.run(stop.clone())).catch_unwind();
        if let Err(payload) = run.await {
            env.reporter.panic("namespace controller", informer.name(), payload.as_ref());
            let _stopped = stop.run_until_cancelled(env.clock.sleep(RESTART)).await;
        }
    }
}

struct Controller {
    clients: Client,
}

/// The result of an attempt.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Nothing is left to do.
    Done,
    /// Objects are left that are expected to take this time.
    Waiting(Duration),
}

/// The reason why a namespace cannot be emptied for now.
#[derive(Debug, thiserror::Error)]
enum NamespaceError {
    #[error("cannot read the namespace: {0}")]
    Get(#[source] ApiError),
    #[error("cannot write the conditions of the namespace: {0}")]
    Status(#[source] ApiError),
    #[error("cannot finalize the namespace: {0}")]
    Finalize(#[source] ApiError),
    #[error("the namespace cannot be emptied: {}", .0.join(", "))]
    Contents(Vec<String>),
}

impl NamespaceError {
    /// Returns whether another writer changed the namespace meanwhile, which is reported only after a few retries.
    fn is_conflict(&self) -> bool {
        match self {
            Self::Status(error) | Self::Finalize(error) => error.class() == Class::Conflict,
            Self::Get(_) | Self::Contents(_) => false,
        }
    }
}

impl Controller {
    async fn process_item(self: Arc<Self>, item: WorkItem<ObjectName>) {
        match self.sync(item.key()).await {
            Ok(Outcome::Done) => item.forget(),
            // Halfway, as the estimate is an upper bound.
            Ok(Outcome::Waiting(expected)) => item.retry_after(expected / 2 + Duration::from_secs(1)),
            Err(error) if error.is_conflict() => item.retry_quietly(error),
            Err(error) => item.retry(error),
        }
    }

    async fn sync(&self, key: &ObjectName) -> Result<Outcome, NamespaceError> {
        let namespaces = self.clients.api::<Namespace>();
        let Some(namespace) = namespaces.get_opt(key).await.map_err(NamespaceError::Get)? else {
            return Ok(Outcome::Done);
        };
        let Some(deleted_at) = namespace.metadata.deletion_timestamp.clone() else {
            return Ok(Outcome::Done);
        };
        if !finalizers(&namespace).any(|finalizer| finalizer == FINALIZER) {
            return Ok(Outcome::Done);
        }
        let contents = Contents { clients: &self.clients, namespace: key.name(), deleted_at: &deleted_at };
        let (findings, expected) = empty(&contents).await;
        let Some(namespace) = self.write_conditions(namespace, &findings).await? else {
            return Ok(Outcome::Done);
        };
        let problems = findings.discovery.into_iter().chain(findings.failures);
        let problems: Vec<_> = problems.collect();
        if !problems.is_empty() {
            return Err(NamespaceError::Contents(problems));
        }
        if !findings.remaining.is_empty() {
            return Ok(Outcome::Waiting(expected));
        }
        self.finalize(namespace).await?;
        Ok(Outcome::Done)
    }

    /// Writes the conditions and returns the new state of the namespace; `None` if it is gone.
    async fn write_conditions(
        &self,
        mut namespace: Namespace,
        findings: &Findings,
    ) -> Result<Option<Namespace>, NamespaceError> {
        let now = Time(self.clients.env().clock.wall());
        let status = namespace.status.get_or_insert_default();
        status.phase = Some("Terminating".to_owned());
        if !findings.write(status, &now) {
            return Ok(Some(namespace));
        }
        match self.clients.api::<Namespace>().replace_status(&namespace).await {
            Err(error) if error.is_missing_object() => Ok(None),
            Err(error) => Err(NamespaceError::Status(error)),
            Ok(written) => Ok(Some(written)),
        }
    }

    /// Removes the finalizer of this controller. The server removes the namespace with the last one.
    async fn finalize(&self, mut namespace: Namespace) -> Result<(), NamespaceError> {
        if let Some(finalizers) = namespace.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        let namespaces = self.clients.api::<Namespace>();
        match namespaces.replace_subresource("finalize", &namespace).await {
            Err(error) if !error.is_missing_object() => Err(NamespaceError::Finalize(error)),
            _ => Ok(()),
        }
    }
}

fn finalizers(namespace: &Namespace) -> impl Iterator<Item = &String> {
    namespace.spec.iter().flat_map(|spec| spec.finalizers.iter().flatten())
}

/// Deletes the contents of a namespace. Returns what is left, and the time that it is expected to take.
async fn empty(contents: &Contents<'_>) -> (Findings, Duration) {
    let (mut findings, mut expected) = (Findings::default(), Duration::ZERO);
    let clients = contents.clients;
    let mut resources = match discover(clients.kube(), &clients.env().clock).await {
        Ok(discovered) => {
            findings.discovery = discovered.problem();
            discovered.resources
        }
        Err(error) => {
            findings.discovery = Some(error.to_string());
            return (findings, expected);
        }
    };
    // Pods first: the objects that they use stay until they have ended.
    resources.sort_by_key(|Resource { api, .. }| !is_pods(api));
    for resource in &resources {
        let api = &resource.api;
        match contents.delete(resource).await {
            Ok(None) => continue,
            Ok(Some(left)) => {
                findings.remaining.insert((api.plural.clone(), api.group.clone()), left.count);
                for (finalizer, count) in left.finalizers {
                    *findings.finalizers.entry(finalizer).or_default() += count;
                }
                expected = expected.max(left.expected);
            }
            Err(error) => findings.failures.push(error.to_string()),
        }
        if is_pods(api) {
            break;
        }
    }
    (findings, expected)
}
