//! The kinds of the sequences and their objects.

use serde_json::{Value, json};

use crate::generate::Draw;
use crate::operation::SPACE;

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const WIDGETS: &str = "/apis/sequences.example.com/v1/widgets";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    ConfigMap,
    Deployment,
    Pod,
    Service,
    Widget,
}

pub(crate) const KINDS: [Kind; 5] =
    [Kind::ConfigMap, Kind::Deployment, Kind::Pod, Kind::Service, Kind::Widget];

impl Kind {
    /// Returns the apiVersion and the kind's name.
    pub(crate) fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::ConfigMap => ("v1", "ConfigMap"),
            Self::Deployment => ("apps/v1", "Deployment"),
            Self::Pod => ("v1", "Pod"),
            Self::Service => ("v1", "Service"),
            Self::Widget => ("sequences.example.com/v1", "Widget"),
        }
    }

    pub(crate) fn plural(self) -> String {
        format!("{}s", self.names().1.to_lowercase())
    }

    pub(crate) fn collection(self) -> String {
        let (version, _) = self.names();
        let root = if version == "v1" { "/api" } else { "/apis" };
        format!("{root}/{version}/namespaces/{SPACE}/{}", self.plural())
    }

    pub(crate) fn gap(self, what: &str, name: &str) -> Value {
        format!("<{what} {}/{name}>", self.plural()).into()
    }

    /// Returns an object; the caller completes the metadata.
    pub(crate) fn object(self, draw: &Draw, name: &str) -> Value {
        let mut object = match self {
            Self::ConfigMap => config_map(draw),
            Self::Deployment => deployment(draw, name),
            Self::Pod => json!({"spec": pod_spec(draw)}),
            Self::Service => json!({"spec": service_spec(draw)}),
            Self::Widget => widget(draw),
        };
        object["metadata"] = json!({});
        if self == Self::Widget {
            let (version, kind) = self.names();
            object["apiVersion"] = version.into();
            object["kind"] = kind.into();
        }
        object
    }

    /// Returns a merge or strategic patch.
    pub(crate) fn change(self, draw: &Draw) -> Value {
        match self {
            Self::ConfigMap => draw.pick(&[
                json!({"data": {"a": "1", "b": null}}),
                json!({"data": {"c": "3"}}),
                json!({"data": null}),
                json!({"data": {"a": 5}}),
                json!({"immutable": true}),
                json!({"binaryData": {"z": "AAEC"}}),
            ]),
            Self::Deployment => draw.pick(&[
                json!({"spec": {"replicas": 4}}),
                json!({"spec": {"replicas": null}}),
                json!({"spec": {"paused": true}}),
                json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:3"}]}}}}),
                json!({"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "i:4"}]}}}}),
                json!({"spec": {"template": {"spec": {"containers": [{"name": "d", "$patch": "delete"}]}}}}),
                json!({"spec": {"template": {"spec": {"containers": [{"name": "c",
                    "env": [{"name": "A", "value": "9"}, {"name": "C", "value": "1"}]}]}}}}),
                json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}}),
                json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
                json!({"spec": {"selector": {"matchLabels": {"x": "y"}}}}),
                json!({"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}}),
            ]),
            Self::Pod => draw.pick(&[
                json!({"spec": {"containers": [{"name": "c", "image": "i:7"}]}}),
                json!({"spec": {"activeDeadlineSeconds": 60}}),
                json!({"spec": {"activeDeadlineSeconds": 30}}),
                json!({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}),
                json!({"spec": {"nodeName": "n2"}}),
                json!({"spec": {"restartPolicy": "Never"}}),
                json!({"spec": {"tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute",
                    "tolerationSeconds": draw.pick(&[5, 6])}]}}),
                json!({"spec": {"schedulingGates": []}}),
                json!({"spec": {"schedulingGates": [{"name": "h"}]}}),
                json!({"spec": {"schedulingGates": [{"name": "g", "$patch": "delete"}]}}),
                json!({"spec": {"nodeSelector": {"disk": draw.pick(&[json!("fast"), json!("slow"), Value::Null])}}}),
                json!({"spec": {"nodeSelector": {"zone": "a"}}}),
                json!({"spec": {"affinity": draw.pick(&AFFINITIES.map(affinity))}}),
            ]),
            Self::Service => draw.pick(&[
                json!({"spec": {"type": "NodePort"}}),
                json!({"spec": {"type": "ClusterIP"}}),
                json!({"spec": {"selector": {"app": "z"}}}),
                json!({"spec": {"selector": null}}),
                json!({"spec": {"ports": [{"name": "x", "port": 8080}]}}),
                json!({"spec": {"ports": [{"name": "z", "port": 80, "targetPort": 9}]}}),
                json!({"spec": {"clusterIP": "10.0.0.1"}}),
                json!({"spec": {"sessionAffinity": "ClientIP"}}),
                json!({"spec": {"sessionAffinity": "None"}}),
                json!({"spec": {"publishNotReadyAddresses": true}}),
            ]),
            Self::Widget => draw.pick(&[
                json!({"spec": {"replicas": 3}}),
                json!({"spec": {"replicas": null}}),
                json!({"spec": {"name": "other", "free": {"deep": {"er": 1}}}}),
                json!({"spec": {"parts": [{"name": "p", "size": 9}]}}),
                json!({"spec": {"tags": ["x", "x"]}}),
                json!({"spec": {"limits": {"cpu": 5, "mem": null}}}),
                json!({"spec": {"name": "BAD"}}),
                json!({"spec": {"unknown": true}}),
                json!({"spec": {"amount": draw.pick(&[json!(3), json!("30%"), json!(1.5)])}}),
                json!({"status": {"phase": "Done"}}),
            ]),
        }
    }

    pub(crate) fn json_patch(self, draw: &Draw) -> Value {
        let (path, value) = match self {
            Self::ConfigMap => ("/data/a", json!("patched")),
            Self::Deployment => draw.pick(&[
                ("/spec/replicas", json!(7)),
                ("/spec/template/spec/containers/0/image", json!("i:8")),
                ("/spec/template/spec/containers/1", json!({"name": "e", "image": "i"})),
            ]),
            Self::Pod => ("/spec/containers/0/image", json!("i:8")),
            Self::Service => draw.pick(&[
                ("/spec/ports/0/port", json!(7)),
                ("/spec/ports/0/targetPort", json!("web")),
                ("/spec/selector", json!({"x": "y"})),
            ]),
            Self::Widget => draw.pick(&[
                ("/spec/replicas", json!(7)),
                ("/spec/parts/0", json!({"name": "q"})),
                ("/spec/tags/-", json!("t")),
                ("/spec/limits/cpu", json!("many")),
            ]),
        };
        let op = draw.pick(&["add", "replace", "remove", "test"]);
        if op == "remove" {
            json!([{"op": op, "path": path}])
        } else {
            json!([{"op": op, "path": path, "value": value}])
        }
    }

    pub(crate) fn field_selector(self, draw: &Draw) -> String {
        let own: &[&str] = match self {
            Self::Pod => {
                &["spec.nodeName%21%3Dn1", "status.phase%21%3DRunning", "spec.restartPolicy%3DAlways"]
            }
            Self::Widget => &["spec.name%3Dabc", "spec.name%21%3Dabc", "spec.replicas%3D1"],
            _ => &["spec.odd%3D1", "metadata.namespace%3Dwkspace"],
        };
        if draw.chance(50) {
            draw.pick(own).to_owned()
        } else {
            draw.pick(&["metadata.name%3Do1", "metadata.name%21%3Do0"]).to_owned()
        }
    }

    pub(crate) fn status(self, draw: &Draw) -> Value {
        match self {
            Self::Deployment => draw.pick(&[
                json!({"replicas": 2, "observedGeneration": 1, "readyReplicas": 1}),
                json!({"replicas": 0, "conditions": [{"type": "Available", "status": "True"}]}),
                json!({"replicas": 1, "readyReplicas": 2}),
                json!({"replicas": -1}),
            ]),
            Self::Pod => draw.pick(&[
                json!({"phase": "Running"}),
                json!({"conditions": [{"type": "Ready", "status": "True"}]}),
                json!({"phase": "Succeeded", "message": "done"}),
            ]),
            Self::ConfigMap => json!({"x": 1}),
            Self::Service => draw.pick(&[
                json!({"loadBalancer": {}}),
                json!({"conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
            ]),
            Self::Widget => draw.pick(&[
                json!({"replicas": 2, "phase": "Busy", "selector": "app=a"}),
                json!({"phase": "Idle", "unknown": 1}),
                json!({"phase": 5}),
                json!({"replicas": "many"}),
                json!({}),
                Value::Null,
            ]),
        }
    }

    /// Returns an object that every server accepts unchanged.
    pub(crate) fn marker(self) -> Value {
        let mut object = match self {
            Self::ConfigMap => json!({}),
            Self::Deployment => json!({"spec": {"selector": {"matchLabels": {"m": "m"}}, "template": {
                "metadata": {"labels": {"m": "m"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
            Self::Pod => json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}),
            Self::Service => json!({"spec": {"clusterIP": "None"}}),
            Self::Widget => json!({"spec": {"name": "marker"}}),
        };
        let (version, kind) = self.names();
        object["apiVersion"] = version.into();
        object["kind"] = kind.into();
        object["metadata"] = json!({"name": "zz-marker", "labels": {"app": "a"}});
        object
    }
}

fn config_map(draw: &Draw) -> Value {
    let mut object = json!({"data": draw.pick(&[
        json!({"a": "1"}),
        json!({"a": "2", "b": "x"}),
        json!({"b": "y", "c": ""}),
        json!({}),
        Value::Null,
    ])});
    match draw.below(20) {
        0 => object["immutable"] = true.into(),
        1 => object["binaryData"] = json!({"bin": "AAEC"}),
        2 => object["data"] = json!({"not valid!": "x"}),
        3 => object["data"] = json!({"a": 1}),
        _ => {}
    }
    object
}

fn containers(draw: &Draw) -> Value {
    let first = draw.pick(&[
        json!({"name": "c", "image": "i:1"}),
        json!({"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}),
        json!({"name": "c", "image": "i:2", "ports": [{"containerPort": 80}, {"containerPort": 81, "protocol": "UDP"}]}),
        json!({"name": "c", "image": "i:1", "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}}}),
        json!({"name": "c", "image": "i:1", "args": ["x", "y"], "surprise": 1}),
    ]);
    match draw.below(10) {
        0..3 => json!([first, {"name": "d", "image": "j:1"}]),
        3 => json!([first, {"name": "c", "image": "twice"}]),
        4 => json!([]),
        _ => json!([first]),
    }
}

/// The keys of each term of an affinity.
const AFFINITIES: [&[&[&str]]; 5] = [&[], &[&["a"]], &[&["a", "b"]], &[&["b"]], &[&["a"], &["b"]]];

fn affinity(terms: &[&[&str]]) -> Value {
    let ask = |key: &&str| json!({"key": key, "operator": "Exists"});
    let terms: Vec<Value> = terms
        .iter()
        .map(|keys| json!({"matchExpressions": keys.iter().map(ask).collect::<Vec<_>>()}))
        .collect();
    if terms.is_empty() {
        return Value::Null;
    }
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

fn pod_spec(draw: &Draw) -> Value {
    let mut spec = json!({"containers": containers(draw)});
    if draw.chance(40) {
        spec["nodeName"] = "n1".into();
    }
    if draw.chance(30) {
        spec["schedulingGates"] = draw.pick(&[
            json!([{"name": "g"}]),
            json!([{"name": "g"}, {"name": "h"}]),
            json!([{"name": "g h"}]),
        ]);
    }
    if draw.chance(20) {
        spec["nodeSelector"] = draw.pick(&[json!({"disk": "fast"}), json!({"disk": "not valid!"})]);
    }
    if draw.chance(20) {
        spec["terminationGracePeriodSeconds"] = draw.pick(&[0, 1, 10, -1]).into();
    }
    spec
}

fn service_spec(draw: &Draw) -> Value {
    let mut spec = json!({"selector": {"app": draw.pick(&["a", "b"])}});
    spec["ports"] = draw.pick(&[
        json!([{"port": 80}]),
        json!([{"name": "x", "port": 80}, {"name": "y", "port": 81, "targetPort": "web", "protocol": "UDP"}]),
        json!([{"name": "x", "port": 80, "targetPort": 8080, "appProtocol": "http"}]),
        json!([{"name": "x", "port": 80}, {"port": 81}]),
        json!([{"name": "x", "port": 0}]),
        json!([]),
    ]);
    match draw.below(12) {
        0..3 => spec["type"] = "NodePort".into(),
        3 => spec["type"] = "ClusterIP".into(),
        4 => spec["type"] = "Odd".into(),
        5 => spec["clusterIP"] = "None".into(),
        6 => spec["sessionAffinity"] = "ClientIP".into(),
        7 => spec["type"] = "LoadBalancer".into(),
        _ => {}
    }
    spec
}

fn deployment(draw: &Draw, name: &str) -> Value {
    let labels = if draw.chance(95) { json!({"app": name}) } else { json!({"app": "other"}) };
    let mut spec = json!({
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": containers(draw)}},
    });
    if draw.chance(50) {
        spec["replicas"] = draw.pick(&[json!(0), json!(1), json!(3), json!(-1), json!("3")]);
    }
    if draw.chance(20) {
        spec["strategy"] = draw.pick(&[
            json!({"type": "Recreate"}),
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 0}}),
            json!({"type": "Odd"}),
        ]);
    }
    json!({"spec": spec})
}

fn widget(draw: &Draw) -> Value {
    let mut spec = json!({"name": draw.pick(&["abc", "abc", "other", "", "BAD", "muchtoolong"])});
    for _ in 0..draw.below(4) {
        let (field, value) = draw.pick(&[
            ("replicas", json!(5)),
            ("replicas", json!(99)),
            ("mode", json!("Fast")),
            ("mode", json!("Odd")),
            ("parts", json!([{"name": "p", "size": 1}, {"name": "q"}])),
            ("parts", json!([{"name": "p", "size": 2, "note": "n"}])),
            ("parts", json!([{"name": "p"}, {"name": "p"}])),
            ("parts", json!([{"size": 1}])),
            ("tags", json!(["x", "y"])),
            ("tags", json!(["y"])),
            ("free", json!({"any": {"thing": [1, 2, {"x": null}]}})),
            ("limits", json!({"cpu": 1, "mem": 2})),
            ("amount", json!("20%")),
            ("amount", json!(7)),
            ("unknown", json!({"pruned": true})),
            ("mode", Value::Null),
        ]);
        spec[field] = value;
    }
    let mut object = json!({"spec": spec});
    if draw.chance(15) {
        object["status"] = json!({"phase": "Sent"});
    }
    if draw.chance(3) {
        object.as_object_mut().unwrap().remove("spec");
    }
    object
}

/// The CustomResourceDefinition of the widgets.
pub(crate) fn definition() -> Value {
    let part = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"}, "size": {"type": "integer"}, "note": {"type": "string"}}});
    let spec = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "maxLength": 8, "pattern": "^[a-z]*$"},
        "replicas": {"type": "integer", "minimum": 0, "maximum": 10, "default": 1},
        "mode": {"type": "string", "enum": ["Fast", "Slow"]},
        "parts": {"type": "array", "items": part, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
        "amount": {"x-kubernetes-int-or-string": true}}});
    let status = json!({"type": "object", "properties": {
        "replicas": {"type": "integer"}, "phase": {"type": "string"}, "selector": {"type": "string"}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.sequences.example.com"}, "spec": {
            "group": "sequences.example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"],
                    "properties": {"spec": spec, "status": status}}},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
                "selectableFields": [{"jsonPath": ".spec.name"}]}]}})
}
