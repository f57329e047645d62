//! Families whose one request concerns a whole collection: many small objects, or a few large ones.

use bytes::Bytes;
use serde_json::{Value, json};
use watchkeeper::clock::Generator;

use super::families::{
    Case, DEFINITIONS, MERGE, Sent, THINGS, anything, define, definition, object, pick, thing,
};

const NAMESPACES: &str = "/api/v1/namespaces";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// The most bytes of an object with room for its metadata and the names of its managers.
const LARGE: usize = 1_000_000;

fn delete(path: impl Into<String>) -> Sent {
    Sent::new("DELETE", path, "application/json", Bytes::new())
}

/// How many small objects are there at most.
fn many(chance: &Generator, size: usize) -> usize {
    (size / 300).min(pick(chance, 8_000, 10_000))
}

/// Half of the collections consist of objects that are held by a finalizer: they are marked, and stay.
fn finalizers(chance: &Generator) -> Value {
    if pick(chance, 0, 2) == 0 { json!([]) } else { json!(["example.com/hold"]) }
}

fn namespace(objects: impl Iterator<Item = Value>) -> Case {
    let mut before = vec![Sent::post(NAMESPACES, json!({"metadata": {"name": "crowded"}}))];
    before.extend(objects.map(|map| Sent::post(format!("{NAMESPACES}/crowded/configmaps"), map)));
    Case::of(before, delete(format!("{NAMESPACES}/crowded")))
}

pub(super) fn namespace_of_many(chance: &Generator, size: usize) -> Case {
    let finalizers = finalizers(chance);
    namespace((0..many(chance, size)).map(|n| {
        json!({"metadata": {"name": format!("m{n}"), "finalizers": finalizers}, "data": {"n": n.to_string()}})
    }))
}

pub(super) fn namespace_of_large(chance: &Generator, size: usize) -> Case {
    let finalizers = finalizers(chance);
    let length = pick(chance, 1, 20);
    let values = size.min(LARGE) / (length + 20);
    let data: Value = (0..values).map(|n| (format!("k{n}"), json!("x".repeat(length)))).collect();
    namespace(
        (0..10)
            .map(|n| json!({"metadata": {"name": format!("m{n}"), "finalizers": finalizers}, "data": data})),
    )
}

/// The definition of things, and so many of them.
fn crowd(schema: &Value, things: impl Iterator<Item = Value>) -> Vec<Sent> {
    let mut before = define(schema);
    before.extend(things.map(|thing| Sent::post(THINGS, thing)));
    before
}

fn held(chance: &Generator, spec: Value, count: usize) -> impl Iterator<Item = Value> + use<> {
    let finalizers = finalizers(chance);
    (0..count).map(move |n| {
        let mut thing = thing(&format!("t{n}"), &spec);
        thing["metadata"]["finalizers"] = finalizers.clone();
        thing
    })
}

/// A list of numbers is what takes longest to read for its size.
fn large_spec(chance: &Generator, size: usize) -> Value {
    json!({"list": vec![1; size.min(LARGE) / pick(chance, 2, 4)], "old": "x"})
}

pub(super) fn definition_of_many(chance: &Generator, size: usize) -> Case {
    let things = held(chance, json!({"n": 1}), many(chance, size));
    Case::of(crowd(&anything(), things), delete(format!("{DEFINITIONS}/things.example.com")))
}

pub(super) fn definition_of_large(chance: &Generator, size: usize) -> Case {
    let things = held(chance, large_spec(chance, size), 10);
    Case::of(crowd(&anything(), things), delete(format!("{DEFINITIONS}/things.example.com")))
}

/// A change by which every object reads otherwise: it loses a field and gets a default.
fn schema_changed(things: impl Iterator<Item = Value>) -> Case {
    let list = json!({"type": "array", "items": {"type": "integer"}});
    let schema = |field: &str, default: Value| {
        let mut schema = object(&json!({"n": {"type": "integer"}, "list": list, field: {"type": "string"}}));
        if !default.is_null() {
            schema["properties"]["spec"]["properties"][field]["default"] = default;
        }
        schema
    };
    let versions = definition(&[schema("new", json!("filled in"))])["spec"]["versions"].clone();
    let patch = json!({"spec": {"versions": versions}});
    let path = format!("{DEFINITIONS}/things.example.com");
    Case::of(crowd(&schema("old", Value::Null), things), Sent::patch(path, MERGE, &patch))
}

pub(super) fn schema_of_many(chance: &Generator, size: usize) -> Case {
    schema_changed(held(chance, json!({"n": 1, "old": "x"}), many(chance, size)))
}

pub(super) fn schema_of_large(chance: &Generator, size: usize) -> Case {
    schema_changed(held(chance, large_spec(chance, size), 10))
}

/// A definition goes, and many others get the names that it held.
pub(super) fn names_handed_on(chance: &Generator, size: usize) -> Case {
    let count = (size / 3_000).min(pick(chance, 500, 1_000));
    let padding = "x".repeat(pick(chance, 0, 2_000));
    let with = |plural: &str, names: &[String]| {
        let mut definition = definition(&[anything()]);
        definition["metadata"]["name"] = format!("{plural}.example.com").into();
        definition["metadata"]["annotations"] = json!({"padding": padding});
        definition["spec"]["names"] = json!({"plural": plural, "kind": plural, "shortNames": names});
        Sent::post(DEFINITIONS, definition)
    };
    let short: Vec<_> = (0..count).map(|n| format!("s{n}")).collect();
    let mut before = vec![with("things", &short)];
    before
        .extend(short.iter().enumerate().map(|(n, name)| with(&format!("d{n}"), std::slice::from_ref(name))));
    Case::of(before, delete(format!("{DEFINITIONS}/things.example.com")))
}

/// One more service beside many: no two get one address.
pub(super) fn services(chance: &Generator, size: usize) -> Case {
    let sort = if pick(chance, 0, 2) == 0 { "ClusterIP" } else { "NodePort" };
    let service = |name: &str, sort: &str| {
        Sent::post(
            SERVICES,
            json!({"metadata": {"name": name}, "spec": {"type": sort, "ports": [{"port": 80}]}}),
        )
    };
    let before = (0..(size / 1_000).min(1_500)).map(|n| service(&format!("s{n}"), "ClusterIP")).collect();
    Case::of(before, service("one-more", sort))
}
