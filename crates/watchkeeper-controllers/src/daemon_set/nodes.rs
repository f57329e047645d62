//! Which nodes a DaemonSet has a Pod on, and the Pods that it makes for them.

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec,
    Toleration,
};
use watchkeeper::clock::Generator;

use crate::pods::node_name;
use crate::pods::template::new_pod;
use crate::revisions::REVISION;
use crate::scheduler::fit::{is_selected, is_tolerated};

/// The annotation with the number of the template, and the label that Pods have for it.
const GENERATION: &str = "deprecated.daemonset.template.generation";
const POD_GENERATION: &str = "pod-template-generation";

/// What a DaemonSet does on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Whether a Pod is started there.
    pub(super) starts: bool,
    /// Whether a Pod that is there stays.
    pub(super) keeps: bool,
}

/// Whether a DaemonSet runs on a node: if the selector and the affinity of its template match, and its Pods tolerate the taints. A taint
/// that came later ends only Pods that it is to evict.
pub(super) fn place(spec: &DaemonSetSpec, node: &Node) -> Place {
    let mut pod = spec.template.spec.clone().unwrap_or_default();
    tolerate(&mut pod);
    let name = node.metadata.name.as_deref();
    let is_named = pod.node_name.as_deref().is_none_or(|wanted| wanted.is_empty() || Some(wanted) == name);
    if !is_named || !is_selected(&pod, node) {
        return Place { starts: false, keeps: false };
    }
    let taints: Vec<_> = node.spec.iter().flat_map(|node| node.taints.iter().flatten()).collect();
    let stands = |effects: &[&str]| {
        let mut hard = taints.iter().filter(|taint| effects.contains(&taint.effect.as_str()));
        hard.all(|taint| is_tolerated(&pod, taint))
    };
    Place { starts: stands(&["NoSchedule", "NoExecute"]), keeps: stands(&["NoExecute"]) }
}

/// Daemons run on nodes that are in trouble, and on those that take no other Pods.
fn tolerate(pod: &mut PodSpec) {
    let mut taints = vec![
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ];
    if pod.host_network == Some(true) {
        taints.push(("network-unavailable", "NoSchedule"));
    }
    let tolerations = pod.tolerations.get_or_insert_default();
    for (taint, effect) in taints {
        let toleration = Toleration {
            key: Some(format!("node.kubernetes.io/{taint}")),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
}

/// The node of a Pod: the one that it is bound to, or is to be bound to.
pub(super) fn node_of(pod: &Pod) -> &str {
    if !node_name(pod).is_empty() {
        return node_name(pod);
    }
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let required = affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let terms = required.map(|required| required.node_selector_terms.as_slice()).unwrap_or_default();
    let fields = terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let names =
        fields.filter(|field| field.key == "metadata.name").flat_map(|field| field.values.iter().flatten());
    names.map(String::as_str).next().unwrap_or_default()
}

/// A new Pod for a node. The scheduler binds it there and nowhere else.
pub(super) fn pod_for(
    set: &DaemonSet,
    spec: &DaemonSetSpec,
    hash: &str,
    node: &str,
    generator: &Generator,
) -> Pod {
    let prefix = format!("{}-", set.metadata.name.as_deref().unwrap_or_default());
    let mut pod = new_pod(&spec.template, &prefix, generator);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(REVISION.to_owned(), hash.to_owned());
    if let Some(generation) = set.metadata.annotations.as_ref().and_then(|all| all.get(GENERATION)) {
        labels.insert(POD_GENERATION.to_owned(), generation.clone());
    }
    let pod_spec = pod.spec.get_or_insert_default();
    tolerate(pod_spec);
    pin(pod_spec.affinity.get_or_insert_default(), node);
    pod
}

/// Restricts an affinity to a node. The terms that the node has met are replaced.
fn pin(affinity: &mut Affinity, node: &str) {
    let field = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![field]), match_expressions: None };
    let of: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    of.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
}

/// The hash of a revision, which is the label of its Pods.
pub(super) fn hash(revision: &ControllerRevision) -> &str {
    revision.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION)).map_or("", String::as_str)
}
