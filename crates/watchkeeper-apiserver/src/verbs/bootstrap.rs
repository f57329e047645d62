//! The objects of a new cluster, and those that say where its server is.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use crate::kinds::cells::{self, list};
use crate::kinds::fill::copy_field;
use crate::kinds::meta;
use crate::state::core::Core;
use crate::state::store::Key;
use crate::verbs::write::Write;

const DEFAULT_NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// The `kubernetes` service, under which pods would reach this server.
fn own_service() -> Value {
    json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": "10.0.0.1", "ipFamilyPolicy": "SingleStack", "type": "ClusterIP", "sessionAffinity": "None",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}],
        },
        "status": {"loadBalancer": {}},
    })
}

/// The name of the server's own objects.
const OWN: &str = "kubernetes";

/// The range from which services get their addresses.
fn own_range(now: &str) -> Value {
    json!({
        "metadata": {"name": OWN},
        "spec": {"cidrs": ["10.0.0.0/16"]},
        "status": {"conditions": [{
            "type": "Ready", "status": "True", "reason": "", "lastTransitionTime": now,
            "message": "Kubernetes default Service CIDR is ready",
        }]},
    })
}

/// The Endpoints and the EndpointSlice of the `kubernetes` service.
fn own_endpoints(address: SocketAddr) -> [(&'static str, &'static str, Value); 2] {
    let (ip, port) = (address.ip().to_string(), address.port());
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let family = if matches!(address.ip(), IpAddr::V4(_)) { "IPv4" } else { "IPv6" };
    let endpoints = json!({
        "metadata": {"name": OWN, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": ip}], "ports": ports}],
    });
    let slice = json!({
        "metadata": {"name": OWN, "labels": {"kubernetes.io/service-name": OWN}},
        "addressType": family,
        "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}],
        "ports": ports,
    });
    [("", "endpoints", endpoints), ("discovery.k8s.io", "endpointslices", slice)]
}

/// The priority classes of the system: name, value and description.
const PRIORITY_CLASSES: &[(&str, i64, &str)] = &[
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

impl Core {
    /// Creates the priority classes of the system that do not exist.
    pub(crate) fn create_priority_classes(&mut self) {
        let Some(kind) = self.registry.find("scheduling.k8s.io", "v1", "priorityclasses").cloned() else {
            return;
        };
        for (name, value, description) in PRIORITY_CLASSES {
            if self.store.get(&kind.storage, &Key::new("", name)).is_some() {
                continue;
            }
            let mut class = kind.blank().clone();
            meta::set(&mut class, "name", name);
            class["value"] = (*value).into();
            class["preemptionPolicy"] = "PreemptLowerPriority".into();
            class["description"] = (*description).into();
            let created = self.create(&kind, "", class, &Write::own());
            debug_assert!(created.is_ok(), "a priority class of the system is valid: {created:?}");
        }
    }

    /// The ranges of all ServiceCIDRs.
    pub(crate) fn service_ranges(&self) -> Vec<String> {
        let Some(kind) = self.registry.find("networking.k8s.io", "v1", "servicecidrs") else {
            return Vec::new();
        };
        let all = self.store.range(&kind.storage, None, None).map(|stored| stored.value());
        all.flat_map(|cidr| {
            list(&cidr["spec"]["cidrs"]).iter().map(|text| cells::text(text).to_owned()).collect::<Vec<_>>()
        })
        .collect()
    }

    /// Creates the range of service addresses if it does not exist.
    pub(crate) fn create_service_range(&mut self) {
        let Some(kind) = self.registry.find("networking.k8s.io", "v1", "servicecidrs").cloned() else {
            return;
        };
        let key = Key::new("", OWN);
        if self.store.get(&kind.storage, &key).is_some() {
            return;
        }
        let range = own_range(&self.now());
        let status = range["status"].clone();
        let created = self.create(&kind, "", range, &Write::own());
        debug_assert!(created.is_ok(), "the range of services is valid: {created:?}");
        if let Ok(created) = created {
            let mut range = created.value();
            range["status"] = status;
            self.put_value(&kind, &key, range);
        }
    }

    /// Says in the endpoints of the `kubernetes` service where the server listens.
    pub(crate) fn publish_address(&mut self, address: SocketAddr) {
        for (group, plural, wanted) in own_endpoints(address) {
            let Some(kind) = self.registry.find(group, "v1", plural).cloned() else { continue };
            let key = Key::new("default", OWN);
            let Some(known) = self.store.get(&kind.storage, &key).map(|stored| stored.value()) else {
                // Fails in a namespace that is being deleted; then there is no service either.
                let _created = self.create(&kind, &key.namespace, wanted, &Write::own());
                continue;
            };
            let mut after = known.clone();
            for field in ["subsets", "addressType", "endpoints", "ports"] {
                copy_field(&wanted, &mut after, field);
            }
            if after != known {
                self.put_value(&kind, &key, after);
            }
        }
    }

    /// Creates the default namespaces and the `kubernetes` service.
    pub(crate) fn create_defaults(&mut self) {
        if let Some(kind) = self.registry.namespaces() {
            for name in DEFAULT_NAMESPACES {
                let mut namespace = kind.blank().clone();
                meta::set(&mut namespace, "name", name);
                let created = self.create(&kind, "", namespace, &Write::own());
                debug_assert!(created.is_ok(), "a default namespace is valid");
            }
        }
        if let Some(kind) = self.registry.services() {
            let created = self.create(&kind, "default", own_service(), &Write::own());
            debug_assert!(created.is_ok(), "the server's own service is valid");
        }
    }
}
