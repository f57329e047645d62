//! In which form do client and server talk? Accept and Content-Type, JSON and YAML.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use serde_json::Value;

use crate::json;
use crate::status::{Failure, Result};
use crate::types::protobuf;

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Yaml,
    /// Objects reduced to their metadata, in JSON.
    Metadata,
}

pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const BODIES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const CUSTOM_BODIES: &str = "application/json, application/yaml";

/// One clause of an Accept header.
struct Clause<'a> {
    media: &'a str,
    params: Vec<(&'a str, &'a str)>,
    quality: f32,
}

fn clauses(headers: &HeaderMap) -> Vec<Clause<'_>> {
    let mut clauses = Vec::new();
    let values = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    for text in values.flat_map(|value| value.split(',')) {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if media.is_empty() {
            continue;
        }
        let params: Vec<_> = parts.filter_map(|param| param.split_once('=')).collect();
        let quality = params.iter().find(|(key, _)| *key == "q").and_then(|(_, q)| q.parse().ok());
        clauses.push(Clause { media, params, quality: quality.unwrap_or(1.0) });
    }
    // A stable sort: among equals the client's order decides.
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

impl Clause<'_> {
    fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }
}

/// The form in which the client wants its answer; `list` tells that the answer is a list of objects.
pub(crate) fn accept(headers: &HeaderMap, list: bool) -> Result<Form> {
    let clauses = clauses(headers);
    if clauses.is_empty() {
        return Ok(Form::Json);
    }
    let mut transformed = false;
    for clause in &clauses {
        let form = match clause.media {
            "application/json" | "*/*" => Form::Json,
            "application/yaml" => Form::Yaml,
            _ => continue,
        };
        match (clause.param("as"), clause.param("g"), clause.param("v")) {
            (None, ..) => return Ok(form),
            (Some("PartialObjectMetadata"), Some("meta.k8s.io"), Some("v1")) if !list => {
                return Ok(Form::Metadata);
            }
            (Some("PartialObjectMetadataList"), Some("meta.k8s.io"), Some("v1")) if list => {
                return Ok(Form::Metadata);
            }
            // A form that is not served, such as a Table: the next clause may do.
            _ => transformed = true,
        }
    }
    if transformed {
        return Err(Failure::not_acceptable(format!(
            "only the following media types are accepted: {BODIES}"
        )));
    }
    let mut failure =
        Failure::not_acceptable(format!("406: Not Acceptable\n\nAvailable representations: {BODIES}"));
    failure.details = Some(crate::status::Details::default());
    Err(failure)
}

/// Whether the client asks for the aggregated form of discovery.
pub(crate) fn wants_aggregated(headers: &HeaderMap) -> bool {
    for clause in clauses(headers) {
        match (clause.media, clause.param("as")) {
            ("application/json", None) | ("*/*", _) => return false,
            ("application/json", Some("APIGroupDiscoveryList"))
                if clause.param("g") == Some("apidiscovery.k8s.io") && clause.param("v") == Some("v2") =>
            {
                return true;
            }
            _ => {}
        }
    }
    false
}

/// The media type of a request's body, without its parameters; empty when it has none.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// A value that a body holds, and the fields that stand in it twice.
pub(crate) type Read = (Value, Vec<String>);

/// Reads a body in the form that its header names; `expected` is the apiVersion and kind, where the body need not say them.
///
/// The inner error is what is wrong with the text, without the text: it may be a Secret.
pub(crate) fn read_value(
    headers: &HeaderMap,
    body: &[u8],
    expected: (&str, &str),
) -> Result<Result<Read, String>> {
    Ok(match content_type(headers) {
        "" | "application/json" => {
            json::read(body).map_err(|error| format!("json parse error: {}", json_problem(&error)))
        }
        "application/yaml" => read_yaml(body)
            .map(|value| (value, Vec::new()))
            .map_err(|problem| format!("yaml parse error: {problem}")),
        PROTOBUF => protobuf::read(body, expected)
            .map(|value| (value, Vec::new()))
            .map_err(|problem| format!("protobuf parse error: {problem}")),
        _ => return Err(Failure::unsupported_media_type(BODIES)),
    })
}

/// Reads a body that holds one object of the kind `expected`; only built-in kinds come in protobuf.
pub(crate) fn read_object(
    headers: &HeaderMap,
    body: &[u8],
    expected: (&str, &str),
    builtin: bool,
) -> Result<Read> {
    if !builtin && content_type(headers) == PROTOBUF {
        return Err(Failure::unsupported_media_type(CUSTOM_BODIES));
    }
    let unrecognized = |problem: String| {
        Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; {problem}",
            expected.1
        ))
    };
    let (value, twice) = read_value(headers, body, expected)?.map_err(unrecognized)?;
    if value.is_object() {
        return Ok((value, twice));
    }
    Err(unrecognized("the body is not an object".to_owned()))
}

/// YAML as JSON. The error says where, not what: the body may be a Secret.
pub(crate) fn read_yaml(body: &[u8]) -> Result<Value, String> {
    serde_saphyr::from_slice(body).map_err(|error| match error.location() {
        Some(at) => format!("malformed at line {} column {}", at.line(), at.column()),
        None => "malformed".to_owned(),
    })
}

/// What is wrong with a JSON text: category and place, never the text itself.
pub(crate) fn json_problem(error: &serde_json::Error) -> String {
    use serde_json::error::Category;
    let what = match error.classify() {
        Category::Eof => "unexpected end of JSON input",
        Category::Data => "unexpected value",
        _ => "malformed",
    };
    format!("{what} at line {} column {}", error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(text: &str, list: bool) -> Result<Form> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, text.parse().unwrap());
        accept(&headers, list)
    }

    #[test]
    fn the_first_clause_that_is_served_wins() {
        assert_eq!(accept(&HeaderMap::new(), false), Ok(Form::Json));
        for (text, form) in [
            ("*/*", Form::Json),
            ("application/json", Form::Json),
            ("application/json, */*", Form::Json),
            ("application/vnd.kubernetes.protobuf,application/json", Form::Json),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Form::Json),
            ("application/json;q=0.5,application/yaml", Form::Yaml),
            ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", Form::Metadata),
        ] {
            assert_eq!(accepted(text, false), Ok(form), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_served_is_not_acceptable() {
        for text in ["text/csv", "application/*", "application/json;as=Table;v=v1;g=meta.k8s.io"] {
            assert_eq!(accepted(text, false).unwrap_err().code, 406, "{text}");
        }
        assert_eq!(
            accepted("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", true).unwrap_err().code,
            406
        );
    }

    #[test]
    fn a_malformed_body_is_never_repeated_in_the_answer() {
        let error =
            read_object(&HeaderMap::new(), b"{\"data\": secret}", ("v1", "Secret"), true).unwrap_err();
        assert_eq!(error.code, 400);
        assert!(!error.message.contains("secret}"));
    }

    #[test]
    fn yaml_is_read_as_json() {
        let value = read_yaml(b"a: {b: [1, x, true]}\n").unwrap();
        assert_eq!(value, serde_json::json!({"a": {"b": [1, "x", true]}}));
        assert!(read_yaml(b"a: [").is_err());
    }
}
