//! Patch: JSON patch, merge patch and strategic merge patch, followed by the validation of every update.

use std::sync::Arc;

use serde_json::Value;

use crate::codec::json;
use crate::failure::{Cause, Failure, Result, quoted};
use crate::fields::json_patch::{self, Misfit, Operation};
use crate::kinds::identity::{Mismatch, identify, mismatch, place};
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::state::store::Key;
use crate::types::normalize::found_type;
use crate::verbs::draft::{Draft, Seen};
use crate::verbs::merge_patch::merge;
use crate::verbs::strategic;
use crate::verbs::update::{MODIFIED, Part, check_same_name, version_of};
use crate::verbs::write::Write;

const OPERATIONS_LIMIT: usize = 10_000;

/// A decoded patch.
#[derive(Debug)]
pub(crate) enum Patch {
    Json(Vec<Operation>),
    Merge(Value),
    Strategic(Value),
}

impl Patch {
    /// Decodes a patch of the media type `content_type`, which has no parameters.
    pub(crate) fn read(kind: &Kind, content_type: &str, body: &[u8], write: &mut Write) -> Result<Self> {
        match content_type {
            "application/json-patch+json" => read_operations(body, write).map(Self::Json),
            "application/merge-patch+json" => match read_map(body, "error decoding patch: ", write)? {
                Value::Null => Err(Failure::bad_request("Invalid JSON Patch")),
                patch => Ok(Self::Merge(patch)),
            },
            "application/strategic-merge-patch+json" if kind.custom.is_none() => {
                read_map(body, "", write).map(Self::Strategic)
            }
            "application/strategic-merge-patch+json" => Err(Failure::unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            _ => Err(Failure::unsupported_patch_type()),
        }
    }

    /// Applies the patch to an object.
    pub(crate) fn apply(&self, kind: &Kind, mut value: Value) -> Result<Value> {
        match self {
            Self::Json(operations) => {
                value = json_patch::apply(operations, value).map_err(|misfit| match misfit {
                    Misfit::Depth => unfit(&format!("exceeded max depth of {}", json::DEPTH_LIMIT)),
                    _ => Failure::unprocessable(),
                })?;
            }
            Self::Merge(patch) => merge(&mut value, patch),
            Self::Strategic(patch) => {
                strategic::apply(kind, &mut value, patch.clone())
                    .map_err(|error| error.refusal(kind.behaviour.is_confidential()))?;
                // The real server decodes a strategic patch into Go values, which normalizes numbers.
                json::plain_numbers(&mut value);
            }
        }
        Ok(value)
    }
}

/// Decodes the operations of a JSON patch.
fn read_operations(body: &[u8], write: &mut Write) -> Result<Vec<Operation>> {
    let (patch, twice) = read_json(body, "error decoding patch: ")?;
    let list = match patch {
        Value::Null => Vec::new(),
        Value::Array(list) => list,
        other => {
            return Err(Failure::bad_request(format!(
                "error decoding patch: json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
                found_type(&other)
            )));
        }
    };
    if list.len() > OPERATIONS_LIMIT {
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {OPERATIONS_LIMIT}, got {}",
            list.len()
        );
        return Err(Failure::new(413, "RequestEntityTooLarge", message));
    }
    let mut problems: Vec<_> = twice.iter().map(|twice| format!("json patch {twice}")).collect();
    let mut operations = Vec::with_capacity(list.len());
    for (at, operation) in list.into_iter().enumerate() {
        let (operation, unknown) = Operation::read(operation)
            .map_err(|problem| Failure::bad_request(format!("error decoding patch: {problem}")))?;
        let unknown = unknown.iter().map(|field| quoted(&format!("[{at}].{field}")));
        problems.extend(unknown.map(|field| format!("json patch unknown field {field}")));
        operations.push(operation);
    }
    write.judge(problems).map_err(|problem| unfit(&problem))?;
    Ok(operations)
}

/// Decodes a patch that is a map or null; an error starts with `prefix`.
fn read_map(body: &[u8], prefix: &str, write: &mut Write) -> Result<Value> {
    let (patch, twice) = read_json(body, prefix)?;
    if !patch.is_object() && !patch.is_null() {
        return Err(Failure::bad_request(format!(
            "{prefix}json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            found_type(&patch)
        )));
    }
    write.judge(twice).map_err(|problem| unfit(&problem))?;
    Ok(patch)
}

fn read_json(body: &[u8], prefix: &str) -> Result<(Value, Vec<String>)> {
    let undecodable = |error| Failure::bad_request(format!("{prefix}{}", json::problem(&error, body)));
    json::read(body).map_err(undecodable)
}

impl Seen {
    /// Patches the object.
    pub(crate) fn patch(
        &self,
        kind: &Arc<Kind>,
        patch: &Patch,
        part: Part,
        write: &mut Write,
    ) -> Result<Draft> {
        match self.touch_up(kind, patch, part, write) {
            Some(draft) => Ok(draft),
            None => self.patch_decoded(kind, patch, part, write),
        }
    }

    /// Patches the object, whatever the patch does.
    pub(super) fn patch_decoded(
        &self,
        kind: &Arc<Kind>,
        patch: &Patch,
        part: Part,
        write: &mut Write,
    ) -> Result<Draft> {
        let (key, old) = (&self.key, self.stored(kind)?);
        let stored = old.value();
        let mut value = patch.apply(kind, kind.to_served(stored.clone()))?;
        if !value.is_object() {
            return Err(unfit("the patched object is not an object"));
        }
        if !matches!(patch, Patch::Strategic(_)) {
            check_identity(kind, key, &value)?;
        }
        let normalized = kind.behaviour.normalize(kind, &mut value, false);
        normalized.and_then(|unknown| write.judge_unknown(&unknown)).map_err(|error| match patch {
            Patch::Strategic(_) => unfit(&restored(&error)),
            _ => unfit(&error),
        })?;
        check_same_name(meta::text(&value, "name"), key)?;
        identify(kind, &mut value);
        place(kind, &key.namespace, &mut value)?;
        let version = version_of(&value)?;
        if version != 0 && version != old.revision {
            return Err(Failure::conflict(kind, &key.name, MODIFIED));
        }
        self.change_decoded(kind, (old, stored), value, part, write).map_err(|failure| {
            // A malformed object after a patch is reported as a patch that cannot be applied.
            if failure.code == 400 { unfit(&failure.message) } else { failure }
        })
    }
}

/// Refuses a patch that changes the version or kind of the object. A strategic patch cannot.
fn check_identity(kind: &Kind, key: &Key, value: &Value) -> Result<()> {
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    let (version, name) = (text("apiVersion"), text("kind"));
    if kind.custom.is_none() {
        return match mismatch(kind, version, name) {
            Some(Mismatch::Malformed(problem) | Mismatch::Kind(problem)) => Err(unfit(&problem)),
            // The real server converts the object.
            Some(Mismatch::Version(_)) | None => Ok(()),
        };
    }
    if name.is_empty() {
        return Err(unfit("Object 'Kind' is missing"));
    }
    for (field, found, wanted) in [("apiVersion", version, &kind.api_version), ("kind", name, &kind.kind)] {
        if found != wanted {
            let cause = Cause::invalid(field, &found.into(), &format!("must be {wanted}"));
            return Err(Failure::invalid_as(&kind.group, name, &key.name, vec![cause]));
        }
    }
    Ok(())
}

/// Rewords a decoding error as for an object that was patched as unstructured data.
pub(crate) fn restored(problem: &str) -> String {
    let parts = problem.strip_prefix("json: cannot unmarshal ").and_then(|rest| {
        let (found, rest) = rest.split_once(" into ")?;
        Some((found, rest.rsplit_once(" of type ")?.1))
    });
    let Some((found, wanted)) = parts else { return problem.to_owned() };
    let found = match found {
        number if number.starts_with("number ") && number.contains(['.', 'e']) => "float64",
        number if number.starts_with("number") => "int64",
        "object" => "map",
        "array" => "slice",
        other => other,
    };
    if wanted.starts_with("map[") {
        format!("cannot restore map from {found}")
    } else if wanted.starts_with("[]") {
        format!("cannot restore slice from {found}")
    } else if wanted.contains('.') {
        format!("cannot restore struct from: {found}")
    } else if ["int64", "float64"].contains(&found)
        && wanted != "bool"
        && (found, wanted) != ("float64", "string")
    {
        format!("cannot convert {found} to {wanted}")
    } else {
        format!("unrecognized type: {wanted}")
    }
}

fn unfit(problem: &str) -> Box<Failure> {
    Failure::invalid_as("", "", "", vec![Cause::invalid("patch", &"".into(), problem)])
}
