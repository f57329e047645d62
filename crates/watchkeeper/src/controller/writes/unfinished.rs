//! Requests that outlive the run that sent them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{Key, Shared};

/// Runs `request` to its end. If the returned future is dropped before that, the request goes on in the background: the server
/// may have acted on it, and only its end tells. The key is not handed out meanwhile.
pub(super) async fn finish<T: Key + Sync, R: Send + 'static>(
    shared: Arc<Shared<T>>,
    key: T,
    request: impl Future<Output = R> + Send + 'static,
) -> R {
    let in_flight = InFlight::new(shared.clone(), key);
    let (done, answer) = oneshot::channel();
    let request: BoxFuture<'static, ()> = Box::pin(async move {
        let _in_flight = in_flight;
        // Nobody waits for the answer of a request whose run was dropped.
        let _dropped = done.send(request.await);
    });
    Unfinished { request: Some(request), shared }.await;
    match answer.await {
        Ok(answer) => answer,
        Err(_) => unreachable!("a request that has ended has sent its answer"),
    }
}

/// Counts a request against its key, and wakes the key at the end of the last one.
struct InFlight<T: Key + Sync> {
    shared: Arc<Shared<T>>,
    key: T,
}

impl<T: Key + Sync> InFlight<T> {
    fn new(shared: Arc<Shared<T>>, key: T) -> Self {
        shared.change(|state| state.keys.entry(key.clone()).or_default().in_flight += 1);
        Self { shared, key }
    }
}

impl<T: Key + Sync> Drop for InFlight<T> {
    fn drop(&mut self) {
        let is_last = self.shared.change(|state| {
            if let Some(open) = state.keys.get_mut(&self.key) {
                open.in_flight -= 1;
            }
            state.open(&self.key).is_none_or(|open| open.in_flight == 0)
        });
        if is_last {
            self.shared.queue.unpark(&self.key);
        }
    }
}

/// A request that is handed to the background when it is dropped before its end.
struct Unfinished<T: Key> {
    request: Option<BoxFuture<'static, ()>>,
    shared: Arc<Shared<T>>,
}

impl<T: Key> Future for Unfinished<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(request) = &mut self.request else { return Poll::Ready(()) };
        let poll = request.as_mut().poll(context);
        if poll.is_ready() {
            self.request = None;
        }
        poll
    }
}

impl<T: Key> Drop for Unfinished<T> {
    fn drop(&mut self) {
        // Without a runtime nothing goes on: the program is at its end.
        if let (Some(request), Ok(runtime)) = (self.request.take(), Handle::try_current()) {
            let mut unfinished = self.shared.unfinished.lock();
            while unfinished.try_join_next().is_some() {}
            unfinished.spawn_on(request, &runtime);
        }
    }
}
