//! A webhook for tests: an HTTPS server on loopback, whose answers the test decides.

use std::convert::Infallible;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::DropGuard;

use crate::common::{OURS, Server, post};
use crate::own;

pub(crate) const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// What the webhook answers to a review.
pub(crate) enum Answer {
    /// This `response`, with the uid of the request.
    Response(Value),
    /// These bytes, with this status.
    Raw(u16, String),
    /// Nothing, ever.
    Nothing,
}

type Handler = dyn Fn(&Value) -> Answer + Send + Sync;

/// A running webhook. Dropping it ends it.
pub(crate) struct Webhook {
    pub(crate) port: u16,
    authority: String,
    /// The requests of all reviews, in order.
    seen: Arc<Mutex<Vec<Value>>>,
    _stop: DropGuard,
}

impl Webhook {
    pub(crate) async fn start(answer: impl Fn(&Value) -> Answer + Send + Sync + 'static) -> Self {
        let names = ["127.0.0.1", "hook.wktest.svc"].map(str::to_owned);
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let config =
            ServerConfig::builder().with_no_client_auth().with_single_cert(vec![cert.der().clone()], key);
        let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, handler): (Arc<Mutex<Vec<Value>>>, Arc<Handler>) = (Arc::default(), Arc::new(answer));
        let stop = tokio_util::sync::CancellationToken::new();
        let (reviews, token) = (seen.clone(), stop.clone());
        tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let socket = tokio::select! {
                    () = token.cancelled() => return,
                    accepted = listener.accept() => accepted.unwrap().0,
                };
                let (acceptor, reviews, handler) = (acceptor.clone(), reviews.clone(), handler.clone());
                connections.spawn(async move {
                    // A client that does not trust the certificate closes the connection.
                    let Ok(stream) = acceptor.accept(socket).await else { return };
                    let serve = service_fn(move |request| review(request, reviews.clone(), handler.clone()));
                    let serving = hyper::server::conn::http1::Builder::new();
                    let _closed = serving.serve_connection(TokioIo::new(stream), serve).await;
                });
            }
        });
        Self { port, authority: STANDARD.encode(cert.pem()), seen, _stop: stop.drop_guard() }
    }

    /// A webhook that answers every review with this response.
    pub(crate) async fn always(response: Value) -> Self {
        Self::start(move |_| Answer::Response(response.clone())).await
    }

    /// The configuration of a webhook `name` for ConfigMaps with the label `wktest`: its value is the webhook's name.
    pub(crate) fn config(&self, name: &str) -> Value {
        json!({
            "name": format!("{name}.wktest.dev"),
            "clientConfig": {"url": format!("https://127.0.0.1:{}/{name}", self.port), "caBundle": self.authority},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
            "objectSelector": {"matchLabels": {OURS: name}},
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
        })
    }

    /// The requests of all reviews so far.
    pub(crate) fn seen(&self) -> Vec<Value> {
        self.seen.lock().clone()
    }
}

async fn review(
    request: Request<Incoming>,
    seen: Arc<Mutex<Vec<Value>>>,
    handler: Arc<Handler>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let request = &review["request"];
    seen.lock().push(request.clone());
    let (code, body) = match handler(request) {
        Answer::Response(mut response) => {
            response["uid"] = request["uid"].clone();
            let answer =
                json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response});
            (200, answer.to_string())
        }
        Answer::Raw(code, body) => (code, body),
        Answer::Nothing => std::future::pending().await,
    };
    Ok(Response::builder().status(code).body(Full::new(body.into())).unwrap())
}

/// A response with a JSON patch.
pub(crate) fn patching(patch: &Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())})
}

/// Registers webhooks; `kind` is `mutating` or `validating`.
pub(crate) async fn register(server: &Server, kind: &str, name: &str, hooks: &[Value]) {
    let body = json!({"metadata": {"name": own(name)}, "webhooks": hooks});
    post(server, &format!("{GROUP}/{kind}webhookconfigurations"), &body).await;
}
