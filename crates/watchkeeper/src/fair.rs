//! How does a task with much to do let others run?

use std::future::poll_fn;
use std::task::Poll;

use tokio::task::coop;

/// Lets other tasks run once this one has had its share. Cancel-safe.
///
/// tokio's own budget sets a task aside until its worker has nothing else to do, where no other worker finds it: a handler that blocks the
/// worker would hold it up, too. Here it goes to the end of the worker's queue, from which others take.
pub(crate) async fn give_way() {
    if coop::has_budget_remaining() {
        coop::consume_budget().await;
        // What comes next may want some of it.
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
