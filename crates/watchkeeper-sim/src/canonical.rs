//! The canonical form of a cluster's state: without what a server chooses, so that two runs can be compared.
//!
//! Versions, uids, times and generations are dropped or replaced by what they refer to; generated names become their prefix.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::net::TOUCHED;
use crate::site::is_noise;

/// The state of a cluster and of the world outside, in canonical form. Objects with the same generated prefix are a multiset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) objects: BTreeMap<String, Vec<Value>>,
    pub(crate) outside: BTreeMap<String, Value>,
}

impl State {
    /// The resources that there are objects of.
    pub(crate) fn resources(&self) -> impl Iterator<Item = String> {
        self.objects.keys().filter_map(|identity| identity.split(' ').next()).map(str::to_owned)
    }
}

/// An object, parsed once.
struct Parsed {
    resource: String,
    value: Value,
    identity: String,
}

impl State {
    /// The state of these objects, each with its resource.
    pub(crate) fn of<'a>(
        objects: impl IntoIterator<Item = (&'a str, &'a [u8])>,
        outside: BTreeMap<String, Value>,
    ) -> Self {
        let mut parsed: Vec<Parsed> = Vec::new();
        for (resource, json) in objects {
            let resource = dotted(resource);
            if is_noise(&resource) {
                continue;
            }
            let value: Value = serde_json::from_slice(json).unwrap_or_default();
            let identity = identity(&resource, &value);
            parsed.push(Parsed { resource, value, identity });
        }
        let references = References::of(&parsed);
        let mut state = Self { objects: BTreeMap::new(), outside };
        for Parsed { value, identity, .. } in parsed {
            let canonical = references.canonical(value);
            state.objects.entry(identity).or_default().push(canonical);
        }
        state.outside.values_mut().for_each(|value| references.walk(value, &Value::Null));
        for same in state.objects.values_mut() {
            same.sort_by_cached_key(Value::to_string);
        }
        state
    }
}

/// `apps/deployments` as `deployments.apps`.
pub(crate) fn dotted(resource: &str) -> String {
    match resource.split_once('/') {
        Some(("", plural)) => plural.to_owned(),
        Some((group, plural)) => format!("{}.{group}", plural.trim_end_matches("/custom")),
        None => resource.to_owned(),
    }
}

/// What identifies an object in all runs: its resource, namespace and name; the prefix of a generated name.
pub(crate) fn identity(resource: &str, object: &Value) -> String {
    let meta = &object["metadata"];
    let text = |field: &str| meta[field].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let name = match text("generateName") {
        prefix if !prefix.is_empty() && name.starts_with(prefix) => format!("{prefix}*"),
        _ => name.to_owned(),
    };
    if namespace.is_empty() { format!("{resource} {name}") } else { format!("{resource} {namespace}/{name}") }
}

/// What texts in objects may refer to.
struct References(BTreeMap<String, String>);

impl References {
    fn of(objects: &[Parsed]) -> Self {
        let mut references = BTreeMap::new();
        for Parsed { resource, value, identity } in objects {
            let meta = &value["metadata"];
            let mut refer = |field: &str, what: &str| {
                if let Some(text) = meta[field].as_str() {
                    references.insert(text.to_owned(), format!("<{what} of {identity}>"));
                }
            };
            refer("uid", "uid");
            refer("resourceVersion", "version");
            if identity.ends_with('*') && !resource.is_empty() {
                refer("name", "name");
            }
        }
        Self(references)
    }

    fn canonical(&self, mut object: Value) -> Value {
        let generation = object["metadata"]["generation"].clone();
        let identity_name = object["metadata"]["generateName"].clone();
        if let Some(meta) = object["metadata"].as_object_mut() {
            for field in ["uid", "resourceVersion", "generation", "managedFields", "selfLink"] {
                meta.remove(field);
            }
            if identity_name.is_string() {
                meta.remove("name");
            }
            remove_touched(meta);
        }
        self.walk(&mut object, &generation);
        object
    }

    fn walk(&self, value: &mut Value, generation: &Value) {
        match value {
            Value::String(text) => {
                if let Some(reference) = self.0.get(text) {
                    *text = reference.clone();
                } else if is_time(text) {
                    *text = "<time>".to_owned();
                } else if is_uid(text) {
                    *text = "<uid of an object that is gone>".to_owned();
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.walk(item, generation)),
            Value::Object(fields) => {
                if let Some(observed) = fields.get_mut("observedGeneration") {
                    *observed = json!(if observed == generation { "<current>" } else { "<outdated>" });
                }
                for (name, field) in fields.iter_mut() {
                    match is_chosen(name, field) {
                        true => *field = json!("<chosen by the server>"),
                        false => self.walk(field, generation),
                    }
                }
            }
            _ => {}
        }
    }
}

/// Whether a server chooses the value of a field where nobody sets it: the addresses and ports of Services.
fn is_chosen(name: &str, value: &Value) -> bool {
    match name {
        "clusterIP" => value.as_str().is_some_and(|address| address != "None"),
        "clusterIPs" => value.as_array().is_some_and(|addresses| !addresses.contains(&json!("None"))),
        "nodePort" | "healthCheckNodePort" => value.is_number(),
        _ => false,
    }
}

/// What other writers of the simulator have left.
fn remove_touched(meta: &mut Map<String, Value>) {
    let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    annotations.remove(TOUCHED);
    if annotations.is_empty() {
        meta.remove("annotations");
    }
}

/// Whether a text is a time as Kubernetes writes it: `2026-01-01T00:00:00Z`, with or without a fraction.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20
        && bytes.len() <= 35
        && bytes[4] == b'-'
        && bytes[7] == b'-'
        && bytes[10] == b'T'
        && bytes[13] == b':'
        && text.ends_with('Z')
        && bytes[..4].iter().all(u8::is_ascii_digit)
}

/// Whether a text is a uid: `01234567-89ab-4cde-8f01-23456789abcd`.
fn is_uid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(objects: &[(&str, Value)]) -> State {
        let texts: Vec<_> = objects.iter().map(|(resource, value)| (*resource, value.to_string())).collect();
        State::of(texts.iter().map(|(resource, text)| (*resource, text.as_bytes())), BTreeMap::new())
    }

    fn site(uid: &str, version: &str, observed: u64) -> (&'static str, Value) {
        let meta = json!({"name": "a", "namespace": "d", "uid": uid, "resourceVersion": version, "generation": 2,
            "creationTimestamp": format!("2026-01-01T00:00:0{observed}Z")});
        ("example.dev/sites", json!({"metadata": meta, "status": {"observedGeneration": observed}}))
    }

    fn child(owner: &str, name: &str) -> (&'static str, Value) {
        let owners = json!([{"uid": owner, "name": "a"}]);
        (
            "pods",
            json!({"metadata": {"name": name, "generateName": "a-", "namespace": "d", "ownerReferences": owners}}),
        )
    }

    #[test]
    fn what_a_server_chooses_makes_no_difference() {
        let one = state(&[site("u1", "700001", 2), child("u1", "a-x"), child("u1", "a-y")]);
        let other = state(&[site("u2", "700009", 2), child("u2", "a-b"), child("u2", "a-c")]);
        assert_eq!(one, other);
        assert_eq!(one.objects["pods d/a-*"].len(), 2);
    }

    #[test]
    fn another_owner_generation_or_count_makes_a_difference() {
        let one = state(&[site("u1", "700001", 2), child("u1", "a-x")]);
        assert_ne!(one, state(&[site("u1", "700001", 2), child("gone", "a-x")]));
        assert_ne!(one, state(&[site("u1", "700001", 1), child("u1", "a-x")]));
        assert_ne!(one, state(&[site("u1", "700001", 2), child("u1", "a-x"), child("u1", "a-y")]));
    }

    #[test]
    fn what_is_kept_outside_may_refer_to_an_object() {
        let kept = |uid: &str| {
            let (resource, value) = site("u1", "700001", 2);
            let outside = BTreeMap::from([("owner".to_owned(), json!({"uid": uid}))]);
            State::of([(resource, value.to_string().as_bytes())], outside)
        };
        assert_eq!(kept("u1").outside["owner"], json!({"uid": "<uid of sites.example.dev d/a>"}));
        assert_ne!(kept("u1"), kept("u2"));
    }

    #[test]
    fn a_version_of_an_object_is_a_reference_to_it() {
        let map = |version: &str| {
            ("configmaps", json!({"metadata": {"name": "m", "namespace": "d"}, "data": {"seen": version}}))
        };
        assert_eq!(
            state(&[site("u", "700001", 2), map("700001")]),
            state(&[site("u", "700007", 2), map("700007")])
        );
        assert_ne!(
            state(&[site("u", "700001", 2), map("700001")]),
            state(&[site("u", "700007", 2), map("700001")])
        );
    }

    #[test]
    fn events_leases_and_touches_are_left_out() {
        let event = ("events", json!({"metadata": {"name": "e"}}));
        let lease = ("coordination.k8s.io/leases", json!({"metadata": {"name": "l"}}));
        assert_eq!(state(&[event, lease]), State::default());
        let touched = json!({"metadata": {"name": "m", "annotations": {TOUCHED: "1"}}});
        let untouched = json!({"metadata": {"name": "m"}});
        assert_eq!(state(&[("configmaps", touched)]), state(&[("configmaps", untouched)]));
    }
}
