//! The page for people, at `/` of the admin server: how the controllers, their keys and the informers are.
//!
//! Each view is a file that turns one answer of [`ExplainSource`] into HTML. `live.rs` sends a view again and again while a
//! browser shows it, `samples.rs` remembers the figures of the last minutes for the charts, and `frame.rs` is around all views.

mod ask;
mod assets;
mod chart;
mod controller;
mod frame;
mod informers;
mod key;
mod links;
mod live;
mod overview;
mod respond;
mod samples;
mod words;

use std::sync::Arc;

use http::header::ACCEPT;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use maud::Markup;
use percent_encoding::percent_decode_str;
use tokio_util::sync::CancellationToken;

use self::frame::{Frame, Tab};
pub(super) use self::links::explain as explain_link;
use self::live::Streams;
pub(super) use self::respond::{Body, whole};
use self::samples::Samples;
use crate::env::Env;
use crate::explain::{ExplainError, ExplainSource};

/// The page of a program.
pub(super) struct Page {
    source: Arc<dyn ExplainSource>,
    samples: Samples,
    streams: Streams,
    /// Whether objects can be reconciled on request.
    has_actions: bool,
    env: Env,
}

/// What a URL asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum View {
    Overview,
    Controller { name: String, query: String },
    Key { kind: String, key: String },
    Informers,
}

/// The contents of a view, without the frame.
struct Shown {
    title: String,
    tab: Option<Tab>,
    status: StatusCode,
    content: Markup,
}

impl Page {
    pub(super) fn new(source: Arc<dyn ExplainSource>, has_actions: bool, env: &Env) -> Arc<Self> {
        let (samples, streams) = (Samples::default(), Streams::default());
        Arc::new(Self { source, samples, streams, has_actions, env: env.clone() })
    }

    /// Takes samples for the charts, for ever.
    pub(super) async fn sample(&self) {
        loop {
            // A source may be user code.
            if let Some(overview) = self.env.reporter.guard("admin", "samples", || self.source.overview()) {
                self.samples.take(&overview, self.env.clock.now());
            }
            self.env.clock.sleep(samples::EVERY).await;
        }
    }

    /// Returns the answer to a request for a view or a file of the page; none if the URL is neither. `active` is called whenever
    /// something is sent on a stream, which ends with `stop`.
    pub(super) fn answer(
        self: &Arc<Self>,
        request: &Request<Incoming>,
        stop: &CancellationToken,
        active: impl Fn() + Send + 'static,
    ) -> Option<Response<Body>> {
        let (method, path, query) = (request.method(), request.uri().path(), request.uri().query());
        if !matches!(*method, Method::GET | Method::HEAD) {
            return None;
        }
        if let Some(file) = assets::file(path) {
            return Some(file);
        }
        let view = View::of(path, query.unwrap_or_default())?;
        if method == Method::GET && accepts_events(request.headers()) {
            return Some(live::answer(self, view, stop.clone(), active));
        }
        let Shown { title, tab, status, content } = self.show(&view);
        let url = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
        let at = self.env.clock.wall().strftime("%H:%M:%S UTC").to_string();
        let program = self.source.program();
        let frame = Frame { program: &program, title: &title, tab, url: &url, at: &at };
        Some(respond::html(status, frame.around(&content)))
    }

    fn show(&self, view: &View) -> Shown {
        let now = self.env.clock.wall();
        match view {
            View::Overview => overview::show(&self.source.overview(), &self.samples),
            View::Controller { name, query } => controller::show(self, name, query),
            View::Key { kind, key } => match self.source.explain(kind, key) {
                Ok(explanation) => key::show(&explanation, self.has_actions),
                Err(error) => {
                    // What may be meant is asked for the same key, or for the same kind.
                    let meant = |what: &str| match &error {
                        ExplainError::ClusterScoped { .. } => Some(links::explain(kind, what)),
                        _ => Some(links::explain(what, key)).filter(|_| !key.is_empty()),
                    };
                    not_answered(self, &error, meant)
                }
            },
            View::Informers => informers::show(&self.source.informers(), now),
        }
    }
}

impl View {
    fn of(path: &str, query: &str) -> Option<Self> {
        let parameter = |name: &str| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned()).unwrap_or_default()
        };
        match path {
            "/" | "" => Some(Self::Overview),
            "/informers" => Some(Self::Informers),
            "/explain" => Some(Self::Key { kind: parameter("kind"), key: parameter("key") }),
            _ => {
                let name = path
                    .strip_prefix("/controllers/")
                    .filter(|name| !name.is_empty() && !name.contains('/'))?;
                let name = percent_decode_str(name).decode_utf8_lossy().into_owned();
                Some(Self::Controller { name, query: query.to_owned() })
            }
        }
    }
}

/// Returns whether the client is an `EventSource`.
fn accepts_events(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.starts_with("text/event-stream"))
}

/// Says why a question has no answer, and leads to what may have been meant.
fn not_answered(page: &Page, error: &ExplainError, meant: impl Fn(&str) -> Option<String>) -> Shown {
    let status = if error.is_not_found() { StatusCode::NOT_FOUND } else { StatusCode::BAD_REQUEST };
    let links: Vec<_> = error.suggestions().iter().filter_map(|name| Some((name, meant(name)?))).collect();
    let content = maud::html! {
        h1 { "No such view" }
        (frame::verdict("bad", &error.to_string()))
        @if !links.is_empty() {
            ul class="filters" { @for (name, href) in &links { li { a href=(href) { (name) } } } }
        }
        (ask::ask(&page.source.overview()))
        p { a href="/" { "Go to the overview" } }
    };
    Shown { title: "No such view".to_owned(), tab: None, status, content }
}
