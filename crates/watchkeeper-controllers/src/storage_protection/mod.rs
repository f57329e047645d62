//! The protection of claims and volumes: they stay while they are used, though they were deleted.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use kube_core::params::Patch;
use serde_json::{Value, json};
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, Watch};
use watchkeeper::source::{Scope, Selection};
use watchkeeper::store::Index;
use watchkeeper::{Kind, Object, ObjectName};

use crate::pods::{has_ended, node_name};

/// The finalizer of claims.
const CLAIM: &str = "kubernetes.io/pvc-protection";
/// The finalizer of volumes.
const VOLUME: &str = "kubernetes.io/pv-protection";
/// The index of Pods by the claims that they use.
const BY_CLAIM: &str = "by-claim";

/// Registers the controller with `manager` that protects PersistentVolumeClaims.
///
/// A claim has a finalizer, which is taken off when the claim is deleted and no Pod on a node uses it.
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register_claims(manager: &mut Manager) -> Result<(), SetupError> {
    let pods = manager.factory().informer::<Pod>();
    let index = Index::new(BY_CLAIM, |pod: &Object<Pod>| claims(pod));
    let _added = pods.indexer().add_indexes([index]);
    Controller::<PersistentVolumeClaim>::new(manager)
        .named("persistentvolumeclaim-protection")
        .component("pvc-protection-controller")
        .watches(Watch::<Pod>::new().when(|old, new| using(old) != using(new)), |pod, _| {
            claims(pod).iter().map(|name| name_of(name)).collect()
        })
        .reconcile(move |claim, cx| {
            let pods = pods.clone();
            async move {
                let key = format!("{}/{}", cx.key().namespace().unwrap_or_default(), cx.key().name());
                let cached = pods.indexer().snapshot();
                let is_used = |pod: &Object<Pod>| pod.get().is_ok_and(|pod| uses(&pod, cx.key().name()));
                let is_known_used = cached.by_index(BY_CLAIM, &key).is_ok_and(|mut pods| pods.any(is_used));
                protect(&*claim, &cx, CLAIM, is_known_used).await
            }
        })
}

/// Registers the controller with `manager` that protects PersistentVolumes.
///
/// A volume has a finalizer, which is taken off when the volume is deleted and not bound to a claim.
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register_volumes(manager: &mut Manager) -> Result<(), SetupError> {
    Controller::<PersistentVolume>::new(manager)
        .named("persistentvolume-protection")
        .component("pv-protection-controller")
        .reconcile(|volume, cx| async move {
            let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
            protect(&*volume, &cx, VOLUME, phase == Some("Bound")).await
        })
}

fn name_of(path: &str) -> ObjectName {
    let (namespace, name) = path.split_once('/').unwrap_or(("", path));
    ObjectName::namespaced(namespace, name)
}

/// The claims of a Pod, as `namespace/name`.
fn claims(pod: &Object<Pod>) -> Vec<String> {
    let namespace = pod.namespace().unwrap_or_default();
    let Ok(pod) = pod.get() else { return Vec::new() };
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| Some(format!("{namespace}/{}", claim(&pod, volume)?))).collect()
}

/// The name of the claim behind a volume of a Pod.
fn claim(pod: &Pod, volume: &Volume) -> Option<String> {
    if let Some(claim) = &volume.persistent_volume_claim {
        return Some(claim.claim_name.clone());
    }
    volume.ephemeral.as_ref()?;
    Some(format!("{}-{}", pod.metadata.name.as_deref()?, volume.name))
}

/// What decides whether a Pod uses its claims.
fn using(pod: &Object<Pod>) -> Option<(bool, bool)> {
    pod.get().ok().map(|pod| (node_name(&pod).is_empty(), has_ended(&pod)))
}

/// Whether a Pod uses a claim. One that is not bound to a node will not start with a claim in deletion.
fn uses(pod: &Pod, name: &str) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let counts = |volume: &&Volume| volume.ephemeral.is_none() || !has_ended(pod);
    !node_name(pod).is_empty()
        && volumes.filter(counts).any(|volume| claim(pod, volume).is_some_and(|claim| claim == name))
}

/// What becomes of a finalizer.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Keep,
    Add,
    Remove,
}

fn step(is_deleting: bool, has_finalizer: bool, is_used: bool) -> Step {
    match (is_deleting, has_finalizer) {
        (false, false) => Step::Add,
        (true, true) if !is_used => Step::Remove,
        _ => Step::Keep,
    }
}

/// Adds or removes the finalizer of the main object.
async fn protect<K: Protected>(
    object: &K,
    cx: &Context<K>,
    finalizer: &str,
    is_used: bool,
) -> Result<Action, Error> {
    let meta = object.meta();
    let finalizers = meta.finalizers.clone().unwrap_or_default();
    let has_finalizer = finalizers.iter().any(|known| known == finalizer);
    let change = match step(meta.deletion_timestamp.is_some(), has_finalizer, is_used) {
        Step::Keep => return Ok(Action::done()),
        Step::Add => json!([finalizers, vec![finalizer.to_owned()]].concat()),
        // The cache may lag behind.
        Step::Remove if K::is_used(cx).await? => return Ok(Action::done()),
        Step::Remove => finalizers.into_iter().filter(|known| known != finalizer).collect::<Value>(),
    };
    let metadata = json!({"resourceVersion": meta.resource_version, "finalizers": change});
    cx.patch::<K, _>(cx.key().name(), &Patch::Merge(json!({ "metadata": metadata }))).await?;
    Ok(Action::done())
}

/// A kind whose objects are protected.
trait Protected: Kind<DynamicType: Default> {
    /// Asks the server whether the main object is used.
    fn is_used(cx: &Context<Self>) -> impl Future<Output = Result<bool, Error>> + Send;
}

impl Protected for PersistentVolumeClaim {
    async fn is_used(cx: &Context<Self>) -> Result<bool, Error> {
        let scope = Scope::Namespace(cx.key().namespace().unwrap_or_default().to_owned());
        let pods = cx.live().list::<Pod>(&scope, &Selection::default()).await?.complete()?;
        Ok(pods.iter().any(|pod| uses(pod, cx.key().name())))
    }
}

impl Protected for PersistentVolume {
    async fn is_used(_cx: &Context<Self>) -> Result<bool, Error> {
        // The version of the volume that is written says that it is not bound.
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finalizer_is_added_before_the_deletion_and_removed_after_the_last_use() {
        assert_eq!(step(false, false, false), Step::Add);
        assert_eq!(step(false, true, false), Step::Keep);
        assert_eq!(step(true, true, true), Step::Keep);
        assert_eq!(step(true, true, false), Step::Remove);
        assert_eq!(step(true, false, false), Step::Keep);
    }

    #[test]
    fn a_pod_on_a_node_uses_its_claims() {
        let pod = |node: &str, phase: &str| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": "p"}, "status": {"phase": phase},
                "spec": {"nodeName": node, "containers": [], "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "scratch", "ephemeral": {}}]}}))
            .unwrap()
        };
        assert!(uses(&pod("n", "Running"), "c") && uses(&pod("n", "Running"), "p-scratch"));
        assert!(uses(&pod("n", "Failed"), "c") && !uses(&pod("n", "Failed"), "p-scratch"));
        assert!(!uses(&pod("", "Pending"), "c") && !uses(&pod("n", "Running"), "d"));
    }
}
