//! Who writes, and how strictly? What every write carries from its request to its answer.

use serde_json::Value;

use crate::codec::json;
use crate::codec::yaml;
use crate::failure::{Failure, Result, quoted};
use crate::fields::Writer;
use crate::kinds::kind::Kind;
use crate::kinds::size;
use crate::types::normalize;

/// What becomes of fields that the kind does not know, or that are there twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validation {
    Ignore,
    Warn,
    Strict,
}

/// How many problems of one text are told, as by the real server's decoder.
const PROBLEMS_LIMIT: usize = 100;

/// One write.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// Everything is done but the storing.
    pub(crate) dry_run: bool,
    pub(crate) manager: String,
    pub(crate) validation: Validation,
    /// The managers of the object have been worked out already.
    pub(crate) applied: bool,
    /// To be told with the answer.
    pub(crate) warnings: Vec<String>,
}

impl Write {
    /// A write of the server itself.
    pub(crate) fn own() -> Self {
        Self {
            dry_run: false,
            manager: "kube-apiserver".to_owned(),
            validation: Validation::Ignore,
            applied: false,
            warnings: Vec::new(),
        }
    }

    /// Brings an object into the form in which it is stored, and deals with what does not belong there.
    ///
    /// The text of an error says what cannot be read.
    pub(crate) fn normalize(&mut self, kind: &Kind, value: &mut Value) -> Result<(), String> {
        if json::is_too_deep(value) {
            return Err(format!("exceeded max depth of {}", json::DEPTH_LIMIT));
        }
        if size::has_long_paths(value) {
            return Err("the names of its fields are too long".to_owned());
        }
        let unknown = match kind.schema {
            Some(id) => normalize::normalize(id, value)?,
            None => normalize_custom(kind, value, self.applied)?,
        };
        self.judge(unknown.iter().map(|field| format!("unknown field {}", quoted(field))).collect())
    }

    /// Refuses problems, or keeps them as warnings, or does neither.
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

    /// The same for what is there twice in a configuration that is applied.
    pub(crate) fn judge_config(&mut self, twice: Vec<String>) -> Result<()> {
        let problems = twice.join(", ");
        self.judge(twice).map_err(|_| {
            Failure::bad_request(format!(
                "error strict decoding YAML: error converting YAML to JSON: {problems}"
            ))
        })
    }

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

/// The metadata of a custom object has a type; the rest has its own schema, which drops what it does not know.
///
/// A null that was applied stays, and is refused where it is not allowed; other writes do without it.
fn normalize_custom(kind: &Kind, value: &mut Value, nulls: bool) -> Result<Vec<String>, String> {
    let Value::Object(map) = value else { return Err("the body is not an object".to_owned()) };
    let metadata = map.entry("metadata").or_insert_with(|| Value::Object(serde_json::Map::new()));
    if metadata.is_null() {
        *metadata = Value::Object(serde_json::Map::new());
    }
    let mut unknown = normalize::normalize_metadata(metadata)?;
    if let Some(custom) = &kind.custom {
        unknown.extend(custom.schema.prune(value, nulls));
    }
    for (_, part) in value.as_object_mut().into_iter().flatten().filter(|(name, _)| *name != "metadata") {
        json::plain_numbers(part);
    }
    unknown.sort();
    Ok(unknown)
}

impl Failure {
    /// The failure of a write, with the warnings that the write has gathered.
    pub(crate) fn of(mut self: Box<Self>, write: &Write) -> Box<Self> {
        self.warnings.clone_from(&write.warnings);
        self
    }
}

/// A body that cannot be read as an object of this kind.
pub(crate) fn unusable(kind: &Kind, why: &str) -> Box<Failure> {
    Failure::bad_request(format!(
        "{} in version \"{}\" cannot be handled as a {}: {why}",
        kind.kind, kind.version, kind.kind
    ))
}
