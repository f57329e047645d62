//! A blocking HTTP/1.1 client for a server that may die at any byte: every failure is a result.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Nothing here takes that long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// One connection, kept open for many requests.
pub(crate) struct Connection(BufReader<TcpStream>);

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, what)
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn request(&mut self, method: &str, path: &str, body: &str) -> io::Result<()> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.0.get_mut().write_all(request.as_bytes())
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        line.strip_suffix("\r\n").map(str::to_owned).ok_or_else(|| broken("a line was cut"))
    }

    /// The status and the length of the body; none for a body in chunks.
    fn head(&mut self) -> io::Result<(u16, Option<usize>)> {
        let status = self.line()?;
        let code = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let mut length = None;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                return Ok((code.ok_or_else(|| broken("no status"))?, length));
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok();
            }
        }
    }

    fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Sends a request and reads the whole answer. After an error nobody knows whether the request was carried out.
    pub(crate) fn send(&mut self, method: &str, path: &str, body: &Value) -> io::Result<(u16, Value)> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.request(method, path, &body)?;
        let (code, length) = self.head()?;
        let bytes = self.bytes(length.ok_or_else(|| broken("no length"))?)?;
        Ok((code, serde_json::from_slice(&bytes)?))
    }

    /// Opens a watch.
    pub(crate) fn watch(mut self, path: &str) -> io::Result<Watch> {
        self.request("GET", path, "")?;
        match self.head()? {
            (200, None) => Ok(Watch { connection: self, text: Vec::new() }),
            (code, _) => Err(broken(&format!("a watch was answered with {code}"))),
        }
    }
}

/// An open watch.
pub(crate) struct Watch {
    connection: Connection,
    text: Vec<u8>,
}

impl Watch {
    /// The next event that arrived whole.
    pub(crate) fn next(&mut self) -> io::Result<Value> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return Ok(serde_json::from_slice(&line)?);
            }
            let size = self.connection.line()?;
            let size = usize::from_str_radix(&size, 16).map_err(|_| broken("no size of a chunk"))?;
            if size == 0 {
                return Err(broken("the watch ended"));
            }
            let chunk = self.connection.bytes(size + 2)?;
            self.text.extend_from_slice(&chunk[..size]);
        }
    }
}
