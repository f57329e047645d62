//! Services and the Pods behind them: lookup in both directions, ports and addresses.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, ObjectReference, Pod, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_core::{Selector, SelectorExt};
use watchkeeper::controller::Manager;
use watchkeeper::object::DecodeError;
use watchkeeper::store::Index;
use watchkeeper::{Object, ObjectName, SharedInformer};

use crate::pods::has_ended;

/// The label of objects that belong to a headless Service.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";

/// The index of Pods by each of their labels.
const BY_LABEL: &str = "by-label";
/// The index of Services by the first label that they select.
const BY_SELECTED: &str = "by-selected-label";

/// The cached Services and Pods, by the labels that join them.
#[derive(Clone)]
pub(crate) struct Backends {
    pods: SharedInformer<Pod>,
    services: SharedInformer<Service>,
}

impl Backends {
    /// Those of the manager's cached objects. Some controller must watch both kinds.
    pub(crate) fn of(manager: &Manager) -> Self {
        let (pods, services) = (manager.factory().informer::<Pod>(), manager.factory().informer::<Service>());
        let by_label = Index::new(BY_LABEL, |pod: &Object<Pod>| {
            let namespace = pod.namespace().unwrap_or_default();
            let labels = pod.labels().to_map();
            labels.iter().map(|(key, value)| label(namespace, key, value)).collect::<Vec<_>>()
        });
        let by_selected = Index::new(BY_SELECTED, |service: &Object<Service>| {
            let namespace = service.namespace().unwrap_or_default();
            let decoded = service.get().ok()?;
            let (key, value) = selected(&decoded)?.first_key_value()?;
            Some(label(namespace, key, value))
        });
        // Another controller may have added them.
        let _added = (pods.indexer().add_indexes([by_label]), services.indexer().add_indexes([by_selected]));
        Self { pods, services }
    }

    /// The Pods that a Service selects, in the order of their names.
    pub(crate) fn pods(&self, service: &Service) -> Result<Vec<Arc<Pod>>, DecodeError> {
        let Some(labels) = selected(service) else { return Ok(Vec::new()) };
        let Some((key, value)) = labels.first_key_value() else { return Ok(Vec::new()) };
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        let snapshot = self.pods.indexer().snapshot();
        let label = label(namespace, key, value);
        let Ok(found) = snapshot.by_index(BY_LABEL, &label) else { return Ok(Vec::new()) };
        let selector: Selector = labels.clone().into_iter().collect();
        let mut found: Vec<_> =
            found.filter(|pod| selector.matches(&pod.labels().to_map())).cloned().collect();
        found.sort_unstable_by_key(Object::key);
        found.iter().map(Object::get).collect()
    }

    /// The Services that select a Pod.
    pub(crate) fn services(&self, pod: &Object<Pod>) -> Vec<ObjectName> {
        let namespace = pod.namespace().unwrap_or_default();
        let labels = pod.labels().to_map();
        let snapshot = self.services.indexer().snapshot();
        let mut keys = Vec::new();
        for (key, value) in &labels {
            let label = label(namespace, key, value);
            let Ok(found) = snapshot.by_index(BY_SELECTED, &label) else { continue };
            keys.extend(found.filter(|service| selects(service, &labels)).map(Object::key));
        }
        keys
    }
}

impl fmt::Debug for Backends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Backends")
    }
}

fn label(namespace: &str, key: &str, value: &str) -> String {
    format!("{namespace}/{key}={value}")
}

fn selects(service: &Object<Service>, labels: &BTreeMap<String, String>) -> bool {
    service.get().is_ok_and(|service| {
        selected(&service)
            .is_some_and(|wanted| wanted.iter().all(|(key, value)| labels.get(key) == Some(value)))
    })
}

/// The labels that a Service selects Pods by; none if its endpoints are not made of Pods.
pub(crate) fn selected(service: &Service) -> Option<&BTreeMap<String, String>> {
    let spec = service.spec.as_ref().filter(|spec| spec.type_.as_deref() != Some("ExternalName"))?;
    spec.selector.as_ref().filter(|selector| !selector.is_empty())
}

/// Whether a Service has no address of its own.
pub(crate) fn is_headless(spec: &ServiceSpec) -> bool {
    matches!(spec.cluster_ip.as_deref(), Some("None" | "") | None)
}

/// Whether Pods count for a Service before they are ready.
pub(crate) fn publishes_unready(spec: &ServiceSpec) -> bool {
    spec.publish_not_ready_addresses == Some(true)
}

/// Whether a Pod may have traffic now, or had until it began to end.
pub(crate) fn has_address(pod: &Pod) -> bool {
    !has_ended(pod) && addresses(pod).next().is_some()
}

/// The addresses of a Pod.
pub(crate) fn addresses(pod: &Pod) -> impl Iterator<Item = &str> {
    let status = pod.status.as_ref();
    let all =
        status.and_then(|status| status.pod_ips.as_ref()).into_iter().flatten().map(|ip| ip.ip.as_str());
    let first = status.and_then(|status| status.pod_ip.as_deref()).into_iter();
    let has_all = status.is_some_and(|status| status.pod_ips.as_ref().is_some_and(|all| !all.is_empty()));
    first.filter(move |_| !has_all).chain(all).filter(|ip| !ip.is_empty())
}

/// Whether an address is one of IPv6.
pub(crate) fn is_v6(address: &str) -> bool {
    address.contains(':')
}

/// The number of the port of `pod` that a port of a Service leads to; none if the Pod has no port of that name.
pub(crate) fn target(port: &ServicePort, pod: &Pod) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(0)) => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().flatten().filter(is_sidecar);
    let mut ports = spec.containers.iter().chain(sidecars).flat_map(|it| it.ports.iter().flatten());
    let wanted = protocol(port.protocol.as_deref());
    let found =
        ports.find(|of| of.name.as_ref() == Some(name) && protocol(of.protocol.as_deref()) == wanted)?;
    Some(found.container_port)
}

/// A protocol; TCP if there is none.
pub(crate) fn protocol(of: Option<&str>) -> &str {
    of.filter(|of| !of.is_empty()).unwrap_or("TCP")
}

/// The host name of a Pod within the domain of a Service.
pub(crate) fn hostname(service: &Service, pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let is_within = spec.subdomain.is_some() && spec.subdomain == service.metadata.name;
    spec.hostname.clone().filter(|name| is_within && !name.is_empty())
}

/// A reference to a Pod.
pub(crate) fn reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn port(target: Value) -> ServicePort {
        serde_json::from_value(json!({"port": 80, "targetPort": target, "protocol": "TCP"})).unwrap()
    }

    #[test]
    fn a_named_port_is_that_of_a_container_with_its_protocol() {
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "containers": [{"name": "a", "ports": [
                {"name": "dns", "containerPort": 53, "protocol": "UDP"}, {"name": "dns", "containerPort": 5353}]}],
            "initContainers": [
                {"name": "once", "ports": [{"name": "setup", "containerPort": 1}]},
                {"name": "mesh", "restartPolicy": "Always", "ports": [{"name": "admin", "containerPort": 15000}]}],
        }}))
        .unwrap();
        assert_eq!(target(&port(json!("dns")), &pod), Some(5353));
        assert_eq!(target(&port(json!("admin")), &pod), Some(15000));
        assert_eq!(target(&port(json!("setup")), &pod), None);
        assert_eq!(target(&port(json!(8080)), &pod), Some(8080));
        assert_eq!(target(&port(Value::Null), &pod), Some(80));
    }

    #[test]
    fn a_pod_without_an_address_or_that_has_ended_is_no_backend() {
        let pod = |status: Value| -> Pod { serde_json::from_value(json!({ "status": status })).unwrap() };
        assert!(!has_address(&pod(json!({"phase": "Running"}))));
        assert!(!has_address(&pod(json!({"phase": "Failed", "podIP": "10.0.0.1"}))));
        let both = pod(json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}));
        assert_eq!(addresses(&both).collect::<Vec<_>>(), ["10.0.0.1", "fd00::1"]);
    }
}
