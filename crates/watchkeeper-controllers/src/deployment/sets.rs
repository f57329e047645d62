//! The ReplicaSets of a Deployment, as they are and as they are planned to be.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::limits::Limits;
use super::spec;
use super::template::{HASH_LABEL, hash, is_same};
use crate::replica_set;

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MOST: &str = "deployment.kubernetes.io/max-replicas";
/// Annotations of a Deployment that its ReplicaSets do not get.
const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MOST,
    "deprecated.deployment.rollback.to",
];

/// A ReplicaSet, and what is planned for it.
#[derive(Clone, Debug)]
pub(super) struct Set {
    /// As it was read.
    pub(super) object: Arc<ReplicaSet>,
    pub(super) replicas: i32,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) min_ready_seconds: i32,
}

impl Set {
    pub(super) fn new(object: Arc<ReplicaSet>) -> Self {
        let spec = replica_set::spec(&object);
        Self {
            replicas: spec.and_then(|spec| spec.replicas).unwrap_or(1),
            annotations: object.metadata.annotations.clone().unwrap_or_default(),
            min_ready_seconds: spec.and_then(|spec| spec.min_ready_seconds).unwrap_or_default(),
            object,
        }
    }

    pub(super) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// The replicas that the server knows of.
    pub(super) fn replicas_before(&self) -> i32 {
        replica_set::spec(&self.object).and_then(|spec| spec.replicas).unwrap_or(1)
    }

    pub(super) fn is_changed(&self) -> bool {
        let before = Self::new(self.object.clone());
        before.replicas != self.replicas
            || before.annotations != self.annotations
            || before.min_ready_seconds != self.min_ready_seconds
    }

    /// The Pods that there are, as the status says.
    pub(super) fn running(&self) -> i32 {
        self.object.status.as_ref().map_or(0, |status| status.replicas)
    }

    pub(super) fn available(&self) -> i32 {
        self.object.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default()
    }

    pub(super) fn created(&self) -> Option<Timestamp> {
        self.object.metadata.creation_timestamp.as_ref().map(|time| time.0)
    }

    pub(super) fn revision(&self) -> i64 {
        revision(&self.annotations)
    }

    /// The replicas of the Deployment when this set was last scaled.
    pub(super) fn desired(&self) -> Option<i32> {
        self.annotations.get(DESIRED)?.parse().ok()
    }

    /// The most Pods of the Deployment when this set was last scaled.
    pub(super) fn most(&self) -> Option<i32> {
        self.annotations.get(MOST)?.parse().ok()
    }

    /// Scales the set. What it was scaled for is noted even if the number stays.
    pub(super) fn scale(&mut self, replicas: i32, limits: &Limits) {
        self.replicas = replicas;
        note(&mut self.annotations, limits);
    }

    pub(super) fn is_of(&self, deployment: &Deployment) -> bool {
        let theirs = replica_set::spec(&self.object).and_then(|spec| spec.template.as_ref());
        let ours = spec(deployment).map(|spec| &spec.template);
        theirs.zip(ours).is_some_and(|(theirs, ours)| is_same(theirs, ours))
    }

    /// Gives the set of the current template the annotations of the Deployment, and the highest revision.
    pub(super) fn make_newest(&mut self, deployment: &Deployment, revision: i64) {
        copy_annotations(deployment, &mut self.annotations);
        let before = self.annotations.get(REVISION).cloned();
        if self.revision() < revision {
            self.annotations.insert(REVISION.to_owned(), revision.to_string());
            if let Some(before) = before.filter(|before| !before.is_empty()) {
                let history = self.annotations.entry(HISTORY.to_owned()).or_default();
                let separator = if history.is_empty() { "" } else { "," };
                *history = format!("{history}{separator}{before}");
            }
        }
        let spec = spec(deployment);
        self.min_ready_seconds = spec.and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
    }
}

/// The revision among these annotations; 0 if there is none.
pub(super) fn revision(annotations: &BTreeMap<String, String>) -> i64 {
    annotations.get(REVISION).and_then(|revision| revision.parse().ok()).unwrap_or_default()
}

fn note(annotations: &mut BTreeMap<String, String>, limits: &Limits) {
    annotations.insert(DESIRED.to_owned(), limits.replicas.to_string());
    annotations.insert(MOST.to_owned(), limits.most().to_string());
}

fn copy_annotations(deployment: &Deployment, into: &mut BTreeMap<String, String>) {
    let theirs = deployment.metadata.annotations.iter().flatten();
    for (key, value) in theirs.filter(|(key, _)| !OWN.contains(&key.as_str())) {
        into.insert(key.clone(), value.clone());
    }
}

/// A new ReplicaSet for the template of a Deployment.
pub(super) fn new_set(
    deployment: &Deployment,
    collisions: i32,
    replicas: i32,
    revision: i64,
    limits: &Limits,
) -> ReplicaSet {
    let spec = spec(deployment).cloned().unwrap_or_default();
    let mut template = spec.template;
    let hash = hash(&template, collisions);
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH_LABEL.to_owned(), hash.clone());
    let labels = labels.clone();
    let mut selector = spec.selector;
    selector.match_labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash.clone());
    let mut annotations = BTreeMap::new();
    copy_annotations(deployment, &mut annotations);
    annotations.insert(REVISION.to_owned(), revision.to_string());
    note(&mut annotations, limits);
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{hash}")),
            namespace: deployment.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: ReplicaSetSpec {
            replicas: Some(replicas),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        }
        .into(),
        status: None,
    }
}
