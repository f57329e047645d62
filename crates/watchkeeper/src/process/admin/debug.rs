//! The pages under `/debug`: what a program says of its controllers, keys and informers, as JSON.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use crate::explain::{ExplainError, ExplainSource, KeysQuery};

/// The pages, for the index.
pub(super) const INDEX: &str = "/debug/controllers\n/debug/controllers/NAME/keys  ?state=  ?q=  ?sort=  ?reverse=  ?limit=  ?continue=\n\
     /debug/explain?kind=KIND&key=NAMESPACE/NAME\n/debug/informers\n";

/// The answer to a question that has none.
#[derive(Serialize)]
struct Problem<'a> {
    error: String,
    suggestions: &'a [String],
}

/// Returns the page at `path`, which is what follows `/debug/`; none if there is no such page.
pub(super) fn answer(source: &dyn ExplainSource, path: &str, query: &str) -> Option<Response<Full<Bytes>>> {
    Some(match path.trim_end_matches('/') {
        "controllers" => json(StatusCode::OK, &source.overview()),
        "informers" => json(StatusCode::OK, &source.informers()),
        "explain" => outcome(explain(source, query)),
        path => {
            let name = path.strip_prefix("controllers/")?.strip_suffix("/keys")?;
            outcome(KeysQuery::parse(query).and_then(|query| source.keys(name, &query)))
        }
    })
}

fn explain(source: &dyn ExplainSource, query: &str) -> Result<impl Serialize, ExplainError> {
    let (mut kind, mut key) = (None, None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "kind" => kind = Some(value.into_owned()),
            "key" => key = Some(value.into_owned()),
            other => {
                let known = ["kind", "key"].map(str::to_owned).to_vec();
                return Err(ExplainError::UnknownParameter { name: other.chars().take(80).collect(), known });
            }
        }
    }
    let asked = |value: Option<String>, name: &str| {
        value.filter(|value| !value.is_empty()).ok_or_else(|| ExplainError::MissingParameter(name.to_owned()))
    };
    source.explain(&asked(kind, "kind")?, &asked(key, "key")?)
}

fn outcome(answer: Result<impl Serialize, ExplainError>) -> Response<Full<Bytes>> {
    match answer {
        Ok(view) => json(StatusCode::OK, &view),
        Err(error) => {
            let status = if error.is_not_found() { StatusCode::NOT_FOUND } else { StatusCode::BAD_REQUEST };
            json(status, &Problem { error: error.to_string(), suggestions: error.suggestions() })
        }
    }
}

fn json(status: StatusCode, view: &impl Serialize) -> Response<Full<Bytes>> {
    let (status, body) = match serde_json::to_vec(view) {
        Ok(body) => (status, body),
        // Views have only text keys and finite numbers.
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, b"{}".to_vec()),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Names may have markup, which no browser must take for a page.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests;
