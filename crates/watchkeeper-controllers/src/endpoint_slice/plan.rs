//! The endpoints of a Service: a pure function of the Service, the Pods that it selects, and the zones of their nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, ForNode, ForZone,
};

use super::layout::{Group, Marks, sort};
use super::{MANAGED_BY, SERVICE};
use crate::pods::{is_ready, node_name};
use crate::services::{
    HEADLESS, addresses, has_address, hostname, is_headless, is_v6, protocol, publishes_unready, reference,
    target,
};

/// What is known of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) zone: Option<String>,
}

/// The endpoints of a Service by their ports and types of address. `place` knows the nodes that there are.
pub(super) fn groups(
    service: &Service,
    pods: &[Arc<Pod>],
    place: impl Fn(&str) -> Option<Place>,
) -> Vec<Group> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let mut groups = Vec::new();
    for address_type in address_types(spec) {
        let mut by_ports: BTreeMap<String, Group> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| has_address(pod)) {
            let place = place(node_name(pod));
            // A Pod whose node is gone will be collected. Until then it gets no traffic, unless that is asked for.
            if place.is_none() && !publishes_unready(spec) {
                continue;
            }
            let Some(endpoint) = endpoint(service, spec, pod, address_type, place.unwrap_or_default()) else {
                continue;
            };
            let ports = ports(spec, pod);
            let group = by_ports.entry(format!("{ports:?}")).or_insert_with(|| Group {
                address_type: address_type.to_owned(),
                ports,
                endpoints: Vec::new(),
            });
            group.endpoints.push(endpoint);
        }
        if by_ports.is_empty() {
            // One slice says that there are no endpoints.
            let (address_type, ports) = (address_type.to_owned(), Vec::new());
            groups.push(Group { address_type, ports, endpoints: Vec::new() });
        }
        groups.extend(by_ports.into_values());
    }
    groups
}

/// The types of address of a Service.
fn address_types(spec: &ServiceSpec) -> Vec<&str> {
    match spec.ip_families.as_deref() {
        Some(families) if !families.is_empty() => families.iter().map(String::as_str).collect(),
        _ if spec.cluster_ip.as_deref().is_some_and(is_v6) => vec!["IPv6"],
        _ => vec!["IPv4"],
    }
}

fn endpoint(
    service: &Service,
    spec: &ServiceSpec,
    pod: &Pod,
    address_type: &str,
    place: Place,
) -> Option<Endpoint> {
    let of_type = addresses(pod).filter(|address| is_v6(address) == (address_type == "IPv6"));
    let addresses: Vec<_> = of_type.map(str::to_owned).collect();
    if addresses.is_empty() {
        return None;
    }
    let (serving, terminating) = (is_ready(pod), pod.metadata.deletion_timestamp.is_some());
    let ready = publishes_unready(spec) || (serving && !terminating);
    let node = Some(node_name(pod).to_owned()).filter(|node| !node.is_empty());
    Some(Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hints: if ready { hints(spec, place.zone.as_deref(), node.as_deref()) } else { None },
        hostname: hostname(service, pod),
        node_name: node,
        target_ref: Some(reference(pod)),
        zone: place.zone,
        ..Endpoint::default()
    })
}

/// Which clients an endpoint is meant for.
fn hints(spec: &ServiceSpec, zone: Option<&str>, node: Option<&str>) -> Option<EndpointHints> {
    let (near, same_node) = match spec.traffic_distribution.as_deref()? {
        "PreferClose" | "PreferSameZone" => (true, false),
        "PreferSameNode" => (true, true),
        _ => (false, false),
    };
    let zone = zone.filter(|_| near).map(|name| vec![ForZone { name: name.to_owned() }]);
    let node = node.filter(|_| same_node).map(|name| vec![ForNode { name: name.to_owned() }]);
    (zone.is_some() || node.is_some()).then_some(EndpointHints { for_nodes: node, for_zones: zone })
}

/// The ports of a Pod that the Service leads to, sorted. One that the Pod does not have is left out.
fn ports(spec: &ServiceSpec, pod: &Pod) -> Vec<EndpointPort> {
    let port = |port: &ServicePort| {
        Some(EndpointPort {
            app_protocol: port.app_protocol.clone(),
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(target(port, pod)?),
            protocol: Some(protocol(port.protocol.as_deref()).to_owned()),
        })
    };
    let mut ports: Vec<_> = spec.ports.iter().flatten().filter_map(port).collect();
    sort(&mut ports);
    ports
}

/// The labels of the slices of a Service: its own, and those by which slices are found.
pub(super) fn marks(service: &Service, manager: &str) -> Marks {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if service.spec.as_ref().is_some_and(is_headless) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE.to_owned(), service.metadata.name.clone().unwrap_or_default());
    labels.insert(MANAGED_BY.to_owned(), manager.to_owned());
    Marks { labels, annotations: None }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: Value) -> Service {
        let metadata = json!({"name": "web", "namespace": "default", "labels": {"team": "a"}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn pod(name: &str, ready: bool, more: Value) -> Arc<Pod> {
        let status = if ready { "True" } else { "False" };
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"nodeName": "n", "containers": [{"name": "a", "ports": [{"name": "http", "containerPort": 8080}]}]},
            "status": {"phase": "Running", "podIP": "10.1.0.1", "conditions": [{"type": "Ready", "status": status}],
                "podIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}]},
        });
        for (section, members) in more.as_object().unwrap() {
            for (field, value) in members.as_object().unwrap() {
                pod[section][field] = value.clone();
            }
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn zoned(node: &str) -> Option<Place> {
        (node == "n").then(|| Place { zone: Some("z".to_owned()) })
    }

    fn http() -> Value {
        json!([{"name": "web", "port": 80, "targetPort": "http", "protocol": "TCP"}])
    }

    #[test]
    fn an_endpoint_says_whether_its_pod_is_ready_serving_and_terminating() {
        let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let pods = [pod("a", true, json!({})), pod("b", false, json!({})), pod("c", true, going)];
        let conditions = |spec: Value| -> Vec<_> {
            let groups = groups(&service(spec), &pods, zoned);
            let conditions = groups[0].endpoints.iter().map(|it| it.conditions.clone().unwrap());
            conditions.map(|it| (it.ready.unwrap(), it.serving.unwrap(), it.terminating.unwrap())).collect()
        };
        let seen = [(true, true, false), (false, false, false), (false, true, true)];
        assert_eq!(conditions(json!({"clusterIP": "10.0.0.1", "ports": http()})), seen);
        let seen = [(true, true, false), (true, false, false), (true, true, true)];
        let spec = json!({"clusterIP": "10.0.0.1", "ports": http(), "publishNotReadyAddresses": true});
        assert_eq!(conditions(spec), seen);
    }

    #[test]
    fn an_endpoint_has_the_place_and_the_name_of_its_pod() {
        let named = json!({"spec": {"hostname": "h", "subdomain": "web"}});
        let spec = json!({"clusterIP": "None", "ports": http(), "trafficDistribution": "PreferSameNode"});
        let found = groups(&service(spec), &[pod("a", true, named)], zoned);
        let endpoint = serde_json::to_value(&found[0].endpoints[0]).unwrap();
        assert_eq!(
            endpoint,
            json!({"addresses": ["10.1.0.1"], "conditions": {"ready": true, "serving": true, "terminating": false},
                "hints": {"forNodes": [{"name": "n"}], "forZones": [{"name": "z"}]}, "hostname": "h", "nodeName": "n",
                "targetRef": {"kind": "Pod", "name": "a", "namespace": "default", "uid": "a"}, "zone": "z"})
        );
    }

    #[test]
    fn pods_with_other_ports_are_other_groups_and_each_family_has_its_own() {
        let other = json!({"spec": {"containers": [{"name": "a", "ports": [{"name": "http", "containerPort": 81}]}]}});
        let pods = [pod("a", true, json!({})), pod("b", true, other)];
        let spec = json!({"clusterIP": "10.0.0.1", "ports": http(), "ipFamilies": ["IPv4", "IPv6"]});
        let found = groups(&service(spec), &pods, zoned);
        let shape: Vec<_> =
            found.iter().map(|it| (it.address_type.as_str(), it.ports[0].port, it.endpoints.len())).collect();
        assert_eq!(
            shape,
            [("IPv4", Some(8080), 1), ("IPv4", Some(81), 1), ("IPv6", Some(8080), 1), ("IPv6", Some(81), 1)]
        );
    }

    #[test]
    fn pods_without_a_node_get_no_traffic_unless_that_is_asked_for() {
        let lost = [pod("a", true, json!({"spec": {"nodeName": "gone"}}))];
        let found = groups(&service(json!({"clusterIP": "10.0.0.1", "ports": http()})), &lost, zoned);
        assert_eq!((found.len(), found[0].endpoints.len(), found[0].ports.len()), (1, 0, 0));
        let spec = json!({"clusterIP": "10.0.0.1", "ports": http(), "publishNotReadyAddresses": true});
        assert_eq!(groups(&service(spec), &lost, zoned)[0].endpoints.len(), 1);
    }

    #[test]
    fn slices_have_the_labels_of_their_service() {
        let labels = |spec: Value| serde_json::to_value(marks(&service(spec), "me").labels).unwrap();
        let common = json!({"team": "a", SERVICE: "web", MANAGED_BY: "me"});
        assert_eq!(labels(json!({"clusterIP": "10.0.0.1"})), common);
        let mut headless = common;
        headless[HEADLESS] = json!("");
        assert_eq!(labels(json!({"clusterIP": "None"})), headless);
    }
}
