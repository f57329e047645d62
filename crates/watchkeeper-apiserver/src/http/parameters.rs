//! Request parameters: bodies and query options, decoded and validated.

use std::time::Duration;

use bytes::Bytes;
use http::header::USER_AGENT;
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Value, json};
use watchkeeper::clock::Clock;

use crate::codec::media_type::content_type;
use crate::failure::{Cause, Failure, Result, quoted};
use crate::http::handler::{BoxError, Call};
use crate::http::negotiate;
use crate::kinds::identity::{Mismatch, mismatch};
use crate::kinds::kind::Kind;
use crate::state::selector::Selector;
use crate::types;
use crate::verbs::delete::DeleteOptions;
use crate::verbs::list::{ListOptions, Match};
use crate::verbs::patch::Patch;
use crate::verbs::write::{Validation, Write, unusable};

const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// The timeout for a body: the request timeout of the real server.
const BODY_PATIENCE: Duration = Duration::from_secs(60);

impl Call {
    /// Decodes a body with an object of `kind` and normalizes it into its stored form.
    pub(crate) fn read_object(&self, kind: &Kind, body: &[u8], write: &mut Write) -> Result<Value> {
        let expected = (kind.api_version.as_str(), kind.kind.as_str());
        let (mut value, duplicates) =
            negotiate::read_object(&self.headers, body, expected, kind.custom.is_none())?;
        let text = |field: &str| match &value[field] {
            Value::Null => Ok(""),
            Value::String(text) => Ok(text.as_str()),
            _ => Err(Failure::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): {field} is not a string",
                kind.kind
            ))),
        };
        let (sent_version, sent_kind) = (text("apiVersion")?, text("kind")?);
        // Built-in kinds default apiVersion and kind from the path; custom objects must set them.
        let custom = kind.custom.is_some();
        if custom && sent_kind.is_empty() {
            return Err(Failure::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing",
                kind.kind
            )));
        }
        if let Some(mismatch) = mismatch(kind, sent_version, sent_kind) {
            return Err(Failure::bad_request(match mismatch {
                Mismatch::Malformed(problem) => {
                    format!("the object provided is unrecognized (must be of type {}): {problem}", kind.kind)
                }
                Mismatch::Version(problem) => problem,
                Mismatch::Kind(problem) => {
                    let shown = if sent_kind.is_empty() { &kind.kind } else { sent_kind };
                    let version = if sent_version.is_empty() { &kind.api_version } else { sent_version };
                    let version = quoted(version.rsplit('/').next().unwrap_or_default());
                    format!("{shown} in version {version} cannot be handled as a {}: {problem}", kind.kind)
                }
            }));
        }
        if custom && sent_kind != kind.kind {
            let problem = Cause::invalid("kind", &sent_kind.into(), &format!("must be {}", kind.kind));
            let name = value["metadata"]["name"].as_str().unwrap_or_default();
            return Err(Failure::invalid_as(&kind.group, sent_kind, name, vec![problem]));
        }
        write
            .judge(duplicates)
            .and_then(|()| write.normalize(kind, &mut value))
            .map_err(|why| unusable(kind, &why))?;
        Ok(value)
    }

    /// Decodes and normalizes a body of the built-in type `kind`, given as `(apiVersion, kind)`.
    pub(crate) fn read_typed(&self, body: &[u8], kind: (&str, &str)) -> Result<Value> {
        let (mut value, _) = negotiate::read_object(&self.headers, body, kind, true)?;
        if let Some(id) = types::of_kind(kind.0, kind.1) {
            types::normalize::normalize(id, &mut value).map_err(Failure::bad_request)?;
        }
        Ok(value)
    }

    pub(crate) async fn read_patch<B>(&self, kind: &Kind, body: B, write: &mut Write) -> Result<Patch>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let content_type = content_type(&self.headers);
        if content_type == "application/apply-patch+yaml" {
            if self.query.text("fieldManager").is_empty() {
                let cause = Cause::required("fieldManager", "is required for apply patch");
                return Err(Failure::invalid_options("PatchOptions", vec![cause]));
            }
        } else if self.query.flag("force") == Some(true) {
            let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
            return Err(Failure::invalid_options("PatchOptions", vec![cause]));
        }
        let body = self.read_body(body).await?;
        self.work(body.len(), || Patch::read(kind, content_type, &body, write))
    }

    /// Validates the options of a write.
    pub(crate) fn write_options(&self, options: &str) -> Result<Write> {
        let mut causes = Vec::new();
        let dry_run = self.query.all("dryRun");
        if dry_run.iter().any(|value| *value != "All") {
            causes.push(Cause::not_supported("dryRun", &json!(dry_run), &["All"]));
        }
        let validation = self.query.text("fieldValidation");
        let supported = ["", "Ignore", "Strict", "Warn"];
        if !supported.contains(&validation) {
            causes.push(Cause::not_supported("fieldValidation", &validation.into(), &supported));
        }
        let manager = self.query.text("fieldManager");
        if manager.len() > 128 {
            causes.push(Cause::too_long("fieldManager", 128, "bytes"));
        }
        if let Some((at, c)) = manager.char_indices().find(|(_, c)| c.is_control()) {
            let problem = format!("invalid character U+{:04X} (at position {at})", c as u32);
            causes.push(Cause {
                reason: "FieldValueInvalid",
                message: format!("Invalid value: {}: {problem}", quoted(manager)),
                field: "fieldManager".to_owned(),
            });
        }
        if !causes.is_empty() {
            return Err(Failure::invalid_options(options, causes));
        }
        Ok(Write {
            dry_run: !dry_run.is_empty(),
            manager: if manager.is_empty() { self.agent() } else { manager.to_owned() },
            validation: match validation {
                "Ignore" => Validation::Ignore,
                "Strict" => Validation::Strict,
                _ => Validation::Warn,
            },
            applied: false,
            warnings: Vec::new(),
        })
    }

    /// The default field manager: the product name of the user agent.
    fn agent(&self) -> String {
        let agent = self.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let agent = agent.split('/').next().unwrap_or_default();
        let agent: String = agent.chars().filter(|c| !c.is_control()).take(128).collect();
        if agent.is_empty() { "unknown".to_owned() } else { agent }
    }

    pub(crate) fn delete_options(&self, body: &[u8]) -> Result<DeleteOptions> {
        if !body.is_empty() {
            let (value, _) = negotiate::read_value(&self.headers, body, ("v1", "DeleteOptions"))?
                .map_err(|problem| Failure::bad_request(format!("couldn't get version/kind; {problem}")))?;
            // Options in a body replace those of the query.
            return DeleteOptions::read(&value);
        }
        let mut value = json!({});
        if let Some(grace) = self.number("gracePeriodSeconds")? {
            value["gracePeriodSeconds"] = grace.into();
        }
        if let Some(policy) = self.query.get("propagationPolicy") {
            value["propagationPolicy"] = policy.into();
        }
        if let Some(orphan) = self.query.flag("orphanDependents") {
            value["orphanDependents"] = orphan.into();
        }
        let dry_run = self.query.all("dryRun");
        if !dry_run.is_empty() {
            value["dryRun"] = json!(dry_run);
        }
        DeleteOptions::read(&value)
    }

    pub(crate) fn list_options(&self, kind: &Kind) -> Result<ListOptions> {
        let labels = self.query.text("labelSelector");
        let fields = self.query.text("fieldSelector");
        let matching = self.query.text("resourceVersionMatch");
        let limit = self.number("limit")?.unwrap_or(0);
        Ok(ListOptions {
            selector: Selector::parse(kind, labels, fields)?,
            limit: usize::try_from(limit).unwrap_or(0),
            proceed: self.query.text("continue").to_owned(),
            version: self.query.text("resourceVersion").to_owned(),
            matching: match matching {
                "" => Match::Unset,
                "Exact" => Match::Exact,
                "NotOlderThan" => Match::NotOlderThan,
                other => {
                    let supported = ["Exact", "NotOlderThan", ""];
                    let cause = Cause::not_supported("resourceVersionMatch", &other.into(), &supported);
                    return Err(Failure::invalid_options("ListOptions", vec![cause]));
                }
            },
            initial_events: self.query.flag("sendInitialEvents"),
        })
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>> {
        match self.query.text(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                Failure::bad_request(format!("strconv.ParseInt: parsing {}: invalid syntax", quoted(text)))
            }),
        }
    }
}

/// Collects a body, within the size limit and the timeout.
pub(crate) async fn collect_body<B>(clock: &Clock, body: B) -> Result<Bytes>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let read = clock.timeout(BODY_PATIENCE, Limited::new(body, BODY_LIMIT).collect()).await;
    let Ok(read) = read else {
        return Err(Failure::bad_request(format!("the body did not arrive within {BODY_PATIENCE:?}")));
    };
    match read {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Failure::too_large(BODY_LIMIT)),
        Err(error) => Err(Failure::bad_request(format!("the body could not be read: {error}"))),
    }
}
