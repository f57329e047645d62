//! The ReplicationController controller: the predecessor of ReplicaSets, which works as they do.

use std::borrow::Cow;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::ReplicationController;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_core::Selector;
use watchkeeper::controller::{Manager, SetupError};

use crate::family::{Selecting, selector};
use crate::replica_set::{Replicated, register_as};

/// Registers the ReplicationController controller with `manager`. It does what that of [ReplicaSets](crate::replica_set) does.
///
/// # Errors
///
/// The manager has a controller of that name.
pub fn register(manager: &mut Manager) -> Result<(), SetupError> {
    register_as::<ReplicationController>(manager, "replication-controller")
}

impl Selecting for ReplicationController {
    fn selector(&self) -> Option<Selector> {
        selector(&labels(self))
    }
}

fn labels(of: &ReplicationController) -> LabelSelector {
    let match_labels = of.spec.as_ref().and_then(|spec| spec.selector.clone());
    LabelSelector { match_labels, match_expressions: None }
}

impl Replicated for ReplicationController {
    fn as_set(&self) -> Cow<'_, ReplicaSet> {
        let spec = self.spec.as_ref().map(|spec| ReplicaSetSpec {
            replicas: spec.replicas,
            min_ready_seconds: spec.min_ready_seconds,
            selector: labels(self),
            template: spec.template.clone(),
        });
        let spec = spec.unwrap_or_default().into();
        Cow::Owned(ReplicaSet { metadata: self.metadata.clone(), spec, status: None })
    }

    const COUNTS_TERMINATING: bool = false;
}
