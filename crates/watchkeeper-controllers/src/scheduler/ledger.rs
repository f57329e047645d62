//! What the Pods on each node have requested.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use watchkeeper::ObjectName;

use super::quantity::milli;

/// Resources by name, in thousandths. A Pod takes one of `pods`.
pub(super) type Resources = BTreeMap<String, i128>;

/// The Pods of each node and what they have requested. Pure: whoever sees a change of a Pod enters it.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pods: BTreeMap<ObjectName, (String, Resources)>,
    nodes: BTreeMap<String, Resources>,
    /// The priorities of Pods that wait for a node, and the other way round, highest first.
    waiting: BTreeMap<ObjectName, i32>,
    by_priority: BTreeMap<Reverse<i32>, BTreeSet<ObjectName>>,
}

impl Ledger {
    /// Enters that a Pod is on a node.
    pub(super) fn enter(&mut self, pod: &ObjectName, node: &str, requests: &Resources) {
        self.remove(pod);
        let used = self.nodes.entry(node.to_owned()).or_default();
        for (resource, amount) in requests {
            *used.entry(resource.clone()).or_default() += amount;
        }
        self.pods.insert(pod.clone(), (node.to_owned(), requests.clone()));
    }

    /// Removes a Pod.
    pub(super) fn remove(&mut self, pod: &ObjectName) {
        let Some((node, requests)) = self.pods.remove(pod) else { return };
        let Some(used) = self.nodes.get_mut(&node) else { return };
        for (resource, amount) in requests {
            *used.entry(resource).or_default() -= amount;
        }
    }

    /// Enters that a Pod waits for a node, with its priority; `None` if it does not, any more.
    pub(super) fn set_waiting(&mut self, pod: &ObjectName, priority: Option<i32>) {
        let known = match priority {
            Some(priority) => self.waiting.insert(pod.clone(), priority),
            None => self.waiting.remove(pod),
        };
        if known == priority {
            return;
        }
        if let Some(known) = known
            && let Some(pods) = self.by_priority.get_mut(&Reverse(known))
        {
            pods.remove(pod);
            if pods.is_empty() {
                self.by_priority.remove(&Reverse(known));
            }
        }
        if let Some(priority) = priority {
            self.by_priority.entry(Reverse(priority)).or_default().insert(pod.clone());
        }
    }

    /// The Pods that wait with a higher priority than this, the highest first.
    pub(super) fn before(&self, priority: i32) -> Vec<ObjectName> {
        self.by_priority.range(..Reverse(priority)).flat_map(|(_, pods)| pods).cloned().collect()
    }

    /// What is in use on a node.
    pub(super) fn used(&self, node: &str) -> Resources {
        self.nodes.get(node).cloned().unwrap_or_default()
    }
}

/// What a Pod requests: the sum of its containers and sidecars, at least what its init containers need one after the other, and its
/// overhead.
pub(super) fn requests(pod: &Pod) -> Resources {
    let mut total = Resources::from([("pods".to_owned(), 1000)]);
    let Some(spec) = &pod.spec else { return total };
    for container in &spec.containers {
        add(&mut total, of_container(container));
    }
    let mut highest = Resources::new();
    let mut sidecars = Resources::new();
    for container in spec.init_containers.iter().flatten() {
        let mut needs = of_container(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut total, needs.clone());
            add(&mut sidecars, needs);
            needs = sidecars.clone();
        } else {
            add(&mut needs, sidecars.clone());
        }
        for (resource, amount) in needs {
            let known = highest.entry(resource).or_default();
            *known = amount.max(*known);
        }
    }
    for (resource, amount) in highest {
        let known = total.entry(resource).or_default();
        *known = amount.max(*known);
    }
    add(&mut total, values(spec.overhead.as_ref()));
    total
}

fn of_container(container: &Container) -> Resources {
    values(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()))
}

/// A list of resources in thousandths.
pub(super) fn values(list: Option<&BTreeMap<String, Quantity>>) -> Resources {
    list.into_iter().flatten().map(|(resource, quantity)| (resource.clone(), milli(quantity))).collect()
}

fn add(total: &mut Resources, more: Resources) {
    for (resource, amount) in more {
        *total.entry(resource).or_default() += amount;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_requests_the_sum_of_its_containers_or_the_most_that_starting_it_needs() {
        let container = |cpu: &str| json!({"name": "a", "resources": {"requests": {"cpu": cpu}}});
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "containers": [container("100m"), container("1")],
            "initContainers": [container("2")], "overhead": {"cpu": "50m", "memory": "1Ki"}}}))
        .unwrap();
        let expected = [("cpu", 2050), ("memory", 1_024_000), ("pods", 1000)];
        assert_eq!(requests(&pod), expected.map(|(name, amount)| (name.to_owned(), amount)).into());
    }

    #[test]
    fn what_a_pod_uses_is_free_when_it_is_gone() {
        let (mut ledger, pod) = (Ledger::default(), ObjectName::namespaced("default", "a"));
        let needs = Resources::from([("cpu".to_owned(), 500)]);
        ledger.enter(&pod, "n1", &needs);
        ledger.enter(&pod, "n1", &needs);
        assert_eq!(ledger.used("n1")["cpu"], 500);
        ledger.enter(&pod, "n2", &needs);
        assert_eq!((ledger.used("n1")["cpu"], ledger.used("n2")["cpu"]), (0, 500));
        ledger.remove(&pod);
        assert_eq!(ledger.used("n2")["cpu"], 0);
    }
}
