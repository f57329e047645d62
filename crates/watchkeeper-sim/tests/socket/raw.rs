//! A client that sees every byte and every reset.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use watchkeeper::clock::Clock;

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection with one request.
pub(crate) struct Raw {
    stream: TcpStream,
    seen: Vec<u8>,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The head in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Raw {
    pub(crate) async fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nuser-agent: raw/1.0\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        Self { stream, seen: Vec::new() }
    }

    /// Reads on; an error is why there is nothing more.
    async fn read(&mut self) -> Result<(), ErrorKind> {
        let read = Clock::system().timeout(PATIENCE, self.stream.read_buf(&mut self.seen)).await;
        match read.unwrap() {
            Ok(0) => Err(ErrorKind::UnexpectedEof),
            Ok(_) => Ok(()),
            Err(error) => Err(error.kind()),
        }
    }

    /// Reads on.
    pub(crate) async fn more(&mut self) {
        self.read().await.unwrap_or_else(|why| panic!("{why:?} after {}", self.text()));
    }

    /// How many bytes were read.
    pub(crate) fn len(&self) -> usize {
        self.seen.len()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Reads until the text has been seen.
    pub(crate) async fn until(&mut self, text: &str) -> String {
        while !self.text().contains(text) {
            self.more().await;
        }
        self.text()
    }

    /// Reads until the connection ends; returns what was read, and why it ended.
    pub(crate) async fn end(mut self) -> (String, ErrorKind) {
        loop {
            if let Err(why) = self.read().await {
                return (self.text(), why);
            }
        }
    }

    /// Reads an answer that has a length; `None` if the connection ends before.
    pub(crate) async fn answer(mut self) -> Option<Answer> {
        loop {
            let text = self.text();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let head = head.to_lowercase();
                let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
                let length: usize = length.unwrap_or_else(|| panic!("no length: {head}")).parse().unwrap();
                if body.len() >= length {
                    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
                    return Some(Answer { status, body: body.to_owned(), head });
                }
            }
            self.read().await.ok()?;
        }
    }
}
