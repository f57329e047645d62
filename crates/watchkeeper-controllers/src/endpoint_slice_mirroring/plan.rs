//! The slices that mirror Endpoints: a pure function of them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort};

use super::MANAGER;
use crate::endpoint_slice::layout::{Group, Marks, sort};
use crate::endpoint_slice::{MANAGED_BY, SERVICE};
use crate::services::protocol;

/// The most addresses of a subset that are mirrored.
pub(super) const MOST: usize = 1000;
/// Annotations that say something of the Endpoints, not of the addresses.
const APART: [&str; 2] =
    ["endpoints.kubernetes.io/last-change-trigger-time", "kubectl.kubernetes.io/last-applied-configuration"];

/// What is mirrored, and what is not.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Mirror {
    pub(super) groups: Vec<Group>,
    /// The number of addresses that are none.
    pub(super) invalid: usize,
    /// The number of addresses that are too many.
    pub(super) surplus: usize,
}

/// The mirror image of Endpoints.
pub(super) fn mirror(endpoints: &Endpoints) -> Mirror {
    let mut mirror = Mirror::default();
    let mut groups = BTreeMap::<String, Group>::new();
    for subset in endpoints.subsets.iter().flatten() {
        let ports = ports(subset);
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let unready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        for (at, (address, ready)) in ready.chain(unready).enumerate() {
            if at >= MOST {
                mirror.surplus += 1;
                continue;
            }
            let Ok(ip) = address.ip.parse::<IpAddr>() else {
                mirror.invalid += 1;
                continue;
            };
            let address_type = if ip.is_ipv6() { "IPv6" } else { "IPv4" };
            let group = groups.entry(format!("{address_type} {ports:?}")).or_insert_with(|| Group {
                address_type: address_type.to_owned(),
                ports: ports.clone(),
                endpoints: Vec::new(),
            });
            group.endpoints.push(endpoint(address, ready));
        }
    }
    mirror.groups = groups.into_values().collect();
    mirror
}

fn ports(subset: &EndpointSubset) -> Vec<EndpointPort> {
    let port = |port: &k8s_openapi::api::core::v1::EndpointPort| EndpointPort {
        app_protocol: port.app_protocol.clone(),
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(protocol(port.protocol.as_deref()).to_owned()),
    };
    let mut ports: Vec<_> = subset.ports.iter().flatten().map(port).collect();
    sort(&mut ports);
    ports
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

/// The labels and annotations of the mirror: those of the Endpoints, and the labels by which slices are found.
pub(super) fn marks(endpoints: &Endpoints) -> Marks {
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE.to_owned(), endpoints.metadata.name.clone().unwrap_or_default());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|name, _| !APART.contains(&name.as_str()));
    Marks { labels, annotations: Some(annotations) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn endpoints(subsets: Value) -> Endpoints {
        let metadata = json!({"name": "db", "labels": {"team": "a"},
            "annotations": {"note": "x", APART[0]: "2026-01-01T00:00:00Z", APART[1]: "{}"}});
        serde_json::from_value(json!({"metadata": metadata, "subsets": subsets})).unwrap()
    }

    #[test]
    fn subsets_of_the_same_ports_are_one_group_per_family() {
        let ports = json!([{"port": 80}]);
        let found = mirror(&endpoints(json!([
            {"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "ports": ports},
            {"notReadyAddresses": [{"ip": "10.0.0.2", "hostname": "h", "nodeName": "n"}], "ports": ports},
            {"addresses": [{"ip": "10.0.0.3"}, {"ip": "x"}], "ports": [{"name": "a", "port": 81, "protocol": "UDP"}]},
        ])));
        let shape: Vec<_> = found
            .groups
            .iter()
            .map(|it| (it.address_type.as_str(), it.ports[0].port, it.endpoints.len()))
            .collect();
        assert_eq!(shape, [("IPv4", Some(80), 2), ("IPv4", Some(81), 1), ("IPv6", Some(80), 1)]);
        assert_eq!((found.invalid, found.surplus), (1, 0));
        let unready = serde_json::to_value(&found.groups[0].endpoints[1]).unwrap();
        let expected = json!({"addresses": ["10.0.0.2"], "conditions": {"ready": false}, "hostname": "h", "nodeName": "n"});
        assert_eq!(unready, expected);
    }

    #[test]
    fn no_more_than_a_thousand_addresses_of_a_subset_are_mirrored() {
        let many: Vec<_> =
            (0..1003).map(|at| json!({"ip": format!("10.0.{}.{}", at / 250, at % 250)})).collect();
        let found = mirror(&endpoints(json!([{"addresses": many, "ports": [{"port": 80}]}])));
        assert_eq!((found.groups[0].endpoints.len(), found.surplus), (MOST, 3));
    }

    #[test]
    fn the_mirror_has_the_labels_and_annotations_of_the_original() {
        let marks = marks(&endpoints(json!([])));
        let labels = json!({"team": "a", SERVICE: "db", MANAGED_BY: MANAGER});
        assert_eq!(serde_json::to_value(marks.labels).unwrap(), labels);
        assert_eq!(serde_json::to_value(marks.annotations).unwrap(), json!({"note": "x"}));
    }
}
