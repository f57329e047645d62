//! Tables for kubectl: the columns of the kind, and a row of cells per object.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::cells::Row;
use crate::kinds::kind::Kind;
use crate::state::store::Stored;

/// The part of the object that is included in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

/// The parameters of a requested table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) include: Include,
    /// In `v1beta1` of the format.
    pub(crate) beta: bool,
}

impl Rows {
    fn api_version(self) -> &'static str {
        if self.beta { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" }
    }

    /// Returns a table; without `columns` only the rows, as in all but the first event of a watch.
    pub(crate) fn table(
        self,
        kind: &Kind,
        metadata: &Value,
        objects: &[&Stored],
        now: Timestamp,
        columns: bool,
    ) -> Value {
        let rows = objects.iter().map(|stored| self.row(kind, stored.value(), now)).collect();
        self.of_rows(kind, metadata, rows, columns)
    }

    /// Returns the table of a bookmark: one row, of an object that has nothing but metadata.
    pub(crate) fn bookmark(self, kind: &Kind, metadata: &Value, now: Timestamp, columns: bool) -> Value {
        let object = json!({"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata});
        let version = json!({"resourceVersion": metadata["resourceVersion"]});
        self.of_rows(kind, &version, vec![self.row(kind, object, now)], columns)
    }

    fn of_rows(self, kind: &Kind, metadata: &Value, rows: Vec<Value>, columns: bool) -> Value {
        json!({
            "kind": "Table", "apiVersion": self.api_version(), "metadata": metadata,
            "columnDefinitions": if columns { definitions(kind) } else { Value::Null }, "rows": rows,
        })
    }

    fn row(self, kind: &Kind, object: Value, now: Timestamp) -> Value {
        let cells = kind.behaviour.row(&Row { kind, object: &object, now });
        let shown = match self.include {
            Include::Nothing => Value::Null,
            Include::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": self.api_version(), "metadata": object["metadata"],
            }),
            Include::Object => kind.to_served(object),
        };
        json!({"cells": cells, "object": shown})
    }
}

fn definitions(kind: &Kind) -> Value {
    let columns = kind.behaviour.columns(kind);
    let shown = columns.iter().map(|column| {
        json!({"name": column.name, "type": column.sort, "format": column.format, "description": "", "priority": column.priority})
    });
    shown.collect()
}
