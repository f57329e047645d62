//! When is a client cut that does not read? When it has not taken a byte for some time while there is something for it.
//!
//! A watch costs a cursor and no queue, but also the connection and the state it began with: without an end, clients that were stopped
//! would add up.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use watchkeeper::clock::Clock;

/// How long a client may take none of what is sent to it.
pub(crate) const WRITE_PATIENCE: Duration = Duration::from_secs(30);

/// A stream whose writes fail once they have been stuck for too long.
pub(crate) struct Unstalled<S> {
    stream: S,
    clock: Clock,
    /// Set while a write is stuck.
    alarm: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<S: Unpin> Unstalled<S> {
    pub(crate) fn new(stream: S, clock: Clock) -> Self {
        Self { stream, clock, alarm: None }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut S> {
        Pin::new(&mut self.get_mut().stream)
    }

    fn guard<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.alarm = None;
            return written;
        }
        let alarm = self.alarm.get_or_insert_with(|| {
            let clock = self.clock.clone();
            Box::pin(async move { clock.sleep(WRITE_PATIENCE).await })
        });
        ready!(alarm.as_mut().poll(cx));
        self.alarm = None;
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Unstalled<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unstalled<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.as_mut().stream().poll_write(cx, bytes);
        self.guard(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.as_mut().stream().poll_write_vectored(cx, parts);
        self.guard(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.as_mut().stream().poll_flush(cx);
        if flushed.is_pending() { self.guard(cx, flushed) } else { flushed }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = self.as_mut().stream().poll_shutdown(cx);
        self.guard(cx, closed)
    }
}
