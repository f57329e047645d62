//! What can be measured about a work queue? What happens to its keys, told to whoever was injected, and who is still at work.

use std::time::Duration;

/// Is told what happens in one queue, to feed the metrics that carry client-go's names.
///
/// Every hook does nothing unless implemented; a queue without metrics calls none and reads no clock for them. Hooks are called on the task
/// that uses the queue, outside its lock: they must not block, and of two calls from two tasks either may be first, so a gauge fed
/// by [`added`](Self::added) and [`taken`](Self::taken) can be off by the number of calls in flight.
pub trait QueueMetrics: Send + Sync + 'static {
    /// A key needs a run that it did not need before: `workqueue_adds_total` and `workqueue_depth` go up.
    ///
    /// Called for a key that is worked on too, when it is first added again; not for an add that collapses into another.
    fn added(&self) {}

    /// A worker got a key `waited` after its add (`workqueue_queue_duration_seconds`): `workqueue_depth` goes down.
    fn taken(&self, waited: Duration) {
        let _ = waited;
    }

    /// A worker was done with a key, `worked` after it got it (`workqueue_work_duration_seconds`).
    fn done(&self, worked: Duration) {
        let _ = worked;
    }

    /// A key was added with a delay or rate limited, even if the delay was zero: `workqueue_retries_total` goes up.
    fn retried(&self) {}
}

/// Work in progress, at one moment: see [`RateLimitingQueue::running`](super::RateLimitingQueue::running).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// How many keys are with a worker.
    pub count: usize,
    /// The sum of their ages, `workqueue_unfinished_work_seconds`: if it grows steadily, workers are stuck.
    pub unfinished: Duration,
    /// The age of the oldest, `workqueue_longest_running_processor_seconds`.
    pub longest: Duration,
}
