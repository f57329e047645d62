//! Fake nodes: Node objects that are ready, and their Leases.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube_core::params::Patch;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::{Client, ObjectName};

/// The annotation of Nodes whose Pods the [`kubelet`](crate::kubelet) pretends to run.
pub const FAKE_NODE: &str = "watchkeeper.dev/fake-node";
/// The annotation of a fake node that is dead: its Lease is not renewed, and its Pods are left as they are.
pub const DEAD_NODE: &str = "watchkeeper.dev/dead-node";
/// The taint of a node that is not ready yet.
const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// The namespace of the Leases of nodes.
pub(crate) const LEASES: &str = "kube-node-lease";
/// How often a Lease is renewed, and for how long it holds.
const RENEWAL: Duration = Duration::from_secs(10);
const LEASE_SECONDS: i32 = 40;
/// The delay before a failed attempt to create nodes is repeated.
const RETRY: Duration = Duration::from_millis(200);

/// Keeps `count` fake nodes, `node-1` and so on, until `stop`: creates those that do not exist, reports them ready, and renews their
/// Leases.
///
/// Other Nodes become fake nodes by the annotation [`FAKE_NODE`]. One with the annotation [`DEAD_NODE`] dies: the
/// [`node_lifecycle`](crate::node_lifecycle) controller notices.
pub async fn run(client: &Client, count: usize, stop: CancellationToken) {
    let clock = client.env().clock.clone();
    let keep = async {
        for number in 1..=count {
            while let Err(error) = create(client, number).await {
                tracing::warn!(number, %error, "cannot create a node");
                clock.sleep(RETRY).await;
            }
        }
        if count == 0 {
            return;
        }
        loop {
            for number in 1..=count {
                if let Err(error) = keep(client, number).await {
                    tracing::debug!(number, %error, "cannot renew the lease of a node");
                }
            }
            clock.sleep(RENEWAL).await;
        }
    };
    stop.run_until_cancelled(keep).await;
}

fn name(number: usize) -> String {
    format!("node-{number}")
}

/// Renews the Lease of a node, and reports it ready if it was not; does neither for one that is dead or deleted.
async fn keep(client: &Client, number: usize) -> Result<(), ApiError> {
    let name = name(number);
    match client.requests().api::<Node>().get_opt(&ObjectName::cluster(&name)).await? {
        Some(node) if !is_dead(&node) => renew(client, &name, node.metadata.uid).await?,
        _ => return Ok(()),
    }
    create(client, number).await
}

/// Whether a node is fake, and pretends to run its Pods.
pub(crate) fn is_running(node: &Node) -> bool {
    let annotation = |name: &str| node.metadata.annotations.as_ref().and_then(|all| all.get(name));
    annotation(FAKE_NODE).is_some_and(|value| value == "true") && !is_dead(node)
}

fn is_dead(node: &Node) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(DEAD_NODE)).is_some_and(|value| value == "true")
}

/// Creates a node if it does not exist, and reports it ready.
async fn create(client: &Client, number: usize) -> Result<(), ApiError> {
    let requests = client.requests().clone().manager("kubelet");
    let nodes = requests.api::<Node>();
    let name = name(number);
    let key = ObjectName::cluster(&name);
    let found = match nodes.get_opt(&key).await? {
        Some(found) => found,
        None => nodes.create(&serde_json::from_value(node(&name)).unwrap_or_default()).await?,
    };
    if Readiness::of(&found) != Readiness::Ready {
        let now = client.env().clock.wall();
        nodes.patch_status(&key, &Patch::Merge(json!({"status": status(number, now)}))).await?;
    }
    // The server taints new nodes until they are ready. Taints of users stay.
    let mut taints = found.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let count = taints.len();
    taints.retain(|taint| taint.key != NOT_READY);
    if taints.len() != count {
        nodes.patch(&key, &Patch::Merge(json!({"spec": {"taints": taints}}))).await?;
    }
    Ok(())
}

/// What the condition `Ready` of a node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// There is no such condition: nobody has looked at the node yet.
    Unset,
    Ready,
    NotReady,
    /// The node does not report any more.
    Lost,
}

impl Readiness {
    pub(crate) fn of(node: &Node) -> Self {
        let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        match conditions.find(|condition| condition.type_ == "Ready").map(|it| it.status.as_str()) {
            None => Self::Unset,
            Some("True") => Self::Ready,
            Some("False") => Self::NotReady,
            Some(_) => Self::Lost,
        }
    }

    /// Whether Pods on the node are not ready because of it.
    pub(crate) fn is_in_trouble(self) -> bool {
        matches!(self, Self::NotReady | Self::Lost)
    }
}

fn ignore_existing<T>(answer: Result<T, ApiError>) -> Result<(), ApiError> {
    match answer {
        Err(error) if error.class() != Class::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn node(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "annotations": {FAKE_NODE: "true", "node.alpha.kubernetes.io/ttl": "0"},
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
            },
        },
        "spec": {"taints": [{"key": NOT_READY, "effect": "NoSchedule"}]},
    })
}

/// The status of a ready node.
fn status(number: usize, now: Timestamp) -> Value {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let condition = |of: &str, status: &str, reason: &str, message: &str| {
        json!({"type": of, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    let resources = json!({"cpu": "1k", "memory": "1Ti", "ephemeral-storage": "10Ti", "pods": "1M"});
    json!({
        "addresses": [
            {"type": "InternalIP", "address": address(number)},
            {"type": "Hostname", "address": name(number)},
        ],
        "allocatable": resources,
        "capacity": resources,
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "fake", "kernelVersion": "fake",
            "kubeProxyVersion": "fake", "kubeletVersion": "fake", "machineID": "", "operatingSystem": "linux",
            "osImage": "fake", "systemUUID": "",
        },
    })
}

/// The address of a node: from 172.18.0.2 on.
fn address(number: usize) -> String {
    let host = number + 1;
    format!("172.18.{}.{}", (host >> 8) & 255, host & 255)
}

/// Renews the Lease of a node, or creates it. The node owns it, so that it goes with the node.
async fn renew(client: &Client, node: &str, uid: Option<String>) -> Result<(), ApiError> {
    let requests = client.requests().clone().manager("kubelet");
    let leases = requests.api::<Lease>();
    let now = MicroTime(client.env().clock.wall());
    let key = ObjectName::namespaced(LEASES, node);
    let owners = vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.to_owned(),
        uid: uid.unwrap_or_default(),
        ..OwnerReference::default()
    }];
    let renewal = json!({"metadata": {"ownerReferences": owners}, "spec": {"renewTime": now}});
    match leases.patch(&key, &Patch::Merge(renewal)).await {
        Err(error) if error.is_missing_object() => {}
        answer => return answer.map(drop),
    }
    let metadata = ObjectMeta {
        name: Some(node.to_owned()),
        namespace: Some(LEASES.to_owned()),
        owner_references: Some(owners),
        ..ObjectMeta::default()
    };
    let spec = LeaseSpec {
        holder_identity: Some(node.to_owned()),
        lease_duration_seconds: Some(LEASE_SECONDS),
        renew_time: Some(now),
        ..LeaseSpec::default()
    };
    let lease = Lease { metadata, spec: Some(spec) };
    match leases.create(&lease).await {
        Err(error) if error.is_not_found() => {
            let metadata = ObjectMeta { name: Some(LEASES.to_owned()), ..ObjectMeta::default() };
            let namespace = Namespace { metadata, ..Namespace::default() };
            ignore_existing(requests.api::<Namespace>().create(&namespace).await)?;
            ignore_existing(leases.create(&lease).await)
        }
        answer => ignore_existing(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_addresses_of_their_own_and_decode() {
        assert_eq!((address(1), address(255)), ("172.18.0.2".to_owned(), "172.18.1.0".to_owned()));
        let mut whole = node("node-1");
        whole["status"] = status(1, Timestamp::UNIX_EPOCH);
        let node: Node = serde_json::from_value(whole).unwrap();
        assert_eq!(node.status.unwrap().conditions.unwrap().len(), 4);
    }
}
