//! Request bodies: collected within a size limit and a timeout; large ones take turns.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::OwnedSemaphorePermit;
use watchkeeper::clock::Clock;

use crate::failure::{Failure, Result};
use crate::http::handler::Call;
use crate::http::shared::Shared;

const LIMIT: usize = 3 * 1024 * 1024;

/// The timeout for a body: the request timeout of the real server.
const PATIENCE: Duration = Duration::from_secs(60);

/// The size above which a body or an object is large.
pub(crate) const LARGE: usize = 64 * 1024;

/// The maximum number of large bodies processed concurrently.
pub(super) const LARGE_AT_ONCE: usize = 4;

/// The maximum number of bytes of large bodies that wait for a permit.
pub(super) const LARGE_WAITING: usize = 64 << 20;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request, as any server or client library provides it.
pub(crate) trait RequestBody: Body<Data = Bytes, Error: Into<BoxError>> + Send {}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Send> RequestBody for B {}

impl Call {
    /// Returns the whole body, and keeps it for a request that starts over.
    pub(super) async fn read_body(&self, body: impl RequestBody) -> Result<Bytes> {
        let read = collect(&self.shared.clock, body).await?;
        // Only requests over a socket wait: in process nobody else would be served meanwhile.
        if self.stop.is_some() && read.len() > LARGE && self.turn.get().is_none() {
            let turn = self.shared.large_turn(read.len()).await?;
            // No permit was set before.
            let _set = self.turn.set(turn);
        }
        Ok(self.body.get_or_init(|| read).clone())
    }
}

impl Shared {
    /// Waits for the turn of a request with a large body. Refused if too much is waiting already.
    async fn large_turn(&self, bytes: usize) -> Result<OwnedSemaphorePermit> {
        if let Ok(turn) = self.large.clone().try_acquire_owned() {
            return Ok(turn);
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let waiting = self.waiting.try_acquire_many(bytes).map_err(|_| Failure::too_many_requests());
        let _waiting = waiting?;
        self.large.clone().acquire_owned().await.map_err(|closed| Failure::internal(closed.to_string()))
    }
}

/// Collects a body, within the size limit and the timeout.
async fn collect(clock: &Clock, body: impl RequestBody) -> Result<Bytes> {
    // On the heap, as every future of the request is as large as what it waits for.
    let mut reading = Box::pin(Limited::new(body, LIMIT).collect());
    let read = match poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await {
        Poll::Ready(read) => Ok(read),
        Poll::Pending => Box::pin(clock.timeout(PATIENCE, reading)).await,
    };
    let Ok(read) = read else {
        return Err(Failure::bad_request(format!("the body did not arrive within {PATIENCE:?}")));
    };
    match read {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Failure::too_large(LIMIT)),
        Err(error) => Err(Failure::bad_request(format!("the body could not be read: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use parking_lot::Mutex;
    use watchkeeper::Env;

    use super::*;
    use crate::access::tokens::Tokens;
    use crate::state::core::Core;

    #[test]
    fn large_bodies_that_wait_are_bounded_in_bytes() {
        let env = Env::simulated(1);
        let tokens = Tokens::new(&[7; 32], &env.clock);
        let shared = Shared::new(&env, std::sync::Arc::new(Mutex::new(Core::new(&env, 10))), None, tokens);
        let turns: Vec<_> = (0..LARGE_AT_ONCE)
            .map(|_| shared.large_turn(LARGE_WAITING + 1).now_or_never().unwrap().unwrap())
            .collect();
        let mut waiting = Box::pin(shared.large_turn(LARGE_WAITING - 1));
        assert!(waiting.as_mut().now_or_never().is_none());
        let refused = shared.large_turn(2).now_or_never().unwrap().unwrap_err();
        let details = refused.details.as_ref().unwrap();
        assert_eq!((refused.code, refused.reason, details.retry_after), (429, "TooManyRequests", 1));
        drop(turns);
        assert!(waiting.as_mut().now_or_never().unwrap().is_ok());
        drop(waiting);
        assert_eq!(shared.waiting.available_permits(), LARGE_WAITING);
    }
}
