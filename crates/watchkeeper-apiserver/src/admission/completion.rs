//! An object that webhooks or policies have changed is completed again.

use serde_json::Value;

use crate::admission::attempt::Attempt;
use crate::failure::{Failure, Result};
use crate::kinds::kind::Kind;
use crate::types;

/// Checks and completes a changed object, which is in the version of `kind`. Returns the fields that do not exist; they
/// are left out.
pub(super) fn complete(attempt: &Attempt<'_>, kind: &Kind, object: &mut Value) -> Result<Vec<String>> {
    let unusable = |why: String| Failure::internal_error(&why);
    match attempt.body {
        None => {
            let unknown = kind.behaviour.normalize(kind, object, false).map_err(unusable)?;
            kind.behaviour.defaults(kind, object)?;
            Ok(unknown)
        }
        Some((version, name)) => match types::of_kind(version, name) {
            Some(id) => types::normalize::normalize(id, object).map_err(unusable),
            None => Ok(Vec::new()),
        },
    }
}
