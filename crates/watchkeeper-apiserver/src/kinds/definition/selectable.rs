//! Selectable fields of a version: by which fields of custom objects lists and watches select.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{list, text};
use crate::failure::Cause;

/// The maximum number of selectable fields of a version.
const MOST: usize = 8;

/// Returns the problems of the selectable fields at a path of the definition; `had` are those of the version before.
pub(super) fn problems(fields: &Value, had: &Value, schema: &Value, at: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut known = BTreeSet::new();
    for (index, field) in list(fields).iter().enumerate() {
        let (path, at) = (text(field, "jsonPath"), format!("{at}[{index}].jsonPath"));
        if path.is_empty() {
            causes.push(Cause::required(&at, ""));
            continue;
        }
        let found = match follow(path, schema) {
            Ok(found) => found,
            Err(problem) => {
                let problem = format!("is an invalid path: {problem}");
                causes.push(Cause::invalid(&at, &path.into(), &problem));
                continue;
            }
        };
        if path.split('.').nth(1) == Some("metadata") {
            causes.push(Cause::invalid(&at, &path.into(), "must not point to fields in metadata"));
        }
        if !["string", "boolean", "integer"].contains(&text(found, "type")) {
            let problem = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            causes.push(Cause::invalid(&at, &path.into(), problem));
        }
        if !known.insert(path) {
            causes.push(Cause::duplicate(&at, &path.into()));
        }
    }
    // A definition that had too many before may keep them.
    if known.len() > MOST && fields != had {
        let message = format!("Too many: {}: must have at most {MOST} items", known.len());
        causes.push(Cause { reason: "FieldValueTooMany", message, field: at.to_owned() });
    }
    causes
}

/// Returns the schema of the field at a path such as `.spec.color`; the error says what is wrong with the path.
fn follow<'a>(path: &str, schema: &'a Value) -> Result<&'a Value, String> {
    if path.contains('[') {
        return Err("array notation is not allowed".to_owned());
    }
    let Some(names) = path.strip_prefix('.') else {
        let first = path.split('.').next().unwrap_or_default();
        return Err(format!("expected [ or . but got: {first}"));
    };
    let mut schema = schema;
    for name in names.split('.') {
        if name.is_empty() {
            return Err("unexpected end of JSON path".to_owned());
        }
        let next = match schema.get("properties") {
            Some(properties) => properties.get(name),
            None => schema.get("additionalProperties").filter(|values| values.is_object()),
        };
        schema = next.ok_or("does not refer to a valid field")?;
    }
    Ok(schema)
}
