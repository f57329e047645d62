//! Content negotiation: `Accept` and `Content-Type`, JSON and YAML.

use http::HeaderMap;
use http::header::ACCEPT;
use serde_json::Value;

use crate::codec::json;
use crate::codec::media_type::{BODIES, content_type};
use crate::codec::protobuf;
use crate::codec::yaml;
use crate::failure::{Failure, Result, quoted};
use crate::http::table::{Include, Rows};
use crate::kinds::kind::Kind;

/// The negotiated form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Yaml,
    /// Objects of built-in kinds, for clients that accept nothing else.
    Protobuf,
    /// Objects reduced to their metadata; `beta` selects `v1beta1` of that format.
    Metadata {
        beta: bool,
        /// In protobuf, not in JSON.
        protobuf: bool,
    },
    /// A table of rows, as kubectl prints it.
    Table(Rows),
}

pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const CUSTOM_BODIES: &str = "application/json, application/yaml";
const ANSWERS: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
/// The same for custom resources.
const CUSTOM_ANSWERS: &str = "application/json, application/yaml";

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
    // The sort is stable: equal qualities keep the client's order.
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

impl Clause<'_> {
    fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }
}

/// The media type of an OpenAPI document in protobuf.
pub(crate) const OPENAPI_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The same in clients written in Go. Media types have no `@`, so it is not used in answers.
const OPENAPI_PROTOBUF_OLD: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// Selects the media type of an OpenAPI document.
pub(crate) fn openapi_form(headers: &HeaderMap) -> Option<&'static str> {
    let clauses = clauses(headers);
    if clauses.is_empty() {
        return Some("application/json");
    }
    clauses.iter().find_map(|clause| match clause.media {
        "application/json" | "application/*" | "*/*" => Some("application/json"),
        OPENAPI_PROTOBUF | OPENAPI_PROTOBUF_OLD => Some(OPENAPI_PROTOBUF),
        _ => None,
    })
}

/// What the response contains, for the forms that depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The response is a list of objects.
    pub(crate) list: bool,
    /// The query parameter `includeObject`.
    pub(crate) include: &'a str,
    pub(crate) kind: &'a Kind,
}

/// Selects the form of a response from the `Accept` header.
pub(crate) fn accept(headers: &HeaderMap, asked: Asked<'_>) -> Result<Form> {
    let clauses = clauses(headers);
    if clauses.is_empty() {
        return Ok(Form::Json);
    }
    let mut transformed = false;
    for clause in &clauses {
        let form = match clause.media {
            "application/json" | "*/*" => Form::Json,
            "application/yaml" => Form::Yaml,
            PROTOBUF if is_partial(clause) => Form::Json,
            PROTOBUF if is_plain(clause) && asked.kind.custom.is_none() && !accepts_text(&clauses) => {
                Form::Protobuf
            }
            _ => continue,
        };
        let protobuf = clause.media == PROTOBUF;
        let Some(wanted) = clause.param("as") else { return Ok(form) };
        let beta = match (clause.param("g"), clause.param("v")) {
            (Some("meta.k8s.io"), Some("v1")) => false,
            (Some("meta.k8s.io"), Some("v1beta1")) => true,
            _ => {
                transformed = true;
                continue;
            }
        };
        match (wanted, asked.list) {
            ("Table", _) => return table(asked.include, beta),
            ("PartialObjectMetadata", false) | ("PartialObjectMetadataList", true) => {
                return Ok(Form::Metadata { beta, protobuf });
            }
            ("PartialObjectMetadata" | "PartialObjectMetadataList", list) => {
                let (kind, is) = (asked.kind, if list { "a" } else { "not a" });
                let package = match (kind.group.as_str(), &kind.custom) {
                    (_, Some(_)) => "unstructured",
                    ("", None) => "core",
                    (group, None) => group.split('.').next().unwrap_or_default(),
                };
                let found = match (&kind.custom, list) {
                    (Some(_), true) => "UnstructuredList",
                    (Some(_), false) => "Unstructured",
                    (None, true) => &kind.list_kind,
                    (None, false) => &kind.kind,
                };
                return Err(Failure::not_acceptable(format!(
                    "you requested {wanted}, but the requested object is {is} list (*{package}.{found})"
                )));
            }
            // This form is not served; a later clause may be.
            _ => transformed = true,
        }
    }
    let answers = if asked.kind.custom.is_some() { CUSTOM_ANSWERS } else { ANSWERS };
    Err(if transformed { none_transformed(answers) } else { none_of(answers) })
}

fn is_plain(clause: &Clause<'_>) -> bool {
    clause.param("as").is_none()
}

/// Returns whether an object may be sent as text, which is encoded once for all clients.
fn accepts_text(clauses: &[Clause<'_>]) -> bool {
    let is_text = |media| ["application/json", "application/yaml", "*/*"].contains(&media);
    clauses.iter().any(|clause| is_plain(clause) && is_text(clause.media))
}

/// Selects the form of a failure: protobuf for clients that accept nothing else.
pub(crate) fn failure_form(headers: &HeaderMap) -> Form {
    let clauses = clauses(headers);
    let is_protobuf = |clause: &Clause<'_>| clause.media == PROTOBUF && is_plain(clause);
    if clauses.iter().any(is_protobuf) && !accepts_text(&clauses) { Form::Protobuf } else { Form::Json }
}

/// Returns whether a clause asks for nothing but metadata.
fn is_partial(clause: &Clause<'_>) -> bool {
    clause.param("as").is_some_and(|wanted| wanted.starts_with("PartialObjectMetadata"))
}

/// The failure for an `Accept` header that asks for objects in another form, which is not served here.
fn none_transformed(answers: &str) -> Box<Failure> {
    Failure::not_acceptable(format!("only the following media types are accepted: {answers}"))
}

/// The failure for an `Accept` header without any supported media type.
fn none_of(answers: &str) -> Box<Failure> {
    let mut failure =
        Failure::not_acceptable(format!("406: Not Acceptable\n\nAvailable representations: {answers}"));
    failure.details = Some(crate::failure::Details::default());
    failure
}

fn table(include: &str, beta: bool) -> Result<Form> {
    let include = match include {
        "" | "Metadata" => Include::Metadata,
        "Object" => Include::Object,
        "None" => Include::Nothing,
        other => {
            return Err(Failure::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
                quoted(other)
            )));
        }
    };
    Ok(Form::Table(Rows { include, beta }))
}

/// Selects the form of a response that is not an object of a served kind.
pub(crate) fn accept_plain(headers: &HeaderMap) -> Result<Form> {
    let clauses = clauses(headers);
    if clauses.is_empty() {
        return Ok(Form::Json);
    }
    let form = |clause: &Clause<'_>| match clause.media {
        "application/json" | "*/*" => Some(Form::Json),
        "application/yaml" => Some(Form::Yaml),
        PROTOBUF if !accepts_text(&clauses) => Some(Form::Protobuf),
        _ => None,
    };
    let served = clauses.iter().filter(|clause| is_plain(clause)).find_map(form);
    served.ok_or_else(|| match clauses.iter().any(|clause| form(clause).is_some()) {
        true => none_transformed(ANSWERS),
        false => none_of(ANSWERS),
    })
}

/// Returns whether the client accepts aggregated discovery.
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

/// A decoded body, and messages about its duplicate fields.
pub(crate) type Read = (Value, Vec<String>);

/// Decodes a body by its `Content-Type`; `expected` is the apiVersion and kind for bodies that may omit them.
///
/// The inner error describes a syntax error without quoting the body, which may be a Secret.
pub(crate) fn read_value(
    headers: &HeaderMap,
    body: &[u8],
    expected: (&str, &str),
) -> Result<Result<Read, String>> {
    Ok(match content_type(headers) {
        "" | "application/json" => {
            json::read(body).map_err(|error| format!("json parse error: {}", json::problem(&error, body)))
        }
        "application/yaml" => yaml::read(body).map_err(|problem| format!("yaml parse error: {problem}")),
        PROTOBUF => protobuf::read(body, expected)
            .map(|value| (value, Vec::new()))
            .map_err(|problem| format!("protobuf parse error: {problem}")),
        _ => return Err(Failure::unsupported_media_type(BODIES)),
    })
}

/// Decodes a body with one object of the kind `expected`; protobuf is supported for built-in kinds only.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::registry::Registry;

    fn accepted(text: &str, list: bool) -> Result<Form> {
        let mut headers = HeaderMap::new();
        if !text.is_empty() {
            headers.insert(ACCEPT, text.parse().unwrap());
        }
        let registry = Registry::new();
        let kind = registry.find("", "v1", "pods").unwrap();
        accept(&headers, Asked { list, include: "", kind })
    }

    #[test]
    fn the_first_clause_that_is_served_wins() {
        for (text, form) in [
            ("", Form::Json),
            ("*/*", Form::Json),
            ("application/json", Form::Json),
            ("application/json, */*", Form::Json),
            ("application/vnd.kubernetes.protobuf,application/json", Form::Json),
            ("application/vnd.kubernetes.protobuf", Form::Protobuf),
            ("application/vnd.kubernetes.protobuf;q=0.5,text/csv", Form::Protobuf),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                Form::Table(Rows { include: Include::Metadata, beta: false }),
            ),
            ("application/json;as=Odd;v=v1;g=meta.k8s.io,application/json", Form::Json),
            ("application/json;q=0.5,application/yaml", Form::Yaml),
            (
                "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
                Form::Metadata { beta: false, protobuf: false },
            ),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
                Form::Metadata { beta: false, protobuf: true },
            ),
            ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json", Form::Json),
        ] {
            assert_eq!(accepted(text, false), Ok(form), "{text}");
        }
    }

    // e2e: should return a 406 for a backend which does not implement metadata
    #[test]
    fn what_is_not_an_object_of_a_kind_has_no_table() {
        let accepted = |text: &str| {
            let headers = HeaderMap::from_iter([(ACCEPT, text.parse().unwrap())]);
            accept_plain(&headers).map_err(|failure| failure.code)
        };
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(accepted(table), Err(406));
        assert_eq!(accepted("text/csv"), Err(406));
        assert_eq!(accepted(&format!("{table},application/yaml")), Ok(Form::Yaml));
        assert_eq!(accepted("application/json"), Ok(Form::Json));
        assert_eq!(accepted(PROTOBUF), Ok(Form::Protobuf));
        assert_eq!(accepted(&format!("{PROTOBUF},application/json")), Ok(Form::Json));
    }

    #[test]
    fn what_cannot_be_served_is_not_acceptable() {
        for text in ["text/csv", "application/*", "application/json;as=Odd;v=v1;g=meta.k8s.io"] {
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
}
