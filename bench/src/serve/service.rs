//! The API of the server: a function from request to response, with bodies produced on demand.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde_json::json;
use tokio::sync::watch;
use watchkeeper::clock::Clock;

use super::list::Page;
use super::options::{Options, OptionsError};
use super::watch::{Pace, Watch};
use super::world::{Stage, World};

/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What an API server without streaming lists answers: clients go back to a list.
const NO_STREAMING: OptionsError = OptionsError::Invalid(
    "sendInitialEvents: Forbidden: this server has no streaming lists: list, then watch",
);

/// The API of the server, without a socket.
///
/// ```
/// # use bench::serve::{Service, World};
/// # use watchkeeper::clock::{Clock, Generator};
/// let service = Service::new(World::synthetic(10, 5, &Generator::seeded(1)), Clock::system());
/// let request = http::Request::get("/api/v1/pods?limit=3").body(()).unwrap();
/// assert_eq!(service.handle(&request).status(), 200);
/// ```
#[derive(Debug)]
pub struct Service {
    world: Arc<World>,
    stage: watch::Sender<Stage>,
    clock: Clock,
    streaming: bool,
    pace: Option<Pace>,
}

impl Service {
    /// A service for `world`, whose events wait for `GET /start`.
    pub fn new(world: World, clock: Clock) -> Self {
        let stage = watch::Sender::new(Stage::default());
        Self { world: Arc::new(world), stage, clock, streaming: true, pace: None }
    }

    /// Whether a watch with `sendInitialEvents=true` is served, as it is by default, or refused as by an API server without streaming lists.
    pub fn streaming(mut self, streaming: bool) -> Self {
        self.streaming = streaming;
        self
    }

    /// Sends events no faster than `pace` says; without one, as fast as clients take them.
    pub fn paced(mut self, pace: Pace) -> Self {
        self.pace = Some(pace);
        self
    }

    /// What is served.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The answer to `request`. Only its method, path and query matter.
    pub fn handle<B>(&self, request: &Request<B>) -> Response<Body> {
        if request.method() != Method::GET {
            return refusal(
                StatusCode::METHOD_NOT_ALLOWED,
                "MethodNotAllowed",
                "this server only answers GET",
            );
        }
        match request.uri().path() {
            "/api/v1/pods" => self.pods(request.uri().query().unwrap_or_default()),
            "/start" => {
                let is_first = self.stage.borrow().started.is_none();
                self.advance(|_| {});
                plain("text/plain", if is_first { "started" } else { "already started" })
            }
            "/expire" => self.forget(false),
            "/change" => self.forget(true),
            "/healthz" | "/livez" | "/readyz" => plain("text/plain", "ok"),
            "/version" => plain(
                "application/json",
                r#"{"major":"1","minor":"36","gitVersion":"v1.36.0+bench","platform":"linux/amd64"}"#,
            ),
            _ => {
                refusal(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
            }
        }
    }

    /// Starts the events, where they have not begun, and goes on to another stage.
    fn advance(&self, next: impl FnOnce(&mut Stage)) {
        let now = self.clock.now();
        self.stage.send_modify(|stage| {
            stage.started.get_or_insert(now);
            next(stage);
        });
    }

    /// Ends all watches, as their versions and all before are served no more: clients have to list again. Answers with the version that they
    /// will find, under which Pods are as they were, or all `changed`.
    fn forget(&self, changed: bool) -> Response<Body> {
        self.advance(|stage| {
            stage.forgotten += 1;
            stage.changed = if changed { stage.forgotten } else { stage.changed };
        });
        plain("text/plain", self.world.list_version(&self.stage.borrow()).to_string())
    }

    fn pods(&self, query: &str) -> Response<Body> {
        let options = match Options::parse(query) {
            Ok(Options { initial_events: Some(true), .. }) if !self.streaming => Err(NO_STREAMING),
            parsed => parsed,
        };
        let options = match options {
            Ok(options) => options,
            Err(error) => {
                let (code, reason) = error.code();
                return refusal(code, reason, &error.to_string());
            }
        };
        let stage = *self.stage.borrow();
        let version = self.world.list_version(&stage);
        let is_future = options.resource_version > version;
        if is_future && (!options.watch || options.initial_events == Some(true)) {
            let mut response = refusal(StatusCode::GATEWAY_TIMEOUT, "Timeout", "Too large resource version");
            response.headers_mut().insert(RETRY_AFTER, http::HeaderValue::from_static("1"));
            return response;
        }
        if options.watch {
            let (world, clock) = (self.world.clone(), self.clock.clone());
            let watch = Watch::new(world, clock, self.stage.subscribe(), self.pace.clone(), &options);
            return streamed(stream::unfold(watch, async |mut watch| Some((watch.frame().await?, watch))));
        }
        let (stage, start) = match options.from {
            // A list goes on in the state in which it began.
            Some(from) if from.resource_version == version => (stage, from.start),
            Some(from) if from.resource_version == World::BEFORE && stage.forgotten == 0 => {
                (Stage::default(), from.start)
            }
            Some(_) => {
                return refusal(StatusCode::GONE, "Expired", "the provided continue parameter is too old");
            }
            None => (stage, 0),
        };
        let page = Page::new(self.world.clone(), stage, start, options.limit);
        streamed(stream::unfold(page, async |mut page| Some((page.frame()?, page))))
    }
}

fn streamed(frames: impl futures::Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    use futures::StreamExt;
    respond(
        StatusCode::OK,
        "application/json",
        StreamBody::new(frames.map(|bytes| Ok(Frame::data(bytes)))).boxed_unsync(),
    )
}

fn plain(content_type: &'static str, body: impl Into<Full<Bytes>>) -> Response<Body> {
    respond(StatusCode::OK, content_type, body.into().boxed_unsync())
}

fn refusal(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    respond(code, "application/json", Full::from(status(code.as_u16(), reason, message)).boxed_unsync())
}

fn respond(code: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}

/// Returns a Status of the API that describes a failure.
pub(super) fn status(code: u16, reason: &str, message: &str) -> String {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    })
    .to_string()
}
