//! The Endpoints of a Service: a pure function of it and the Pods that it selects.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service, ServiceSpec,
};

use crate::pods::{is_ready, node_name};
use crate::services::{
    HEADLESS, addresses, has_address, hostname, is_headless, is_v6, protocol, publishes_unready, reference,
    target,
};

/// The label that says which controller Endpoints belong to.
pub(super) const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
pub(super) const MANAGER: &str = "endpoint-controller";
/// The annotation of Endpoints that lack some addresses.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// The most addresses in Endpoints.
const MOST: usize = 1000;

/// Brings Endpoints to what they should be.
pub(super) fn update(endpoints: &mut Endpoints, service: &Service, pods: &[Arc<Pod>]) {
    let Some(spec) = &service.spec else { return };
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if is_headless(spec) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    endpoints.metadata.labels = Some(labels);
    let mut subsets = subsets(service, spec, pods);
    let is_truncated = truncate(&mut subsets);
    let mut annotations = endpoints.metadata.annotations.take().unwrap_or_default();
    match is_truncated {
        true => annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned()),
        false => annotations.remove(OVER_CAPACITY),
    };
    endpoints.metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    endpoints.subsets = (!subsets.is_empty()).then_some(subsets);
}

/// The addresses behind one port, by IP address; each ready or not.
type Behind = BTreeMap<(String, String), (EndpointAddress, bool)>;

/// The subsets: ports with the same addresses are one.
fn subsets(service: &Service, spec: &ServiceSpec, pods: &[Arc<Pod>]) -> Vec<EndpointSubset> {
    let mut by_port: BTreeMap<String, (Option<EndpointPort>, Behind)> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| is_backend(pod, spec)) {
        let Some(address) = address(service, spec, pod) else { continue };
        let is_ready = publishes_unready(spec) || is_ready(pod);
        for port in ports(spec, pod) {
            let behind = &mut by_port.entry(format!("{port:?}")).or_insert_with(|| (port, Behind::new())).1;
            let key = (address.ip.clone(), pod.metadata.uid.clone().unwrap_or_default());
            behind.insert(key, (address.clone(), is_ready));
        }
    }
    let mut joined: Vec<(Vec<EndpointPort>, Behind)> = Vec::new();
    for (port, behind) in by_port.into_values() {
        match joined.iter_mut().find(|(_, known)| *known == behind) {
            Some((ports, _)) => ports.extend(port),
            None => joined.push((port.into_iter().collect(), behind)),
        }
    }
    joined.into_iter().map(|(ports, behind)| subset(ports, behind)).collect()
}

/// A Pod that is ending counts only if even those count that are not ready.
fn is_backend(pod: &Pod, spec: &ServiceSpec) -> bool {
    has_address(pod) && (pod.metadata.deletion_timestamp.is_none() || publishes_unready(spec))
}

fn address(service: &Service, spec: &ServiceSpec, pod: &Pod) -> Option<EndpointAddress> {
    let wants_v6 = match spec.ip_families.as_deref() {
        Some([first, ..]) => first == "IPv6",
        _ => spec.cluster_ip.as_deref().is_some_and(is_v6),
    };
    let ip = addresses(pod).find(|ip| is_v6(ip) == wants_v6)?;
    Some(EndpointAddress {
        ip: ip.to_owned(),
        hostname: hostname(service, pod),
        node_name: Some(node_name(pod).to_owned()).filter(|node| !node.is_empty()),
        target_ref: Some(reference(pod)),
    })
}

/// The ports of a Pod that the Service leads to. A headless Service without ports has one that is none.
fn ports(spec: &ServiceSpec, pod: &Pod) -> Vec<Option<EndpointPort>> {
    let ports = spec.ports.as_deref().unwrap_or_default();
    if ports.is_empty() && is_headless(spec) {
        return vec![None];
    }
    let found = ports.iter().filter_map(|port| {
        Some(Some(EndpointPort {
            app_protocol: port.app_protocol.clone(),
            name: port.name.clone().filter(|name| !name.is_empty()),
            port: target(port, pod)?,
            protocol: Some(protocol(port.protocol.as_deref()).to_owned()),
        }))
    });
    found.collect()
}

fn subset(ports: Vec<EndpointPort>, behind: Behind) -> EndpointSubset {
    let (mut ready, mut unready) = (Vec::new(), Vec::new());
    for (address, is_ready) in behind.into_values() {
        if is_ready { ready.push(address) } else { unready.push(address) }
    }
    EndpointSubset {
        addresses: (!ready.is_empty()).then_some(ready),
        not_ready_addresses: (!unready.is_empty()).then_some(unready),
        ports: (!ports.is_empty()).then_some(ports),
    }
}

/// Drops the addresses beyond the most that Endpoints hold, those first that are not ready; returns whether there were any.
fn truncate(subsets: &mut Vec<EndpointSubset>) -> bool {
    let mut room = MOST;
    let mut is_truncated = false;
    let mut keep = |addresses: &mut Option<Vec<EndpointAddress>>| {
        let Some(all) = addresses else { return };
        is_truncated |= all.len() > room;
        all.truncate(room);
        room -= all.len();
        if all.is_empty() {
            *addresses = None;
        }
    };
    subsets.iter_mut().for_each(|subset| keep(&mut subset.addresses));
    subsets.iter_mut().for_each(|subset| keep(&mut subset.not_ready_addresses));
    subsets.retain(|subset| subset.addresses.is_some() || subset.not_ready_addresses.is_some());
    is_truncated
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: Value) -> Service {
        let metadata = json!({"name": "web", "namespace": "default", "labels": {"team": "a"}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn pod(at: usize, ready: bool, port: i32) -> Arc<Pod> {
        let status = if ready { "True" } else { "False" };
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": format!("p{at}"), "namespace": "default", "uid": format!("u{at}")},
                "spec": {"nodeName": "n", "containers": [{"name": "a", "ports": [{"name": "http", "containerPort": port}]}]},
                "status": {"phase": "Running", "podIP": format!("10.1.{}.{}", at / 250, at % 250),
                    "conditions": [{"type": "Ready", "status": status}]},
            }))
            .unwrap(),
        )
    }

    fn made(spec: Value, pods: &[Arc<Pod>]) -> Endpoints {
        let mut endpoints = Endpoints::default();
        update(&mut endpoints, &service(spec), pods);
        endpoints
    }

    #[test]
    fn pods_with_the_same_ports_are_one_subset() {
        let ports =
            json!([{"name": "web", "port": 80, "targetPort": "http"}, {"name": "admin", "port": 9000}]);
        let pods = [pod(1, true, 8080), pod(2, false, 8080), pod(3, true, 81)];
        let made = made(json!({"clusterIP": "10.0.0.1", "ports": ports}), &pods);
        let subsets = made.subsets.unwrap();
        let shape: Vec<_> = subsets
            .iter()
            .map(|it| {
                let ports: Vec<_> = it.ports.as_ref().unwrap().iter().map(|port| port.port).collect();
                let count = |of: &Option<Vec<_>>| of.as_ref().map_or(0, Vec::len);
                (ports, count(&it.addresses), count(&it.not_ready_addresses))
            })
            .collect();
        assert_eq!(shape, [(vec![9000], 2, 1), (vec![8080], 1, 1), (vec![81], 1, 0)]);
        let first = serde_json::to_value(&subsets[1].addresses.as_ref().unwrap()[0]).unwrap();
        let reference = json!({"kind": "Pod", "name": "p1", "namespace": "default", "uid": "u1"});
        assert_eq!(first, json!({"ip": "10.1.0.1", "nodeName": "n", "targetRef": reference}));
        let labels = serde_json::to_value(made.metadata.labels).unwrap();
        assert_eq!(labels, json!({"team": "a", MANAGED_BY: MANAGER}));
    }

    #[test]
    fn a_headless_service_may_have_no_ports() {
        let made = made(json!({"clusterIP": "None"}), &[pod(1, true, 80)]);
        let subset = &made.subsets.unwrap()[0];
        assert_eq!((subset.ports.clone(), subset.addresses.as_ref().unwrap().len()), (None, 1));
        assert_eq!(made.metadata.labels.unwrap()[HEADLESS], "");
    }

    #[test]
    fn endpoints_have_at_most_a_thousand_addresses() {
        let spec = json!({"clusterIP": "10.0.0.1", "ports": [{"port": 80}]});
        let mut pods: Vec<_> = (0..990).map(|at| pod(at, true, 80)).collect();
        assert_eq!(made(spec.clone(), &pods).metadata.annotations, None);
        pods.extend((990..1020).map(|at| pod(at, false, 80)));
        let made = made(spec, &pods);
        assert_eq!(made.metadata.annotations.unwrap()[OVER_CAPACITY], "truncated");
        let subset = &made.subsets.unwrap()[0];
        let count = |of: &Option<Vec<_>>| of.as_ref().map_or(0, Vec::len);
        assert_eq!((count(&subset.addresses), count(&subset.not_ready_addresses)), (990, 10));
    }
}
