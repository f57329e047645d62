//! The way from a program to the embedded server, which can be closed in several ways.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};
use kube_client::client::Body;
use tokio::sync::watch;
use tower::ServiceExt;
use watchkeeper::{Client, Env};
use watchkeeper_apiserver::ApiService;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What happens to requests for a part of the API.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Way {
    #[default]
    Open,
    /// They are forbidden.
    Forbidden,
    /// The server answers with an error.
    Broken,
    /// No connection comes about.
    Refused,
    /// Watches deliver nothing.
    Silent,
    /// There is no answer.
    Hanging,
}

/// The ways, and the paths that they are about.
#[derive(Clone, Debug)]
pub(crate) struct Net(Arc<watch::Sender<Vec<(Way, &'static str)>>>);

/// Returns the way of requests for `path`.
fn way(ways: &[(Way, &str)], path: &str) -> Way {
    ways.iter().find(|(_, paths)| path.contains(paths)).map(|(way, _)| *way).unwrap_or_default()
}

impl Net {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }

    /// From now on, requests whose path contains `paths` go this way, and all others the open one.
    pub(crate) fn set(&self, way: Way, paths: &'static str) {
        self.0.send_replace(vec![(way, paths)]);
    }

    /// From now on, requests whose path contains `paths` go this way, too.
    pub(crate) fn also(&self, way: Way, paths: &'static str) {
        self.0.send_modify(|ways| ways.push((way, paths)));
    }

    /// A client that goes this way to a server.
    pub(crate) fn client(&self, service: ApiService, env: &Env) -> Client {
        let net = self.clone();
        let guarded = tower::service_fn(move |request: Request<Body>| {
            let (service, net) = (service.clone(), net.clone());
            async move { net.pass(service, request).await }
        });
        Client::from_kube(kube_client::Client::new(guarded, "default"), env)
    }

    async fn pass(
        &self,
        service: ApiService,
        request: Request<Body>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError> {
        let path = request.uri().path().to_owned();
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        let way_now = way(&self.0.borrow(), &path);
        let refuse = |code: u16, reason: &str, message: &str| {
            let status = format!(
                r#"{{"kind":"Status","status":"Failure","code":{code},"reason":"{reason}","message":"{message}"}}"#
            );
            let body = Full::from(status).map_err(|never| match never {}).boxed_unsync();
            Ok(Response::builder().status(code).body(body).unwrap())
        };
        match way_now {
            Way::Forbidden => return refuse(403, "Forbidden", "it is forbidden"),
            Way::Broken => return refuse(500, "InternalError", "etcd is broken"),
            Way::Refused => return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()),
            Way::Hanging => {
                let mut changes = self.0.subscribe();
                changes.wait_for(|ways| way(ways, &path) != Way::Hanging).await.ok();
            }
            Way::Open | Way::Silent => {}
        }
        let response = service.oneshot(request).await?;
        if !is_watch {
            return Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()));
        }
        let changes = self.0.subscribe();
        Ok(response.map(|body| {
            let frames = BodyStream::new(body).then(move |frame| {
                let (mut changes, path) = (changes.clone(), path.clone());
                async move {
                    changes.wait_for(|ways| way(ways, &path) != Way::Silent).await.ok();
                    frame.map_err(BoxError::from)
                }
            });
            StreamBody::new(frames).boxed_unsync()
        }))
    }
}
