//! A time limit on writes to a client that does not read.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock::Clock;

/// A stream whose writes fail once the other side has not accepted a byte for some time while there is data for it.
///
/// For servers: otherwise clients that stopped reading in the middle of an answer would add up.
pub struct Unstalled<S> {
    stream: S,
    clock: Clock,
    patience: Duration,
    /// Set while a write is stuck.
    alarm: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<S: Unpin> Unstalled<S> {
    /// Returns `stream` with writes that may be stuck for `patience`.
    pub fn new(stream: S, clock: Clock, patience: Duration) -> Self {
        Self { stream, clock, patience, alarm: None }
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
            let (clock, patience) = (self.clock.clone(), self.patience);
            Box::pin(async move { clock.sleep(patience).await })
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

impl<S> fmt::Debug for Unstalled<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unstalled").field("is_stuck", &self.alarm.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_fails_once_nothing_was_taken_for_the_whole_patience() {
        let (clock, patience) = (Clock::system(), Duration::from_secs(10));
        let (mut client, server) = tokio::io::duplex(4);
        let mut server = Unstalled::new(server, clock.clone(), patience);
        let began = clock.now();
        let slow_client = async {
            clock.sleep(patience - Duration::from_secs(1)).await;
            client.read_exact(&mut [0; 4]).await
        };
        let (written, read) = tokio::join!(server.write_all(b"12345678abcd"), slow_client);
        // Four bytes fit at once, four more after nine seconds; the last four wait ten seconds from then on.
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!((read.unwrap(), (clock.now() - began).as_secs()), (4, 19));
    }
}
