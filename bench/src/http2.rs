//! A prototype of a client that speaks HTTP/2, to compare it with the HTTP/1.1 of our own.
//!
//! As there, the task that reads an answer drives its connection, and reads of the socket are large. One connection is
//! kept; it serves one request at a time.

use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use kube_client::Config;
use kube_client::client::{Body, ConfigExt};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::ServiceBuilder;

use crate::informer::Failure;

/// The size of a read of the socket, as our own client has it at most.
const READ: usize = 256 << 10;
/// The largest frame that the server may send; 16 KiB is the least that the protocol allows.
const FRAME: u32 = 1 << 20;
/// How much the server may send before it waits for the reader.
const WINDOW: u32 = 8 << 20;

/// Futures that hyper wants to be run beside the connection.
#[derive(Clone, Default)]
struct Beside(Arc<Mutex<Vec<Pin<Box<dyn Future<Output = ()> + Send>>>>>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Beside {
    fn execute(&self, future: F) {
        self.0.lock().push(Box::pin(future));
    }
}

struct Connection {
    sender: http2::SendRequest<Body>,
    driver: Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>,
    beside: Beside,
    closed: bool,
}

impl Connection {
    fn drive(&mut self, cx: &mut Context<'_>) {
        // Taken out, as a future may add another.
        let mut running = std::mem::take(&mut *self.beside.0.lock());
        running.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        self.beside.0.lock().append(&mut running);
        if !self.closed {
            self.closed = self.driver.as_mut().poll(cx).is_ready();
        }
    }
}

type Kept = Arc<Mutex<Option<Connection>>>;

/// The body of an answer, which drives its connection.
struct Answer {
    body: Incoming,
    connection: Option<Connection>,
    kept: Kept,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let mut frame = Pin::new(&mut this.body).poll_frame(cx);
        if frame.is_pending()
            && let Some(connection) = &mut this.connection
        {
            connection.drive(cx);
            frame = Pin::new(&mut this.body).poll_frame(cx);
        }
        if matches!(frame, Poll::Ready(None)) || this.body.is_end_stream() {
            *this.kept.lock() = this.connection.take().filter(|connection| !connection.closed);
        }
        frame
    }
}

struct Server {
    url: Uri,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
    authorization: Option<HeaderValue>,
    kept: Kept,
}

impl Server {
    async fn open(&self) -> Result<Connection, Failure> {
        let (host, port) = (self.url.host().unwrap_or_default(), self.url.port_u16().unwrap_or(443));
        let socket = TcpStream::connect((host, port)).await?;
        socket.set_nodelay(true)?;
        let socket = BufReader::with_capacity(READ, socket);
        let stream = TlsConnector::from(self.tls.clone()).connect(self.name.clone(), socket).await?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err("the server does not speak HTTP/2".into());
        }
        let beside = Beside::default();
        let (sender, driver) = http2::Builder::new(beside.clone())
            .max_frame_size(FRAME)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(TokioIo::new(stream))
            .await?;
        Ok(Connection { sender, driver: Box::pin(driver), beside, closed: false })
    }

    async fn send(&self, mut request: Request<Body>) -> Result<Response<Answer>, Failure> {
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let kept = self.kept.lock().take();
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.open().await?,
        };
        let mut sender = connection.sender.clone();
        let mut answer = pin!(sender.send_request(request));
        let answer = poll_fn(|cx| {
            connection.drive(cx);
            answer.as_mut().poll(cx)
        });
        let (head, body) = answer.await?.into_parts();
        let body = Answer { body, connection: Some(connection), kept: self.kept.clone() };
        Ok(Response::from_parts(head, body))
    }
}

/// Returns kube's client of the server of a kubeconfig, over HTTP/2.
pub(crate) async fn connect(kubeconfig: &Path) -> Result<kube_client::Client, Failure> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    // Loading resolves a token file, too.
    let token = config.auth_info.token.as_ref();
    let bearer = token.map(|token| format!("Bearer {}", secrecy::ExposeSecret::expose_secret(token)));
    let host = config.cluster_url.host().unwrap_or_default().to_owned();
    let server = Arc::new(Server {
        url: config.cluster_url.clone(),
        name: ServerName::try_from(host)?,
        tls: Arc::new(tls),
        authorization: bearer.map(HeaderValue::try_from).transpose()?,
        kept: Kept::default(),
    });
    let service = tower::service_fn(move |request| {
        let server = server.clone();
        async move { server.send(request).await }.boxed()
    });
    let service = ServiceBuilder::new().layer(config.base_uri_layer()).service(service);
    Ok(kube_client::Client::new(service, config.default_namespace.clone()))
}
