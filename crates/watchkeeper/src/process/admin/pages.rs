//! The contents of the admin pages, and the answers made from them.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
#[cfg(feature = "prometheus")]
use prometheus_client::encoding::text::encode;
#[cfg(feature = "prometheus")]
use prometheus_client::registry::Registry;

use super::checks::Checks;
use super::debug;
use crate::explain::ExplainSource;

const TEXT: &str = "text/plain; charset=utf-8";
#[cfg(feature = "prometheus")]
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The page with metrics, if it is enabled.
const METRICS_INDEX: &str = if cfg!(feature = "prometheus") { "/metrics\n" } else { "" };
const CHECKS_INDEX: &str =
    "/healthz  /healthz/NAME  ?verbose  ?exclude=NAME\n/readyz   /readyz/NAME   ?verbose  ?exclude=NAME\n";

/// The contents of the admin pages.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Pages {
    /// `/metrics`, in the text format of OpenMetrics. Needs feature `prometheus`.
    #[cfg(feature = "prometheus")]
    pub metrics: Registry,
    /// `/healthz`: a program that fails these checks should be restarted.
    pub live: Checks,
    /// `/readyz`: a program that fails these checks should get no traffic.
    pub ready: Checks,
    /// `/debug`: why objects are or are not reconciled. None by default; a manager sets it.
    pub explain: Option<Arc<dyn ExplainSource>>,
    /// Whether the page can have an object reconciled. Not by default; see
    /// [`AdminArgs::admin_actions`](super::AdminArgs::admin_actions).
    pub actions: bool,
}

impl Pages {
    /// Returns the same checks without the metrics.
    pub(super) fn probes(&self) -> Self {
        let mut probes = Self::default();
        (probes.live, probes.ready) = (self.live.clone(), self.ready.clone());
        probes
    }
}

/// Returns whether a page is for everybody: the probes, which tell no reasons.
pub(super) fn is_public(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

/// Returns whether a page is for machines, which may use any name of this host: metrics and probes.
pub(super) fn is_for_machines(path: &str) -> bool {
    let page = path.trim_start_matches('/').split('/').next();
    matches!(page, Some("metrics" | "healthz" | "readyz"))
}

/// Returns the page at `path`.
pub(super) fn answer(
    pages: &Pages,
    method: &Method,
    path: &str,
    query: Option<&str>,
) -> Response<Full<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    let query = query.unwrap_or_default();
    // A request may name a host instead of a path.
    let path = path.strip_prefix('/').unwrap_or(path);
    let (page, name) = match path.split_once('/') {
        Some((page, name)) => (page, Some(name).filter(|name| !name.is_empty())),
        None => (path, None),
    };
    match (page, name) {
        ("", None) => text(StatusCode::OK, index(pages)),
        #[cfg(feature = "prometheus")]
        ("metrics", None) => metrics(pages),
        ("healthz", name) => checked(pages.live.answer(page, name, query)),
        ("readyz", name) => checked(pages.ready.answer(page, name, query)),
        ("debug", Some(name)) if let Some(source) = &pages.explain => {
            debug::answer(&**source, name, query).unwrap_or_else(|| missing(pages))
        }
        _ => missing(pages),
    }
}

fn missing(pages: &Pages) -> Response<Full<Bytes>> {
    text(StatusCode::NOT_FOUND, format!("there is no such page; these are:\n{}", index(pages)))
}

fn index(pages: &Pages) -> String {
    let debug = if pages.explain.is_some() { debug::INDEX } else { "" };
    format!("{METRICS_INDEX}{CHECKS_INDEX}{debug}")
}

#[cfg(feature = "prometheus")]
fn metrics(pages: &Pages) -> Response<Full<Bytes>> {
    let mut body = String::new();
    match encode(&mut body, &pages.metrics) {
        Ok(()) => respond(StatusCode::OK, OPEN_METRICS, body),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be collected\n".to_owned()),
    }
}

fn checked((status, body): (StatusCode, String)) -> Response<Full<Bytes>> {
    text(status, body)
}

pub(super) fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    respond(status, TEXT, body)
}

fn respond(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
