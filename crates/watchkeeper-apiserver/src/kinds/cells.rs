//! Columns and cells of tables: their notation, and the texts that many kinds share.

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::age;
use crate::kinds::kind::Kind;
use crate::kinds::label_selector::selector_text;

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) sort: String,
    pub(crate) format: String,
    pub(crate) priority: i64,
}

/// Parses column headers, which are separated by spaces. `_` is a space in a name, `:` starts a type, and `*` marks a
/// column of wide tables.
pub(crate) fn columns(headers: &str) -> Vec<Column> {
    let column = |word: &str| {
        let (word, sort) = word.split_once(':').unwrap_or((word, "string"));
        let name = word.trim_end_matches('*').replace('_', " ");
        Column {
            format: if ["Name", "Attacher"].contains(&name.as_str()) { "name" } else { "" }.to_owned(),
            sort: sort.to_owned(),
            priority: i64::from(word.ends_with('*')),
            name,
        }
    };
    headers.split(' ').map(column).collect()
}

/// A stored object that is shown as a row of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) object: &'a Value,
    pub(crate) now: Timestamp,
}

impl<'a> Row<'a> {
    pub(crate) fn name(&self) -> &'a str {
        text(&self.object["metadata"]["name"])
    }

    pub(crate) fn age(&self) -> String {
        self.since(&self.object["metadata"]["creationTimestamp"])
    }

    /// The time since a timestamp.
    pub(crate) fn since(&self, time: &Value) -> String {
        age::since(time, self.now)
    }

    pub(crate) fn spec(&self) -> &'a Value {
        &self.object["spec"]
    }

    pub(crate) fn status(&self) -> &'a Value {
        &self.object["status"]
    }

    pub(crate) fn is_terminating(&self) -> bool {
        self.object["metadata"]["deletionTimestamp"].is_string()
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns `text`, or `instead` if it is empty.
pub(crate) fn or<'a>(text: &'a str, instead: &'a str) -> &'a str {
    if text.is_empty() { instead } else { text }
}

pub(crate) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

pub(crate) fn count(value: &Value) -> usize {
    value.as_array().map_or_else(|| value.as_object().map_or(0, serde_json::Map::len), Vec::len)
}

/// Formats a number or a string.
pub(crate) fn shown(value: &Value, absent: &str) -> String {
    match value {
        Value::Null => absent.to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `a=b,c=d`, or `<none>`.
pub(crate) fn labels(map: &Value) -> String {
    let pairs = map.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={}", text(value)));
    let pairs: Vec<_> = pairs.collect();
    or(&pairs.join(","), "<none>").to_owned()
}

/// Formats a label selector as a query string, or `<none>`.
pub(crate) fn selector(selector: &Value) -> String {
    or(&selector_text(selector), "<none>").to_owned()
}

/// Returns the names or images of a template's containers.
pub(crate) fn containers(template: &Value, field: &str) -> String {
    let containers = list(&template["spec"]["containers"]).iter();
    containers.map(|container| text(&container[field])).collect::<Vec<_>>().join(",")
}

/// Abbreviates the access modes of a volume.
pub(crate) fn access_modes(modes: &Value) -> String {
    let short = |mode: &Value| match text(mode) {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "",
    };
    list(modes).iter().map(short).filter(|mode| !mode.is_empty()).collect::<Vec<_>>().join(",")
}

/// Joins the first `most` texts, and the number of the others.
pub(crate) fn some(texts: &[String], most: usize) -> String {
    match texts.len() {
        0 => "<none>".to_owned(),
        count if count > most => format!("{} + {} more...", texts[..most].join(","), count - most),
        _ => texts.join(","),
    }
}

/// Returns the addresses of a load balancer.
pub(crate) fn balancer(status: &Value) -> String {
    let ingress = list(&status["loadBalancer"]["ingress"]).iter();
    let addresses = ingress.map(|entry| or(text(&entry["ip"]), text(&entry["hostname"])).to_owned());
    addresses.collect::<Vec<_>>().join(",")
}
