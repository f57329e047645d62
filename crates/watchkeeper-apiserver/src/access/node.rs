//! The node authorizer: a node reads only what Pods on it refer to. All else is left to the role `system:node`.

use serde_json::Value;

use crate::access::attributes::{Attributes, Object, Resource};
use crate::access::rbac::rule::Rule;
use crate::kinds::kind::ResourceId;
use crate::state::core::Core;
use crate::state::store::Key;

/// The role whose rules hold for every node.
pub(crate) const ROLE: &str = "system:node";

/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";

/// Marks a Pod that a node made itself, which gives it nothing.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The fields of a Pod's spec that name an object of a kind.
struct References {
    /// Fields whose value is the name.
    names: &'static [&'static str],
    /// Fields with an object, or a list of objects, that has a field `name`.
    holders: &'static [&'static str],
}

const SECRETS: References = References {
    names: &["secretName"],
    holders: &["secret", "secretRef", "secretKeyRef", "imagePullSecrets", "nodePublishSecretRef"],
};
const CONFIG_MAPS: References =
    References { names: &[], holders: &["configMap", "configMapRef", "configMapKeyRef"] };
const CLAIMS: References = References { names: &["claimName"], holders: &[] };
const RESOURCE_CLAIMS: References = References { names: &["resourceClaimName"], holders: &[] };
const ACCOUNTS: References = References { names: &["serviceAccountName"], holders: &[] };

/// Returns whether a node may do what it asks for; the error says why not, and may be empty.
pub(crate) fn decide(core: &Core, rules: &[Rule], node: &str, asked: &Attributes<'_>) -> Result<(), String> {
    let by_rules = || match rules.iter().any(|rule| rule.allows(asked)) {
        true => Ok(()),
        false => Err(String::new()),
    };
    let Object::Resource(resource) = asked.object else { return by_rules() };
    let may = |verbs: &[&str], problem: &str, is_related: &dyn Fn() -> bool| {
        let unrelated = || Err(format!("no relationship found between node '{node}' and this object"));
        match verbs.contains(&asked.verb) {
            false => Err(problem.to_owned()),
            true if resource.name.is_empty() => Err("No Object name found".to_owned()),
            true if is_related() => Ok(()),
            true => unrelated(),
        }
    };
    let Resource { namespace, name, subresource, .. } = resource;
    let used = |references: &References| any_pod_refers(core, node, namespace, references, name);
    let own = || match name == node || name.is_empty() && asked.verb == "create" {
        true => by_rules(),
        false => Err(format!("can only access an object of the name of the node '{node}'")),
    };
    let get = "can only get individual resources of this type";
    let read = "can only read resources of this type";
    match (resource.group, resource.resource) {
        ("", "secrets" | "configmaps") if !subresource.is_empty() => {
            Err("cannot read subresource".to_owned())
        }
        ("", "secrets" | "configmaps") if namespace.is_empty() => {
            Err("can only read namespaced object of this type".to_owned())
        }
        ("", "secrets") => may(&["get", "list", "watch"], read, &|| used(&SECRETS)),
        ("", "configmaps") => may(&["get", "list", "watch"], read, &|| used(&CONFIG_MAPS)),
        ("", "persistentvolumeclaims") if subresource == "status" => {
            may(&["get", "update", "patch"], "can only get/update/patch this type", &|| used(&CLAIMS))
        }
        ("", "persistentvolumeclaims") => may(&["get"], get, &|| used(&CLAIMS)),
        ("", "persistentvolumes") => may(&["get"], get, &|| is_volume_used(core, node, name)),
        ("resource.k8s.io", "resourceclaims") => may(&["get"], get, &|| used(&RESOURCE_CLAIMS)),
        ("storage.k8s.io", "volumeattachments") => may(&["get"], get, &|| is_attached(core, node, name)),
        ("", "serviceaccounts") => {
            let verb = if subresource == "token" { "create" } else { "get" };
            may(&[verb], "can only create tokens for individual service accounts", &|| used(&ACCOUNTS))
        }
        ("coordination.k8s.io", "leases") if namespace != LEASES => {
            Err(format!("can only access leases in the {LEASES:?} system namespace"))
        }
        ("coordination.k8s.io", "leases") | ("storage.k8s.io", "csinodes") => own(),
        _ => by_rules(),
    }
}

/// Returns whether a Pod on the node, in this namespace, names an object.
fn any_pod_refers(core: &Core, node: &str, namespace: &str, references: &References, name: &str) -> bool {
    let pods = core.store.range(&ResourceId::new("", "pods"), Some(namespace), None);
    pods.map(|pod| pod.value()).any(|pod| {
        let spec = &pod["spec"];
        let is_mirror = pod["metadata"]["annotations"].get(MIRROR).is_some();
        spec["nodeName"] == node && !is_mirror && references.are_in(spec, name)
    })
}

fn is_volume_used(core: &Core, node: &str, name: &str) -> bool {
    let volume = core.store.get(&ResourceId::new("", "persistentvolumes"), &Key::new("", name));
    volume.is_some_and(|volume| {
        let claim = &volume.value()["spec"]["claimRef"];
        let text = |field: &str| claim[field].as_str().unwrap_or_default();
        any_pod_refers(core, node, text("namespace"), &CLAIMS, text("name"))
    })
}

fn is_attached(core: &Core, node: &str, name: &str) -> bool {
    let attachments = ResourceId::new("storage.k8s.io", "volumeattachments");
    let attachment = core.store.get(&attachments, &Key::new("", name));
    attachment.is_some_and(|attachment| attachment.value()["spec"]["nodeName"] == node)
}

impl References {
    /// Returns whether any part of a value names an object.
    fn are_in(&self, value: &Value, name: &str) -> bool {
        match value {
            Value::Object(map) => map.iter().any(|(field, value)| {
                let field = field.as_str();
                let is_name = self.names.contains(&field) && value == name;
                let holds = self.holders.contains(&field)
                    && value
                        .as_array()
                        .map_or(std::slice::from_ref(value), Vec::as_slice)
                        .iter()
                        .any(|it| it["name"] == name);
                is_name || holds || self.are_in(value, name)
            }),
            Value::Array(list) => list.iter().any(|value| self.are_in(value, name)),
            _ => false,
        }
    }
}
