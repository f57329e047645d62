//! Deletes the objects of one resource in a namespace, and returns what is left of them.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_client::core::metadata::PartialObjectMeta;
use kube_client::core::params::{DeleteParams, Preconditions, PropagationPolicy};
use kube_client::core::{ApiResource, DynamicObject};
use watchkeeper::object::Unreadable;
use watchkeeper::source::{Scope, Selection};
use watchkeeper::wire::ApiError;
use watchkeeper::{Client, ObjectName};

use super::discover::Resource;

type Meta = PartialObjectMeta<DynamicObject>;

/// The time that objects with finalizers are expected to take.
const FINALIZERS: Duration = Duration::from_secs(15);

/// The contents of one namespace.
pub(super) struct Contents<'a> {
    pub(super) clients: &'a Client,
    pub(super) namespace: &'a str,
    pub(super) deleted_at: &'a Time,
}

/// The remaining objects, all of them marked for deletion.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) count: usize,
    pub(super) finalizers: BTreeMap<String, usize>,
    /// The time that they are expected to take.
    pub(super) expected: Duration,
}

/// The reason why the objects of a resource cannot be deleted for now.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContentError {
    #[error("cannot list {resource} in namespace {namespace}: {source}")]
    List { resource: String, namespace: String, source: ApiError },
    #[error("cannot list {resource} in namespace {namespace}: {source}")]
    Unreadable { resource: String, namespace: String, source: Unreadable },
    #[error("cannot delete {resource} in namespace {namespace}: {source}")]
    Delete { resource: String, namespace: String, source: ApiError },
    // Shown in a condition: the text is that of kube-controller-manager.
    #[error(
        "unexpected items still remain in namespace: {namespace} for gvr: {group}/{version}, Resource={resource}"
    )]
    Unexpected { namespace: String, group: String, version: String, resource: String },
}

impl Contents<'_> {
    /// Deletes all objects of a resource. `None` if nothing is left.
    pub(super) async fn delete(&self, resource: &Resource) -> Result<Option<Left>, ContentError> {
        let api = &resource.api;
        let before = self.list(api).await?;
        if before.is_empty() {
            return Ok(None);
        }
        let grace = if is_pods(api) { self.grace_of_pods().await? } else { Duration::ZERO };
        let failed = |source| ContentError::Delete {
            resource: qualified(api),
            namespace: self.namespace.to_owned(),
            source,
        };
        match self.delete_objects(resource, before).await {
            Err(error) if !error.is_missing_object() => return Err(failed(error)),
            _ => {}
        }
        let after = self.list(api).await?;
        if after.is_empty() {
            return Ok(None);
        }
        let mut finalizers = BTreeMap::new();
        for finalizer in after.iter().flat_map(|object| object.metadata.finalizers.iter().flatten()) {
            *finalizers.entry(finalizer.clone()).or_default() += 1;
        }
        let expected = match () {
            () if !grace.is_zero() => grace,
            () if !finalizers.is_empty() => FINALIZERS,
            () => {
                return Err(ContentError::Unexpected {
                    namespace: self.namespace.to_owned(),
                    group: api.group.clone(),
                    version: api.version.clone(),
                    resource: api.plural.clone(),
                });
            }
        };
        Ok(Some(Left { count: after.len(), finalizers, expected }))
    }

    async fn delete_objects(&self, resource: &Resource, objects: Vec<Meta>) -> Result<(), ApiError> {
        let requests = self.clients.api_of::<Meta>(resource.api.clone());
        let background = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        if resource.can_delete_collection {
            return requests.delete_collection(self.namespace, &background).await;
        }
        for object in objects {
            let key = ObjectName::of(&object).map_err(ApiError::undecodable)?;
            let preconditions = Preconditions { uid: object.metadata.uid, ..Preconditions::default() };
            let params = DeleteParams { preconditions: Some(preconditions), ..background.clone() };
            match requests.delete_with(&key, &params).await {
                Err(error) if error.is_missing_object() => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Returns the longest grace period of the pods that still run, unless it is over.
    async fn grace_of_pods(&self) -> Result<Duration, ContentError> {
        let scope = Scope::Namespace(self.namespace.to_owned());
        let failed = |source| ContentError::List {
            resource: "pods".to_owned(),
            namespace: self.namespace.to_owned(),
            source,
        };
        let pods = self.clients.api::<Pod>().list(&scope, &Selection::default()).await;
        let pods = pods.map_err(failed)?.ignore_unreadable();
        let seconds = pods
            .iter()
            .filter(|pod| is_running(pod))
            .filter_map(|pod| u64::try_from(pod.spec.as_ref()?.termination_grace_period_seconds?).ok());
        let grace = Duration::from_secs(seconds.max().unwrap_or(0));
        let age = self.clients.env().clock.wall().duration_since(self.deleted_at.0);
        let age = Duration::try_from(age).unwrap_or(Duration::ZERO);
        Ok(if age >= grace { Duration::ZERO } else { grace })
    }

    async fn list(&self, api: &ApiResource) -> Result<Vec<Meta>, ContentError> {
        let scope = Scope::Namespace(self.namespace.to_owned());
        let objects = self.clients.api_of::<Meta>(api.clone());
        let (resource, namespace) = (qualified(api), self.namespace.to_owned());
        match objects.list(&scope, &Selection::default()).await {
            // Also where the resource is not served: it may come back with its objects, and the next discovery finds out if it does not.
            Err(source) => Err(ContentError::List { resource, namespace, source }),
            Ok(listing) => {
                listing.complete().map_err(|source| ContentError::Unreadable { resource, namespace, source })
            }
        }
    }
}

pub(super) fn is_pods(api: &ApiResource) -> bool {
    api.group.is_empty() && api.plural == "pods"
}

fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Returns the name of a resource with its group, in kubectl's form.
fn qualified(api: &ApiResource) -> String {
    if api.group.is_empty() { api.plural.clone() } else { format!("{}.{}", api.plural, api.group) }
}
