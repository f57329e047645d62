//! Generation of operations from a seed. Few names and values, so that operations interact.

use serde_json::{Value, json};
use watchkeeper::clock::Generator;

use crate::kinds::{KINDS, Kind};
use crate::operation::Operation;

const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// A random source.
pub(crate) struct Draw(Generator);

impl Draw {
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    pub(crate) fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Clone>(&self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()].clone()
    }
}

/// Returns the operations of a sequence.
pub(crate) fn sequence(seed: u64, length: usize) -> Vec<Operation> {
    let draw = Draw(Generator::seeded(seed));
    // Two kinds per sequence, so that operations on one object follow each other closely.
    let kinds = [draw.pick(&KINDS), draw.pick(&KINDS)];
    (0..length).map(|number| operation(&draw, draw.pick(&kinds), number)).collect()
}

fn operation(draw: &Draw, kind: Kind, number: usize) -> Operation {
    let name = draw.pick(&["o0", "o1"]);
    let path = format!("{}/{name}", kind.collection());
    match draw.below(100) {
        0..20 => create(draw, kind, name, number),
        20..32 => update(draw, kind, name),
        32..50 => patch(draw, kind, &path, name),
        50..62 => apply(draw, kind, &path, name),
        62..72 => delete(draw, kind, &path, name),
        72..74 => delete_collection(draw, kind),
        74..82 => list(draw, kind),
        82..86 => Operation::get(format!("{path}{}", draw.pick(&["", "?resourceVersion=0"]))),
        86..91 => status(draw, kind, &path, name),
        91..95 if kind == Kind::Pod => act(draw, &path, name),
        91..95 => scale(draw, &path, name),
        _ => Operation::watch(watched(draw, kind)),
    }
}

fn query(draw: &Draw, parts: &[&str]) -> String {
    let mut query: Vec<&str> = parts.to_vec();
    match draw.below(20) {
        0 => query.push("dryRun=All"),
        1 => query.push("fieldValidation=Strict"),
        2 => query.push("fieldValidation=Ignore"),
        3 => query.push("fieldManager=somebody"),
        _ => {}
    }
    if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) }
}

/// An object as a user would write it, sometimes with a mistake or with fields that are not stored.
fn object(draw: &Draw, kind: Kind, name: &str) -> Value {
    let mut object = kind.object(draw, name);
    let metadata = &mut object["metadata"];
    metadata["name"] = name.into();
    if draw.chance(60) {
        metadata["labels"] = labels(draw);
    }
    if draw.chance(20) {
        metadata["annotations"] = json!({"note": draw.pick(&["x", "y", ""])});
    }
    if draw.chance(20) {
        metadata["finalizers"] = draw.pick(&[
            json!(["example.com/a"]),
            json!(["example.com/a", "example.com/b"]),
            json!(["foregroundDeletion"]),
            json!(["orphan"]),
            json!([]),
        ]);
    }
    match draw.below(40) {
        0 => object["surprise"] = 1.into(),
        1 => object["metadata"]["surprise"] = "x".into(),
        3 => object["metadata"]["labels"] = json!({"app": "not valid!"}),
        4 => object["metadata"]["ownerReferences"] = owners(draw),
        5 if kind != Kind::Widget => object["kind"] = "Odd".into(),
        6 => object["metadata"]["generation"] = 7.into(),
        _ => {}
    }
    object
}

fn labels(draw: &Draw) -> Value {
    draw.pick(&[
        json!({"app": "a"}),
        json!({"app": "b"}),
        json!({"app": "a", "tier": "t"}),
        json!({"tier": "t"}),
        json!({}),
    ])
}

fn owners(draw: &Draw) -> Value {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o0", "uid": "<uid configmaps/o0>"});
    let mut controlled = owner.clone();
    controlled["controller"] = true.into();
    draw.pick(&[json!([owner]), json!([controlled]), json!([{"kind": "ConfigMap", "name": "o0"}])])
}

fn create(draw: &Draw, kind: Kind, name: &str, number: usize) -> Operation {
    let mut object = object(draw, kind, name);
    if draw.chance(5) {
        object["metadata"].as_object_mut().unwrap().remove("name");
        // A unique prefix, so that the order of names does not depend on the generated suffix.
        object["metadata"]["generateName"] = format!("gen{number:02}-").into();
    }
    Operation::new("POST", format!("{}{}", kind.collection(), query(draw, &[])), object)
}

fn update(draw: &Draw, kind: Kind, name: &str) -> Operation {
    let mut object = object(draw, kind, name);
    match draw.below(10) {
        0..6 => object["metadata"]["resourceVersion"] = kind.gap("version", name),
        6 => object["metadata"]["resourceVersion"] = kind.gap("stale", name),
        7 => object["metadata"]["uid"] = kind.gap("uid", name),
        _ => {}
    }
    Operation::new("PUT", format!("{}/{name}{}", kind.collection(), query(draw, &[])), object)
}

fn patch(draw: &Draw, kind: Kind, path: &str, name: &str) -> Operation {
    let path = format!("{path}{}", query(draw, &[]));
    match draw.below(3) {
        0 => Operation::patch(path, JSON_PATCH, json_patch(draw, kind)),
        1 => Operation::patch(path, MERGE, change(draw, kind, name)),
        _ => Operation::patch(path, STRATEGIC, change(draw, kind, name)),
    }
}

fn change(draw: &Draw, kind: Kind, name: &str) -> Value {
    match draw.below(18) {
        0 => json!({"metadata": {"labels": {"app": draw.pick(&[json!("a"), json!("b"), Value::Null])}}}),
        1 => json!({"metadata": {"annotations": {"note": draw.pick(&[json!("z"), Value::Null])}}}),
        2 => {
            json!({"metadata": {"finalizers": draw.pick(&[Value::Null, json!([]), json!(["example.com/a"])])}})
        }
        3 => json!({"metadata": {"finalizers": ["example.com/b"]}}),
        4 => json!({"metadata": {"resourceVersion": kind.gap(draw.pick(&["version", "stale"]), name),
            "labels": {"tier": "u"}}}),
        5 => json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}),
        6 => {
            json!({"metadata": {"labels": {"$patch": draw.pick(&["replace", "delete", "merge", "odd"]), "app": "b"}}})
        }
        7 => json!({"metadata": {"$setElementOrder/finalizers": ["example.com/b", "example.com/a"]}}),
        8 => {
            json!({"metadata": {"$setElementOrder/finalizers": ["example.com/b"], "finalizers": ["example.com/a"]}})
        }
        9 => json!({"metadata": {"labels": {"$retainKeys": ["app"], draw.pick(&["app", "tier"]): "c"}}}),
        10 => {
            json!({"metadata": {"finalizers": draw.pick(&[json!([5]), json!([{}]), json!([[]]), json!(5)])}})
        }
        _ => kind.change(draw),
    }
}

fn json_patch(draw: &Draw, kind: Kind) -> Value {
    match draw.below(14) {
        0 => json!([{"op": "add", "path": "/metadata/labels", "value": labels(draw)}]),
        1 => json!([{"op": "remove", "path": "/metadata/labels/app"}]),
        2 => json!([{"op": "replace", "path": "/metadata/labels/app", "value": "b"}]),
        3 => json!([{"op": "remove", "path": "/metadata/finalizers/0"}]),
        4 => json!([{"op": "test", "path": "/metadata/labels/app", "value": "a"},
            {"op": "add", "path": "/metadata/annotations", "value": {"note": "tested"}}]),
        5 => json!([{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/b"]}]),
        6 => json!([{"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/a"]}]),
        7 => {
            json!([{"op": draw.pick(&["move", "copy"]), "from": "/metadata/labels", "path": "/metadata/annotations"}])
        }
        8 => {
            json!([{"op": draw.pick(&["move", "copy"]), "from": "/metadata/labels/tier", "path": "/metadata/labels/app"}])
        }
        9 => json!([{"op": draw.pick(&["remove", "test"]), "path": "/metadata/finalizers/-1"}]),
        10 => json!([{"op": "add", "path": "/metadata/finalizers/-2", "value": "example.com/b"},
            {"op": "replace", "path": "/metadata/finalizers/-1", "value": "example.com/a"}]),
        _ => kind.json_patch(draw),
    }
}

fn apply(draw: &Draw, kind: Kind, path: &str, name: &str) -> Operation {
    let manager = format!("fieldManager={}", draw.pick(&["one", "two", "three"]));
    let force = draw.pick(&["force=true", "force=false", ""]);
    let mut parts = vec![manager.as_str(), force];
    parts.retain(|part| !part.is_empty());
    if draw.chance(5) {
        parts.push("dryRun=All");
    }
    if draw.chance(10) {
        parts.push(draw.pick(&["fieldValidation=Strict", "fieldValidation=Ignore"]));
    }
    let mut object = object(draw, kind, name);
    let (version, named) = kind.names();
    if object["kind"] != "Odd" {
        object["kind"] = named.into();
    }
    object["apiVersion"] = version.into();
    if draw.chance(5) {
        object["metadata"]["resourceVersion"] = kind.gap("version", name);
    }
    match draw.below(20) {
        // Zero values as left by tools that print Go structs.
        0 => {
            object["metadata"]["creationTimestamp"] = Value::Null;
            object["status"] = json!({});
        }
        1 => object["metadata"][draw.pick(&["annotations", "labels", "finalizers"])] = Value::Null,
        2 => object["metadata"]["annotations"] = json!({}),
        3 => object["spec"] = draw.pick(&[json!({}), Value::Null]),
        _ => {}
    }
    if kind == Kind::Widget {
        // See docs/apiserver-conformance.md.
        let parts = ["labels", "annotations", "finalizers"];
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.retain(|name, value| {
            !parts.contains(&name.as_str()) || ![Value::Null, json!({}), json!([])].contains(value)
        });
    }
    Operation::patch(format!("{path}?{}", parts.join("&")), APPLY, object)
}

fn delete(draw: &Draw, kind: Kind, path: &str, name: &str) -> Operation {
    let mut options = json!({});
    if draw.chance(60) {
        options["propagationPolicy"] = draw.pick(&["Background", "Foreground", "Orphan"]).into();
    }
    if draw.chance(30) {
        options["gracePeriodSeconds"] = draw.pick(&[0, 0, 5, 100, -1]).into();
    }
    match draw.below(10) {
        0 => options["preconditions"] = json!({"uid": kind.gap("uid", name)}),
        1 => options["preconditions"] = json!({"uid": "00000000-0000-0000-0000-00000000dead"}),
        2 => options["preconditions"] = json!({"resourceVersion": kind.gap("version", name)}),
        3 => options["preconditions"] = json!({"resourceVersion": kind.gap("stale", name)}),
        _ => {}
    }
    let query = if draw.chance(8) { "?dryRun=All" } else { "" };
    let body = if options == json!({}) && draw.chance(50) { Value::Null } else { options };
    Operation::new("DELETE", format!("{path}{query}"), body)
}

const SELECTORS: [&str; 8] =
    ["app%3Da", "app%3D%3Db", "app%21%3Db", "app+in+(a,b)", "app+notin+(b,c)", "%21tier", "tier", "app"];

fn delete_collection(draw: &Draw, kind: Kind) -> Operation {
    let selector = draw.pick(&SELECTORS);
    Operation::new("DELETE", format!("{}?labelSelector={selector}", kind.collection()), Value::Null)
}

fn list(draw: &Draw, kind: Kind) -> Operation {
    let mut parts = Vec::new();
    if draw.chance(40) {
        parts.push(format!("labelSelector={}", draw.pick(&SELECTORS)));
    }
    if draw.chance(25) {
        parts.push(format!("fieldSelector={}", kind.field_selector(draw)));
    }
    match draw.below(10) {
        0..3 => parts.push("limit=1".to_owned()),
        3 => parts.extend(["limit=1".to_owned(), format!("continue=<continue {}>", kind.plural())]),
        4 => parts.extend(["limit=500".to_owned(), format!("continue=<continue {}>", kind.plural())]),
        5 => parts.push(format!("resourceVersion=<past {}>&resourceVersionMatch=Exact", draw.below(8))),
        6 => {
            parts.push(format!("resourceVersion=<past {}>&resourceVersionMatch=NotOlderThan", draw.below(8)))
        }
        7 => parts.push(format!("resourceVersion=<past {}>&limit=1", draw.below(8))),
        _ => {}
    }
    let query = if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) };
    Operation::get(format!("{}{query}", kind.collection()))
}

/// A selector that the marker at the end of each sequence matches.
fn watched(draw: &Draw, kind: Kind) -> String {
    let selector = draw.pick(&[
        "",
        "",
        "&labelSelector=app%3Da",
        "&labelSelector=app%21%3Db",
        "&labelSelector=%21tier",
        "&fieldSelector=metadata.name%21%3Do1",
    ]);
    let version = match draw.below(6) {
        0 => "0".to_owned(),
        1 => String::new(),
        back => format!("<past {}>", back * 3 + draw.below(3)),
    };
    format!("{}?watch=1&resourceVersion={version}{selector}", kind.collection())
}

fn status(draw: &Draw, kind: Kind, path: &str, name: &str) -> Operation {
    let path = format!("{path}/status");
    let mut object = kind.object(draw, name);
    object["metadata"] = json!({"name": name, "labels": labels(draw)});
    if kind == Kind::Widget {
        object["spec"] = json!({"name": draw.pick(&["abc", "other"])});
    }
    object["status"] = kind.status(draw);
    // See docs/apiserver-conformance.md for services.
    let sort = if kind == Kind::Service { 3 + draw.below(2) } else { draw.below(5) };
    match sort {
        0 => Operation::get(path),
        1 => {
            object["metadata"]["resourceVersion"] = kind.gap("version", name);
            Operation::new("PUT", path, object)
        }
        2 => {
            let (version, named) = kind.names();
            if kind == Kind::Widget && [Value::Null, json!({})].contains(&object["status"]) {
                // See docs/apiserver-conformance.md.
                object["status"] = json!({"phase": "Busy"});
            }
            let body = json!({"apiVersion": version, "kind": named, "metadata": {"name": name},
                "status": object["status"]});
            Operation::patch(format!("{path}?fieldManager=status&force=true"), APPLY, body)
        }
        sort => {
            let kind = if sort == 3 { MERGE } else { STRATEGIC };
            Operation::patch(path, kind, json!({"status": object["status"], "metadata": object["metadata"]}))
        }
    }
}

/// A binding or an eviction of a pod.
fn act(draw: &Draw, path: &str, name: &str) -> Operation {
    let mut body = json!({"metadata": {"name": name}});
    if draw.chance(10) {
        body["metadata"]["name"] = "another".into();
    }
    if draw.chance(20) {
        body["metadata"]["uid"] = Kind::Pod.gap("uid", name);
    }
    if draw.chance(30) {
        return Operation::new("POST", format!("{path}/eviction"), body);
    }
    if draw.chance(30) {
        body["metadata"]["labels"] = labels(draw);
        body["metadata"]["annotations"] = json!({"note": "bound"});
    }
    body["target"] = draw.pick(&[
        json!({"kind": "Node", "name": "n1"}),
        json!({"kind": "Node", "name": "n2"}),
        json!({"name": "n1"}),
        json!({"kind": "Node"}),
        json!({"kind": "Pod", "name": "n1"}),
    ]);
    Operation::new("POST", format!("{path}/binding"), body)
}

fn scale(draw: &Draw, path: &str, name: &str) -> Operation {
    let path = format!("{path}/scale");
    let replicas = draw.pick(&[1, 2, 3, 5, 0, 0, -1, 11]);
    match draw.below(3) {
        0 => Operation::get(path),
        1 => Operation::patch(path, MERGE, json!({"spec": {"replicas": replicas}})),
        _ => {
            let mut scale = json!({"metadata": {"name": name}, "spec": {"replicas": replicas}});
            if draw.chance(80) {
                scale["apiVersion"] = "autoscaling/v1".into();
                scale["kind"] = "Scale".into();
            }
            Operation::new("PUT", path, scale)
        }
    }
}
