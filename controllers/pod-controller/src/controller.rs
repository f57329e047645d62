//! How do Pods become lines? The handler queues keys, workers look the Pods up and say what they find.

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

/// A key that keeps failing is tried again so often, and then dropped.
const RETRIES: u32 = 5;

/// The controller of Pods.
#[derive(Debug)]
pub struct Controller {
    indexer: Indexer<Pod>,
    queue: RateLimitingQueue<ObjectName>,
    informer: Informer<Pod>,
    output: Output,
    /// A key whose sync fails, to see what happens to it.
    fail: Option<ObjectName>,
    env: Env,
}

/// The cache did not fill before the stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("timed out waiting for the cache of Pods to sync")]
pub struct NotSynced;

/// A sync that fails because it was told to.
#[derive(Debug, thiserror::Error)]
#[error("told to fail by --fail")]
struct ToldToFail;

/// Prints what it is told, and queues the key of it.
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

    // A tombstone has a key too.
    fn delete(&mut self, pod: &Deleted<Pod>) {
        self.output.line(format_args!("delete pod:{}", pod.key().name()));
        self.queue.add(pod.key());
    }
}

impl Controller {
    /// A controller of the Pods of `source`; what it finds goes to `output`.
    pub fn new<S: ListerWatcher>(source: S, options: &Options, output: Output, env: &Env) -> Arc<Self> {
        let env = env.fork(crate::COMPONENT);
        let queue = RateLimitingQueue::new("pods", limiter::default_controller(), &env);
        let handler = Enqueue { queue: queue.clone(), output: output.clone() };
        let (indexer, informer) = Informer::builder(source, &env)
            .handler(handler)
            .indexers([namespace_index()])
            .queue(options.queue)
            .build();
        Arc::new(Self { indexer, queue, informer, output, fail: options.fail.clone(), env })
    }

    /// The cache. What is put in before the start is what the controller believes to be there; the first list corrects it.
    pub fn indexer(&self) -> &Indexer<Pod> {
        &self.indexer
    }

    /// Watches and works with `workers` workers until `stop`, and returns when all of it has ended.
    pub async fn run(self: Arc<Self>, workers: usize, stop: &CancellationToken) -> Result<(), NotSynced> {
        tracing::info!("starting the Pod controller");
        let work = async {
            let has_synced = stop.run_until_cancelled(self.informer.wait_until_synced()).await;
            has_synced.ok_or(NotSynced)?;
            let this = self.clone();
            run_workers(workers, &self.queue, stop, &self.env, move |item| {
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

    /// Says what is there under one key, and decides what becomes of the key.
    fn process(&self, item: WorkItem<ObjectName>) {
        match self.sync_to_stdout(item.key()) {
            Ok(()) => item.forget(),
            Err(error) if item.attempts() < RETRIES => item.retry(error),
            Err(error) => item.give_up(error),
        }
    }

    /// The business of this controller. What failed is tried again by whoever called it.
    fn sync_to_stdout(&self, key: &ObjectName) -> Result<(), ToldToFail> {
        if self.fail.as_ref() == Some(key) {
            return Err(ToldToFail);
        }
        match self.indexer.get(key) {
            // A Pod that was recreated under the same name is told of as any other change: compare the uid where that matters.
            Some(pod) => self.output.line(format_args!("Sync/Add/Update for Pod {}", pod.name())),
            None => self.output.line(format_args!("Pod {key} does not exist anymore")),
        }
        Ok(())
    }
}
