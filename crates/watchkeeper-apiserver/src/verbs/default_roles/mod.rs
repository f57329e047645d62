//! The roles and role bindings of a new server with RBAC, from a table.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::state::core::Core;
use crate::state::store::Key;
use crate::verbs::write::Write;

const TABLE: &str = include_str!("table.txt");
const GROUP: &str = "rbac.authorization.k8s.io";
/// The field manager of the rules of aggregated roles.
const AGGREGATOR: &str = "clusterrole-aggregation-controller";

/// An object of the table: its resource, its namespace and itself.
#[derive(Debug, PartialEq)]
struct Entry {
    plural: &'static str,
    namespace: String,
    object: Value,
    /// The role that it is aggregated to, and the one that it is.
    to: String,
    of: String,
}

impl Core {
    /// Creates the default roles and bindings that do not exist. The rules of aggregated roles are filled in, so that they are complete
    /// without a controller.
    pub(crate) fn create_default_roles(&mut self) {
        let mut entries = read();
        aggregate(&mut entries);
        for entry in entries {
            let Some(kind) = self.registry.find(GROUP, "v1", entry.plural).cloned() else { continue };
            let mut write = Write::own();
            if !entry.of.is_empty() {
                write.manager = AGGREGATOR.to_owned();
            }
            let key = Key::new(&entry.namespace, meta::text(&entry.object, "name"));
            if self.store.get(&kind.storage, &key).is_some() {
                continue;
            }
            let object = complete(&kind, entry.object);
            let created = self.create(&kind, &entry.namespace, object, &write);
            debug_assert!(created.is_ok(), "a default role is valid: {created:?}");
        }
    }
}

/// Adds the fields that every object of a kind has.
fn complete(kind: &Kind, object: Value) -> Value {
    let mut complete = kind.blank().clone();
    for (field, value) in object.as_object().into_iter().flatten() {
        complete[field] = value.clone();
    }
    complete
}

fn read() -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["role", name, ref options @ ..] => entries.push(role(name, options)),
            ["bind", name, role, ref subjects @ ..] => entries.push(binding(name, role, subjects)),
            ["allow", verbs, groups, resources, ref names @ ..] => {
                let mut rule = json!({
                    "verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources)});
                if let [names] = names {
                    rule["resourceNames"] = list(names);
                }
                add_rule(&mut entries, rule);
            }
            ["path", verbs, urls] => {
                add_rule(&mut entries, json!({"verbs": list(verbs), "nonResourceURLs": list(urls)}));
            }
            _ => debug_assert!(false, "not a line of the table: {line}"),
        }
    }
    entries
}

fn add_rule(entries: &mut [Entry], rule: Value) {
    if let Some(rules) = entries.last_mut().and_then(|entry| entry.object["rules"].as_array_mut()) {
        rules.push(rule);
    }
}

/// A list of words. The core group, whose name is empty, is written as `core`.
fn list(words: &str) -> Value {
    words.split(',').map(|word| if word == "core" { "" } else { word }).collect()
}

fn role(name: &str, options: &[&str]) -> Entry {
    let option = |name: &str| {
        let value = options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default().to_owned()
    };
    let (to, of) = (option("to"), option("of"));
    let label = |role: &str| format!("{GROUP}/aggregate-to-{role}");
    let (namespace, mut object) = named(name);
    object["rules"] = json!([]);
    if !to.is_empty() {
        object["metadata"]["labels"][label(&to)] = "true".into();
    }
    if !of.is_empty() {
        let labels: Map<_, _> = [(label(&of), "true".into())].into_iter().collect();
        object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
    }
    let plural = if namespace.is_empty() { "clusterroles" } else { "roles" };
    Entry { plural, namespace, object, to, of }
}

fn binding(name: &str, role: &str, subjects: &[&str]) -> Entry {
    let (namespace, mut object) = named(name);
    let (kind, name) = role.strip_prefix("role=").map_or(("ClusterRole", role), |name| ("Role", name));
    object["roleRef"] = json!({"apiGroup": GROUP, "kind": kind, "name": name});
    if !subjects.is_empty() {
        object["subjects"] = subjects.iter().map(|subject| self::subject(subject)).collect();
    }
    let plural = if namespace.is_empty() { "clusterrolebindings" } else { "rolebindings" };
    Entry { plural, namespace, object, to: String::new(), of: String::new() }
}

fn subject(text: &str) -> Value {
    match text.split_once('=') {
        Some(("group", name)) => json!({"kind": "Group", "apiGroup": GROUP, "name": name}),
        Some((_, name)) => json!({"kind": "User", "apiGroup": GROUP, "name": name}),
        None => {
            let (namespace, name) = text.split_once('/').unwrap_or(("", text));
            json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
        }
    }
}

/// A namespace, and an object of that name with the metadata of all defaults.
fn named(name: &str) -> (String, Value) {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    let metadata = json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    });
    (namespace.to_owned(), json!({"metadata": metadata}))
}

/// Fills the rules of roles that aggregate others, as the controller for them does.
fn aggregate(entries: &mut [Entry]) {
    // Roles that are aggregated to others come first.
    for role in ["view", "edit", "admin"] {
        let parts: BTreeMap<_, _> = entries
            .iter()
            .filter(|entry| entry.to == role)
            .map(|entry| (entry.object["metadata"]["name"].to_string(), entry.object["rules"].clone()))
            .collect();
        let mut rules: Vec<Value> = Vec::new();
        for rule in parts.values().filter_map(Value::as_array).flatten() {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
        for entry in entries.iter_mut().filter(|entry| entry.of == role) {
            entry.object["rules"] = rules.clone().into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregated_roles_contain_each_other() {
        let mut entries = read();
        aggregate(&mut entries);
        let rules = |name: &str| {
            let entry = entries.iter().find(|entry| entry.object["metadata"]["name"] == name).unwrap();
            entry.object["rules"].as_array().unwrap().clone()
        };
        for (small, large) in [("view", "edit"), ("edit", "admin")] {
            assert!(rules(small).iter().all(|rule| rules(large).contains(rule)), "{small} in {large}");
            assert!(rules(small).len() < rules(large).len());
        }
        let secrets = |name: &str| {
            let reads = |rule: &Value| {
                rule.to_string().contains("\"secrets\"") && rule.to_string().contains("\"get\"")
            };
            rules(name).iter().any(reads)
        };
        assert!(!secrets("view") && secrets("edit"), "secrets are not for viewers");
    }
}
