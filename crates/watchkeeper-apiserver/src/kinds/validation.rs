//! Is the object itself in order? What controllers trip over: schemas of custom kinds, and the few rules of built-in ones.

mod pods;

pub(crate) use pods::is_gated;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::failure::Cause;
use crate::kinds::convert;
use crate::kinds::definition;
use crate::kinds::meta;
use crate::kinds::registry::{Custom, Kind};
use crate::kinds::rules;

/// What is wrong with an object beyond its metadata; `old` is its state before a change, which may be one of its status alone.
pub(crate) fn object(kind: &Kind, value: &Value, old: Option<&Value>, status: bool) -> Vec<Cause> {
    if let Some(custom) = &kind.custom {
        return custom_object(kind, custom, value, old, status);
    }
    let mut causes = Vec::new();
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
            workload(&kind.kind, value, &mut causes);
        }
        ("", "Pod") => pods::pod(value, old.is_none(), &mut causes),
        ("", "ConfigMap") => data(value, "[]", &mut causes),
        ("", "Secret") => data(value, "data", &mut causes),
        ("", "Event") => event_namespace(value, &mut causes),
        ("", "Service") => service(value, &mut causes),
        _ => {}
    }
    causes
}

/// The schema first; rules are only looked at in an object that is of its shape.
fn custom_object(
    kind: &Kind,
    custom: &Custom,
    value: &Value,
    old: Option<&Value>,
    status: bool,
) -> Vec<Cause> {
    let schema = &custom.schema;
    let mut causes = if status { schema.validate_status(value, old) } else { schema.validate(value, old) };
    let counts = kind.scale.iter().flat_map(|paths| {
        [Some(&paths.spec_replicas).filter(|_| !status), Some(&paths.status_replicas)].into_iter().flatten()
    });
    for path in counts {
        let replicas = path.iter().fold(value, |at, part| &at[part.as_str()]);
        let path = format!(".{}", path.join("."));
        let found = match replicas {
            Value::String(text) => Some((text.clone(), "string")),
            Value::Bool(flag) => Some((flag.to_string(), "bool")),
            _ => None,
        };
        if let Some((shown, found)) = found {
            let problem = format!("{path} accessor error: {shown} is of the type {found}, expected int64");
            causes.push(Cause::invalid(&path, &0.into(), &problem));
        }
        if replicas.as_i64().is_some_and(|replicas| replicas < 0) {
            causes.push(Cause::invalid(&path, replicas, "should be a non-negative integer"));
        }
    }
    match &custom.rules {
        Some(_) if causes.iter().any(Cause::hides_others) => causes.push(rules::unchecked()),
        Some(rules) => causes.extend(rules.broken(schema, value, old)),
        None => {}
    }
    causes
}

/// What an Event of events.k8s.io says for good, by the names under which it is stored.
const EVENT_FACTS: [&str; 11] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "action",
    "related",
    "eventTime",
];

/// What is wrong with the change from `old` to `new` beyond its metadata.
pub(crate) fn update(kind: &Kind, old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let workload = kind.group == "apps"
        && kind.custom.is_none()
        && ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"].contains(&kind.kind.as_str());
    if workload && old["spec"]["selector"] != new["spec"]["selector"] {
        causes.push(Cause::invalid("spec.selector", &new["spec"]["selector"], "field is immutable"));
    }
    // What is told once stays; the old view of Events still counts and rewrites.
    if kind.is("events.k8s.io", "Event") {
        let (old, new) = (convert::to_storage(kind, old.clone()), convert::to_storage(kind, new.clone()));
        for field in EVENT_FACTS {
            if old.get(field) != new.get(field) {
                causes.push(Cause::invalid(field, &new[field], "field is immutable"));
            }
        }
    }
    if kind.is("", "Pod") {
        causes.extend(pods::update(old, new));
    }
    if kind.is("batch", "Job") {
        for field in ["selector", "completionMode"] {
            if old["spec"].get(field) != new["spec"].get(field) {
                let at = format!("spec.{field}");
                causes.push(Cause::invalid(&at, &new["spec"][field], "field is immutable"));
            }
        }
        let template = |job: &Value| job["spec"]["template"].clone();
        if template(old) != template(new) && old["spec"]["suspend"] != true {
            causes.push(Cause::invalid("spec.template", &new["spec"]["template"], "field is immutable"));
        }
    }
    if kind.is("apiextensions.k8s.io", "CustomResourceDefinition") {
        causes.extend(definition::validate_update(old, new));
    }
    let addressed = |service: &Value| service["spec"]["type"] != "ExternalName";
    if kind.is("", "Service") && addressed(old) && addressed(new) {
        let (before, after) = (&old["spec"]["clusterIP"], &new["spec"]["clusterIP"]);
        if before != after {
            causes.push(Cause::invalid("spec.clusterIPs[0]", &json!([after]), "may not change once set"));
        }
    }
    if kind.group == "rbac.authorization.k8s.io" && old.get("roleRef") != new.get("roleRef") {
        causes.push(Cause::invalid("roleRef", &new["roleRef"], "cannot change roleRef"));
    }
    let frozen = (kind.is("", "ConfigMap") || kind.is("", "Secret")) && old["immutable"] == true;
    if frozen {
        let problem = "field is immutable when `immutable` is set";
        for field in ["immutable", "data", "binaryData"] {
            if old.get(field) != new.get(field) {
                causes.push(Cause::forbidden(field, problem));
            }
        }
    }
    causes
}

fn deployment(value: &Value, causes: &mut Vec<Cause>) {
    let strategy = &value["spec"]["strategy"];
    match strategy["type"].as_str().unwrap_or_default() {
        "Recreate" if strategy["rollingUpdate"].is_object() => {
            let problem = "may not be specified when strategy `type` is 'Recreate'";
            causes.push(Cause::forbidden("spec.strategy.rollingUpdate", problem));
        }
        "Recreate" | "RollingUpdate" => {}
        other => {
            // As the real server prints its Go struct.
            let rolling = match &strategy["rollingUpdate"] {
                Value::Object(map) => {
                    let part = |field: &str| map.get(field).unwrap_or(&Value::Null).to_string();
                    let (unavailable, surge) = (part("maxUnavailable"), part("maxSurge"));
                    format!("{{\"MaxUnavailable\":{unavailable},\"MaxSurge\":{surge}}}")
                }
                _ => "null".to_owned(),
            };
            let shown = format!("{{\"Type\":{},\"RollingUpdate\":{rolling}}}", Value::from(other));
            let message =
                format!("Unsupported value: {shown}: supported values: \"Recreate\", \"RollingUpdate\"");
            causes.push(Cause {
                reason: "FieldValueNotSupported",
                message,
                field: "spec.strategy".to_owned(),
            });
        }
    }
    let count = |field: &str| value["status"][field].as_i64().unwrap_or(0);
    for field in [
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "observedGeneration",
    ] {
        if count(field) < 0 {
            let problem = "must be greater than or equal to 0";
            causes.push(Cause::invalid(&format!("status.{field}"), &count(field).into(), problem));
        }
    }
    for field in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
        if count(field) > count("replicas") {
            let problem = "cannot be greater than status.replicas";
            causes.push(Cause::invalid(&format!("status.{field}"), &count(field).into(), problem));
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        let found = count("availableReplicas").into();
        causes.push(Cause::invalid(
            "status.availableReplicas",
            &found,
            "cannot be greater than readyReplicas",
        ));
    }
}

fn workload(kind: &str, value: &Value, causes: &mut Vec<Cause>) {
    let spec = &value["spec"];
    if spec["replicas"].as_i64().is_some_and(|replicas| replicas < 0) {
        let problem = "must be greater than or equal to 0";
        causes.push(Cause::invalid("spec.replicas", &spec["replicas"], problem));
    }
    let selector = &spec["selector"];
    if !selector.is_object() {
        causes.push(Cause::required("spec.selector", ""));
    }
    let labels = &spec["template"]["metadata"]["labels"];
    let wanted = selector["matchLabels"].as_object();
    let selects = wanted
        .is_some_and(|wanted| wanted.iter().all(|(key, value)| labels.get(key) == Some(value)))
        || (wanted.is_none() && selector["matchExpressions"].is_array());
    if !selects {
        let problem = "`selector` does not match template `labels`";
        causes.push(Cause::invalid("spec.template.metadata.labels", labels, problem));
    }
    pods::spec(&spec["template"]["spec"], "spec.template.spec", causes);
    if kind == "Deployment" {
        deployment(value, causes);
    }
    let policy = &spec["template"]["spec"]["restartPolicy"];
    if policy.as_str().is_some_and(|policy| policy != "Always") {
        causes.push(Cause::not_supported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
}

const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// `whole` is the place at which too much of it is reported.
fn data(value: &Value, whole: &str, causes: &mut Vec<Cause>) {
    const LIMIT: usize = 1024 * 1024;
    for field in ["data", "binaryData"] {
        for key in value[field].as_object().into_iter().flatten().map(|(key, _)| key) {
            let fits = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c);
            if key.is_empty() || !key.chars().all(fits) {
                causes.push(Cause::invalid(&format!("{field}[{key}]"), &key.as_str().into(), KEY));
            }
        }
    }
    let size = |field: &str| -> usize {
        let texts = value[field].as_object().into_iter().flatten().filter_map(|(_, text)| text.as_str());
        // Bytes count as they are, not as they are written.
        let bytes = field == "binaryData" || whole == "data";
        texts.map(|text| if bytes { decoded_length(text) } else { text.len() }).sum()
    };
    if size("data") + size("binaryData") > LIMIT {
        causes.push(Cause::too_long(whole, LIMIT, "bytes"));
    }
}

/// How many bytes a base64 text stands for.
fn decoded_length(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

fn event_namespace(value: &Value, causes: &mut Vec<Cause>) {
    let about = value["involvedObject"]["namespace"].as_str().unwrap_or_default();
    let own = meta::text(value, "namespace");
    let cluster_scoped = about.is_empty() && ["default", "kube-system"].contains(&own);
    if about != own && !cluster_scoped {
        let problem = "does not match event.namespace";
        causes.push(Cause::invalid("involvedObject.namespace", &about.into(), problem));
    }
}

fn service(value: &Value, causes: &mut Vec<Cause>) {
    let spec = &value["spec"];
    let sorts = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    let sort = spec["type"].as_str().unwrap_or_default();
    if !sorts.contains(&sort) {
        causes.push(Cause::not_supported("spec.type", &spec["type"], &sorts));
    }
    let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
    if ports.is_empty() && sort != "ExternalName" && spec["clusterIP"] != "None" {
        causes.push(Cause::required("spec.ports", ""));
    }
    if (sort == "NodePort" || sort == "LoadBalancer") && spec["clusterIP"] == "None" {
        let problem = format!("may not be set to 'None' for {sort} services");
        causes.push(Cause::invalid("spec.clusterIPs[0]", &spec["clusterIP"], &problem));
    }
    if sort == "ExternalName" && spec["externalName"].as_str().unwrap_or_default().is_empty() {
        causes.push(Cause::required("spec.externalName", ""));
    }
    let mut names = BTreeSet::new();
    for (at, port) in ports.iter().enumerate() {
        if ports.len() > 1 && port["name"].as_str().unwrap_or_default().is_empty() {
            causes.push(Cause::required(&format!("spec.ports[{at}].name"), ""));
        }
        if !(1..=65535).contains(&port["port"].as_i64().unwrap_or(0)) {
            let found = port.get("port").cloned().unwrap_or(json!(0));
            let problem = "must be between 1 and 65535, inclusive";
            causes.push(Cause::invalid(&format!("spec.ports[{at}].port"), &found, problem));
        }
        let target = &port["targetPort"];
        if target.as_i64().is_some_and(|target| !(1..=65535).contains(&target)) {
            let problem = "must be between 1 and 65535, inclusive";
            causes.push(Cause::invalid(&format!("spec.ports[{at}].targetPort"), target, problem));
        }
        if let Some(name) = port["name"].as_str().filter(|name| !name.is_empty())
            && !names.insert(name)
        {
            causes.push(Cause::duplicate(&format!("spec.ports[{at}].name"), &name.into()));
        }
    }
}
