//! The HTTPS client of webhooks: one connection per call.

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use watchkeeper::clock::Clock;

use crate::admission::webhooks::calls::Call;
use crate::failure::quoted;
use crate::kinds::cells::text;
use crate::state::core::Core;

/// The most bytes of an answer.
const LIMIT: usize = 16 << 20;

type BoxError = Box<dyn Error + Send + Sync>;

/// Makes a call. The error says why there is no answer, in the words of the real server where it has some.
pub(super) async fn send(call: &Call, core: &Mutex<Core>, clock: &Clock) -> Result<Bytes, String> {
    let exchanged = clock.timeout(call.timeout, exchange(call, core)).await;
    let failed = |why: &str| format!("Post {}: {why}", quoted(&call.target.url(call.timeout)));
    match exchanged {
        Err(_) => Err(failed("context deadline exceeded")),
        Ok(Err(error)) => Err(failed(&shown(&*error))),
        Ok(Ok((StatusCode::OK | StatusCode::CREATED | StatusCode::ACCEPTED, body))) => Ok(body),
        Ok(Ok((status, body))) => Err(refusal(status, &body)),
    }
}

async fn exchange(call: &Call, core: &Mutex<Core>) -> Result<(StatusCode, Bytes), BoxError> {
    let target = &call.target;
    let (host, port) = target.address(&core.lock())?;
    let shown = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let socket = TcpStream::connect((host.as_str(), port)).await;
    let socket = socket.map_err(|error| format!("dial tcp {shown}: connect: {}", plain(&error)))?;
    let mut roots = RootCertStore::empty();
    for root in target.roots()? {
        roots.add(root)?;
    }
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = ServerName::try_from(target.server_name())?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::post(target.path(call.timeout))
        .header(HOST, target.host())
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, "application/json, */*")
        .header(USER_AGENT, "kube-apiserver-admission")
        .body(Full::new(call.body.clone()))?;
    let mut exchange = pin!(async move {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LIMIT).collect().await?;
        Ok((status, body.to_bytes()))
    });
    let mut connection = pin!(connection);
    let mut open = true;
    loop {
        tokio::select! {
            biased;
            exchanged = &mut exchange => return exchanged,
            // What has arrived before the end is still read.
            _ended = &mut connection, if open => open = false,
        }
    }
}

/// An error and its causes, the innermost alone where it says it all.
fn shown(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    let mut at = Some(error);
    while let Some(error) = at {
        innermost = error;
        if let Some(error) = error.downcast_ref::<std::io::Error>()
            && let Some(inner) = error.get_ref()
        {
            innermost = inner;
        }
        at = innermost.source();
    }
    match innermost.downcast_ref::<rustls::Error>() {
        Some(rustls::Error::InvalidCertificate(why)) => certificate_problem(why),
        _ => innermost.to_string(),
    }
}

fn certificate_problem(why: &rustls::CertificateError) -> String {
    let why = match why {
        rustls::CertificateError::UnknownIssuer => "certificate signed by unknown authority".to_owned(),
        other => other.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

/// An error of the system, in the words of Go.
fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        _ => error.to_string(),
    }
}

/// Why an answer with such a status is none.
fn refusal(status: StatusCode, body: &[u8]) -> String {
    let sent: Value = serde_json::from_slice(body).unwrap_or_default();
    if sent["kind"] == "Status" && !text(&sent["message"]).is_empty() {
        return text(&sent["message"]).to_owned();
    }
    match status.as_u16() {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing \
                the request"
                .to_owned()
        }
        500.. => {
            let body = String::from_utf8_lossy(body);
            let body = body.trim();
            let body = if body.is_empty() { "unknown" } else { body };
            let body: String = body.chars().take(1024).collect();
            format!("an error on the server ({}) has prevented the request from succeeding", quoted(&body))
        }
        code => {
            format!("the server responded with the status code {code} but did not return more information")
        }
    }
}
