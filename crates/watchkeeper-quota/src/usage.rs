//! The usage of an object, and the names of the resources under which quotas limit it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::amounts::Amounts;
use crate::quantity::Quantity;
use crate::requirements::{Side, containers, of_container, of_pod};

/// The suffix of limits for one storage class.
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";
/// Core resources that are counted under their own name too.
const COUNTED: [&str; 7] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];
/// Requirements that each container must have if a quota limits them.
const REQUIRED: [&str; 6] =
    ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

/// A resource of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural name, such as `pods`.
    pub plural: &'a str,
}

impl Resource<'_> {
    /// The name under which all objects are counted: `count/deployments.apps`.
    pub fn count(&self) -> String {
        match self.group {
            "" => format!("count/{}", self.plural),
            group => format!("count/{}.{group}", self.plural),
        }
    }

    fn is_core(&self, plural: &str) -> bool {
        self.group.is_empty() && self.plural == plural
    }
}

/// Returns whether objects of `resource` count for the limit called `name`.
pub fn covers(resource: Resource<'_>, name: &str) -> bool {
    if name == resource.count()
        || (resource.group.is_empty() && COUNTED.contains(&name) && name == resource.plural)
    {
        return true;
    }
    if resource.is_core("pods") {
        return is_compute(name);
    }
    if resource.is_core("services") {
        return ["services.loadbalancers", "services.nodeports"].contains(&name);
    }
    let of_class = name.split_once(OF_CLASS).map(|(_, of)| of);
    resource.is_core("persistentvolumeclaims")
        && (name == "requests.storage"
            || of_class.is_some_and(|of| ["persistentvolumeclaims", "requests.storage"].contains(&of)))
}

/// Whether a name is that of something that Pods need.
fn is_compute(name: &str) -> bool {
    let bare = name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits.")).unwrap_or(name);
    let is_basic = ["cpu", "memory", "ephemeral-storage"].contains(&bare);
    let is_huge = bare.starts_with("hugepages-") && !name.starts_with("limits.");
    let is_extended = name.starts_with("requests.") && bare.contains('/') && !name.contains(OF_CLASS);
    is_basic || is_huge || is_extended
}

/// Returns what an object uses.
pub fn usage(resource: Resource<'_>, object: &Value, now: Timestamp) -> Amounts {
    let mut used = Amounts::from([(resource.count(), Quantity::count(1))]);
    if resource.is_core("pods") {
        if is_alive(object, now) {
            pod(&object["spec"], &mut used);
        }
        return used;
    }
    if resource.group.is_empty() && COUNTED.contains(&resource.plural) {
        used.insert(resource.plural.to_owned(), Quantity::count(1));
    }
    if resource.is_core("services") {
        service(&object["spec"], &mut used);
    }
    if resource.is_core("persistentvolumeclaims") {
        claim(object, &mut used);
    }
    used
}

/// Whether a Pod still uses what it needs: it has not ended, and if it is being deleted, its time is not over.
fn is_alive(pod: &Value, now: Timestamp) -> bool {
    if ["Failed", "Succeeded"].iter().any(|ended| pod["status"]["phase"] == *ended) {
        return false;
    }
    let metadata = &pod["metadata"];
    let deleted = metadata["deletionTimestamp"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    let grace = metadata["deletionGracePeriodSeconds"].as_i64();
    match (deleted, grace) {
        (Some(deleted), Some(grace)) => {
            now <= deleted.saturating_add(SignedDuration::from_secs(grace)).unwrap_or(now)
        }
        _ => true,
    }
}

fn pod(spec: &Value, used: &mut Amounts) {
    used.insert("pods".to_owned(), Quantity::count(1));
    used.extend(named(of_pod(spec, Side::Requests), Side::Requests));
    used.extend(named(of_pod(spec, Side::Limits), Side::Limits));
}

/// Requirements under the names that quotas have for them.
fn named(amounts: Amounts, side: Side) -> Amounts {
    let mut names = Amounts::new();
    for (name, amount) in amounts {
        let is_basic = ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str());
        let is_huge = name.starts_with("hugepages-");
        match side {
            Side::Limits if is_basic => drop(names.insert(format!("limits.{name}"), amount)),
            Side::Limits => {}
            Side::Requests => {
                if is_basic || is_huge {
                    names.insert(name.clone(), amount.clone());
                }
                names.insert(format!("requests.{name}"), amount);
            }
        }
    }
    names
}

fn service(spec: &Value, used: &mut Amounts) {
    let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let explicit = ports.iter().filter(|port| port["nodePort"].as_i64().is_some_and(|number| number != 0));
    let (balancers, node_ports) = match spec["type"].as_str() {
        Some("NodePort") => (0, ports.len()),
        Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] == false => (1, explicit.count()),
        Some("LoadBalancer") => (1, ports.len()),
        _ => (0, 0),
    };
    used.insert("services.loadbalancers".to_owned(), Quantity::count(balancers));
    used.insert("services.nodeports".to_owned(), Quantity::count(node_ports));
}

fn claim(claim: &Value, used: &mut Amounts) {
    let class = claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    let class = class.or(claim["spec"]["storageClassName"].as_str()).filter(|class| !class.is_empty());
    let wanted = Quantity::of(&claim["spec"]["resources"]["requests"]["storage"]);
    let allocated = Quantity::of(&claim["status"]["allocatedResources"]["storage"]);
    let storage = wanted.max(allocated);
    if let Some(class) = class {
        used.insert(format!("{class}{OF_CLASS}persistentvolumeclaims"), Quantity::count(1));
    }
    if let Some(storage) = storage {
        if let Some(class) = class {
            used.insert(format!("{class}{OF_CLASS}requests.storage"), storage.clone());
        }
        used.insert("requests.storage".to_owned(), storage);
    }
}

/// Checks that the containers of a Pod say how much they need of what is limited. The error names what is missing.
pub fn constraints(resource: Resource<'_>, object: &Value, limited: &BTreeSet<String>) -> Result<(), String> {
    if !resource.is_core("pods") {
        return Ok(());
    }
    let spec = &object["spec"];
    let said = |of: &Value| -> BTreeSet<String> {
        let requests = named(of_container(of, Side::Requests), Side::Requests);
        requests.into_keys().chain(named(of_container(of, Side::Limits), Side::Limits).into_keys()).collect()
    };
    let of_pod = said(spec);
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in containers(spec) {
        let own = said(container);
        let required = REQUIRED.iter().filter(|name| limited.contains(**name));
        for name in required.filter(|name| !own.contains(**name) && !of_pod.contains(**name)) {
            missing.entry(name).or_default().insert(container["name"].as_str().unwrap_or_default());
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let shown = missing.into_iter().map(|(name, containers)| {
        format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(","))
    });
    Err(format!("must specify {}", shown.collect::<Vec<_>>().join("; ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::shown;

    fn core(plural: &str) -> Resource<'_> {
        Resource { group: "", plural }
    }

    fn used(plural: &str, object: &Value) -> String {
        shown(&usage(core(plural), object, "2026-01-01T00:01:00Z".parse().unwrap()))
    }

    #[test]
    fn a_pod_uses_what_it_requests_until_it_ends() {
        let resources = json!({"requests": {"cpu": "500m", "memory": "1Gi", "example.com/gpu": "2"},
            "limits": {"cpu": "1", "example.com/gpu": "2"}});
        let mut pod = json!({"spec": {"containers": [{"resources": resources}]}});
        assert_eq!(
            used("pods", &pod),
            "count/pods=1,cpu=500m,limits.cpu=1,memory=1Gi,pods=1,requests.cpu=500m,requests.example.com/gpu=2,requests.memory=1Gi"
        );
        pod["metadata"] =
            json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30});
        assert_eq!(used("pods", &pod), "count/pods=1");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(90);
        assert!(used("pods", &pod).contains("pods=1,requests"));
        pod["status"] = json!({"phase": "Succeeded"});
        assert_eq!(used("pods", &pod), "count/pods=1");
    }

    #[test]
    fn a_service_uses_node_ports_and_balancers_by_its_type() {
        let service = |spec: Value| used("services", &json!({ "spec": spec }));
        let ports = json!([{"port": 1}, {"port": 2, "nodePort": 30000}]);
        let all = |balancers, ports| {
            format!(
                "count/services=1,services=1,services.loadbalancers={balancers},services.nodeports={ports}"
            )
        };
        assert_eq!(service(json!({"type": "ClusterIP", "ports": ports})), all(0, 0));
        assert_eq!(service(json!({"type": "NodePort", "ports": ports})), all(0, 2));
        assert_eq!(service(json!({"type": "LoadBalancer", "ports": ports})), all(1, 2));
        let without = json!({"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": false});
        assert_eq!(service(without), all(1, 1));
    }

    #[test]
    fn a_claim_uses_storage_of_its_class() {
        let spec = json!({"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}});
        assert_eq!(
            used("persistentvolumeclaims", &json!({ "spec": spec })),
            "count/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
             gold.storageclass.storage.k8s.io/requests.storage=1Gi,persistentvolumeclaims=1,requests.storage=1Gi"
        );
    }

    #[test]
    fn each_limit_is_covered_by_one_resource() {
        let covered = |name: &str| {
            let all = ["pods", "services", "persistentvolumeclaims", "configmaps", "secrets"];
            all.into_iter().filter(|plural| covers(core(plural), name)).collect::<Vec<_>>()
        };
        for name in
            ["cpu", "limits.memory", "requests.example.com/gpu", "hugepages-2Mi", "count/pods", "pods"]
        {
            assert_eq!(covered(name), ["pods"], "{name}");
        }
        for name in ["requests.storage", "a.b.storageclass.storage.k8s.io/requests.storage"] {
            assert_eq!(covered(name), ["persistentvolumeclaims"], "{name}");
        }
        assert_eq!(covered("services.nodeports"), ["services"]);
        assert_eq!(covered("secrets"), ["secrets"]);
        assert_eq!(covered("unknown"), [""; 0]);
        assert!(covers(Resource { group: "apps", plural: "deployments" }, "count/deployments.apps"));
    }

    #[test]
    fn containers_must_say_what_they_need_of_what_is_limited() {
        let limited: BTreeSet<_> = ["cpu", "limits.memory", "pods"].map(str::to_owned).into();
        let full = json!({"name": "a", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1"}}});
        let pod = |containers: Value| json!({"spec": {"containers": containers}});
        assert_eq!(constraints(core("pods"), &pod(json!([full])), &limited), Ok(()));
        let refused = constraints(core("pods"), &pod(json!([full, {"name": "c"}, {"name": "b"}])), &limited);
        assert_eq!(refused.unwrap_err(), "must specify cpu for: b,c; limits.memory for: b,c");
    }
}
