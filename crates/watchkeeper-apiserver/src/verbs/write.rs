//! The context of a write: field manager, strictness of field validation, dry run, warnings and admission.

use std::sync::Arc;

use serde_json::Value;

use crate::access::user::User;
use crate::admission::attempt::Attempt;
use crate::admission::session::Session;
use crate::codec::yaml;
use crate::failure::{Failure, Result, quoted};
use crate::fields::Writer;
use crate::kinds::kind::Kind;
use crate::state::store::Key;

/// The treatment of unknown and duplicate fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validation {
    Ignore,
    Warn,
    Strict,
}

/// The maximum number of reported problems per body, as in the real server's decoder.
const PROBLEMS_LIMIT: usize = 100;

/// The context of one write.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// All steps run except storing.
    pub(crate) dry_run: bool,
    pub(crate) manager: String,
    pub(crate) validation: Validation,
    /// The managed fields have been computed already.
    pub(crate) applied: bool,
    /// Warnings for the response.
    pub(crate) warnings: Vec<String>,
    /// The user who writes; `None` for writes of the server itself.
    pub(crate) author: Option<Arc<User>>,
    /// The admission of the request; `None` for writes of the server itself, and without plugins.
    pub(crate) admission: Option<Arc<Session>>,
}

impl Write {
    /// The context of a write by the server itself.
    pub(crate) fn own() -> Self {
        Self {
            dry_run: false,
            manager: "kube-apiserver".to_owned(),
            validation: Validation::Ignore,
            applied: false,
            warnings: Vec::new(),
            author: None,
            admission: None,
        }
    }

    /// Returns the attempt to write an object, for admission: a create without an `old` one.
    pub(crate) fn attempt<'a>(
        &'a self,
        kind: &'a Arc<Kind>,
        key: &'a Key,
        old: Option<&'a Value>,
    ) -> Option<Attempt<'a>> {
        let session = self.admission.as_deref()?;
        Some(Attempt::write(session, kind, key, old, self.dry_run))
    }

    /// Reports unknown fields, by field validation.
    pub(crate) fn judge_unknown(&mut self, fields: &[String]) -> Result<(), String> {
        self.judge(fields.iter().map(|field| format!("unknown field {}", quoted(field))).collect())
    }

    /// Reports problems as an error, as warnings or not at all, by field validation.
    pub(crate) fn judge(&mut self, mut problems: Vec<String>) -> Result<(), String> {
        problems.truncate(PROBLEMS_LIMIT);
        match self.validation {
            Validation::Strict if !problems.is_empty() => {
                Err(format!("strict decoding error: {}", problems.join(", ")))
            }
            Validation::Warn => {
                self.warnings.extend(problems.iter().flat_map(|problem| yaml::lines(problem)));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns the field manager that writes `kind` through an endpoint.
    pub(crate) fn writer<'a>(
        &'a self,
        kind: &'a Kind,
        subresource: &'static str,
        now: &'a str,
    ) -> Writer<'a> {
        let ignored: &[&str] = match subresource {
            "" if kind.has_status() => &["f:status"],
            "status" if kind.custom.is_some() => &["f:spec", "f:metadata"],
            "status" => &["f:spec"],
            _ => &[],
        };
        Writer { manager: &self.manager, api_version: &kind.api_version, subresource, now, ignored }
    }
}

impl Failure {
    /// Adds the warnings of the write to its failure.
    pub(crate) fn of(mut self: Box<Self>, write: &Write) -> Box<Self> {
        self.warnings.clone_from(&write.warnings);
        self
    }
}

/// The failure of a body that cannot be decoded as an object of this kind.
pub(crate) fn unusable(kind: &Kind, why: &str) -> Box<Failure> {
    Failure::bad_request(format!(
        "{} in version \"{}\" cannot be handled as a {}: {why}",
        kind.kind, kind.version, kind.kind
    ))
}
