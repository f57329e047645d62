//! The Pod controller: the handler enqueues keys, workers look up the Pods and print them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Handler, Informer};
use watchkeeper::process::run_workers;
use watchkeeper::queue::Deleted;
use watchkeeper::source::ListerWatcher;
use watchkeeper::store::{Indexer, namespace_index};
use watchkeeper::workqueue::{WorkItem, limiter};
use watchkeeper::{Env, Object, ObjectName, RateLimitingQueue};

use crate::options::Options;
use crate::output::Output;

/// How often a failing key is retried before it is dropped.
const RETRIES: u32 = 5;

/// A controller that prints what happens to Pods.
#[derive(Debug)]
pub struct Controller {
    indexer: Indexer<Pod>,
    queue: RateLimitingQueue<ObjectName>,
    informer: Informer<Pod>,
    output: Output,
    /// A key whose sync fails on purpose.
    fail: Option<ObjectName>,
    env: Env,
}

/// The cache did not sync before the stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("timed out waiting for the cache of Pods to sync")]
pub struct NotSynced;

/// A sync that fails on purpose.
#[derive(Debug, thiserror::Error)]
#[error("failed on purpose, because of --fail")]
struct FailedOnPurpose;

/// Prints each notification, and enqueues its key.
struct Enqueue {
    queue: RateLimitingQueue<ObjectName>,
    output: Output,
}

impl Handler<Pod> for Enqueue {
    fn add(&mut self, pod: &Object<Pod>, _in_initial_list: bool) {
        self.output.line(format_args!("add pod:{}", pod.name()));
        self.queue.add(pod.key());
    }

    fn update(&mut self, _old: &Object<Pod>, new: &Object<Pod>) {
        self.output.line(format_args!("update pod:{}", new.name()));
        self.queue.add(new.key());
    }

    // A tombstone also has a key.
    fn delete(&mut self, pod: &Deleted<Pod>) {
        self.output.line(format_args!("delete pod:{}", pod.key().name()));
        self.queue.add(pod.key());
    }
}

impl Controller {
    /// Creates a controller of the Pods of `source` that prints to `output`.
    pub fn new<S: ListerWatcher>(source: S, options: &Options, output: Output, env: &Env) -> Arc<Self> {
        let env = env.fork(crate::COMPONENT);
        let queue = RateLimitingQueue::new("pods", limiter::default_controller(), &env);
        let handler = Enqueue { queue: queue.clone(), output: output.clone() };
        let (indexer, informer) = Informer::builder(source, &env)
            .handler(handler)
            .indexes([namespace_index()])
            .queue(options.queue)
            .build();
        Arc::new(Self { indexer, queue, informer, output, fail: options.fail.clone(), env })
    }

    /// The cache. Objects added before the start count as known; the first list corrects them.
    pub fn indexer(&self) -> &Indexer<Pod> {
        &self.indexer
    }

    /// Runs the informer and `workers` workers until `stop`, and returns when both have ended.
    pub async fn run(self: Arc<Self>, workers: usize, stop: CancellationToken) -> Result<(), NotSynced> {
        tracing::info!("starting the Pod controller");
        let work = async {
            let has_synced = stop.run_until_cancelled(self.informer.wait_until_synced()).await;
            has_synced.ok_or(NotSynced)?;
            let this = self.clone();
            run_workers(workers, &self.queue, stop.clone(), &self.env, move |item| {
                this.process(item);
                std::future::ready(())
            })
            .await;
            Ok(())
        };
        let log = async {
            stop.cancelled().await;
            tracing::info!("stopping the Pod controller");
        };
        let ((), result, ()) = tokio::join!(self.informer.run(stop.clone()), work, log);
        result
    }

    /// Syncs one key, and finishes, retries or drops it.
    fn process(&self, item: WorkItem<ObjectName>) {
        match self.sync_to_stdout(item.key()) {
            Ok(()) => item.forget(),
            Err(error) if item.attempts() < RETRIES => item.retry(error),
            Err(error) => item.give_up(error),
        }
    }

    /// The business logic. The caller retries failures.
    fn sync_to_stdout(&self, key: &ObjectName) -> Result<(), FailedOnPurpose> {
        if self.fail.as_ref() == Some(key) {
            return Err(FailedOnPurpose);
        }
        match self.indexer.get(key) {
            // A Pod that was recreated under the same name looks like any other change: compare the uid if that matters.
            Some(pod) => self.output.line(format_args!("Sync/Add/Update for Pod {}", pod.name())),
            None => self.output.line(format_args!("Pod {key} does not exist anymore")),
        }
        Ok(())
    }
}
