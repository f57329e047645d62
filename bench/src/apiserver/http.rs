//! A minimal blocking HTTP/1.1 client for answers with a length.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;

use crate::informer::Failure;

/// One connection, kept open for many requests.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// The bytes of a request.
pub(crate) fn request(method: &str, path: &str, content_type: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; 64 * 1024] })
    }

    /// Sends a request and reads its whole answer, which must be a success.
    pub(crate) fn send(&mut self, request: &str) -> Result<(), Failure> {
        let (body, length) = self.begin(request)?;
        let mut left = length.saturating_sub(body.len());
        while left > 0 {
            left = left.saturating_sub(self.read(0)?);
        }
        Ok(())
    }

    /// Sends a request and returns the body of its answer, which must be a success.
    pub(crate) fn text(&mut self, request: &str) -> Result<String, Failure> {
        let (body, length) = self.begin(request)?;
        let mut body = self.buffer[body].to_vec();
        while body.len() < length {
            let read = self.read(0)?;
            body.extend_from_slice(&self.buffer[..read]);
        }
        Ok(String::from_utf8(body)?)
    }

    /// Sends a request and reads the head of its answer. Returns where the buffer has the beginning of the body, and the
    /// length of the whole body.
    fn begin(&mut self, request: &str) -> Result<(Range<usize>, usize), Failure> {
        self.stream.write_all(request.as_bytes())?;
        let mut filled = 0;
        let (head, length) = loop {
            filled += self.read(filled)?;
            if let Some(end) = self.buffer[..filled].windows(4).position(|four| four == b"\r\n\r\n") {
                break (end + 4, length(&self.buffer[..end])?);
            }
        };
        if !self.buffer.starts_with(b"HTTP/1.1 20") {
            return Err(format!("refused: {}", String::from_utf8_lossy(&self.buffer[..filled])).into());
        }
        Ok((head..filled, length))
    }

    fn read(&mut self, at: usize) -> Result<usize, Failure> {
        match self.stream.read(&mut self.buffer[at..])? {
            0 => Err("the server closed the connection, or its head is too long".into()),
            read => Ok(read),
        }
    }
}

fn length(head: &[u8]) -> Result<usize, Failure> {
    let text = std::str::from_utf8(head)?.to_ascii_lowercase();
    let line = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    Ok(line.ok_or("an answer without a length")?.trim().parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_found_in_any_case() {
        assert_eq!(length(b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 12").unwrap(), 12);
        assert!(length(b"HTTP/1.1 200 OK").is_err());
    }
}
