//! What does the server add to a new object that nobody asked for? What its strategies and admission do after the defaults: nobody owns it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::kinds::builtin::InitialStatus;
use crate::kinds::conditions;
use crate::kinds::defaults::{each, set};
use crate::kinds::meta;
use crate::kinds::registry::Kind;
use crate::kinds::validation::is_gated;
use crate::state::store::Stored;
use crate::verbs::draft::Seen;
use crate::verbs::merge_patch::merge;

impl Seen {
    /// Completes a new object, which has its name and uid.
    pub(crate) fn complete(&self, kind: &Kind, value: &mut Value) {
        initial_status(kind, value);
        match (kind.group.as_str(), kind.kind.as_str(), &kind.custom) {
            (_, _, Some(_)) => {}
            ("", "Namespace", _) => namespace(value),
            ("", "Pod", _) => self.complete_pod(value),
            ("", "Service", _) => self.address_service(value),
            ("batch", "Job", _) => job(value),
            _ => {}
        }
    }

    fn complete_pod(&self, pod: &mut Value) {
        let spec = &mut pod["spec"];
        admit_pod(spec);
        let (class, gated) = (quality_of_service(spec), is_gated(spec));
        pod["status"]["qosClass"] = class.into();
        if gated {
            let waits = json!({
                "type": "PodScheduled", "status": "False", "lastProbeTime": null, "lastTransitionTime": self.now(),
                "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates",
            });
            conditions::set(&mut pod["status"], waits);
        }
    }

    /// Gives a service its address within the cluster, and a port on every node where its type has one.
    pub(crate) fn address_service(&self, value: &mut Value) {
        let spec = &mut value["spec"];
        let sort = spec["type"].as_str().unwrap_or_default().to_owned();
        if sort == "ExternalName" {
            return;
        }
        let services = || self.services.iter();
        if spec["clusterIP"].as_str().unwrap_or_default().is_empty() {
            let address = loop {
                let number = 1 + self.generator.below(65_534);
                let address = format!("10.0.{}.{}", number / 256, number % 256);
                let has_it = |(path, value): &(String, String)| path == "spec.clusterIP" && *value == address;
                if !services().any(|service| service.fields.iter().any(has_it)) {
                    break address;
                }
            };
            spec["clusterIP"] = address.into();
        }
        let address = spec["clusterIP"].clone();
        // Without a selector nobody here knows of which family the addresses are that others will give it.
        let open = address == "None" && spec["selector"].as_object().is_none_or(serde_json::Map::is_empty);
        set(spec, "clusterIPs", json!([address]));
        set(spec, "ipFamilies", if open { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) });
        set(spec, "ipFamilyPolicy", if open { "RequireDualStack" } else { "SingleStack" }.into());
        let has_none = |port: &Value| port["nodePort"].as_i64().unwrap_or(0) == 0;
        if (sort == "NodePort" || sort == "LoadBalancer")
            && each(&mut spec["ports"]).any(|port| has_none(port))
        {
            let ports = |service: &Arc<Stored>| {
                service.value()["spec"]["ports"].as_array().cloned().unwrap_or_default()
            };
            let mut used: BTreeSet<i64> =
                services().flat_map(ports).filter_map(|port| port["nodePort"].as_i64()).collect();
            let mut taken = used.range(30_000..32_768).count();
            for port in each(&mut spec["ports"]).filter(|port| has_none(port)) {
                let number = loop {
                    let number = 30_000 + i64::try_from(self.generator.below(2768)).unwrap_or(0);
                    if !used.contains(&number) || taken >= 2768 {
                        break number;
                    }
                };
                taken += usize::from(used.insert(number));
                port["nodePort"] = number.into();
            }
        }
    }
}

/// What was allocated to a service stays its own when a client does not repeat it, and goes with a type that needs it.
pub(crate) fn keep_addresses(before: &Value, after: &mut Value) {
    let (sort, was) = (after["spec"]["type"].clone(), before["spec"]["type"].clone());
    let outside = |sort: &Value| sort == "NodePort" || sort == "LoadBalancer";
    // What a client has changed with the type is for the checks to refuse.
    let mut without = |field: &str| {
        if let Value::Object(spec) = &mut after["spec"]
            && spec.get(field) == before["spec"].get(field)
        {
            spec.remove(field);
        }
    };
    if was == "LoadBalancer" && sort != "LoadBalancer" {
        without("allocateLoadBalancerNodePorts");
    }
    if outside(&was) && !outside(&sort) {
        without("externalTrafficPolicy");
    }
    if was != "ExternalName" && sort == "ExternalName" {
        ADDRESSES.iter().for_each(|field| without(field));
        without("internalTrafficPolicy");
    }
    let numbers = |service: &Value| -> BTreeSet<i64> {
        let ports = service["spec"]["ports"].as_array().into_iter().flatten();
        ports.filter_map(|port| port["nodePort"].as_i64()).collect()
    };
    if outside(&was) && !outside(&sort) {
        let known = numbers(before);
        for port in each(&mut after["spec"]["ports"]).filter_map(Value::as_object_mut) {
            if port.get("nodePort").and_then(Value::as_i64).is_some_and(|number| known.contains(&number)) {
                port.remove("nodePort");
            }
        }
    }
    if was != "ExternalName" && sort != "ExternalName" {
        for field in ADDRESSES {
            if let Some(value) = before["spec"].get(field) {
                set(&mut after["spec"], field, value.clone());
            }
        }
    }
    if outside(&sort) && outside(&was) {
        let mut used = numbers(after);
        // Of several of one name the first counts.
        let ports = before["spec"]["ports"].as_array().into_iter().flatten().rev();
        let known: BTreeMap<_, _> = ports.map(|old| (old["name"].as_str(), &old["nodePort"])).collect();
        for port in each(&mut after["spec"]["ports"]).filter(|port| port.get("nodePort").is_none()) {
            let same = known.get(&port["name"].as_str()).and_then(|number| number.as_i64());
            if let Some(number) = same.filter(|own| used.insert(*own)) {
                port["nodePort"] = number.into();
            }
        }
    }
}

/// What may surprise whoever wrote the object.
pub(crate) fn warnings(kind: &Kind, stored: &Stored) -> Vec<String> {
    if !kind.is("", "Service") {
        return Vec::new();
    }
    let spec = &stored.value()["spec"];
    let ignored = spec["clusterIP"] == "None" && spec["sessionAffinity"] != "None";
    ignored.then(|| "spec.SessionAffinity is ignored for headless services".to_owned()).into_iter().collect()
}

const ADDRESSES: [&str; 4] = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"];

fn initial_status(kind: &Kind, value: &mut Value) {
    let Value::Object(map) = value else { return };
    match kind.status {
        InitialStatus::None | InitialStatus::AsSent => {}
        InitialStatus::Fixed("") => {
            map.remove("status");
        }
        InitialStatus::Fixed(json) => {
            let blank = kind.blank().get("status").cloned();
            let mut status = blank.unwrap_or_else(|| json!({}));
            merge(&mut status, &serde_json::from_str(json).unwrap_or_default());
            map.insert("status".to_owned(), status);
        }
    }
}

fn namespace(value: &mut Value) {
    let name = meta::text(value, "name").to_owned();
    let metadata = meta::metadata_mut(value);
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    labels["kubernetes.io/metadata.name"] = name.into();
    set(&mut value["spec"], "finalizers", json!(["kubernetes"]));
}

/// What admission gives to every pod, new or changed.
pub(crate) fn admit_pod(spec: &mut Value) {
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

/// A job finds its pods by labels that no other job has, unless its author has chosen them.
fn job(value: &mut Value) {
    if value["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (meta::text(value, "uid").to_owned(), meta::text(value, "name").to_owned());
    let labels = [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ];
    for pointer in ["/metadata", "/spec/template/metadata"] {
        if let Some(metadata) = value.pointer_mut(pointer) {
            set(metadata, "labels", json!({}));
            for (key, text) in labels {
                set(&mut metadata["labels"], key, text.as_str().into());
            }
        }
    }
    set(&mut value["spec"], "selector", json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
}
