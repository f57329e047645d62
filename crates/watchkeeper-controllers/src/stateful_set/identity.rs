//! The Pods of a StatefulSet: each has an ordinal, and with it a name, a host name and claims of its own.

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::revisions::{self, REVISION};

/// The labels of a Pod with its name and its ordinal.
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The ordinal of a Pod of this set; none if its name is not one of the set's.
pub(super) fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let (parent, ordinal) = pod.metadata.name.as_deref()?.rsplit_once('-')?;
    let is_plain = ordinal == "0" || !ordinal.starts_with(['0', '+']);
    (Some(parent) == set.metadata.name.as_deref() && is_plain).then(|| ordinal.parse().ok()).flatten()
}

/// The name of the revision that a Pod was made from.
pub(super) fn revision(pod: &Pod) -> &str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION)).map_or("", String::as_str)
}

/// A new Pod of a revision.
pub(super) fn new_pod(
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    of: &ControllerRevision,
    ordinal: i32,
) -> Pod {
    let PodTemplateSpec { metadata, spec: pod_spec } =
        revisions::template(of).unwrap_or_else(|| spec.template.clone());
    let metadata = metadata.unwrap_or_default();
    let parent = set.metadata.name.as_deref().unwrap_or_default();
    let name = format!("{parent}-{ordinal}");
    let mut labels = metadata.labels.unwrap_or_default();
    labels.insert(POD_NAME.to_owned(), name.clone());
    labels.insert(POD_INDEX.to_owned(), ordinal.to_string());
    labels.insert(REVISION.to_owned(), revisions::name(of).to_owned());
    let mut pod_spec = pod_spec.unwrap_or_default();
    pod_spec.hostname = Some(name.clone());
    pod_spec.subdomain = spec.service_name.clone();
    let claimed: Vec<_> =
        claims(set, spec, ordinal).into_iter().map(|(of, claim)| volume(of, &claim)).collect();
    let volumes = pod_spec.volumes.get_or_insert_default();
    volumes.retain(|volume| !claimed.iter().any(|claimed| claimed.name == volume.name));
    volumes.extend(claimed);
    if volumes.is_empty() {
        pod_spec.volumes = None;
    }
    Pod {
        metadata: ObjectMeta {
            name: Some(name),
            generate_name: Some(format!("{parent}-")),
            namespace: set.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: metadata.annotations,
            finalizers: metadata.finalizers,
            ..ObjectMeta::default()
        },
        spec: Some(pod_spec),
        status: None,
    }
}

fn volume(name: String, claim: &PersistentVolumeClaim) -> Volume {
    let claim_name = claim.metadata.name.clone().unwrap_or_default();
    let source = PersistentVolumeClaimVolumeSource { claim_name, read_only: None };
    Volume { name, persistent_volume_claim: Some(source), ..Volume::default() }
}

/// The claims of an ordinal, each with the name of its template.
pub(super) fn claims(
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    ordinal: i32,
) -> Vec<(String, PersistentVolumeClaim)> {
    let parent = set.metadata.name.as_deref().unwrap_or_default();
    let of = |template: &PersistentVolumeClaim| {
        let of = template.metadata.name.clone().unwrap_or_default();
        let mut labels = template.metadata.labels.clone().unwrap_or_default();
        labels.extend(spec.selector.match_labels.clone().unwrap_or_default());
        let metadata = ObjectMeta {
            name: Some(format!("{of}-{parent}-{ordinal}")),
            namespace: set.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: template.metadata.annotations.clone(),
            ..ObjectMeta::default()
        };
        (of, PersistentVolumeClaim { metadata, spec: template.spec.clone(), status: None })
    };
    spec.volume_claim_templates.iter().flatten().map(of).collect()
}
