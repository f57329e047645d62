//! Routes other than resources: discovery, health, metrics and OpenAPI documents.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{HeaderMap, Method};
use serde_json::Value;

use crate::access::tokens::Tokens;
use crate::failure::Failure;
use crate::http::discovery;
use crate::http::health;
use crate::http::negotiate::{self, Form, OPENAPI_PROTOBUF};
use crate::http::openapi;
use crate::http::reply::{self, Reply};
use crate::http::route::{Query, Route};
use crate::http::shared::Shared;
use crate::kinds::registry::{Document, Registry};

/// Answers a request for a route that is not a resource.
pub(crate) fn answer(
    shared: &Arc<Shared>,
    route: &Route,
    query: &Query,
    method: &Method,
    headers: &HeaderMap,
) -> Reply {
    if *method != Method::GET && *method != Method::HEAD {
        return reply::failure(&Failure::method_not_allowed());
    }
    // Documents of many kinds take long to build, so the registry is cloned and the lock released.
    let registry = &*shared.core.lock().registry.clone();
    let json = |value: Value| reply::value(200, Form::Json, &value);
    match route {
        Route::Index => json(discovery::index(registry)),
        Route::Version => json(discovery::version()),
        Route::Metrics => reply::text(200, shared.requests.text() + &shared.flow_metrics()),
        Route::Health { name, checks } => health::answer(name, checks, query),
        Route::Core if negotiate::wants_aggregated(headers) => {
            cached(headers, discovery::aggregated(registry, true), AGGREGATED)
        }
        Route::Groups if negotiate::wants_aggregated(headers) => {
            cached(headers, discovery::aggregated(registry, false), AGGREGATED)
        }
        Route::Core => json(discovery::core_versions()),
        Route::Groups => json(discovery::groups(registry)),
        Route::Group(name) => discovery::group(registry, name).map_or_else(reply::page_not_found, json),
        Route::GroupVersion { group, version } => {
            discovery::resources(registry, group, version).map_or_else(|| not_served(registry, group), json)
        }
        Route::Swagger => match negotiate::openapi_form(headers) {
            Some(form) => cached(headers, openapi::swagger(registry, form == OPENAPI_PROTOBUF), form),
            None => reply::plain(406, ""),
        },
        // The real server sends JSON as plain text here.
        Route::OpenApi => reply::text(200, openapi::index(registry).to_string()),
        Route::OpenApiDocument(name) => {
            openapi::document(registry, name).map_or_else(reply::page_not_found, json)
        }
        Route::Issuer => json(Tokens::discovery()),
        Route::IssuerKeys => key_set(shared),
        Route::Resource(_) | Route::Unknown => reply::page_not_found(),
    }
}

/// Answers a request for a group version that is not served: a `Status` for a built-in group, else a plain 404.
pub(crate) fn not_served(registry: &Registry, group: &str) -> Reply {
    if registry.is_builtin(group) {
        reply::failure(&Failure::no_such_path())
    } else {
        reply::page_not_found()
    }
}

/// The keys that verify tokens of service accounts.
fn key_set(shared: &Shared) -> Reply {
    let mut reply = reply::value(200, Form::Json, &shared.tokens.key_set());
    let form = HeaderValue::from_static("application/jwk-set+json");
    reply.headers_mut().insert(http::header::CONTENT_TYPE, form);
    reply
}

/// The media type of aggregated discovery.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Answers with a document, or with 304 if the client has it already.
fn cached(headers: &HeaderMap, Document { text, etag }: &Document, form: &'static str) -> Reply {
    let known = headers.get(IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    let mut reply = if known.is_some_and(|known| known.contains(etag)) {
        let mut reply = reply::plain(304, "");
        reply.headers_mut().clear();
        reply
    } else {
        reply::json(200, text.clone())
    };
    let headers = reply.headers_mut();
    if headers.contains_key(http::header::CONTENT_TYPE) {
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(form));
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    if let Ok(etag) = HeaderValue::from_str(etag) {
        headers.insert(ETAG, etag);
    }
    reply
}
