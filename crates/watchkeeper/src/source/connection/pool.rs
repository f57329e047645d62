//! HTTP/1.1 connections without tasks of their own: the task that reads an answer drives its connection.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kube_client::client::Body;
use parking_lot::Mutex;
use tower::BoxError;

use super::super::credentials::Presented;
use super::dial::{Dialer, Socket};
use crate::clock::{Clock, Instant};
use crate::wire::CannotConnect;

/// The time for which a connection is kept for the next request.
const KEPT: Duration = Duration::from_secs(90);
/// The maximum number of connections that are kept.
const MAX_KEPT: usize = 64;

/// The connections to one server. Clones share them.
///
/// A request takes a kept connection or opens one. Its answer owns the connection and returns it when it has been read
/// to the end. A kept connection is not driven: whether it is still open is checked when it is taken.
#[derive(Clone)]
pub(super) struct Pool(Arc<Shared>);

struct Shared {
    dialer: Dialer,
    clock: Clock,
    /// Those not in use, the last used at the end, with the time since when.
    kept: Mutex<VecDeque<(Instant, Connection)>>,
}

/// One HTTP/1.1 connection.
struct Connection {
    sender: SendRequest<Body>,
    /// Reads and writes the socket. `None` once the connection is closed.
    driver: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
    /// The number of the credentials that it was opened with.
    number: u64,
}

impl Pool {
    pub(super) fn new(dialer: Dialer, clock: &Clock) -> Self {
        Self(Arc::new(Shared { dialer, clock: clock.clone(), kept: Mutex::default() }))
    }

    /// Sends a request and returns its answer, whose body is still to be read. A connection that was opened with other
    /// credentials than `presented` is not used.
    pub(super) async fn send(
        self,
        request: Request<Body>,
        presented: &Presented,
    ) -> Result<Response<Answer>, BoxError> {
        let mut request = in_origin_form(request);
        while let Some(mut connection) = self.take(presented.number) {
            match connection.exchange(request).await {
                Ok(answer) => return Ok(self.answered(answer, connection)),
                // The connection was closed before anything was written to it.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        let mut connection = self.open(presented).await.map_err(CannotConnect)?;
        let answer = connection.exchange(request).await.map_err(TrySendError::into_error)?;
        Ok(self.answered(answer, connection))
    }

    fn answered(self, answer: Response<Incoming>, connection: Connection) -> Response<Answer> {
        answer.map(|body| Answer { body: Some(body), connection: Some(connection), pool: self })
    }

    /// Returns the connection that was used last among those that are open, with the credentials of that number.
    fn take(&self, number: u64) -> Option<Connection> {
        loop {
            let (_, mut connection) = {
                let mut kept = self.0.kept.lock();
                self.forget_old(&mut kept);
                kept.pop_back()?
            };
            if connection.number == number && connection.is_reusable() {
                return Some(connection);
            }
        }
    }

    fn keep(&self, connection: Connection) {
        let mut kept = self.0.kept.lock();
        self.forget_old(&mut kept);
        if kept.len() == MAX_KEPT {
            kept.pop_front();
        }
        kept.push_back((self.0.clock.now(), connection));
    }

    fn forget_old(&self, kept: &mut VecDeque<(Instant, Connection)>) {
        let now = self.0.clock.now();
        while kept.front().is_some_and(|(since, _)| *since + KEPT <= now) {
            kept.pop_front();
        }
    }

    async fn open(&self, presented: &Presented) -> Result<Connection, BoxError> {
        let stream: Socket = self.0.dialer.dial(presented.tls.clone()).await?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
        let number = presented.number;
        Ok(Connection { sender, driver: Some(Box::pin(driver.with_upgrades())), number })
    }
}

impl Connection {
    /// Sends a request and reads the head of its answer.
    async fn exchange(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        let mut answer = pin!(self.sender.try_send_request(request));
        poll_fn(|cx| {
            drive(&mut self.driver, cx);
            answer.as_mut().poll(cx)
        })
        .await
    }

    /// Returns whether the connection is open and idle.
    fn is_reusable(&mut self) -> bool {
        drive(&mut self.driver, &mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.sender.is_ready()
    }
}

/// Reads and writes as far as possible. A failure reaches the reader of the answer, so it is not returned here.
fn drive(driver: &mut Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>, cx: &mut Context<'_>) {
    if driver.as_mut().is_some_and(|driver| driver.as_mut().poll(cx).is_ready()) {
        *driver = None;
    }
}

/// The body of an answer. Reading it drives its connection, which is kept for another request once it has been read to
/// the end, and closed if it is dropped before.
pub(crate) struct Answer {
    /// `None` once it has ended.
    body: Option<Incoming>,
    connection: Option<Connection>,
    pool: Pool,
}

impl Answer {
    /// Ends the answer.
    fn release(&mut self) {
        self.body = None;
        if let Some(mut connection) = self.connection.take()
            && connection.is_reusable()
        {
            self.pool.keep(connection);
        }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        // What wakes this task is the connection: the body changes only when that is driven.
        let mut asleep = Context::from_waker(Waker::noop());
        let mut frame = Pin::new(&mut *body).poll_frame(&mut asleep);
        if frame.is_pending()
            && let Some(connection) = &mut this.connection
        {
            drive(&mut connection.driver, cx);
            frame = Pin::new(body).poll_frame(&mut asleep);
        }
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            this.release();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.release();
    }
}

/// Returns a request as an HTTP/1.1 server expects it: the path in the first line, the server in the header `Host`.
fn in_origin_form(mut request: Request<Body>) -> Request<Body> {
    let path = request.uri().path_and_query().cloned().map_or_else(Uri::default, Uri::from);
    let server = mem::replace(request.uri_mut(), path);
    if let Some(host) = host_header(&server) {
        request.headers_mut().entry(HOST).or_insert(host);
    }
    request
}

/// Returns the server of a URL, with its port unless that is the default.
fn host_header(server: &Uri) -> Option<HeaderValue> {
    let host = server.host()?;
    let default = if server.scheme_str() == Some("https") { 443 } else { 80 };
    match server.port_u16().filter(|port| *port != default) {
        Some(port) => HeaderValue::try_from(format!("{host}:{port}")).ok(),
        None => HeaderValue::try_from(host).ok(),
    }
}

#[cfg(test)]
mod tests;
