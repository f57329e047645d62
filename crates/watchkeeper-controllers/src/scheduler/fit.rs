//! Which node a Pod goes to: a pure function of the Pod, the nodes and what is in use on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration,
};

use super::ledger::{Resources, requests, values};

/// Chooses a node for a Pod: of those that it fits on, the one that it prefers and that has the fewest Pods. The error is the reason
/// for which it fits on none, in words.
pub(super) fn choose(
    pod: &Pod,
    nodes: &[Arc<Node>],
    used: impl Fn(&str) -> Resources,
) -> Result<String, String> {
    let Some(spec) = &pod.spec else { return Err("the pod has no spec".to_owned()) };
    if nodes.is_empty() {
        return Err("no nodes available to schedule pods".to_owned());
    }
    let needs = requests(pod);
    let mut reasons = BTreeMap::<String, usize>::new();
    let mut best = None;
    for node in nodes {
        let name = name(node);
        let in_use = used(name);
        match problems(spec, node, &needs, &in_use) {
            problems if problems.is_empty() => {
                let rank = (
                    disliked(spec, node),
                    -preference(spec, node),
                    in_use.get("pods").copied().unwrap_or_default(),
                    name,
                );
                if best.as_ref().is_none_or(|best| rank < *best) {
                    best = Some(rank);
                }
            }
            problems => {
                for problem in problems {
                    *reasons.entry(problem).or_default() += 1;
                }
            }
        }
    }
    best.map(|(.., name)| name.to_owned()).ok_or_else(|| {
        let mut reasons: Vec<_> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        reasons.sort_unstable();
        format!("0/{} nodes are available: {}.", nodes.len(), reasons.join(", "))
    })
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// The reasons for which a Pod does not fit on a node.
fn problems(spec: &PodSpec, node: &Node, needs: &Resources, used: &Resources) -> BTreeSet<String> {
    let one = |problem: &str| BTreeSet::from([problem.to_owned()]);
    let node_spec = node.spec.clone().unwrap_or_default();
    let unschedulable = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    if node_spec.unschedulable == Some(true) && !is_tolerated(spec, &unschedulable) {
        return one("node(s) were unschedulable");
    }
    let taints = node_spec.taints.iter().flatten();
    let mut hard = taints.filter(|taint| ["NoSchedule", "NoExecute"].contains(&taint.effect.as_str()));
    if hard.any(|taint| !is_tolerated(spec, taint)) {
        return one("node(s) had untolerated taint(s)");
    }
    if !is_selected(spec, node) {
        return one("node(s) didn't match Pod's node affinity/selector");
    }
    let allocatable = values(node.status.as_ref().and_then(|status| status.allocatable.as_ref()));
    let mut lacking = BTreeSet::new();
    for (resource, amount) in needs.iter().filter(|(_, amount)| **amount > 0) {
        let free = allocatable.get(resource).copied().unwrap_or_default()
            - used.get(resource).copied().unwrap_or_default();
        match resource.as_str() {
            _ if *amount <= free => {}
            // A node that does not say how many Pods it takes, takes any.
            "pods" if !allocatable.contains_key("pods") => {}
            "pods" => drop(lacking.insert("Too many pods".to_owned())),
            other => drop(lacking.insert(format!("Insufficient {other}"))),
        }
    }
    lacking
}

/// Whether a Pod tolerates a taint.
pub(crate) fn is_tolerated(spec: &PodSpec, taint: &Taint) -> bool {
    spec.tolerations.iter().flatten().any(|toleration| tolerates(toleration, taint))
}

/// Whether a toleration is for a taint.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_empty = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
    if !is_empty(&toleration.effect) && toleration.effect.as_deref() != Some(&taint.effect) {
        return false;
    }
    let exists = toleration.operator.as_deref() == Some("Exists");
    match (is_empty(&toleration.key), exists) {
        (true, exists) => exists,
        (false, _) if toleration.key.as_deref() != Some(&taint.key) => false,
        (false, true) => true,
        (false, false) => {
            toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
    }
}

/// Whether the node selector and the required node affinity of a Pod match a node.
pub(crate) fn is_selected(spec: &PodSpec, node: &Node) -> bool {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let is_labeled = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    is_labeled
        && required.is_none_or(|required| required.node_selector_terms.iter().any(|term| matches(term, node)))
}

/// Whether a term matches a node. An empty one matches none.
fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let fields = BTreeMap::from([("metadata.name".to_owned(), name(node).to_owned())]);
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let of_fields = term.match_fields.as_deref().unwrap_or_default();
    (!expressions.is_empty() || !of_fields.is_empty())
        && expressions.iter().all(|requirement| meets(requirement, &labels))
        && of_fields.iter().all(|requirement| meets(requirement, &fields))
}

fn meets(requirement: &NodeSelectorRequirement, values: &BTreeMap<String, String>) -> bool {
    let value = values.get(&requirement.key);
    let listed = requirement.values.as_deref().unwrap_or_default();
    let is_listed = value.is_some_and(|value| listed.contains(value));
    let numbers = || Some((value?.parse::<i64>().ok()?, listed.first()?.parse::<i64>().ok()?));
    match requirement.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, bound)| value > bound),
        "Lt" => numbers().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

/// How many taints of a node a Pod should avoid.
fn disliked(spec: &PodSpec, node: &Node) -> usize {
    let taints = node.spec.iter().flat_map(|node| node.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "PreferNoSchedule" && !is_tolerated(spec, taint)).count()
}

/// The weight of the preferred terms that match a node.
fn preference(spec: &PodSpec, node: &Node) -> i32 {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let preferred = affinity.and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_ref());
    let terms = preferred.into_iter().flatten().filter(|term| matches(&term.preference, node));
    terms.map(|term| term.weight).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, labels: Value, spec: Value) -> Arc<Node> {
        let allocatable = json!({"cpu": "1", "memory": "1Gi", "pods": "2"});
        let node = json!({"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": allocatable}});
        Arc::new(serde_json::from_value(node).unwrap())
    }

    fn pod(spec: Value) -> Pod {
        let mut whole = json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "500m"}}}]});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({ "spec": whole })).unwrap()
    }

    fn unused(_: &str) -> Resources {
        Resources::new()
    }

    #[test]
    fn a_pod_goes_where_its_selector_and_affinity_lead() {
        let nodes = [
            node("a", json!({"disk": "hdd", "gen": "1"}), json!({})),
            node("b", json!({"disk": "ssd", "gen": "7"}), json!({})),
        ];
        let on = |spec: Value| choose(&pod(spec), &nodes, unused);
        assert_eq!(on(json!({})).unwrap(), "a");
        assert_eq!(on(json!({"nodeSelector": {"disk": "ssd"}})).unwrap(), "b");
        let requires = |key: &str, operator: &str, values: Value| {
            let term = json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
            on(
                json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}}),
            )
        };
        assert_eq!(requires("gen", "Gt", json!(["5"])).unwrap(), "b");
        assert_eq!(requires("disk", "NotIn", json!(["ssd"])).unwrap(), "a");
        let error = requires("zone", "Exists", Value::Null).unwrap_err();
        assert_eq!(error, "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.");
        let prefers = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}]}}});
        assert_eq!(on(prefers).unwrap(), "b");
    }

    #[test]
    fn taints_keep_pods_away_that_do_not_tolerate_them() {
        let tainted = [node(
            "a",
            json!({}),
            json!({"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}),
        )];
        let on = |tolerations: Value| {
            choose(&pod(json!({ "tolerations": tolerations })), &tainted, unused).is_ok()
        };
        assert!(!on(json!([])));
        assert!(on(json!([{"key": "gpu", "operator": "Equal", "value": "yes"}])));
        assert!(!on(json!([{"key": "gpu", "value": "no"}])));
        assert!(on(json!([{"operator": "Exists"}])));
        assert!(!on(json!([{"operator": "Exists", "effect": "NoExecute"}])));
        let cordoned = [node("a", json!({}), json!({"unschedulable": true}))];
        let error = choose(&pod(json!({})), &cordoned, unused).unwrap_err();
        assert_eq!(error, "0/1 nodes are available: 1 node(s) were unschedulable.");
    }

    #[test]
    fn a_pod_needs_room_and_goes_where_most_is_left() {
        let nodes = [node("a", json!({}), json!({})), node("b", json!({}), json!({}))];
        let used = |name: &str| {
            let (cpu, pods) = if name == "a" { (600, 1000) } else { (0, 1000) };
            Resources::from([("cpu".to_owned(), cpu), ("pods".to_owned(), pods)])
        };
        assert_eq!(choose(&pod(json!({})), &nodes, used).unwrap(), "b");
        let full = |_: &str| Resources::from([("cpu".to_owned(), 600), ("pods".to_owned(), 2000)]);
        let error = choose(&pod(json!({})), &nodes, full).unwrap_err();
        assert_eq!(error, "0/2 nodes are available: 2 Insufficient cpu, 2 Too many pods.");
        assert_eq!(choose(&pod(json!({})), &[], unused).unwrap_err(), "no nodes available to schedule pods");
    }
}
