//! Renewals that take a while, because a program runs or a server is asked.

use std::future::Future;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::task::{AbortHandle, JoinSet};

use super::problem::Problem;

/// The result of a renewal, for all that wait for it.
pub(super) type Outcome = Result<(), Arc<Problem>>;

/// A renewal under way, or its result. It goes on until its last clone is dropped, whether or not anybody waits: a request that is
/// given up must not end a program half-way, or lose a token that is issued once.
#[derive(Clone)]
pub(super) struct Renewal {
    outcome: Shared<BoxFuture<'static, Outcome>>,
    task: AbortHandle,
}

impl Renewal {
    /// Starts `work`. Must be called on a tokio runtime.
    pub(super) fn start(work: impl Future<Output = Outcome> + Send + 'static) -> Self {
        // The set ends its task when it is dropped.
        let mut tasks = JoinSet::new();
        let task = tasks.spawn(work);
        let outcome = async move {
            match tasks.join_next().await {
                Some(Ok(outcome)) => outcome,
                _ => Err(Arc::new(Problem::Interrupted)),
            }
        };
        Self { outcome: outcome.boxed().shared(), task }
    }

    pub(super) fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits for the end. Cancel-safe.
    pub(super) async fn wait(self) -> Outcome {
        self.outcome.await
    }
}
