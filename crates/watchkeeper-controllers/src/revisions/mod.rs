//! The history of the templates of StatefulSets and DaemonSets, as ControllerRevisions.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube_core::params::Patch;
use serde_json::{Value, json};
use watchkeeper::Kind;
use watchkeeper::controller::{Context, Error, WriteError};
use watchkeeper::wire::Class;

use crate::family::controller;
use crate::pods::template::{encode, fnv, fnv_from};

/// The label of Pods with their revision, and in DaemonSets of revisions with their hash.
pub(crate) const REVISION: &str = "controller-revision-hash";

/// How the current template gets its revision.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Current {
    /// It has one, the newest.
    Known(Arc<ControllerRevision>),
    /// It had one before, which becomes the newest under this number.
    Again(Arc<ControllerRevision>, i64),
    New(Box<ControllerRevision>),
}

/// The content of a revision: a patch that brings its template back.
fn data(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    template["$patch"] = "replace".into();
    json!({"spec": {"template": template}})
}

/// The template of a revision.
pub(crate) fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.get("spec")?.get("template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// The name of a revision.
pub(crate) fn name(revision: &ControllerRevision) -> &str {
    revision.metadata.name.as_deref().unwrap_or_default()
}

/// Finds the revision of a template, or makes one, called `prefix` and a hash. `label` is the label with the hash.
pub(crate) fn current(
    prefix: &str,
    template: &PodTemplateSpec,
    history: &[Arc<ControllerRevision>],
    collisions: i32,
    label: &str,
) -> Current {
    let data = data(template);
    let newest = history.iter().map(|revision| revision.revision).max().unwrap_or_default();
    let is_same =
        |revision: &&Arc<ControllerRevision>| revision.data.as_ref().is_some_and(|known| known.0 == data);
    match history.iter().filter(is_same).max_by_key(|revision| revision.revision) {
        Some(known) if known.revision == newest => Current::Known(known.clone()),
        Some(known) => Current::Again(known.clone(), newest + 1),
        None => {
            let hash = hash(&data, collisions);
            let mut labels =
                template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
            labels.insert(label.to_owned(), hash.clone());
            let metadata = ObjectMeta {
                name: Some(format!("{prefix}-{hash}")),
                labels: Some(labels),
                ..ObjectMeta::default()
            };
            let data = Some(RawExtension(data));
            Current::New(Box::new(ControllerRevision { metadata, data, revision: newest + 1 }))
        }
    }
}

fn hash(data: &Value, collisions: i32) -> String {
    let mut hash = fnv(data.to_string().as_bytes());
    if collisions > 0 {
        hash = fnv_from(hash, &collisions.to_le_bytes());
    }
    encode(hash)
}

/// The names of the oldest revisions beyond the limit that are not in use.
pub(crate) fn surplus(
    history: &[Arc<ControllerRevision>],
    used: &BTreeSet<String>,
    limit: Option<i32>,
) -> Vec<String> {
    let mut idle: Vec<_> = history.iter().filter(|revision| !used.contains(name(revision))).collect();
    idle.sort_by_key(|revision| revision.revision);
    let kept = usize::try_from(limit.unwrap_or(10)).unwrap_or_default();
    let more = idle.len().saturating_sub(kept);
    idle.into_iter().take(more).map(|revision| name(revision).to_owned()).collect()
}

/// Writes the revision of the current template. The error of a name that another revision has is a collision.
pub(crate) async fn write<K: Kind>(
    cx: &Context<K>,
    owner: &ObjectMeta,
    current: Current,
) -> Result<Arc<ControllerRevision>, Collision> {
    match current {
        Current::Known(known) => Ok(known),
        Current::Again(known, revision) => {
            let patch = Patch::Merge(json!({ "revision": revision }));
            Ok(cx.patch::<ControllerRevision, _>(name(&known), &patch).await?)
        }
        Current::New(new) => {
            let error = match cx.create(&*new).await {
                Ok(made) => return Ok(made),
                Err(error) => error,
            };
            let is_taken =
                matches!(&error, WriteError::Api { source, .. } if source.class() == Class::AlreadyExists);
            if !is_taken {
                return Err(error.into());
            }
            let key = cx.key().sibling(name(&new));
            let other = cx.live().get::<ControllerRevision>(&key).await?;
            let is_ours = |other: &ControllerRevision| {
                controller(&other.metadata).map(|owner| &owner.uid) == owner.uid.as_ref()
                    && other.data.as_ref().map(|data| &data.0) == new.data.as_ref().map(|data| &data.0)
            };
            match other {
                Some(other) if !is_ours(&other) => Err(Collision::NameTaken(error.into())),
                _ => Err(Collision::Other(error.into())),
            }
        }
    }
}

/// Why a revision was not written.
pub(crate) enum Collision {
    /// Another revision has the name: the next hash must differ.
    NameTaken(Error),
    Other(Error),
}

impl<E: Into<Error>> From<E> for Collision {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(image: &str) -> PodTemplateSpec {
        serde_json::from_value(json!({"metadata": {"labels": {"app": "a"}},
            "spec": {"containers": [{"name": "a", "image": image}]}}))
        .unwrap()
    }

    fn made(image: &str, revision: i64, history: &[Arc<ControllerRevision>]) -> Arc<ControllerRevision> {
        let Current::New(new) = current("web", &of(image), history, 0, REVISION) else { panic!() };
        Arc::new(ControllerRevision { revision, ..*new })
    }

    #[test]
    fn a_template_has_one_revision_and_an_earlier_one_becomes_the_newest_again() {
        let first = made("a", 1, &[]);
        let second = made("b", 2, std::slice::from_ref(&first));
        assert_ne!(name(&first), name(&second));
        assert_eq!(template(&second), Some(of("b")));
        let history = [first.clone(), second.clone()];
        assert_eq!(current("web", &of("b"), &history, 0, REVISION), Current::Known(second.clone()));
        assert_eq!(current("web", &of("a"), &history, 0, REVISION), Current::Again(first.clone(), 3));
        let Current::New(third) = current("web", &of("c"), &history, 0, REVISION) else { panic!() };
        let Current::New(other) = current("web", &of("c"), &history, 1, REVISION) else { panic!() };
        assert_eq!(third.revision, 3);
        assert_ne!(third.metadata.name, other.metadata.name);
    }

    #[test]
    fn the_oldest_revisions_that_are_not_in_use_go() {
        let history: Vec<_> =
            ["a", "b", "c", "d"].iter().zip(1..).map(|(it, at)| made(it, at, &[])).collect();
        let used = BTreeSet::from([name(&history[0]).to_owned(), name(&history[3]).to_owned()]);
        assert_eq!(surplus(&history, &used, Some(1)), [name(&history[1])]);
        assert_eq!(surplus(&history, &used, Some(0)).len(), 2);
        assert!(surplus(&history, &used, None).is_empty());
    }
}
