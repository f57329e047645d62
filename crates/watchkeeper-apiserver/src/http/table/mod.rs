//! How does an object look as a row? Tables for clients that print: columns of the kind, cells, and as much of the object as was asked for.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::convert;
use crate::kinds::registry::{Kind, Printer};
use crate::state::store::Stored;

mod age;
mod cells;
mod columns;
mod pod;
mod rare;
mod rows;

use columns::Column;

/// How much of the object comes with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

/// A table that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) include: Include,
    /// In the older version of the format.
    pub(crate) beta: bool,
}

impl Rows {
    fn api_version(self) -> &'static str {
        if self.beta { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" }
    }

    /// A whole table; without `columns` only its rows, as in all but the first event of a watch.
    pub(crate) fn table(
        self,
        kind: &Kind,
        metadata: &Value,
        objects: &[&Stored],
        now: Timestamp,
        columns: bool,
    ) -> Value {
        let rows: Vec<_> = objects.iter().map(|stored| self.row(kind, stored, now)).collect();
        json!({
            "kind": "Table", "apiVersion": self.api_version(), "metadata": metadata,
            "columnDefinitions": if columns { definitions(kind) } else { Value::Null }, "rows": rows,
        })
    }

    fn row(self, kind: &Kind, stored: &Stored, now: Timestamp) -> Value {
        let object = stored.value();
        let cells = match &kind.custom {
            None => rows::row(&kind.kind, &object, now),
            Some(custom) => custom_row(&custom.printers, &object, now),
        };
        let shown = match self.include {
            Include::Nothing => Value::Null,
            Include::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": self.api_version(), "metadata": object["metadata"],
            }),
            Include::Object => convert::from_storage(kind, object),
        };
        json!({"cells": cells, "object": shown})
    }
}

fn definitions(kind: &Kind) -> Value {
    let columns = match &kind.custom {
        None => columns::columns(kind),
        Some(custom) => custom_columns(&custom.printers),
    };
    let shown = columns.iter().map(|column| {
        json!({"name": column.name, "type": column.sort, "format": column.format, "description": "", "priority": column.priority})
    });
    shown.collect()
}

fn custom_columns(printers: &[Printer]) -> Vec<Column> {
    let column = |name: &str, sort: &str, format: &str, priority| Column {
        name: name.to_owned(),
        sort: sort.to_owned(),
        format: format.to_owned(),
        priority,
    };
    let mut columns = vec![column("Name", "string", "name", 0)];
    columns.extend(printers.iter().map(|p| column(&p.name, &p.sort, &p.format, p.priority)));
    columns
}

fn custom_row(printers: &[Printer], object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = vec![object["metadata"]["name"].clone()];
    cells.extend(printers.iter().map(|printer| {
        let found = printer.path.find(object);
        match (printer.sort.as_str(), found) {
            (_, None) => Value::Null,
            ("date", Some(time)) => age::since(time, now).into(),
            ("integer", Some(Value::Number(number))) => number.as_i64().map_or(Value::Null, Value::from),
            ("integer" | "number" | "boolean", Some(value @ (Value::Number(_) | Value::Bool(_)))) => {
                value.clone()
            }
            ("string", Some(Value::String(text))) => text.as_str().into(),
            ("string", Some(value)) => value.to_string().into(),
            _ => Value::Null,
        }
    }));
    cells
}
