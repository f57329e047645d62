//! A stream that reads ahead, for a reader that asks for little at a time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The size of the buffer while little arrives.
const SMALL: usize = 8 << 10;
/// The size of the buffer while it is filled by every read.
const LARGE: usize = 256 << 10;

/// A stream whose reads are as large as what has arrived, up to a bound.
///
/// TLS reads 4 KiB at a time, which is one system call for each of them. The buffer doubles while reads fill it, and
/// shrinks while they do not, so that idle watches are small.
pub(super) struct ReadAhead<S> {
    stream: S,
    buffer: Vec<u8>,
    /// The unread part of the buffer.
    unread: std::ops::Range<usize>,
    /// The number of bytes of the last read from the stream.
    last: usize,
}

impl<S: AsyncRead + Unpin> ReadAhead<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, buffer: vec![0; SMALL], unread: 0..0, last: SMALL / 2 }
    }

    /// Reads from the stream into the empty buffer. Leaves it empty at the end of the stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let size = self.buffer.len();
        let wanted = match self.last {
            full if full == size => LARGE.min(size * 2),
            little if little < size / 4 => SMALL.max(size / 2),
            _ => size,
        };
        if wanted != size {
            self.buffer = vec![0; wanted];
            self.last = wanted / 2;
        }
        let mut space = ReadBuf::new(&mut self.buffer);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut space))?;
        self.last = space.filled().len();
        self.unread = 0..self.last;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.unread.is_empty() {
            ready!(this.poll_fill(cx))?;
        }
        let unread = &this.buffer[this.unread.clone()];
        let taken = unread.len().min(buffer.remaining());
        buffer.put_slice(&unread[..taken]);
        this.unread.start += taken;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadAhead<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    /// A stream of `left` numbered bytes that counts its reads.
    struct Numbered {
        left: usize,
        next: u8,
        reads: usize,
    }

    impl AsyncRead for Numbered {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.reads += 1;
            for _ in 0..self.left.min(buffer.remaining()) {
                buffer.put_slice(&[self.next]);
                self.next = self.next.wrapping_add(1);
                self.left -= 1;
            }
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn small_reads_take_few_reads_of_the_stream_and_lose_nothing() {
        let bytes = 10 << 20;
        let mut ahead = ReadAhead::new(Numbered { left: bytes, next: 0, reads: 0 });
        let (mut part, mut all) = (vec![0; 4096], Vec::new());
        loop {
            let read = ahead.read(&mut part).await.unwrap();
            if read == 0 {
                break;
            }
            all.extend_from_slice(&part[..read]);
        }
        assert_eq!(all.len(), bytes);
        assert!(all.iter().enumerate().all(|(at, byte)| *byte == at as u8));
        assert!(ahead.stream.reads < 60, "{} reads", ahead.stream.reads);
    }

    #[tokio::test]
    async fn a_stream_that_brings_little_has_a_small_buffer_again() {
        let mut ahead = ReadAhead::new(Numbered { left: 1 << 20, next: 0, reads: 0 });
        ahead.read_exact(&mut vec![0; 1 << 20]).await.unwrap();
        assert_eq!(ahead.buffer.len(), LARGE);
        for _ in 0..20 {
            ahead.stream.left = 1;
            ahead.read_exact(&mut [0]).await.unwrap();
        }
        assert_eq!(ahead.buffer.len(), SMALL);
    }
}
