//! Normalization of responses: versions and uids become numbers in order of appearance; times, tokens and generated
//! suffixes are masked.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value};

static UID: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").unwrap());
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b10\.0\.\d+\.\d+\b").unwrap());
static TIME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\d{4}-\d\d-\d\dT[\d:.]+Z").unwrap());
static GENERATED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(gen\d\d-)[bcdfghjklmnpqrstvwxz2456789]{5}\b").unwrap());
static VERSIONS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"((?:ersion|current|record|precondition|meta): |\()(\d+)").unwrap());

/// The numbers of one server's values in a transcript.
#[derive(Debug, Default)]
pub(crate) struct Names {
    versions: BTreeMap<u64, usize>,
    uids: BTreeMap<String, usize>,
}

impl Names {
    fn version(&mut self, text: &str) -> String {
        let Ok(version) = text.parse() else { return text.to_owned() };
        let next = self.versions.len() + 1;
        format!("version {}", self.versions.entry(version).or_insert(next))
    }

    /// Returns the numbers of all versions, in ascending order of the versions.
    pub(crate) fn order(&self) -> Value {
        self.versions.values().copied().collect::<Vec<_>>().into()
    }

    fn text(&mut self, text: &str) -> String {
        let text = UID.replace_all(text, |found: &Captures<'_>| {
            let next = self.uids.len() + 1;
            format!("uid {}", self.uids.entry(found[0].to_owned()).or_insert(next))
        });
        let text = ADDRESS.replace_all(&text, "<address>");
        // Only the real server appends the diff of two pods.
        let text = text.split("\n@@ ").next().unwrap_or_default();
        let text = TIME.replace_all(text, "<time>");
        let text = GENERATED.replace_all(&text, "$1<generated>");
        VERSIONS.replace_all(&text, "$1<number>").into_owned()
    }

    /// Returns a response as it is compared.
    pub(crate) fn normalise(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(map) => Value::Object(self.map(map)),
            Value::Array(list) => list.iter().map(|value| self.normalise(value)).collect(),
            Value::String(text) => self.text(text).into(),
            other => other.clone(),
        }
    }

    fn map(&mut self, map: &Map<String, Value>) -> Map<String, Value> {
        let list = map.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
        let mut named = Map::new();
        // The real server drops the owner of deletion fields with the next update.
        let kept = map.iter().filter(|(name, _)| !name.starts_with("f:deletion"));
        for (name, value) in kept {
            let value = match (name.as_str(), value) {
                // The version of a list is that of the whole server, to which others write as well.
                ("metadata", Value::Object(meta)) if list => {
                    let mut meta = meta.clone();
                    meta.insert("resourceVersion".to_owned(), "<list>".into());
                    if meta.contains_key("continue") {
                        meta.insert("continue".to_owned(), "<token>".into());
                    }
                    meta.into()
                }
                ("resourceVersion", Value::String(text)) if text != "<list>" => self.version(text).into(),
                // The real server returns causes in any order, some twice, and managed fields ordered by the second of
                // the write.
                ("causes" | "managedFields", Value::Array(list)) => {
                    let mut list: Vec<_> = list.iter().map(|entry| self.normalise(entry)).collect();
                    list.retain(|entry| entry["fieldsV1"] != serde_json::json!({}));
                    list.sort_by_key(ToString::to_string);
                    list.dedup();
                    list.into()
                }
                ("nodePort", Value::Number(_)) => "<port>".into(),
                ("message", Value::String(text)) => ordered(&self.text(text)).into(),
                (_, value) => self.normalise(value),
            };
            if name == "f:metadata" && value == serde_json::json!({}) {
                continue;
            }
            named.insert(self.text(name), value);
        }
        named
    }
}

/// Sorts the causes or conflicts of a message.
fn ordered(message: &str) -> String {
    if message.starts_with("Apply failed with ") {
        let mut lines: Vec<_> = message.split("\n").flat_map(|line| line.split("conflicts: ")).collect();
        lines.sort_unstable();
        return lines.join("\n");
    }
    let Some((head, causes)) = message.split_once(" is invalid: [") else { return message.to_owned() };
    let mut causes: Vec<_> = causes.trim_end_matches(']').split(", ").collect();
    causes.sort_unstable();
    causes.dedup();
    format!("{head} is invalid: [{}]", causes.join(", "))
}
