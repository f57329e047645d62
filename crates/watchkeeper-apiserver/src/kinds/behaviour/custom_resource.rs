//! Custom resources: behaviour given by their definition.

use serde_json::{Value, json};

use super::{Behaviour, Change, Findings};
use crate::codec;
use crate::failure::{Cause, Failure, Result};
use crate::kinds::cells::{Column, Row};
use crate::kinds::kind::{Custom, Kind, Printer};
use crate::kinds::rules;
use crate::kinds::schema::Schema;
use crate::kinds::size;
use crate::types::normalize::normalize_metadata;

/// The behaviour of all custom resources.
#[derive(Debug)]
pub(in crate::kinds) struct CustomResource;

impl Behaviour for CustomResource {
    /// Normalizes the metadata by its type, and the rest by the schema, which prunes unknown fields.
    fn normalize(&self, kind: &Kind, object: &mut Value, nulls: bool) -> Result<Vec<String>, String> {
        size::check_shape(object)?;
        let Value::Object(map) = object else { return Err("the body is not an object".to_owned()) };
        let metadata = map.entry("metadata").or_insert(Value::Null);
        if metadata.is_null() {
            *metadata = json!({});
        }
        let mut unknown = normalize_metadata(metadata)?;
        if let Some(custom) = &kind.custom {
            unknown.extend(custom.schema.prune(object, nulls));
        }
        for (_, part) in object.as_object_mut().into_iter().flatten().filter(|(name, _)| *name != "metadata")
        {
            codec::json::plain_numbers(part);
        }
        unknown.sort();
        Ok(unknown)
    }

    fn defaults(&self, kind: &Kind, object: &mut Value) -> Result<()> {
        let Some(custom) = &kind.custom else { return Ok(()) };
        custom.schema.default(object)?;
        // Defaulting may have lengthened paths.
        if size::has_long_paths(object) {
            return Err(Failure::bad_request("the names of its fields are too long"));
        }
        Ok(())
    }

    fn status_metadata(&self) -> &'static [&'static str] {
        &[]
    }

    /// Validates by the schema first; rules are only evaluated on a structurally valid object.
    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        let Some(custom) = &change.kind.custom else { return };
        let (schema, causes) = (&custom.schema, &mut findings.causes);
        causes.extend(schema_causes(custom, change));
        validate_scale(change, causes);
        match &custom.rules {
            Some(_) if causes.iter().any(Cause::hides_others) => causes.push(rules::unchecked()),
            Some(rules) => causes.extend(rules.broken(schema, change.new, change.old)),
            None => {}
        }
    }

    fn deprecation(&self, kind: &Kind) -> Option<String> {
        kind.custom.as_ref()?.warning.clone()
    }

    fn to_served(&self, kind: &Kind, object: &mut Value) {
        if let Some(custom) = &kind.custom {
            convert(object, &kind.api_version, Some(&custom.schema));
        }
    }

    fn to_storage(&self, kind: &Kind, object: &mut Value) {
        if let Some(custom) = &kind.custom {
            convert(object, &custom.storage_version, custom.storage_schema.as_deref());
        }
    }

    fn storage_path(&self, kind: &Kind) -> String {
        format!("{}/{}", kind.group, kind.plural)
    }

    fn columns(&self, kind: &Kind) -> Vec<Column> {
        let column = |name: &str, sort: &str, format: &str, priority| Column {
            name: name.to_owned(),
            sort: sort.to_owned(),
            format: format.to_owned(),
            priority,
        };
        let name = column("Name", "string", "name", 0);
        let others = printers(kind).iter().map(|p| column(&p.name, &p.sort, &p.format, p.priority));
        [name].into_iter().chain(others).collect()
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let name = json!(row.name());
        [name].into_iter().chain(printers(row.kind).iter().map(|printer| cell(printer, row))).collect()
    }
}

fn schema_causes(custom: &Custom, change: &Change<'_>) -> Vec<Cause> {
    if change.status {
        custom.schema.validate_status(change.new, change.old)
    } else {
        custom.schema.validate(change.new, change.old)
    }
}

/// Reports numbers of replicas that the scale subresource cannot show.
fn validate_scale(change: &Change<'_>, causes: &mut Vec<Cause>) {
    let Some(paths) = &change.kind.scale else { return };
    let wanted = (!change.status).then_some(&paths.spec_replicas);
    for path in wanted.into_iter().chain([&paths.status_replicas]) {
        let replicas = path.iter().fold(change.new, |at, part| &at[part.as_str()]);
        let path = format!(".{}", path.join("."));
        let found = match replicas {
            Value::String(text) => Some((text.clone(), "string")),
            Value::Bool(flag) => Some((flag.to_string(), "bool")),
            _ => None,
        };
        if let Some((shown, found)) = found {
            let problem = format!("{path} accessor error: {shown} is of the type {found}, expected int64");
            causes.push(Cause::invalid(&path, &0.into(), &problem));
        }
        if replicas.as_i64().is_some_and(|replicas| replicas < 0) {
            causes.push(Cause::invalid(&path, replicas, "should be a non-negative integer"));
        }
    }
}

/// Converts an object to another version without a webhook: fields that its schema does not know are pruned.
fn convert(object: &mut Value, version: &str, schema: Option<&Schema>) {
    if object["apiVersion"] != version
        && let Some(schema) = schema
    {
        schema.prune(object, false);
    }
    object["apiVersion"] = version.into();
}

fn printers(kind: &Kind) -> &[Printer] {
    kind.custom.as_ref().map_or(&[], |custom| &custom.printers)
}

fn cell(printer: &Printer, row: &Row<'_>) -> Value {
    match (printer.sort.as_str(), printer.path.find(row.object)) {
        (_, None) => Value::Null,
        ("date", Some(time)) => row.since(time).into(),
        ("integer", Some(Value::Number(number))) => number.as_i64().map_or(Value::Null, Value::from),
        ("integer" | "number" | "boolean", Some(value @ (Value::Number(_) | Value::Bool(_)))) => {
            value.clone()
        }
        ("string", Some(Value::String(text))) => text.as_str().into(),
        ("string", Some(value)) => value.to_string().into(),
        _ => Value::Null,
    }
}
