//! What does a built-in object show in its columns? One value per column, by kind.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::{human, since};
use super::cells::{
    access_modes, balancer, containers, count, labels, list, number, or, selector, shown, some, text,
};
use super::{pod, rare};
use crate::kinds::conditions;

/// The cells of an object of a built-in kind.
pub(crate) fn row(kind: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let (name, age) = (text(&metadata["name"]), since(&metadata["creationTimestamp"], now));
    let template = &spec["template"];
    let cells = match kind {
        "ConfigMap" => json!([name, count(&object["data"]) + count(&object["binaryData"]), age]),
        "Secret" => json!([name, text(&object["type"]), count(&object["data"]), age]),
        "Namespace" => json!([name, text(&status["phase"]), age]),
        "Lease" => json!([name, text(&spec["holderIdentity"]), age]),
        "LimitRange" | "ClusterRole" | "Role" | "CustomResourceDefinition" => {
            json!([name, metadata["creationTimestamp"]])
        }
        "Pod" => {
            let summary = pod::summary(object, now);
            let gates = list(&spec["readinessGates"]);
            let met = gates.iter().filter(|gate| conditions::holds(status, text(&gate["conditionType"])));
            let gates = if gates.is_empty() {
                "<none>".to_owned()
            } else {
                format!("{}/{}", met.count(), gates.len())
            };
            json!([
                name,
                summary.ready,
                summary.status,
                summary.restarts,
                age,
                or(text(&status["podIP"]), "<none>"),
                or(text(&spec["nodeName"]), "<none>"),
                or(text(&status["nominatedNodeName"]), "<none>"),
                gates,
            ])
        }
        "Deployment" => json!([
            name,
            format!("{}/{}", number(&status["readyReplicas"]), number(&spec["replicas"])),
            number(&status["updatedReplicas"]),
            number(&status["availableReplicas"]),
            age,
            containers(template, "name"),
            containers(template, "image"),
            selector(&spec["selector"]),
        ]),
        "ReplicaSet" | "ReplicationController" => json!([
            name,
            number(&spec["replicas"]),
            number(&status["replicas"]),
            number(&status["readyReplicas"]),
            age,
            containers(template, "name"),
            containers(template, "image"),
            selector(&spec["selector"]),
        ]),
        "StatefulSet" => json!([
            name,
            format!("{}/{}", number(&status["readyReplicas"]), number(&spec["replicas"])),
            age,
            containers(template, "name"),
            containers(template, "image"),
        ]),
        "DaemonSet" => json!([
            name,
            number(&status["desiredNumberScheduled"]),
            number(&status["currentNumberScheduled"]),
            number(&status["numberReady"]),
            number(&status["updatedNumberScheduled"]),
            number(&status["numberAvailable"]),
            labels(&template["spec"]["nodeSelector"]),
            age,
            containers(template, "name"),
            containers(template, "image"),
            selector(&spec["selector"]),
        ]),
        "Job" => job(object, &age, now),
        "CronJob" => {
            let template = &spec["jobTemplate"]["spec"]["template"];
            let last = &status["lastScheduleTime"];
            let last = if last.is_null() { "<none>".to_owned() } else { since(last, now) };
            json!([
                name,
                text(&spec["schedule"]),
                or(text(&spec["timeZone"]), "<none>"),
                if spec["suspend"] == true { "True" } else { "False" },
                count(&status["active"]),
                last,
                age,
                containers(template, "name"),
                containers(template, "image"),
                selector(&spec["jobTemplate"]["spec"]["selector"]),
            ])
        }
        "Service" => json!([
            name,
            text(&spec["type"]),
            or(text(&spec["clusterIP"]), "<none>"),
            external_address(object),
            ports(&spec["ports"]),
            age,
            labels(&spec["selector"]),
        ]),
        "Endpoints" => {
            let addresses = list(&object["subsets"]).iter().flat_map(subset);
            json!([name, some(&addresses.collect::<Vec<_>>(), 3), age])
        }
        "EndpointSlice" => {
            let ports = list(&object["ports"]).iter().map(|port| shown(&port["port"], "*"));
            let addresses =
                list(&object["endpoints"]).iter().flat_map(|endpoint| list(&endpoint["addresses"]));
            let unset =
                |texts: Vec<String>| if texts.is_empty() { "<unset>".to_owned() } else { some(&texts, 3) };
            json!([
                name,
                text(&object["addressType"]),
                unset(ports.collect()),
                unset(addresses.map(|a| text(a).to_owned()).collect()),
                age,
            ])
        }
        "Event" => event(object, now),
        "Node" => node(object, &age),
        "PersistentVolumeClaim" => {
            let bound = !text(&spec["volumeName"]).is_empty();
            let capacity = if bound { text(&status["capacity"]["storage"]) } else { "" };
            let modes = if bound { access_modes(&status["accessModes"]) } else { String::new() };
            json!([
                name,
                phase(object),
                text(&spec["volumeName"]),
                capacity,
                modes,
                text(&spec["storageClassName"]),
                or(text(&spec["volumeAttributesClassName"]), "<unset>"),
                age,
                or(text(&spec["volumeMode"]), "<unset>"),
            ])
        }
        "PersistentVolume" => {
            let claim = &spec["claimRef"];
            let claim = if claim.is_object() {
                format!("{}/{}", text(&claim["namespace"]), text(&claim["name"]))
            } else {
                String::new()
            };
            json!([
                name,
                text(&spec["capacity"]["storage"]),
                access_modes(&spec["accessModes"]),
                text(&spec["persistentVolumeReclaimPolicy"]),
                phase(object),
                claim,
                text(&spec["storageClassName"]),
                or(text(&spec["volumeAttributesClassName"]), "<unset>"),
                text(&status["reason"]),
                age,
                or(text(&spec["volumeMode"]), "<unset>"),
            ])
        }
        "ClusterRoleBinding" | "RoleBinding" => {
            let subjects = |kind: &str| {
                let of_kind = list(&object["subjects"]).iter().filter(|subject| subject["kind"] == kind);
                let names = of_kind.map(|subject| match text(&subject["namespace"]) {
                    "" => text(&subject["name"]).to_owned(),
                    namespace => format!("{namespace}/{}", text(&subject["name"])),
                });
                names.collect::<Vec<_>>().join(", ")
            };
            let role = format!("{}/{}", text(&object["roleRef"]["kind"]), text(&object["roleRef"]["name"]));
            json!([name, role, age, subjects("User"), subjects("Group"), subjects("ServiceAccount")])
        }
        _ => rare::row(kind, object, name, &age),
    };
    match cells {
        Value::Array(cells) => cells,
        other => vec![other],
    }
}

fn phase(object: &Value) -> &str {
    if object["metadata"]["deletionTimestamp"].is_string() {
        "Terminating"
    } else {
        text(&object["status"]["phase"])
    }
}

fn job(object: &Value, age: &str, now: Timestamp) -> Value {
    let (spec, status) = (&object["spec"], &object["status"]);
    let has = |wanted: &str| conditions::holds(status, wanted);
    let state = [
        (has("Complete"), "Complete"),
        (has("Failed"), "Failed"),
        (object["metadata"]["deletionTimestamp"].is_string(), "Terminating"),
        (has("Suspended"), "Suspended"),
        (has("FailureTarget"), "FailureTarget"),
        (has("SuccessCriteriaMet"), "SuccessCriteriaMet"),
    ];
    let state = state.iter().find(|(is, _)| *is).map_or("Running", |(_, name)| *name);
    let succeeded = number(&status["succeeded"]);
    let completions = match (spec["completions"].as_i64(), number(&spec["parallelism"])) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, 2..) => format!("{succeeded}/1 of {}", number(&spec["parallelism"])),
        (None, _) => format!("{succeeded}/1"),
    };
    let time = |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let duration = match (time(&status["startTime"]), time(&status["completionTime"])) {
        (Some(start), Some(end)) => human(end.as_second() - start.as_second()),
        (Some(start), None) => human(now.as_second() - start.as_second()),
        (None, _) => String::new(),
    };
    json!([
        text(&object["metadata"]["name"]),
        state,
        completions,
        duration,
        age,
        containers(&spec["template"], "name"),
        containers(&spec["template"], "image"),
        selector(&spec["selector"]),
    ])
}

fn event(object: &Value, now: Timestamp) -> Value {
    let time =
        |value: &Value, instead: &str| if value.is_string() { since(value, now) } else { instead.to_owned() };
    let first = time(&object["firstTimestamp"], &since(&object["eventTime"], now));
    let last = match &object["series"] {
        Value::Object(series) => since(&series["lastObservedTime"], now),
        _ => time(&object["lastTimestamp"], &first),
    };
    let times = match (&object["series"]["count"], number(&object["count"])) {
        (Value::Number(times), _) => times.as_i64().unwrap_or(1),
        (_, 0) => 1,
        (_, times) => times,
    };
    let about = &object["involvedObject"];
    let source = match (text(&object["source"]["component"]), text(&object["source"]["host"])) {
        ("", _) => text(&object["reportingComponent"]).to_owned(),
        (component, "") => component.to_owned(),
        (component, host) => format!("{component}, {host}"),
    };
    json!([
        last,
        text(&object["type"]),
        text(&object["reason"]),
        format!("{}/{}", text(&about["kind"]).to_lowercase(), text(&about["name"])),
        text(&about["fieldPath"]),
        source,
        text(&object["message"]).trim(),
        first,
        times,
        text(&object["metadata"]["name"]),
    ])
}

fn node(object: &Value, age: &str) -> Value {
    let (metadata, status) = (&object["metadata"], &object["status"]);
    let ready = list(&status["conditions"]).iter().find(|condition| condition["type"] == "Ready");
    let mut state = match ready.map(|condition| condition["status"] == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if object["spec"]["unschedulable"] == true {
        state += ",SchedulingDisabled";
    }
    let roles = metadata["labels"].as_object().into_iter().flatten().filter_map(|(key, value)| {
        match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => Some(role),
            _ if key == "kubernetes.io/role" => Some(text(value)),
            _ => None,
        }
    });
    let roles: Vec<_> = roles.collect();
    let address = |kind: &str| {
        let found = list(&status["addresses"]).iter().find(|address| address["type"] == kind);
        found.map_or("<none>", |address| text(&address["address"]))
    };
    let info = |field: &str| or(text(&status["nodeInfo"][field]), "<unknown>");
    json!([
        text(&metadata["name"]),
        state,
        or(&roles.join(","), "<none>"),
        age,
        text(&status["nodeInfo"]["kubeletVersion"]),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ])
}

fn external_address(service: &Value) -> String {
    let spec = &service["spec"];
    let own: Vec<_> = list(&spec["externalIPs"]).iter().map(text).collect();
    match text(&spec["type"]) {
        "ExternalName" => text(&spec["externalName"]).to_owned(),
        "LoadBalancer" => {
            let balanced = balancer(&service["status"]);
            let all: Vec<_> = [balanced.as_str()].into_iter().filter(|b| !b.is_empty()).chain(own).collect();
            or(&all.join(","), "<pending>").to_owned()
        }
        _ => or(&own.join(","), "<none>").to_owned(),
    }
}

fn ports(ports: &Value) -> String {
    let shown = list(ports).iter().map(|port| match number(&port["nodePort"]) {
        0 => format!("{}/{}", number(&port["port"]), text(&port["protocol"])),
        node => format!("{}:{node}/{}", number(&port["port"]), text(&port["protocol"])),
    });
    or(&shown.collect::<Vec<_>>().join(","), "<none>").to_owned()
}

fn subset(subset: &Value) -> Vec<String> {
    let addresses = list(&subset["addresses"]);
    let ports = list(&subset["ports"]);
    let plain = |address: &Value| text(&address["ip"]).to_owned();
    if ports.is_empty() {
        return addresses.iter().map(plain).collect();
    }
    let pairs = ports.iter().flat_map(|port| {
        addresses.iter().map(move |address| format!("{}:{}", text(&address["ip"]), number(&port["port"])))
    });
    pairs.collect()
}
