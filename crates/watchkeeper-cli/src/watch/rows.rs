//! The rows of a kind: its objects by the informer, with the columns that the server prints for them.

use std::collections::BTreeMap;
use std::time::Duration;

use http::HeaderValue;
use http::header::ACCEPT;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube_client::core::params::ListParams;
use kube_client::core::{ApiResource, DynamicObject, Request, Resource as _};
use serde::Deserialize;
use serde_json::Value;
use watchkeeper::wire::ApiError;
use watchkeeper::{Client, Object, ObjectName};

use crate::columns::printable;

/// The media type of kubectl's tables.
const TABLE: HeaderValue = HeaderValue::from_static("application/json;as=Table;g=meta.k8s.io;v=v1");
/// How long the server may take to answer, and how many rows it is asked for.
const DEADLINE: Duration = Duration::from_secs(10);
const LIMIT: u32 = 500;

/// The server's columns of a kind, without name and age, and their cells.
#[derive(Debug, Default)]
pub(super) struct Table {
    columns: Vec<String>,
    cells: BTreeMap<ObjectName, Vec<String>>,
}

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub(super) enum TableError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("cannot build the request")]
    Request(#[from] kube_client::core::request::Error),
    #[error("no answer within {DEADLINE:?}")]
    Timeout,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "columnDefinitions", default)]
    columns: Vec<Column>,
    #[serde(default)]
    rows: Vec<Line>,
}

#[derive(Deserialize)]
struct Column {
    name: String,
    #[serde(default)]
    format: String,
    /// Columns for `-o wide` have another priority than 0.
    #[serde(default)]
    priority: i32,
}

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    cells: Vec<Value>,
    object: Partial,
}

#[derive(Deserialize)]
struct Partial {
    metadata: ObjectMeta,
}

impl Table {
    /// Asks the server for the table that kubectl prints.
    pub(super) async fn fetch(client: &Client, kind: &ApiResource) -> Result<Self, TableError> {
        let path = DynamicObject::url_path(kind, None);
        let mut request = Request::new(path).list(&ListParams::default().limit(LIMIT))?;
        request.headers_mut().insert(ACCEPT, TABLE);
        let answer = client.env().clock.timeout(DEADLINE, client.kube().request::<Answer>(request)).await;
        Ok(Self::read(answer.map_err(|_| TableError::Timeout)?.map_err(ApiError::from)?))
    }

    fn read(answer: Answer) -> Self {
        let is_shown =
            |column: &Column| column.priority == 0 && column.format != "name" && column.name != "Age";
        let cells = answer.rows.into_iter().map(|row| {
            let metadata = row.object.metadata;
            let name = metadata.name.unwrap_or_default();
            let key = match metadata.namespace {
                Some(namespace) => ObjectName::namespaced(&namespace, &name),
                None => ObjectName::cluster(&name),
            };
            let cells = answer.columns.iter().zip(row.cells).filter(|(column, _)| is_shown(column));
            (key, cells.map(|(_, cell)| text(&cell)).collect())
        });
        let cells = cells.collect();
        let columns =
            answer.columns.into_iter().filter(is_shown).map(|column| printable(&column.name)).collect();
        Self { columns, cells }
    }
}

fn text(cell: &Value) -> String {
    match cell {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => printable(text),
        other => printable(&other.to_string()),
    }
}

/// All objects of a kind, by name.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) columns: Vec<String>,
    pub(super) rows: BTreeMap<ObjectName, Row>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Row {
    pub(super) cells: Vec<String>,
    pub(super) created: Option<Timestamp>,
    /// The status of the condition `Ready`.
    pub(super) ready: Option<String>,
}

#[derive(Deserialize)]
struct Seen {
    #[serde(default)]
    metadata: Created,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
struct Created {
    #[serde(rename = "creationTimestamp")]
    at: Option<Time>,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Ready>,
}

#[derive(Deserialize)]
struct Ready {
    r#type: String,
    status: String,
}

impl Rows {
    /// The objects with the cells of the table. A kind without columns of its own shows the condition `Ready`, if any object has it.
    pub(super) fn new(objects: &[Object<DynamicObject>], table: Option<Table>) -> Self {
        let Table { mut columns, mut cells } = table.unwrap_or_default();
        let mut rows: BTreeMap<_, _> = objects
            .iter()
            .map(|object| {
                let key = object.key();
                let seen = object.view::<Seen>().ok();
                let conditions =
                    seen.as_ref().and_then(|seen| seen.status.as_ref()).map(|status| &status.conditions);
                let ready = conditions.into_iter().flatten().find(|condition| condition.r#type == "Ready");
                let row = Row {
                    cells: cells.remove(&key).unwrap_or_default(),
                    ready: ready.map(|ready| ready.status.clone()),
                    created: seen.and_then(|seen| Some(seen.metadata.at?.0)),
                };
                (key, row)
            })
            .collect();
        if columns.is_empty() && rows.values().any(|row| row.ready.is_some()) {
            columns.push("Ready".to_owned());
            for row in rows.values_mut() {
                row.cells = vec![printable(row.ready.as_deref().unwrap_or("-"))];
            }
        }
        for row in rows.values_mut() {
            row.cells.resize(columns.len(), "-".to_owned());
        }
        Self { columns, rows }
    }

    /// The names and contents of the cells that differ from those of an older state.
    pub(super) fn lines_since(&self, old: &Self) -> Vec<(ObjectName, String)> {
        let line = |(key, row): (&ObjectName, &Row)| {
            let before = |column: &String| {
                let index = old.columns.iter().position(|own| own == column)?;
                old.rows.get(key)?.cells.get(index)
            };
            let cells = self.columns.iter().zip(&row.cells);
            let differs = |(column, cell): &(&String, &String)| match before(column) {
                Some(old) => *cell != old,
                None => *cell != "-",
            };
            let cells: Vec<_> =
                cells.filter(differs).map(|(column, cell)| format!("{column}: {cell}")).collect();
            (!cells.is_empty()).then(|| (key.clone(), cells.join(", ")))
        };
        self.rows.iter().filter_map(line).collect()
    }
}

/// The age of an object as kubectl prints it.
pub(super) fn age(created: Option<Timestamp>, now: Timestamp) -> String {
    let Some(created) = created else { return "-".to_owned() };
    let seconds = now.duration_since(created).as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => format!("{minutes}m{}s", seconds % 60),
        () if hours < 3 => format!("{minutes}m"),
        () if hours < 8 => format!("{hours}h{}m", minutes % 60),
        () if days < 2 => format!("{hours}h"),
        () if days < 8 => format!("{days}d{}h", hours % 24),
        () => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, status: &Value) -> Object<DynamicObject> {
        let metadata = json!({"name": name, "namespace": "default", "uid": name, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"});
        let object = json!({"apiVersion": "example.dev/v1", "kind": "Website", "metadata": metadata, "status": status});
        Object::from_json(object.to_string().as_bytes()).unwrap()
    }

    fn table(cells: &Value) -> Table {
        let column = |name: &str, format: &str, priority: i32| json!({"name": name, "type": "string", "format": format, "priority": priority});
        let columns = [
            column("Name", "name", 0),
            column("Ready", "", 0),
            column("Wide", "", 1),
            column("Age", "", 0),
            column("URL", "", 0),
        ];
        let row = json!({"cells": cells, "object": {"metadata": {"name": "a", "namespace": "default"}}});
        Table::read(serde_json::from_value(json!({"columnDefinitions": columns, "rows": [row]})).unwrap())
    }

    #[test]
    fn the_columns_are_the_servers_without_name_age_and_wide_ones() {
        let rows = Rows::new(
            &[object("a", &json!({})), object("b", &json!({}))],
            Some(table(&json!(["a", "True", "x", "5s", 3]))),
        );
        assert_eq!(rows.columns, ["Ready", "URL"]);
        let cells: Vec<_> = rows.rows.values().map(|row| row.cells.join(" ")).collect();
        assert_eq!(cells, ["True 3", "- -"], "the table is older than b");
    }

    #[test]
    fn without_columns_the_condition_ready_is_shown() {
        let ready = json!({"conditions": [{"type": "Ready", "status": "False"}]});
        let rows = Rows::new(&[object("a", &ready), object("b", &json!({}))], None);
        assert_eq!(rows.columns, ["Ready"]);
        let cells: Vec<_> = rows.rows.values().map(|row| row.cells.join(" ")).collect();
        assert_eq!(cells, ["False", "-"]);
    }

    #[test]
    fn a_line_has_the_cells_that_have_changed() {
        let rows = |cells| Rows::new(&[object("a", &json!({}))], Some(table(&cells)));
        let key = ObjectName::namespaced("default", "a");
        let first = rows(json!(["a", "False", "", "5s", null]));
        assert_eq!(first.lines_since(&Rows::default()), [(key.clone(), "Ready: False".to_owned())]);
        let second = rows(json!(["a", "True", "", "9s", "http://a"]));
        assert_eq!(second.lines_since(&first), [(key, "Ready: True, URL: http://a".to_owned())]);
        assert_eq!(second.lines_since(&second), []);
    }

    #[test]
    fn ages_are_printed_as_kubectl_prints_them() {
        let now: Timestamp = "2026-02-01T00:00:00Z".parse().unwrap();
        let ages = [
            (0, "0s"),
            (119, "119s"),
            (125, "2m5s"),
            (3700, "61m"),
            (4 * 3600 + 60, "4h1m"),
            (86_400, "24h"),
            (3 * 86_400, "3d0h"),
            (9 * 86_400, "9d"),
        ];
        for (seconds, text) in ages {
            assert_eq!(age(Some(now - jiff::SignedDuration::from_secs(seconds)), now), text);
        }
        assert_eq!(age(Some(now + jiff::SignedDuration::from_secs(5)), now), "0s", "clocks may differ");
    }
}
