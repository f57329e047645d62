//! Workers: restarted if they panic or return, and joined at the end.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::env::Env;
use crate::workqueue::{Key, RateLimitingQueue, WorkItem};

/// The delay before a worker that ended is started again.
const PAUSE: Duration = Duration::from_secs(1);
/// The time that workers have to finish after the stop.
const GRACE: Duration = Duration::from_secs(30);

/// Runs `count` workers on `queue` until `stop`, as [`Workers::run_queue`] with the defaults of [`Workers`].
///
/// ```
/// # use watchkeeper::process::run_workers;
/// # use watchkeeper::workqueue::{RateLimitingQueue, WorkItem, limiter};
/// # use watchkeeper::{Env, ObjectName};
/// # use tokio_util::sync::CancellationToken;
/// # async fn sync(key: &ObjectName) -> Result<(), std::io::Error> { Ok(()) }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let (env, stop) = (Env::system(), CancellationToken::new());
/// # let queue = RateLimitingQueue::<ObjectName>::new("foos", limiter::default_controller(), &env);
/// # stop.cancel();
/// run_workers(2, &queue, stop, &env, |item: WorkItem<ObjectName>| async move {
///     match sync(item.key()).await {
///         Ok(()) => item.forget(),
///         Err(error) => item.retry(error),
///     }
/// })
/// .await;
/// # }
/// ```
pub async fn run_workers<T, F, Fut>(
    count: usize,
    queue: &RateLimitingQueue<T>,
    stop: CancellationToken,
    env: &Env,
    work: F,
) where
    T: Key,
    F: Fn(WorkItem<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    Workers::new(count).run_queue(queue, stop, env, work).await;
}

/// Workers that are kept running until a stop, and then given time to finish.
///
/// ```
/// use std::time::Duration;
/// use tokio_util::sync::CancellationToken;
/// use watchkeeper::Env;
/// use watchkeeper::process::Workers;
/// use watchkeeper::workqueue::{RateLimitingQueue, WorkItem, limiter};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let env = Env::system();
/// let queue = RateLimitingQueue::<String>::new("names", limiter::default_controller(), &env);
/// queue.add("a".to_owned());
/// queue.shut_down(); // workers of a queue that is shut down end when it is empty
/// let work = |item: WorkItem<String>| async move { item.forget() };
/// Workers::new(2).grace(Duration::from_secs(10)).run_queue(&queue, CancellationToken::new(), &env, work).await;
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "workers work when they are run"]
pub struct Workers {
    count: usize,
    grace: Duration,
}

#[derive(Debug, thiserror::Error)]
#[error("{left} of {count} workers did not finish within {grace:?} after the stop, and were given up")]
struct Unfinished {
    left: usize,
    count: usize,
    grace: Duration,
}

impl Workers {
    /// Returns settings for `count` workers.
    pub fn new(count: usize) -> Self {
        Self { count, grace: GRACE }
    }

    /// Sets the time after the stop after which unfinished workers are aborted; 30 s by default.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Runs the workers on `queue`: each takes a key, calls `work` with it, waits for its end and takes the next.
    ///
    /// After the stop no further key is taken: `queue` is shut down, the remaining keys are left to the next start of
    /// the program, and running reconciles may finish within the grace period. After a panic the worker pauses for a
    /// second, and the key is retried. If the queue is shut down elsewhere, the workers end when it is empty.
    ///
    /// Dropping the future aborts all workers; their keys go back to the queue.
    pub async fn run_queue<T, F, Fut>(
        self,
        queue: &RateLimitingQueue<T>,
        stop: CancellationToken,
        env: &Env,
        work: F,
    ) where
        T: Key,
        F: Fn(WorkItem<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let (stop, work) = (stop.child_token(), Arc::new(work));
        let workers = self.run_numbered(stop.clone(), env, |number| {
            let worker = u16::try_from(number + 1).unwrap_or_default();
            let (queue, stop, work) = (queue.clone(), stop.clone(), work.clone());
            async move {
                loop {
                    // The stop has precedence: a key that is ready at the same time is not taken.
                    let next = tokio::select! {
                        biased;
                        () = stop.cancelled() => return,
                        next = queue.get_as(worker) => next,
                    };
                    match next {
                        Some(item) => work(item).await,
                        // Shut down elsewhere, and empty.
                        None => stop.cancel(),
                    }
                    // Work that never waits, on a queue that is never empty, would block the thread.
                    crate::fair::give_way().await;
                }
            }
        });
        let shut_down = async {
            stop.cancelled().await;
            // A second shutdown would release a caller that drains the queue.
            if !queue.is_shutting_down() {
                queue.shut_down();
            }
        };
        tokio::join!(workers, shut_down);
    }

    /// Runs the workers until `stop` is cancelled and every one of them has returned, or the grace period after it is
    /// over. For workers that take their work from a queue there is [`Workers::run_queue`].
    ///
    /// `worker` is called for each start of a worker; the future runs as a task of its own. A worker that panics is
    /// reported and started again after a second, as is one that returns before the stop. After the stop no worker is
    /// started; running ones may finish, so they must notice the stop, for example by a queue that is shut down. Those
    /// that do not finish are reported, and aborted at their next await.
    ///
    /// Dropping the future aborts all workers.
    pub async fn run<F, Fut>(self, stop: CancellationToken, env: &Env, worker: F)
    where
        F: Fn() -> Fut,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.run_numbered(stop, env, |_| worker()).await;
    }

    /// As [`run`](Self::run), with the number of the worker, from 0 on.
    async fn run_numbered<F, Fut>(self, stop: CancellationToken, env: &Env, worker: F)
    where
        F: Fn(usize) -> Fut,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let Self { count, grace } = self;
        let running = AtomicUsize::new(0);
        let patience = async {
            stop.cancelled().await;
            env.clock.sleep(grace).await;
        };
        tokio::select! {
            biased;
            () = keep_running(count, &stop, env, worker, &running) => {}
            () = patience => {
                env.reporter.error("worker", "workers", &Unfinished { left: running.load(Relaxed), count, grace });
            }
        }
    }
}

async fn keep_running<F, Fut>(
    count: usize,
    stop: &CancellationToken,
    env: &Env,
    worker: F,
    running: &AtomicUsize,
) where
    F: Fn(usize) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let start = |tasks: &mut JoinSet<Event>, number: usize| {
        let subject = subject(number);
        running.fetch_add(1, Relaxed);
        match env.reporter.guard("worker", &subject, || worker(number)) {
            Some(run) => tasks
                .spawn(async move { Event::Ended(number, AssertUnwindSafe(run).catch_unwind().await.err()) }),
            None => tasks.spawn(async move { Event::Ended(number, None) }),
        };
    };
    if !stop.is_cancelled() {
        (0..count).for_each(|number| start(&mut tasks, number));
    }
    while let Some(event) = tasks.join_next().await {
        match event {
            Ok(Event::Ended(number, panic)) => {
                running.fetch_sub(1, Relaxed);
                if let Some(payload) = panic {
                    env.reporter.panic("worker", &subject(number), payload.as_ref());
                }
                let (clock, stop) = (env.clock.clone(), stop.clone());
                tasks.spawn(async move {
                    stop.run_until_cancelled(clock.sleep(PAUSE)).await;
                    Event::Rested(number)
                });
            }
            Ok(Event::Rested(number)) if !stop.is_cancelled() => start(&mut tasks, number),
            Ok(Event::Rested(_)) => {}
            // Panics are caught within the task, so this one was aborted by a runtime that shuts down.
            Err(_) => {}
        }
    }
}

/// The result of a task of the set: a worker, or the pause after one.
enum Event {
    Ended(usize, Option<Box<dyn Any + Send>>),
    Rested(usize),
}

fn subject(number: usize) -> String {
    format!("worker {number}")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;

    use parking_lot::Mutex;

    use super::*;
    use crate::workqueue::limiter;

    const SECOND: Duration = Duration::from_secs(1);

    fn environment() -> (Env, CancellationToken, Arc<AtomicUsize>) {
        (Env::simulated(1), CancellationToken::new(), Arc::default())
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_workers_run_as_were_asked_for_until_the_stop() {
        let (env, stop, running) = environment();
        let workers = Workers::new(3).run(stop.clone(), &env, || {
            let (running, stop) = (running.clone(), stop.clone());
            async move {
                running.fetch_add(1, SeqCst);
                stop.cancelled().await;
                running.fetch_sub(1, SeqCst);
            }
        });
        let observer = async {
            env.clock.sleep(10 * SECOND).await;
            assert_eq!(running.load(SeqCst), 3);
            stop.cancel();
        };
        tokio::join!(workers, observer);
        assert_eq!(running.load(SeqCst), 0, "all were joined");
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_panics_is_reported_and_restarted_after_a_second() {
        let (env, stop, _) = environment();
        let reports = Arc::new(Mutex::new(Vec::new()));
        let into = reports.clone();
        env.reporter
            .add_hook(move |r| into.lock().push(format!("{}: {}: {}", r.part, r.subject, r.incident)));
        let (start, starts) = (env.clock.now(), Arc::new(Mutex::new(Vec::new())));
        Workers::new(1)
            .run(stop.clone(), &env, || {
                let (starts, clock, stop) = (starts.clone(), env.clock.clone(), stop.clone());
                async move {
                    let run = {
                        let mut starts = starts.lock();
                        starts.push(clock.now() - start);
                        starts.len()
                    };
                    if run < 3 {
                        std::panic::resume_unwind(Box::new("boom"));
                    }
                    stop.cancel();
                }
            })
            .await;
        assert_eq!(*starts.lock(), [Duration::ZERO, SECOND, 2 * SECOND]);
        assert_eq!(*reports.lock(), ["worker: worker 0: panicked: boom", "worker: worker 0: panicked: boom"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_returns_before_the_stop_is_restarted_after_a_second() {
        let (env, stop, starts) = environment();
        let workers = Workers::new(2).run(stop.clone(), &env, || {
            starts.fetch_add(1, SeqCst);
            async {}
        });
        let observer = async {
            env.clock.sleep(2 * SECOND + SECOND / 2).await;
            assert_eq!(starts.load(SeqCst), 6);
            stop.cancel();
        };
        let begun = env.clock.now();
        tokio::join!(workers, observer);
        assert_eq!((starts.load(SeqCst), env.clock.now() - begun), (6, 2 * SECOND + SECOND / 2));
        assert_eq!(env.reporter.panics(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_while_making_a_worker_does_not_stop_the_others() {
        let (env, stop, made) = environment();
        let stop_later = async {
            env.clock.sleep(SECOND / 2).await;
            stop.cancel();
        };
        let workers = Workers::new(2).run(stop.clone(), &env, || {
            if made.fetch_add(1, SeqCst) == 0 {
                std::panic::resume_unwind(Box::new("no worker"));
            }
            stop.clone().cancelled_owned()
        });
        tokio::join!(workers, stop_later);
        assert_eq!((made.load(SeqCst), env.reporter.panics()), (2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_runs_after_the_stop() {
        let (env, stop, starts) = environment();
        stop.cancel();
        Workers::new(2)
            .run(stop.clone(), &env, || {
                starts.fetch_add(1, SeqCst);
                async {}
            })
            .await;
        assert_eq!(starts.load(SeqCst), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_the_future_aborts_the_workers() {
        let (env, stop, _) = environment();
        let alive = Arc::new(());
        let workers = Workers::new(2).run(stop.clone(), &env, || {
            let alive = alive.clone();
            async move {
                std::future::pending::<()>().await;
                drop(alive);
            }
        });
        assert!(env.clock.timeout(SECOND, workers).await.is_err());
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn workers_that_do_not_finish_in_time_are_given_up_and_reported() {
        for (workers, seconds) in [(Workers::new(3), 30), (Workers::new(3).grace(2 * SECOND), 2)] {
            let (env, stop, numbers) = environment();
            let reports = Arc::new(Mutex::new(Vec::new()));
            let into = reports.clone();
            env.reporter.add_hook(move |report| into.lock().push(report.incident.to_string()));
            let alive = Arc::new(());
            let run = workers.run(stop.clone(), &env, || {
                let (stop, number, alive) = (stop.clone(), numbers.fetch_add(1, SeqCst), alive.clone());
                async move {
                    stop.cancelled().await;
                    if number > 0 {
                        std::future::pending::<()>().await;
                    }
                    drop(alive);
                }
            });
            let began = env.clock.now();
            let stop_later = async {
                env.clock.sleep(SECOND).await;
                stop.cancel();
            };
            tokio::join!(run, stop_later);
            assert_eq!((env.clock.now() - began).as_secs(), 1 + seconds);
            assert_eq!(reports.lock().len(), 1);
            assert!(reports.lock()[0].starts_with("2 of 3 workers"), "{:?}", reports.lock());
            tokio::task::yield_now().await;
            assert_eq!(Arc::strong_count(&alive), 1, "they are gone");
        }
    }

    fn queue_of(keys: u32, env: &Env) -> RateLimitingQueue<u32> {
        let queue = RateLimitingQueue::new("test", limiter::default_controller(), env);
        (0..keys).for_each(|key| queue.add(key));
        queue
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_stop_no_key_is_taken_and_the_runs_under_way_finish() {
        let (env, stop, finished) = environment();
        let queue = queue_of(1000, &env);
        let (clock, count, began) = (env.clock.clone(), finished.clone(), env.clock.now());
        let workers = run_workers(2, &queue, stop.clone(), &env, move |item| {
            let (clock, count) = (clock.clone(), count.clone());
            async move {
                clock.sleep(SECOND / 2).await;
                count.fetch_add(1, SeqCst);
                item.forget();
            }
        });
        let stop_later = async {
            env.clock.sleep(SECOND * 9 / 4).await;
            stop.cancel();
        };
        tokio::join!(workers, stop_later);
        assert_eq!((finished.load(SeqCst), queue.len()), (10, 990));
        assert_eq!((env.clock.now() - began, env.reporter.errors()), (SECOND * 5 / 2, 0));
        assert!(queue.is_shutting_down());
    }

    #[tokio::test(start_paused = true)]
    async fn runs_that_never_wait_leave_room_for_the_stop() {
        let (env, stop, runs) = environment();
        let (queue, count) = (queue_of(10_000, &env), runs.clone());
        let workers = run_workers(1, &queue, stop.clone(), &env, move |item| {
            count.fetch_add(1, SeqCst);
            item.forget();
            async {}
        });
        let stop_soon = async {
            while runs.load(SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            stop.cancel();
        };
        tokio::join!(workers, stop_soon);
        assert_eq!(runs.load(SeqCst) + queue.len(), 10_000);
        assert!(!queue.is_empty(), "the stop came only after the last key");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_added_at_the_stop_is_not_taken() {
        let (env, stop, runs) = environment();
        let (queue, count) = (queue_of(0, &env), runs.clone());
        let workers = run_workers(2, &queue, stop.clone(), &env, move |item| {
            count.fetch_add(1, SeqCst);
            item.forget();
            async {}
        });
        let stop_later = async {
            env.clock.sleep(SECOND).await;
            stop.cancel();
            queue.add(1);
        };
        tokio::join!(workers, stop_later);
        assert_eq!(runs.load(SeqCst), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_panics_is_reported_and_its_key_retried_while_others_go_on() {
        let (env, stop, _) = environment();
        let queue = queue_of(3, &env);
        let runs = Arc::new(Mutex::new(Vec::new()));
        let into = runs.clone();
        let workers = run_workers(2, &queue, stop.clone(), &env, move |item| {
            let (attempts, into) = (item.attempts(), into.clone());
            async move {
                if *item.key() == 0 && attempts == 0 {
                    std::panic::resume_unwind(Box::new("boom"));
                }
                into.lock().push((*item.key(), attempts));
                item.forget();
            }
        });
        let stop_later = async {
            env.clock.sleep(3 * SECOND).await;
            stop.cancel();
        };
        tokio::join!(workers, stop_later);
        assert_eq!((&*runs.lock(), env.reporter.panics()), (&vec![(1, 0), (2, 0), (0, 1)], 1));
    }

    #[tokio::test(start_paused = true)]
    async fn workers_of_a_queue_that_somebody_else_shuts_down_end_when_it_is_empty() {
        let (env, stop, runs) = environment();
        let (queue, count) = (queue_of(5, &env), runs.clone());
        queue.shut_down();
        run_workers(2, &queue, stop.clone(), &env, move |item| {
            count.fetch_add(1, SeqCst);
            item.forget();
            async {}
        })
        .await;
        assert_eq!((runs.load(SeqCst), stop.is_cancelled()), (5, false));
    }
}
