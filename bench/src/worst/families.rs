//! Families of requests that are as unpleasant as their size allows.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use watchkeeper::clock::Generator;

use super::collections;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(super) const THINGS: &str = "/apis/example.com/v1/things";
pub(super) const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// A request to be sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) form: &'static str,
    pub(super) body: Bytes,
    /// Whether the answer is to be a table.
    pub(super) table: bool,
}

impl Sent {
    pub(super) fn new(
        method: &'static str,
        path: impl Into<String>,
        form: &'static str,
        body: Bytes,
    ) -> Self {
        Self { method, path: path.into(), form, body, table: false }
    }

    pub(super) fn post(path: impl Into<String>, body: impl ToString) -> Self {
        Self::new("POST", path, "application/json", body.to_string().into())
    }

    fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path, "", Bytes::new())
    }

    pub(super) fn patch(path: impl Into<String>, form: &'static str, body: &Value) -> Self {
        Self::new("PATCH", path, form, body.to_string().into())
    }
}

/// What is sent, and what must be there before.
#[derive(Clone, Debug, Default)]
pub(super) struct Case {
    pub(super) before: Vec<Sent>,
    pub(super) requests: Vec<Sent>,
}

impl Case {
    pub(super) fn of(before: Vec<Sent>, request: Sent) -> Self {
        Self { before, requests: vec![request] }
    }
}

type Family = fn(&Generator, usize) -> Case;

/// Every family, by name.
pub(super) const FAMILIES: &[(&str, Family)] = &[
    ("nothing", |_, _| Case::of(Vec::new(), Sent::get(MAPS))),
    ("set", |chance, size| {
        things(&list("set", &json!({"type": "string"})), &json!({"list": texts(chance, size)}))
    }),
    ("map", map),
    ("rules", rules),
    ("patterns", patterns),
    ("alternatives", alternatives),
    ("choices", choices),
    ("defaults", defaults),
    ("deep", deep),
    ("long-names", long_names),
    ("applied-set", applied_set),
    ("applied-twice", applied_twice),
    ("json-patch", json_patch),
    ("strategic-patch", strategic_patch),
    ("grown", grown),
    ("finalizers", finalizers),
    ("owners", owners),
    ("managers", managers),
    ("labels", labels),
    ("ports", ports),
    ("pod", pod),
    ("unknown-fields", unknown_fields),
    ("yaml", yaml),
    ("definition", definition_of_patterns),
    ("definition-names", definition_names),
    ("definition-changed", definition_changed),
    ("openapi", openapi),
    ("table", table),
    ("selector", selector),
    ("watch-selector", watch_selector),
    ("delete-collection", delete_collection),
    ("delete-large", delete_large),
    ("namespace-many", collections::namespace_of_many),
    ("namespace-large", collections::namespace_of_large),
    ("definition-many", collections::definition_of_many),
    ("definition-large", collections::definition_of_large),
    ("schema-many", collections::schema_of_many),
    ("schema-large", collections::schema_of_large),
    ("names-handed-on", collections::names_handed_on),
    ("services", collections::services),
];

/// A number from `low` up to `high`.
pub(super) fn pick(chance: &Generator, low: usize, high: usize) -> usize {
    low + chance.below((high - low).max(1) as u64) as usize
}

/// Different texts that make up so many bytes, in any order.
fn texts(chance: &Generator, size: usize) -> Vec<String> {
    let pad = "x".repeat(pick(chance, 0, 12));
    let count = size / (pad.len() + 11);
    let mut texts: Vec<_> = (0..count).map(|n| format!("{n:07}{pad}")).collect();
    for at in (1..texts.len()).rev() {
        texts.swap(at, pick(chance, 0, at + 1));
    }
    texts
}

pub(super) fn definition(versions: &[Value]) -> Value {
    let versions = versions.iter().enumerate().map(|(n, schema)| {
        json!({"name": format!("v{}", n + 1), "served": true, "storage": n == 0, "schema": {"openAPIV3Schema": schema}})
    });
    json!({"metadata": {"name": "things.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"}, "versions": versions.collect::<Vec<_>>()}})
}

pub(super) fn object(properties: &Value) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})
}

fn list(sort: &str, items: &Value) -> Value {
    object(&json!({"list": {"type": "array", "x-kubernetes-list-type": sort, "items": items}}))
}

pub(super) fn thing(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

pub(super) fn define(schema: &Value) -> Vec<Sent> {
    vec![Sent::post(DEFINITIONS, definition(std::slice::from_ref(schema)))]
}

/// The creation of a custom object.
fn things(schema: &Value, spec: &Value) -> Case {
    Case::of(define(schema), Sent::post(THINGS, thing("a", spec)))
}

fn map(chance: &Generator, size: usize) -> Case {
    let items = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}});
    let mut schema = list("map", &items);
    schema["properties"]["spec"]["properties"]["list"]["x-kubernetes-list-map-keys"] = json!(["k"]);
    let elements: Vec<_> = texts(chance, size / 2).iter().map(|text| json!({"k": text, "v": 1})).collect();
    things(&schema, &json!({"list": elements}))
}

fn rules(chance: &Generator, size: usize) -> Case {
    let items = json!({"type": "integer", "x-kubernetes-validations": [
        {"rule": "self > 10", "message": "too small"}, {"rule": "self % 2 == 1", "message": "even"}]});
    let element = pick(chance, 0, 4) * 2;
    things(&list("atomic", &items), &json!({"list": vec![element; size / 2]}))
}

fn patterns(chance: &Generator, size: usize) -> Case {
    let most = pick(chance, 10, 900.min(size / 300));
    let pattern = match pick(chance, 0, 3) {
        0 => format!("^([a-z]{{1,9}}){{0,{most}}}$"),
        1 => format!("(x+x+)+y.{{1,{most}}}"),
        _ => format!("^[\\p{{Latin}}0-9]{{1,{most}}}$"),
    };
    let length = pick(chance, 1, 2_000.min(size));
    let items = json!({"type": "string", "pattern": pattern});
    things(&list("atomic", &items), &json!({"list": vec!["x".repeat(length); size / (length + 3)]}))
}

fn alternatives(chance: &Generator, size: usize) -> Case {
    let branches: Vec<_> =
        (0..pick(chance, 10, 2_000.min(size / 500))).map(|n| json!({"enum": [n + 10]})).collect();
    if pick(chance, 0, 2) == 0 {
        let choices: Vec<_> = (0..50_000.min(size / 50)).map(|n| format!("choice-{n}")).collect();
        let items = json!({"type": "string", "anyOf": [{"enum": choices}, {"minLength": 1}]});
        return things(&list("atomic", &items), &json!({"list": vec!["none"; size / 7]}));
    }
    let items = json!({"type": "integer", "anyOf": branches});
    things(&list("atomic", &items), &json!({"list": vec![1; size / 2]}))
}

fn choices(chance: &Generator, size: usize) -> Case {
    let choices: Vec<_> =
        (0..pick(chance, 10, 50_000.min(size / 50))).map(|n| format!("choice-{n}")).collect();
    let items = json!({"type": "string", "enum": choices});
    things(&list("atomic", &items), &json!({"list": vec!["none"; size / 7]}))
}

fn defaults(chance: &Generator, size: usize) -> Case {
    let default = "x".repeat(pick(chance, 10, 10_000));
    let items = json!({"type": "object", "properties": {"text": {"type": "string", "default": default}}});
    things(&list("atomic", &items), &json!({"list": vec![json!({}); size / 3]}))
}

pub(super) fn anything() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn deep(chance: &Generator, size: usize) -> Case {
    let depth = pick(chance, 50, 95);
    let chain = (0..depth).fold(json!(1), |inner, _| json!({"a": inner}));
    things(&anything(), &json!({"list": vec![chain; size / (6 * depth + 2)]}))
}

fn long_names(chance: &Generator, size: usize) -> Case {
    let name = "n".repeat(pick(chance, 1, size / 2));
    let fields: Map<_, _> = (0..size / 20).map(|n| (format!("{n:07}"), json!(1))).collect();
    things(&anything(), &json!({name: fields}))
}

fn applied_set(chance: &Generator, size: usize) -> Case {
    let mut names = texts(chance, size * 2 / 5);
    let apply = |names: &[String]| {
        let config = thing("a", &json!({"list": names}));
        Sent::patch(format!("{THINGS}/a?fieldManager=m"), APPLY, &config)
    };
    let mut before = define(&list("set", &json!({"type": "string"})));
    before.push(apply(&names));
    names.reverse();
    Case::of(before, apply(&names))
}

fn applied_twice(chance: &Generator, size: usize) -> Case {
    let apply = |manager: &str, names: &[String]| {
        let config = thing("a", &json!({"list": names}));
        Sent::patch(format!("{THINGS}/a?fieldManager={manager}"), APPLY, &config)
    };
    let names = texts(chance, size / 10);
    let mut before = define(&list("set", &json!({"type": "string"})));
    before.push(apply("one", &names));
    before.push(apply("two", &names));
    Case::of(before, apply("one", &names[..names.len() / 2]))
}

fn json_patch(chance: &Generator, size: usize) -> Case {
    let count = size.min(600_000) / 12;
    let before =
        [define(&anything()), vec![Sent::post(THINGS, thing("a", &json!({"list": vec![1; count]})))]];
    let operations: Vec<_> = (0..(size / 60).min(9_999))
        .map(|_| match pick(chance, 0, 3) {
            0 => json!({"op": "move", "from": "/spec/list/0", "path": "/spec/list/-"}),
            1 => json!({"op": "add", "path": "/spec/list/0", "value": 1}),
            _ => json!({"op": "copy", "from": "/spec/list/1", "path": "/spec/list/0"}),
        })
        .collect();
    Case::of(
        before.concat(),
        Sent::patch(format!("{THINGS}/a"), "application/json-patch+json", &json!(operations)),
    )
}

fn deployment(env: &[Value]) -> Value {
    json!({"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i", "env": env}]}}}})
}

fn strategic_patch(chance: &Generator, size: usize) -> Case {
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let variable = |name: &String| json!({"name": format!("E{name}"), "value": "x"});
    let names = texts(chance, size / 8);
    let env: Vec<_> = names.iter().map(variable).collect();
    let other: Vec<_> = names.iter().rev().map(|name| variable(&format!("{name}y"))).collect();
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "env": other}]}}}});
    let form = "application/strategic-merge-patch+json";
    let before = vec![Sent::post(deployments, deployment(&env))];
    Case::of(before, Sent::patch(format!("{deployments}/a"), form, &patch))
}

fn grown(chance: &Generator, size: usize) -> Case {
    let mut before = define(&anything());
    before.push(Sent::post(THINGS, thing("a", &json!({}))));
    let grow = |n: usize| {
        let spec = json!({"spec": {format!("k{n}"): "x".repeat(pick(chance, size / 3, size * 9 / 10))}});
        Sent::patch(format!("{THINGS}/a"), MERGE, &spec)
    };
    Case { before, requests: (0..10).map(grow).collect() }
}

fn config_map(metadata: &Value) -> Value {
    let mut map = json!({"metadata": metadata});
    map["metadata"]["name"] = "a".into();
    map
}

fn finalizers(chance: &Generator, size: usize) -> Case {
    let names: Vec<_> = texts(chance, size / 3).iter().map(|name| format!("e.io/{name}")).collect();
    let before = vec![
        Sent::post(MAPS, config_map(&json!({"finalizers": names}))),
        Sent::new("DELETE", format!("{MAPS}/a"), "", Bytes::new()),
    ];
    let others: Vec<_> = names.iter().rev().map(|name| format!("{name}y")).collect();
    Case::of(before, Sent::patch(format!("{MAPS}/a"), MERGE, &json!({"metadata": {"finalizers": others}})))
}

fn owners(chance: &Generator, size: usize) -> Case {
    let owner = |uid: &String| json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": pick(chance, 0, 2) == 0});
    let owners: Vec<_> = texts(chance, size / 6).iter().map(owner).collect();
    Case::of(Vec::new(), Sent::post(MAPS, config_map(&json!({"ownerReferences": owners}))))
}

fn managers(chance: &Generator, size: usize) -> Case {
    let operation = if pick(chance, 0, 2) == 0 { "Apply" } else { "Update" };
    let entry = |name: &String| {
        json!({"manager": name, "operation": operation, "apiVersion": "v1", "time": "2024-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}})
    };
    let entries: Vec<_> = texts(chance, size / 12).iter().map(entry).collect();
    let before = vec![Sent::post(MAPS, config_map(&json!({})))];
    Case::of(
        before,
        Sent::patch(format!("{MAPS}/a"), MERGE, &json!({"metadata": {"managedFields": entries}})),
    )
}

fn labels(chance: &Generator, size: usize) -> Case {
    let bad = if pick(chance, 0, 2) == 0 { "" } else { "!" };
    let labels: Map<_, _> =
        texts(chance, size / 3).into_iter().map(|name| (format!("l{name}{bad}"), json!("v"))).collect();
    Case::of(Vec::new(), Sent::post(MAPS, config_map(&json!({"labels": labels, "annotations": labels}))))
}

fn ports(chance: &Generator, size: usize) -> Case {
    let names = texts(chance, size / 5);
    let ports: Vec<_> = names.iter().map(|name| json!({"name": name, "port": 80})).collect();
    let service = json!({"metadata": {"name": "a"}, "spec": {"type": "NodePort", "ports": ports}});
    Case::of(Vec::new(), Sent::post("/api/v1/namespaces/default/services", service))
}

fn pod(chance: &Generator, size: usize) -> Case {
    let names = texts(chance, size / 12);
    let named = |name: &String| json!({"name": format!("e.io/{name}")});
    let tolerations: Vec<_> = names.iter().map(|name| json!({"key": name, "operator": "Exists"})).collect();
    let containers: Vec<_> = names.iter().map(|name| json!({"name": name, "image": "i"})).collect();
    let gates: Vec<_> = names.iter().map(named).collect();
    let pod = json!({"metadata": {"name": "a"}, "spec": {"schedulingGates": gates, "tolerations": tolerations,
        "containers": containers}});
    Case::of(Vec::new(), Sent::post("/api/v1/namespaces/default/pods", pod))
}

fn unknown_fields(chance: &Generator, size: usize) -> Case {
    let fields: Map<_, _> = texts(chance, size * 2 / 3).into_iter().map(|name| (name, json!(1))).collect();
    things(&object(&json!({"known": {"type": "string"}})), &Value::Object(fields))
}

fn yaml(chance: &Generator, size: usize) -> Case {
    let lines: String = texts(chance, size * 3 / 4).iter().map(|text| format!("  - \"{text}\"\n")).collect();
    let text =
        format!("apiVersion: example.com/v1\nkind: Thing\nmetadata:\n  name: a\nspec:\n  list:\n{lines}");
    let request = Sent::new("POST", THINGS, "application/yaml", text.into());
    Case::of(define(&list("set", &json!({"type": "string"}))), request)
}

fn definition_of_patterns(chance: &Generator, size: usize) -> Case {
    let versions = pick(chance, 2, 30.min(size / 1_000));
    let field = |n: usize| {
        let pattern = format!("^.{{1,{}}}{n}$", pick(chance, 10, 1_000.min(size / 300)));
        (format!("p{n}"), json!({"type": "string", "pattern": pattern}))
    };
    let fields: Map<_, _> = (0..16).map(field).collect();
    let schema = |n: usize| {
        let mut schema = object(&Value::Object(fields.clone()));
        schema["description"] = n.to_string().into();
        schema
    };
    let versions: Vec<_> = (0..versions).map(schema).collect();
    Case::of(Vec::new(), Sent::post(DEFINITIONS, definition(&versions)))
}

fn definition_names(chance: &Generator, size: usize) -> Case {
    let with = |plural: &str, names: &[String]| {
        let mut definition = definition(&[anything()]);
        definition["metadata"]["name"] = format!("{plural}.example.com").into();
        definition["spec"]["names"] = json!({"plural": plural, "kind": plural, "shortNames": names});
        Sent::post(DEFINITIONS, definition)
    };
    let names = texts(chance, size / 3);
    Case::of(vec![with("others", &names)], with("things", &names))
}

fn definition_changed(chance: &Generator, size: usize) -> Case {
    let field = |n: usize| (format!("field-{n}"), json!({"type": "string", "description": "x".repeat(20)}));
    let fields = size.min(1 << 20) / pick(chance, 90, 120);
    let schema = |more: usize| object(&Value::Object((0..fields + more).map(field).collect()));
    let patch = json!({"spec": {"versions": definition(&[schema(1)])["spec"]["versions"]}});
    Case::of(define(&schema(0)), Sent::patch(format!("{DEFINITIONS}/things.example.com"), MERGE, &patch))
}

fn openapi(chance: &Generator, size: usize) -> Case {
    let mut case = definition_changed(chance, size);
    case.requests =
        vec![Sent::get("/openapi/v3"), Sent::get("/openapi/v3/apis/example.com/v1"), Sent::get("/apis")];
    case
}

/// So many ConfigMaps with labels.
fn maps(count: usize) -> Vec<Sent> {
    let map =
        |n: usize| json!({"metadata": {"name": format!("m{n}"), "labels": {"a": "b", "n": n.to_string()}}});
    (0..count).map(|n| Sent::post(MAPS, map(n))).collect()
}

fn table(chance: &Generator, size: usize) -> Case {
    let mut list = Sent::get(MAPS);
    list.table = true;
    Case::of(maps((size / 1_000).min(pick(chance, 2_000, 3_000))), list)
}

/// A label selector that every object has to be held against to its end.
fn long_selector(chance: &Generator, size: usize) -> String {
    let terms: Vec<_> = (0..(size / 100).min(8_000)).map(|n| format!("!l{n}")).collect();
    format!("labelSelector={},a={}", terms.join(","), if pick(chance, 0, 2) == 0 { "b" } else { "c" })
}

fn selector(chance: &Generator, size: usize) -> Case {
    let selector = long_selector(chance, size);
    Case::of(maps((size / 1_000).min(2_000)), Sent::get(format!("{MAPS}?{selector}")))
}

fn watch_selector(chance: &Generator, size: usize) -> Case {
    let selector = long_selector(chance, size);
    let path = format!("{MAPS}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&{selector}");
    Case::of(maps((size / 1_000).min(2_000)), Sent::get(path))
}

fn delete_collection(chance: &Generator, size: usize) -> Case {
    let all = Sent::new("DELETE", MAPS, "application/json", Bytes::new());
    Case::of(maps((size / 1_000).min(pick(chance, 2_000, 3_000))), all)
}

fn delete_large(chance: &Generator, size: usize) -> Case {
    let mut before = define(&anything());
    let spec = json!({"list": vec![1; size.min(1_200_000) / pick(chance, 2, 4)]});
    before.extend((0..5).map(|n| Sent::post(THINGS, thing(&format!("t{n}"), &spec))));
    Case::of(before, Sent::new("DELETE", THINGS, "application/json", Bytes::new()))
}
