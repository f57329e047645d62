//! What does the server fill in? The defaults that controllers and clients rely on, and the form in which objects are stored.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::meta;
use crate::registry::Kind;

/// Fills in the defaults of an object that has the shape of its kind.
pub(crate) fn prepare(kind: &Kind, value: &mut Value) {
    if let Some(custom) = &kind.custom {
        if let Some(schema) = &custom.schema {
            schema.default(value);
        }
        return;
    }
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") => namespace(value),
        ("", "Secret") => secret(value),
        ("", "Pod") => {
            pod_spec(&mut value["spec"]);
            pod(value);
        }
        ("", "Service") => service(&mut value["spec"]),
        ("", "PersistentVolumeClaim") => set(&mut value["spec"], "volumeMode", "Filesystem".into()),
        ("apps", "Deployment") => deployment(&mut value["spec"]),
        ("apps", "ReplicaSet") => replicated(&mut value["spec"]),
        ("apps", "StatefulSet") => stateful_set(&mut value["spec"]),
        ("apps", "DaemonSet") => daemon_set(&mut value["spec"]),
        ("batch", "Job") => job(&mut value["spec"]),
        ("batch", "CronJob") => cron_job(&mut value["spec"]),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => role_binding(value),
        ("autoscaling", "HorizontalPodAutoscaler") => set(&mut value["spec"], "minReplicas", 1.into()),
        _ => {}
    }
}

/// Sets a field that is absent.
fn set(target: &mut Value, field: &str, default: Value) {
    if target.is_null() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(map) = target {
        let entry = map.entry(field).or_insert(Value::Null);
        if entry.is_null() {
            *entry = default;
        }
    }
}

fn each(list: &mut Value) -> impl Iterator<Item = &mut Value> {
    list.as_array_mut().into_iter().flatten()
}

fn secret(value: &mut Value) {
    if let Value::Object(map) = value
        && let Some(Value::Object(plain)) = map.remove("stringData")
    {
        let data = map.entry("data").or_insert_with(|| json!({}));
        for (key, text) in plain {
            data[key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
        }
    }
    set(value, "type", "Opaque".into());
}

fn namespace(value: &mut Value) {
    let name = meta::text(value, "name").to_owned();
    let metadata = meta::metadata_mut(value);
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    labels["kubernetes.io/metadata.name"] = name.into();
    if !value["metadata"]["deletionTimestamp"].is_string() {
        set(&mut value["spec"], "finalizers", json!(["kubernetes"]));
    }
}

fn container(container: &mut Value) {
    if !container.is_object() {
        return;
    }
    set(container, "resources", json!({}));
    set(container, "terminationMessagePath", "/dev/termination-log".into());
    set(container, "terminationMessagePolicy", "File".into());
    let image = container["image"].as_str().unwrap_or_default();
    let tag = image.rsplit('/').next().and_then(|last| last.split_once(':')).map_or("", |(_, tag)| tag);
    let latest = !image.contains('@') && (tag.is_empty() || tag == "latest");
    if !image.is_empty() {
        set(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" }.into());
    }
    for port in each(&mut container["ports"]) {
        set(port, "protocol", "TCP".into());
    }
    if container["ports"].is_null()
        && let Value::Object(map) = container
    {
        map.remove("ports");
    }
}

fn pod_spec(spec: &mut Value) {
    set(spec, "restartPolicy", "Always".into());
    set(spec, "dnsPolicy", "ClusterFirst".into());
    set(spec, "terminationGracePeriodSeconds", 30.into());
    set(spec, "securityContext", json!({}));
    set(spec, "schedulerName", "default-scheduler".into());
    for list in ["containers", "initContainers"] {
        if let Some(list) = spec.get_mut(list) {
            each(list).for_each(container);
        }
    }
}

/// What a real pod gets beyond a template.
fn pod(value: &mut Value) {
    let spec = &mut value["spec"];
    set(spec, "enableServiceLinks", true.into());
    set(spec, "priority", 0.into());
    set(spec, "preemptionPolicy", "PreemptLowerPriority".into());
    set(spec, "tolerations", json!([]));
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = each(&mut spec["tolerations"]).any(|toleration| toleration["key"] == key);
        if let (false, Value::Array(list)) = (tolerated, &mut spec["tolerations"]) {
            list.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }
    let class = quality_of_service(spec);
    set(&mut value["status"], "qosClass", class.into());
}

/// How a pod ranks when its node runs short: all limits set and equal to the requests, none set at all, or in between.
fn quality_of_service(spec: &Value) -> &'static str {
    let containers = spec["containers"].as_array().map_or(&[][..], Vec::as_slice);
    let asks =
        |container: &Value, kind: &str, resource: &str| container["resources"][kind].get(resource).cloned();
    let any = containers.iter().any(|container| {
        ["limits", "requests"]
            .iter()
            .any(|kind| container["resources"][*kind].as_object().is_some_and(|m| !m.is_empty()))
    });
    let all = containers.iter().all(|container| {
        ["cpu", "memory"].iter().all(|resource| {
            let (limit, request) =
                (asks(container, "limits", resource), asks(container, "requests", resource));
            limit.is_some() && (request.is_none() || request == limit)
        })
    });
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn template(spec: &mut Value) {
    if spec.get("template").is_some_and(Value::is_object) {
        set(&mut spec["template"], "metadata", json!({}));
        pod_spec(&mut spec["template"]["spec"]);
    }
}

fn replicated(spec: &mut Value) {
    set(spec, "replicas", 1.into());
    template(spec);
}

fn deployment(spec: &mut Value) {
    replicated(spec);
    set(spec, "strategy", json!({}));
    set(&mut spec["strategy"], "type", "RollingUpdate".into());
    if spec["strategy"]["type"] == "RollingUpdate" {
        set(&mut spec["strategy"], "rollingUpdate", json!({}));
        set(&mut spec["strategy"]["rollingUpdate"], "maxUnavailable", "25%".into());
        set(&mut spec["strategy"]["rollingUpdate"], "maxSurge", "25%".into());
    }
    set(spec, "revisionHistoryLimit", 10.into());
    set(spec, "progressDeadlineSeconds", 600.into());
}

fn stateful_set(spec: &mut Value) {
    replicated(spec);
    set(spec, "podManagementPolicy", "OrderedReady".into());
    set(spec, "updateStrategy", json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}));
    set(spec, "revisionHistoryLimit", 10.into());
    set(
        spec,
        "persistentVolumeClaimRetentionPolicy",
        json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
    );
}

fn daemon_set(spec: &mut Value) {
    template(spec);
    set(
        spec,
        "updateStrategy",
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}),
    );
    set(spec, "revisionHistoryLimit", 10.into());
}

fn job(spec: &mut Value) {
    if spec.get("parallelism").is_none() && spec.get("completions").is_none() {
        set(spec, "completions", 1.into());
    }
    set(spec, "parallelism", 1.into());
    set(spec, "backoffLimit", 6.into());
    set(spec, "completionMode", "NonIndexed".into());
    set(spec, "suspend", false.into());
    set(spec, "podReplacementPolicy", "TerminatingOrFailed".into());
    template(spec);
}

fn cron_job(spec: &mut Value) {
    set(spec, "concurrencyPolicy", "Allow".into());
    set(spec, "suspend", false.into());
    set(spec, "successfulJobsHistoryLimit", 3.into());
    set(spec, "failedJobsHistoryLimit", 1.into());
    if let Some(job) = spec.get_mut("jobTemplate").filter(|job| job.is_object()) {
        set(job, "metadata", json!({}));
        if let Some(job) = job.get_mut("spec") {
            template(job);
        }
    }
}

fn service(spec: &mut Value) {
    set(spec, "type", "ClusterIP".into());
    set(spec, "sessionAffinity", "None".into());
    if spec["type"] != "ExternalName" {
        set(spec, "internalTrafficPolicy", "Cluster".into());
    }
    if let Some(ports) = spec.get_mut("ports") {
        for port in each(ports) {
            set(port, "protocol", "TCP".into());
            let number = port["port"].clone();
            set(port, "targetPort", number);
        }
    }
}

fn role_binding(value: &mut Value) {
    if value["roleRef"].is_object() {
        set(&mut value["roleRef"], "apiGroup", "rbac.authorization.k8s.io".into());
    }
    if let Some(subjects) = value.get_mut("subjects") {
        for subject in each(subjects) {
            if ["User", "Group"].contains(&subject["kind"].as_str().unwrap_or_default()) {
                set(subject, "apiGroup", "rbac.authorization.k8s.io".into());
            }
        }
    }
}
