//! Cooperative yielding of a busy task.

use std::future::poll_fn;
use std::task::Poll;

use tokio::task::coop;

/// Yields to other tasks once this one has used up its share. Cancel-safe.
///
/// tokio's own budget parks a task until its worker has nothing else to do, where no other worker finds it: a handler
/// that blocks the worker would delay the task, too. Here the task goes to the end of the worker's queue, from which
/// other workers steal.
pub(crate) async fn give_way() {
    if coop::has_budget_remaining() {
        coop::consume_budget().await;
        // The next operation may need some of the budget.
        if coop::has_budget_remaining() {
            return;
        }
    }
    let mut is_second = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_second, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
