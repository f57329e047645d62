//! One run of a key, from the worker that takes it to the outcome that settles it.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use tracing::Instrument;

use super::caches::KindCaches;
use super::context::{Context, Shared, WriteError};
use super::figures::{Ended, Figures};
use super::outcome::{Action, Error, Verdict};
use crate::object::{Kind, Object, ObjectName};
use crate::record::EventType;
use crate::report::panic_message;
use crate::workqueue::{RunResult, WorkItem};

/// After which time a run that has not ended is reported, and again after each further one.
const SOFT_DEADLINE: Duration = Duration::from_secs(300);

/// A function of the author that reconciles an object, or cleans up after it.
pub(super) type Reconcile<K> =
    Box<dyn Fn(Arc<K>, Context<K>) -> BoxFuture<'static, Result<Action, Error>> + Send + Sync>;

/// A function of the author that is called for an object that is gone.
pub(super) type ReconcileDeleted<K> =
    Box<dyn Fn(ObjectName, Context<K>) -> BoxFuture<'static, Result<Action, Error>> + Send + Sync>;

/// What a controller does with a key.
pub(super) struct Reconciler<K: Kind> {
    pub(super) shared: Arc<Shared<K>>,
    pub(super) mains: Arc<KindCaches<K>>,
    pub(super) reconcile: Reconcile<K>,
    pub(super) deleted: Option<ReconcileDeleted<K>>,
    pub(super) finalizer: Option<(String, Reconcile<K>)>,
    pub(super) timeout: Option<Duration>,
    pub(super) figures: Arc<Figures>,
}

/// How a run ended.
enum Outcome {
    Returned(Result<Action, Error>),
    Panicked(String),
    TimedOut(Duration),
}

#[derive(Debug, thiserror::Error)]
#[error("the reconcile panicked: {0}")]
struct Panicked(String);

#[derive(Debug, thiserror::Error)]
#[error("the reconcile did not end within {0:?}, and was dropped")]
struct TimedOut(Duration);

#[derive(Debug, thiserror::Error)]
#[error("a reconcile has been running for {0:?}")]
struct Slow(Duration);

impl<K: Kind> Reconciler<K> {
    /// Runs one key. If its caches have not seen its own writes, it goes back to the queue.
    pub(super) async fn process(self: Arc<Self>, item: WorkItem<ObjectName>) {
        let Some(mut item) = self.shared.writes.admit(item) else { return };
        let _active = self.figures.start();
        let clock = &self.shared.env.clock;
        let started = clock.now();
        let triggers = item.triggers();
        let span = tracing::info_span!(
            "reconcile",
            controller = &*self.shared.name,
            key = %item.key(),
            // A number in OpenTelemetry, too, which has signed ones only.
            attempt = i64::from(item.attempts()),
            trigger = triggers.first().map(tracing::field::display),
        );
        let context = Context::new(&self.shared, item.key(), item.attempts(), triggers);
        let outcome = self.run(&context).instrument(span).await;
        if let Some(main) = context.main() {
            item.saw(main.version());
        }
        self.settle(item, &context, outcome, clock.now() - started);
    }

    /// Calls the author's code; a panic or a missed deadline ends it.
    async fn run(&self, context: &Context<K>) -> Outcome {
        let mut work = pin!(AssertUnwindSafe(self.attempt(context)).catch_unwind());
        let clock = &self.shared.env.clock;
        let started = clock.now();
        loop {
            let passed = clock.now() - started;
            let left = self.timeout.map(|timeout| timeout.saturating_sub(passed));
            match clock.timeout(left.unwrap_or(SOFT_DEADLINE).min(SOFT_DEADLINE), &mut work).await {
                Ok(Ok(result)) => return Outcome::Returned(result),
                Ok(Err(payload)) => return Outcome::Panicked(panic_message(payload.as_ref()).to_owned()),
                Err(_) => {}
            }
            let passed = clock.now() - started;
            if self.timeout.is_some_and(|timeout| passed >= timeout) {
                return Outcome::TimedOut(passed);
            }
            self.shared.env.reporter.error("controller", &self.subject(context.key()), &Slow(passed));
        }
    }

    async fn attempt(&self, context: &Context<K>) -> Result<Action, Error> {
        self.shared.writes.settle(context.key()).await?;
        let Some(main) = self.refresh(context) else { return self.gone(context).await };
        // Retried with backoff, not terminal: a predicate may reject the change that mends the object.
        let typed = main.get()?;
        let Some((finalizer, cleanup)) = &self.finalizer else {
            return (self.reconcile)(typed, context.clone()).await;
        };
        let is_held = main.finalizers().iter().any(|name| name == finalizer);
        match (main.is_deleting(), is_held) {
            (false, true) => (self.reconcile)(typed, context.clone()).await,
            (false, false) => {
                let mut finalizers = main.finalizers();
                finalizers.push(finalizer.clone());
                write_finalizers(context, &main, &finalizers).await?;
                let held = context.main().map(|main| main.get()).transpose()?;
                (self.reconcile)(held.unwrap_or(typed), context.clone()).await
            }
            (true, true) => {
                if planted!(EarlyRelease) {
                    release(context, finalizer).await?;
                }
                let action = cleanup(typed, context.clone()).await?;
                if action.requeue_after.is_none() {
                    release(context, finalizer).await?;
                }
                Ok(action)
            }
            // Nothing was done for it, or all is undone.
            (true, false) => Ok(Action::done()),
        }
    }

    /// The main object as its own writes left it, else as it is cached.
    fn refresh(&self, context: &Context<K>) -> Option<Object<K>> {
        let parts = self.mains.covering(context.key());
        let main =
            parts.iter().find_map(|part| self.shared.writes.get(context.key(), part.store(), context.key()));
        context.set_main(main.clone());
        main
    }

    async fn gone(&self, context: &Context<K>) -> Result<Action, Error> {
        let key = context.key();
        self.shared.applied.forget_owner(key);
        match &self.deleted {
            Some(deleted) => deleted(key.clone(), context.clone()).await,
            None => Ok(Action::done()),
        }
    }

    /// Decides what becomes of the key.
    fn settle(&self, mut item: WorkItem<ObjectName>, context: &Context<K>, outcome: Outcome, took: Duration) {
        let record = |ended| self.figures.record(ended, took);
        match outcome {
            Outcome::Returned(Ok(Action { requeue_after: None, .. })) => {
                record(Ended::Success);
                item.forget();
            }
            Outcome::Returned(Ok(Action { requeue_after: Some(delay), priority })) => {
                record(Ended::RequeueAfter);
                item.set_priority(priority.unwrap_or(item.priority()));
                self.figures.requeued(delay);
                item.retry_after(delay);
            }
            Outcome::Returned(Err(error)) => {
                record(if error.is_terminal() { Ended::Terminal } else { Ended::Error });
                self.fail(item, context, error);
            }
            Outcome::Panicked(message) => {
                record(Ended::Panic);
                self.shared.env.reporter.panic("controller", &self.subject(item.key()), &message);
                item.set_result(RunResult::Panic);
                item.retry_quietly(Panicked(message));
            }
            Outcome::TimedOut(after) => {
                record(Ended::Timeout);
                item.set_result(RunResult::Timeout);
                item.retry(TimedOut(after));
            }
        }
    }

    fn fail(&self, item: WorkItem<ObjectName>, context: &Context<K>, error: Error) {
        match error.verdict() {
            Verdict::Retry if planted!(NoRetry) => item.forget(),
            Verdict::Retry => item.retry(error.into_inner()),
            Verdict::RetryQuietly => item.retry_quietly(error.into_inner()),
            Verdict::RetryAfter(delay) => {
                self.figures.requeued(delay);
                item.retry_error_after(delay, error.into_inner());
            }
            Verdict::GiveUp(reason) => {
                let is_recorded = context.record(EventType::Warning, reason, &error.to_string());
                match error.into_inner() {
                    error if is_recorded => item.give_up_with_event(error),
                    error => item.give_up(error),
                }
            }
        }
    }

    fn subject(&self, key: &ObjectName) -> String {
        format!("{} {key}", self.shared.name)
    }
}

async fn write_finalizers<K: Kind>(
    context: &Context<K>,
    main: &Object<K>,
    finalizers: &[String],
) -> Result<(), WriteError> {
    let metadata = json!({
        "finalizers": finalizers, "resourceVersion": main.version().to_string(), "uid": main.uid(),
    });
    context.patch_main(&json!({ "metadata": metadata }), None).await
}

/// Takes the finalizer off the main object as it is now: the cleanup may have written it.
async fn release<K: Kind>(context: &Context<K>, finalizer: &str) -> Result<(), WriteError> {
    let Some(main) = context.main() else { return Ok(()) };
    let mut finalizers = main.finalizers();
    finalizers.retain(|name| name != finalizer);
    match write_finalizers(context, &main, &finalizers).await {
        Err(WriteError::Api { source, .. }) if source.is_missing_object() => Ok(()),
        outcome => outcome,
    }
}

impl<K: Kind> fmt::Debug for Reconciler<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconciler").field("controller", &self.shared.name).finish_non_exhaustive()
    }
}
