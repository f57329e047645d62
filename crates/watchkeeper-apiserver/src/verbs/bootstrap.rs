//! The objects of a new cluster.

use serde_json::{Value, json};

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
