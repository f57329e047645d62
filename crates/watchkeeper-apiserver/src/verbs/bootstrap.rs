//! The objects of a new cluster.

use serde_json::{Value, json};

use crate::kinds::meta;
use crate::state::core::Core;
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

impl Core {
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
