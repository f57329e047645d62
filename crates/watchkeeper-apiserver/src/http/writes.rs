//! Writes of objects: POST, PUT and PATCH, with their options and bodies.

use std::sync::Arc;

use http::header::USER_AGENT;
use serde_json::{Value, json};

use crate::codec::media_type::content_type;
use crate::codec::yaml;
use crate::failure::{Cause, Failure, Result, quoted};
use crate::http::body::RequestBody;
use crate::http::handler::Call;
use crate::http::negotiate::{self, Form};
use crate::http::reply::{self, Reply};
use crate::http::warnings::warn;
use crate::kinds::identity::{Mismatch, identify, mismatch, place};
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::state::core::Core;
use crate::state::store::{Key, Stored};
use crate::types;
use crate::verbs::create::Name;
use crate::verbs::patch::Patch;
use crate::verbs::update::Part;
use crate::verbs::write::{Validation, Write, unusable};

/// The media type of a server-side apply.
const APPLY: &str = "application/apply-patch+yaml";

impl Call {
    /// POST: creates the object in the body.
    pub(super) async fn create(&self, kind: &Arc<Kind>, form: Form, body: impl RequestBody) -> Result<Reply> {
        let mut write = self.write_options("CreateOptions")?;
        let body = self.read_body(body).await?;
        let mut value = self.work(body.len(), || self.read_object(kind, &body, &mut write))?;
        let namespace = self.target.namespace.as_deref().unwrap_or_default();
        identify(kind, &mut value);
        let name = place(kind, namespace, &mut value).map(|()| self.name_of(&value));
        let created = name.and_then(|name| {
            let see = |core: &Core| core.see_new(kind, namespace, &name);
            self.write(kind, see, |seen| seen.create(kind, value, &write, true))
        });
        let created = created.map_err(|failure| failure.of(&write))?;
        Ok(self.written(form, kind, Part::Main, created, write, ""))
    }

    /// Returns the name of a new object. One that is to be generated is the same in each attempt.
    fn name_of(&self, value: &Value) -> Name {
        let name = Name::of(value);
        match &self.admission {
            Some(session) => name.from(session.generator()),
            None => name,
        }
    }

    /// PUT: replaces an object, or the part of it that the endpoint serves, by the body.
    pub(super) async fn replace(
        &self,
        kind: &Arc<Kind>,
        key: &Key,
        part: Part,
        form: Form,
        body: impl RequestBody,
    ) -> Result<Reply> {
        let mut write = self.write_options("UpdateOptions")?;
        let body = self.read_body(body).await?;
        let value = self.work(body.len(), || self.read_object(kind, &body, &mut write))?;
        let version = meta::text(&value, "resourceVersion").to_owned();
        let see = |core: &Core| Ok(core.see(kind, key));
        let replaced = self.write(kind, see, |seen| seen.replace(kind, value, part, &write));
        let replaced = replaced.map_err(|failure| failure.of(&write))?;
        Ok(self.written(form, kind, part, replaced, write, &version))
    }

    /// PATCH, also a server-side apply.
    pub(super) async fn patch(
        &self,
        kind: &Arc<Kind>,
        key: &Key,
        part: Part,
        form: Form,
        body: impl RequestBody,
    ) -> Result<Reply> {
        let mut write = self.write_options("PatchOptions")?;
        let see = |core: &Core| Ok(core.see(kind, key));
        if self.is_apply() {
            let config = self.read_config(body, &mut write).await?;
            let force = self.query.flag("force").unwrap_or(false);
            let version = meta::text(&config, "resourceVersion").to_owned();
            let applied = self.write(kind, see, |seen| seen.apply(kind, config, part, force, &mut write));
            let applied = applied.map_err(|failure| failure.of(&write))?;
            return Ok(self.written(form, kind, part, applied, write, &version));
        }
        let patch = self.read_patch(kind, body, &mut write).await?;
        let patched = self.write(kind, see, |seen| seen.patch(kind, &patch, part, &mut write));
        let patched = patched.map_err(|failure| failure.of(&write))?;
        Ok(self.written(form, kind, part, patched, write, ""))
    }

    /// Responds to a write; `version` is the resourceVersion that the client sent.
    fn written(
        &self,
        form: Form,
        kind: &Kind,
        part: Part,
        (stored, new): (Arc<Stored>, bool),
        mut write: Write,
        version: &str,
    ) -> Reply {
        if part == Part::Main {
            write.warnings.extend(kind.behaviour.warnings(&|| stored.value()));
        }
        let reply = if new && write.dry_run {
            // Nothing was stored, so there is no other version.
            let mut value = stored.value_in(kind);
            meta::set(&mut value, "resourceVersion", version);
            reply::value(201, form, &value)
        } else {
            reply::object(if new { 201 } else { 200 }, form, kind, &stored, self.now())
        };
        warn(reply, &write.warnings)
    }

    /// Validates the options of a write.
    pub(super) fn write_options(&self, options: &str) -> Result<Write> {
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
        if let Some(session) = &self.admission {
            session.set_options(self.shown_options());
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
            author: Some(self.user()),
            admission: self.admission.clone(),
        })
    }

    /// The options of a write, as admission sees them.
    fn shown_options(&self) -> Value {
        let mut options = json!({});
        for field in ["fieldManager", "fieldValidation"] {
            if !self.query.text(field).is_empty() {
                options[field] = self.query.text(field).into();
            }
        }
        let dry_run = self.query.all("dryRun");
        if !dry_run.is_empty() {
            options["dryRun"] = json!(dry_run);
        }
        options
    }

    /// The default field manager: the product name of the user agent.
    fn agent(&self) -> String {
        let agent = self.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let agent = agent.split('/').next().unwrap_or_default();
        let agent: String = agent.chars().filter(|c| !c.is_control()).take(128).collect();
        if agent.is_empty() { "unknown".to_owned() } else { agent }
    }

    /// Decodes a body with an object of `kind` and normalizes it into its stored form.
    fn read_object(&self, kind: &Kind, body: &[u8], write: &mut Write) -> Result<Value> {
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
        let normalized = kind.behaviour.normalize(kind, &mut value, false);
        let judged = normalized.and_then(|unknown| {
            let unknown = unknown.iter().map(|field| format!("unknown field {}", quoted(field)));
            // Custom objects are pruned after they are decoded.
            let problems = match custom {
                true => duplicates.into_iter().chain(unknown).collect(),
                false => unknown.chain(duplicates).collect(),
            };
            write.judge(problems)
        });
        judged.map_err(|why| unusable(kind, &why))?;
        Ok(value)
    }

    /// Decodes and normalizes a body of the built-in type `kind`, given as `(apiVersion, kind)`.
    pub(super) fn read_typed(&self, body: &[u8], kind: (&str, &str)) -> Result<Value> {
        let (mut value, _) = negotiate::read_object(&self.headers, body, kind, true)?;
        if let Some(id) = types::of_kind(kind.0, kind.1) {
            types::normalize::normalize(id, &mut value).map_err(Failure::bad_request)?;
        }
        Ok(value)
    }

    /// Returns whether a PATCH is a server-side apply.
    fn is_apply(&self) -> bool {
        content_type(&self.headers) == APPLY
    }

    /// Decodes the configuration of a server-side apply.
    async fn read_config(&self, body: impl RequestBody, write: &mut Write) -> Result<Value> {
        if self.query.text("fieldManager").is_empty() {
            let cause = Cause::required("fieldManager", "is required for apply patch");
            return Err(Failure::invalid_options("PatchOptions", vec![cause]));
        }
        let body = self.read_body(body).await?;
        self.work(body.len(), || decode_config(&body, write))
    }

    /// Decodes a patch. The configuration of an apply is a merge patch for endpoints without managed fields.
    pub(super) async fn read_patch(
        &self,
        kind: &Kind,
        body: impl RequestBody,
        write: &mut Write,
    ) -> Result<Patch> {
        if self.is_apply() {
            return self.read_config(body, write).await.map(Patch::Merge);
        }
        if self.query.flag("force") == Some(true) {
            let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
            return Err(Failure::invalid_options("PatchOptions", vec![cause]));
        }
        let body = self.read_body(body).await?;
        self.work(body.len(), || Patch::read(kind, content_type(&self.headers), &body, write))
    }
}

/// Decodes the configuration of an apply: YAML, or JSON as part of it.
fn decode_config(body: &[u8], write: &mut Write) -> Result<Value> {
    let (config, duplicates) = yaml::read(body).map_err(|problem| {
        Failure::bad_request(format!("error decoding YAML: error converting YAML to JSON: yaml: {problem}"))
    })?;
    if !config.is_object() {
        return Err(Failure::bad_request("error decoding YAML: the body is not an object"));
    }
    let problems = duplicates.join(", ");
    write.judge(duplicates).map_err(|_| {
        let prefix = "error strict decoding YAML: error converting YAML to JSON";
        Failure::bad_request(format!("{prefix}: {problems}"))
    })?;
    Ok(config)
}
