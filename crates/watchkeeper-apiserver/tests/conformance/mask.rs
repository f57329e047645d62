//! Masks for values that a server chooses itself: uids, versions, times, tokens and ages.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use crate::step::Step;

/// Marks a version or uid that [`crate::compare`] binds to the recorded one.
pub(crate) const BOUND: char = '\u{1}';

static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<time>"),
        (r"\b(gen|g)-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "$1-<generated>"),
        (r#"(resourceVersion\\*":\\*")\d+"#, "$1<version>"),
        (r"hash=[0-9A-F]+", "hash=<hash>"),
        (r"\b10\.\d+\.\d+\.\d+", "<ip>"),
        (r"(version: |current: |\()\d+", "$1<version>"),
    ]
    .map(|(pattern, name)| (Regex::new(pattern).unwrap(), name))
    .into()
});

static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\d+[smhd](\d+[smh])?$").unwrap());

/// Returns the response as it is compared.
pub(crate) fn masked(step: &Step, answer: &Value) -> Value {
    let mut answer = answer.clone();
    if let Some(body) = answer.get_mut("body") {
        for pointer in &step.drop {
            remove(body, pointer);
        }
        if !step.only.is_empty() {
            let parts = step.only.iter();
            *body = parts.map(|at| (at.clone(), body.pointer(at).cloned().unwrap_or_default())).collect();
        }
    }
    mask(&answer, "", false)
}

fn remove(value: &mut Value, pointer: &str) {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer begins with /");
    if let Some(Value::Object(map)) = value.pointer_mut(parent) {
        map.remove(name);
    }
}

/// Masks a value; `state` marks the metadata of a list or bookmark, whose version is that of the server and not of an
/// object.
fn mask(value: &Value, key: &str, state: bool) -> Value {
    match value {
        Value::Object(map) => Value::Object(mask_map(map, key, state)),
        Value::Array(list) => list.iter().map(|value| mask(value, key, false)).collect(),
        Value::String(text) => mask_text(text, key, state).into(),
        other => other.clone(),
    }
}

fn mask_map(map: &Map<String, Value>, key: &str, state: bool) -> Map<String, Value> {
    let kind = map.get("kind").and_then(Value::as_str).unwrap_or_default();
    let whole = kind.ends_with("List") || kind == "Table" || map.get("type").is_some_and(|t| t == "BOOKMARK");
    // The object of a bookmark is one level below the event.
    let bookmark = key == "object" && map.get("metadata").is_some_and(|m| m.get("uid").is_none());
    let texts = map.iter().filter(|(name, _)| {
        // Column descriptions and storage version hashes are not compared.
        !(*name == "description" && map.contains_key("priority")) && *name != "storageVersionHash"
    });
    texts
        .map(|(name, value)| {
            let value = match (name.as_str(), value) {
                ("continue", Value::String(text)) if !text.is_empty() => "<continue>".into(),
                ("token" | "hash", Value::String(_)) => format!("<{name}>").into(),
                // The real server returns causes in any order, some twice, and managed fields ordered by the second of
                // the write.
                ("causes" | "managedFields", Value::Array(list)) => {
                    let mut list: Vec<_> = list.iter().map(|entry| mask(entry, name, false)).collect();
                    list.sort_by_key(|entry| (entry["manager"].to_string(), entry.to_string()));
                    list.dedup();
                    list.into()
                }
                ("metadata", value) => mask(value, name, whole || bookmark),
                (_, value) => mask(value, name, state && name == "resourceVersion"),
            };
            (name.clone(), value)
        })
        .collect()
}

fn mask_text(text: &str, key: &str, state: bool) -> String {
    match key {
        "resourceVersion" if state && !text.is_empty() => return "<version>".to_owned(),
        "resourceVersion" if text.parse::<u64>().is_ok() => return format!("{BOUND}version {text}"),
        "uid" if text.len() == 36 => return format!("{BOUND}uid {text}"),
        "cells" if AGE.is_match(text) => return "<age>".to_owned(),
        _ => {}
    }
    PATTERNS
        .iter()
        .fold(text.to_owned(), |text, (pattern, name)| pattern.replace_all(&text, *name).into_owned())
}
