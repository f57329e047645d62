//! Watches that end, between two events, once the credentials they were opened with have been replaced.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;

use super::ByteStream;
use crate::wire::ApiError;

/// Returns `watch`, which ends when `renewal` is over and no event is incomplete: the next watch continues from the
/// last event, so nothing is lost and nothing is listed again.
pub(super) fn until_renewed(
    watch: ByteStream,
    renewal: impl Future<Output = ()> + Send + 'static,
) -> ByteStream {
    Box::pin(UntilRenewed { watch, renewal: Box::pin(renewal), is_between: true })
}

struct UntilRenewed {
    watch: ByteStream,
    renewal: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Whether the last event is complete: each ends with a line break.
    is_between: bool,
}

impl Stream for UntilRenewed {
    type Item = Result<Bytes, ApiError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Poll::Ready(next) = this.watch.as_mut().poll_next(cx) {
            if let Some(Ok(chunk)) = &next
                && let Some(last) = chunk.last()
            {
                this.is_between = *last == b'\n';
            }
            return Poll::Ready(next);
        }
        if this.is_between {
            ready!(this.renewal.as_mut().poll(cx));
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use tokio::sync::{mpsc, oneshot};

    use super::*;

    #[tokio::test]
    async fn a_watch_ends_after_the_event_during_which_credentials_were_renewed() {
        let (send, mut receive) = mpsc::unbounded_channel();
        let watch = futures::stream::poll_fn(move |cx| receive.poll_recv(cx));
        let (renew, renewed) = oneshot::channel::<()>();
        let mut watch = until_renewed(Box::pin(watch), async { drop(renewed.await) });
        let mut chunk = async |text: &'static str| {
            send.send(Ok(Bytes::from(text))).unwrap();
            watch.next().await.map(|chunk| chunk.unwrap())
        };
        assert_eq!(chunk("{}\n{").await.unwrap(), "{}\n{");
        renew.send(()).unwrap();
        assert_eq!(chunk("}").await.unwrap(), "}", "an event is incomplete");
        assert_eq!(chunk("\n").await.unwrap(), "\n");
        assert!(watch.next().await.is_none());
    }
}
