//! What does the server fill in? The defaults that controllers and clients rely on, and the form in which objects are stored.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::failure::{Failure, Result};
use crate::kinds::meta;
use crate::kinds::registry::Kind;
use crate::kinds::size;

/// Fills in the defaults of an object that has the shape of its kind; fails if they make it far too large.
pub(crate) fn prepare(kind: &Kind, value: &mut Value) -> Result<()> {
    if let Some(custom) = &kind.custom {
        custom.schema.default(value)?;
        // The defaults may have come where a path was long already.
        if size::has_long_paths(value) {
            return Err(Failure::bad_request("the names of its fields are too long"));
        }
        return Ok(());
    }
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") => namespace(value),
        ("", "Secret") => secret(value),
        ("", "Pod") => {
            pod_spec(&mut value["spec"]);
            pod(&mut value["spec"]);
        }
        ("", "Service") => service(&mut value["spec"]),
        ("", "PersistentVolumeClaim") => set(&mut value["spec"], "volumeMode", "Filesystem".into()),
        ("apps", "Deployment") => deployment(&mut value["spec"]),
        ("apps", "ReplicaSet") => replicated(&mut value["spec"]),
        ("apps", "StatefulSet") => stateful_set(&mut value["spec"]),
        ("apps", "DaemonSet") => {
            daemon_set(&mut value["spec"]);
            let annotations = meta::metadata_mut(value).entry("annotations").or_insert_with(|| json!({}));
            set(annotations, "deprecated.daemonset.template.generation", "1".into());
        }
        ("batch", "Job") => job(&mut value["spec"]),
        ("batch", "CronJob") => cron_job(&mut value["spec"]),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => role_binding(value),
        ("autoscaling", "HorizontalPodAutoscaler") => {
            set(&mut value["spec"], "minReplicas", 1.into());
            let target = json!({"type": "Utilization", "averageUtilization": 80});
            set(
                &mut value["spec"],
                "metrics",
                json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]),
            );
        }
        _ => {}
    }
    Ok(())
}

/// Sets a field that is absent.
pub(crate) fn set(target: &mut Value, field: &str, default: Value) {
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

pub(crate) fn each(list: &mut Value) -> impl Iterator<Item = &mut Value> {
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

/// The label by which selectors of namespaces find one; a name that is yet to be made is told later.
fn namespace(value: &mut Value) {
    let name = meta::text(value, "name").to_owned();
    if !name.is_empty() {
        let metadata = meta::metadata_mut(value);
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        labels["kubernetes.io/metadata.name"] = name.into();
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
    remove_null(container, "ports");
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            set(probe, "timeoutSeconds", 1.into());
            set(probe, "periodSeconds", 10.into());
            set(probe, "successThreshold", 1.into());
            set(probe, "failureThreshold", 3.into());
            if let Some(get) = probe.get_mut("httpGet") {
                set(get, "path", "/".into());
                set(get, "scheme", "HTTP".into());
            }
        }
    }
}

/// Files of a volume are readable by all unless it says otherwise.
fn volume(volume: &mut Value) {
    for (source, mode) in [
        ("configMap", "defaultMode"),
        ("secret", "defaultMode"),
        ("downwardAPI", "defaultMode"),
        ("projected", "defaultMode"),
    ] {
        if let Some(source) = volume.get_mut(source) {
            set(source, mode, 420.into());
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        set(path, "type", "".into());
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in each(&mut projected["sources"]) {
            if let Some(token) = source.get_mut("serviceAccountToken") {
                set(token, "expirationSeconds", 3600.into());
            }
        }
    }
}

fn pod_spec(spec: &mut Value) {
    set(spec, "restartPolicy", "Always".into());
    set(spec, "dnsPolicy", "ClusterFirst".into());
    set(spec, "terminationGracePeriodSeconds", 30.into());
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        spec["terminationGracePeriodSeconds"] = 1.into();
    }
    set(spec, "securityContext", json!({}));
    set(spec, "schedulerName", "default-scheduler".into());
    // The older name of the same field.
    let account = spec["serviceAccountName"].as_str().or_else(|| spec["serviceAccount"].as_str());
    if let Some(account) = account.map(str::to_owned) {
        set(spec, "serviceAccountName", account.as_str().into());
        set(spec, "serviceAccount", account.into());
    }
    for list in ["containers", "initContainers"] {
        if let Some(list) = spec.get_mut(list) {
            each(list).for_each(container);
        }
    }
    if let Some(volumes) = spec.get_mut("volumes") {
        each(volumes).for_each(volume);
    }
}

/// What a real pod gets beyond a template.
fn pod(spec: &mut Value) {
    set(spec, "enableServiceLinks", true.into());
    for list in ["containers", "initContainers"] {
        for container in each(&mut spec[list]) {
            let resources = &mut container["resources"];
            let limits = resources["limits"].as_object().cloned().unwrap_or_default();
            for (resource, limit) in limits {
                set(&mut resources["requests"], &resource, limit);
            }
            remove_null(resources, "requests");
            remove_null(resources, "limits");
        }
        remove_null(spec, list);
    }
}

/// Looking at an absent field for writing makes it null: takes that back.
pub(crate) fn remove_null(value: &mut Value, field: &str) {
    if let Value::Object(map) = value
        && map.get(field).is_some_and(Value::is_null)
    {
        map.remove(field);
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
    rolling_update(spec, &json!({"partition": 0}));
    set(spec, "revisionHistoryLimit", 10.into());
    set(
        spec,
        "persistentVolumeClaimRetentionPolicy",
        json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
    );
}

fn rolling_update(spec: &mut Value, details: &Value) {
    let strategy = &mut spec["updateStrategy"];
    set(strategy, "type", "RollingUpdate".into());
    if strategy["type"] == "RollingUpdate" {
        set(strategy, "rollingUpdate", json!({}));
        for (field, default) in details.as_object().into_iter().flatten() {
            set(&mut strategy["rollingUpdate"], field, default.clone());
        }
    }
}

fn daemon_set(spec: &mut Value) {
    template(spec);
    rolling_update(spec, &json!({"maxUnavailable": 1, "maxSurge": 0}));
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
    set(spec, "manualSelector", false.into());
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
    let affinity = spec["sessionAffinity"].as_str().unwrap_or_default().to_owned();
    if spec["sessionAffinity"] == "ClientIP" {
        set(spec, "sessionAffinityConfig", json!({}));
        set(&mut spec["sessionAffinityConfig"], "clientIP", json!({}));
        set(&mut spec["sessionAffinityConfig"]["clientIP"], "timeoutSeconds", 10_800.into());
    } else if let (Value::Object(map), "None") = (&mut *spec, affinity.as_str()) {
        map.remove("sessionAffinityConfig");
    }
    let sort = spec["type"].as_str().unwrap_or_default().to_owned();
    if ["ClusterIP", "NodePort", "LoadBalancer"].contains(&sort.as_str()) {
        set(spec, "internalTrafficPolicy", "Cluster".into());
    }
    if sort == "NodePort" || sort == "LoadBalancer" {
        set(spec, "externalTrafficPolicy", "Cluster".into());
    }
    if sort == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", true.into());
    }
    if let Some(ports) = spec.get_mut("ports") {
        for port in each(ports) {
            set(port, "protocol", "TCP".into());
            if [&json!(0), &json!("")].contains(&&port["targetPort"]) {
                port["targetPort"] = port["port"].clone();
            }
        }
    }
}

fn role_binding(value: &mut Value) {
    if value["roleRef"]["apiGroup"] == "" {
        value["roleRef"]["apiGroup"] = "rbac.authorization.k8s.io".into();
    }
    if let Some(subjects) = value.get_mut("subjects") {
        for subject in each(subjects) {
            if ["User", "Group"].contains(&subject["kind"].as_str().unwrap_or_default()) {
                set(subject, "apiGroup", "rbac.authorization.k8s.io".into());
            }
        }
    }
}
