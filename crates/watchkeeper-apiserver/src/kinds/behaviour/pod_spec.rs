//! Pod specs, in a pod or in a template: defaults of containers and volumes, and validation.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::failure::Cause;
use crate::kinds::cells::{list, text};
use crate::kinds::fill::{each, fill, remove_null};
use crate::kinds::meta;

pub(super) fn defaults(spec: &mut Value) {
    fill(spec, "restartPolicy", "Always".into());
    fill(spec, "dnsPolicy", "ClusterFirst".into());
    fill(spec, "terminationGracePeriodSeconds", 30.into());
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        spec["terminationGracePeriodSeconds"] = 1.into();
    }
    fill(spec, "securityContext", json!({}));
    fill(spec, "schedulerName", "default-scheduler".into());
    // `serviceAccount` is the older name of the same field.
    let account = spec["serviceAccountName"].as_str().or_else(|| spec["serviceAccount"].as_str());
    if let Some(account) = account.map(str::to_owned) {
        fill(spec, "serviceAccountName", account.as_str().into());
        fill(spec, "serviceAccount", account.into());
    }
    for containers in ["containers", "initContainers"] {
        spec.get_mut(containers).into_iter().flat_map(each).for_each(default_container);
    }
    spec.get_mut("volumes").into_iter().flat_map(each).for_each(default_volume);
}

fn default_container(container: &mut Value) {
    if !container.is_object() {
        return;
    }
    fill(container, "resources", json!({}));
    fill(container, "terminationMessagePath", "/dev/termination-log".into());
    fill(container, "terminationMessagePolicy", "File".into());
    let image = text(&container["image"]);
    let tag = image.rsplit('/').next().and_then(|last| last.split_once(':')).map_or("", |(_, tag)| tag);
    let latest = !image.contains('@') && (tag.is_empty() || tag == "latest");
    if !image.is_empty() {
        fill(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" }.into());
    }
    for port in each(&mut container["ports"]) {
        fill(port, "protocol", "TCP".into());
    }
    remove_null(container, "ports");
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        container.get_mut(probe).into_iter().for_each(default_probe);
    }
}

fn default_probe(probe: &mut Value) {
    fill(probe, "timeoutSeconds", 1.into());
    fill(probe, "periodSeconds", 10.into());
    fill(probe, "successThreshold", 1.into());
    fill(probe, "failureThreshold", 3.into());
    if let Some(get) = probe.get_mut("httpGet") {
        fill(get, "path", "/".into());
        fill(get, "scheme", "HTTP".into());
    }
}

/// Files of a volume are readable by all unless it says otherwise.
fn default_volume(volume: &mut Value) {
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(source) {
            fill(source, "defaultMode", 420.into());
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        fill(path, "type", "".into());
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in each(&mut projected["sources"]) {
            if let Some(token) = source.get_mut("serviceAccountToken") {
                fill(token, "expirationSeconds", 3600.into());
            }
        }
    }
}

/// Validates the spec at `path`.
pub(super) fn validate(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    validate_containers(list(&spec["containers"]), &format!("{path}.containers"), causes);
    let policy = &spec["restartPolicy"];
    let policies = ["Always", "OnFailure", "Never"];
    if policy.as_str().is_some_and(|policy| !policies.contains(&policy)) {
        causes.push(Cause::not_supported(&format!("{path}.restartPolicy"), policy, &policies));
    }
    meta::validate_labels(&spec["nodeSelector"], &format!("{path}.nodeSelector"), causes);
    validate_hostnames(spec, path, causes);
    validate_sysctls(&spec["securityContext"]["sysctls"], &format!("{path}.securityContext.sysctls"), causes);
    let mut known = BTreeSet::new();
    for (at, gate) in scheduling_gates(spec).enumerate() {
        let path = format!("{path}.schedulingGates[{at}]");
        if let Some(problem) = meta::qualified_name_problem(gate) {
            causes.push(Cause::invalid(&path, &gate.into(), &problem));
        }
        if !known.insert(gate) {
            causes.push(Cause::duplicate(&path, &gate.into()));
        }
    }
}

fn validate_containers(containers: &[Value], path: &str, causes: &mut Vec<Cause>) {
    if containers.is_empty() {
        causes.push(Cause::required(path, ""));
    }
    let mut names = BTreeSet::new();
    for (at, container) in containers.iter().enumerate() {
        let field = format!("{path}[{at}].name");
        let name = text(&container["name"]);
        if name.is_empty() {
            causes.push(Cause::required(&field, ""));
        } else if !names.insert(name) {
            causes.push(Cause::duplicate(&field, &name.into()));
        } else {
            let problems = meta::label_problems(name);
            causes.extend(problems.iter().map(|p| Cause::invalid(&field, &name.into(), p)));
        }
        if text(&container["image"]).is_empty() {
            causes.push(Cause::required(&format!("{path}[{at}].image"), ""));
        }
    }
}

/// Validates what the pod is called on the network.
fn validate_hostnames(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    const MOST: usize = 64;
    if let Some(name) = spec["hostnameOverride"].as_str() {
        let path = format!("{path}.hostnameOverride");
        for field in ["setHostnameAsFQDN", "hostNetwork"] {
            if spec[field] == true {
                causes.push(Cause::forbidden(&path, &format!("may not be specified when {field} is true")));
            }
        }
        if name.len() > MOST {
            causes.push(Cause::too_long(&path, MOST, "bytes"));
        }
        let problems = meta::subdomain_problems(name);
        causes.extend(problems.iter().map(|problem| Cause::invalid(&path, &name.into(), problem)));
    }
    for field in ["hostname", "subdomain"] {
        let name = text(&spec[field]);
        let problems = if name.is_empty() { Vec::new() } else { meta::label_problems(name) };
        let path = format!("{path}.{field}");
        causes.extend(problems.iter().map(|problem| Cause::invalid(&path, &name.into(), problem)));
    }
}

/// Kernel parameters have names of segments, which are separated by dots or by slashes.
fn validate_sysctls(sysctls: &Value, path: &str, causes: &mut Vec<Cause>) {
    const MOST: usize = 253;
    const PATTERN: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let is_end = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_segment = |segment: &str| {
        let bytes = segment.as_bytes();
        bytes.first().is_some_and(|byte| is_end(*byte))
            && bytes.last().is_some_and(|byte| is_end(*byte))
            && bytes.iter().all(|byte| is_end(*byte) || [b'-', b'_'].contains(byte))
    };
    let mut names = BTreeSet::new();
    for (at, sysctl) in list(sysctls).iter().enumerate() {
        let (name, path) = (text(&sysctl["name"]), format!("{path}[{at}].name"));
        if name.is_empty() {
            causes.push(Cause::required(&path, ""));
        } else if name.len() > MOST || !name.split(['.', '/']).all(is_segment) {
            let problem = format!("must have at most {MOST} characters and match regex {PATTERN}");
            causes.push(Cause::invalid(&path, &name.into(), &problem));
        } else if !names.insert(name) {
            causes.push(Cause::duplicate(&path, &name.into()));
        }
    }
}

/// The names of what a pod waits for before it may be scheduled.
pub(super) fn scheduling_gates(spec: &Value) -> impl Iterator<Item = &str> {
    list(&spec["schedulingGates"]).iter().map(|gate| text(&gate["name"]))
}
