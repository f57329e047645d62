//! The Deployment of a Foo.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube_core::Resource;

use crate::api::Foo;

/// The desired Deployment of `foo`, owned by it.
pub fn new_deployment(foo: &Foo) -> Deployment {
    let labels = BTreeMap::from([
        ("app".to_owned(), "nginx".to_owned()),
        ("controller".to_owned(), foo.metadata.name.clone().unwrap_or_default()),
    ]);
    let container = Container {
        name: "nginx".to_owned(),
        image: Some("nginx:latest".to_owned()),
        ..Container::default()
    };
    Deployment {
        metadata: ObjectMeta {
            name: Some(foo.spec.deployment_name.clone()),
            namespace: foo.metadata.namespace.clone(),
            owner_references: foo.controller_owner_ref(&()).map(|mut owner| {
                owner.block_owner_deletion = Some(true);
                vec![owner]
            }),
            ..ObjectMeta::default()
        },
        spec: Some(DeploymentSpec {
            replicas: foo.spec.replicas,
            selector: LabelSelector { match_labels: Some(labels.clone()), ..LabelSelector::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }),
                spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
            },
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

/// Whether this Foo controls `deployment`; compares the uid, not the name.
pub(crate) fn is_controlled_by(deployment: &Deployment, foo: &Foo) -> bool {
    let owners = deployment.metadata.owner_references.as_deref().unwrap_or_default();
    let controller = owners.iter().find(|owner| owner.controller == Some(true));
    controller.is_some_and(|owner| Some(&owner.uid) == foo.metadata.uid.as_ref())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn foo(uid: &str) -> Foo {
        let metadata = json!({"name": "f", "namespace": "ns", "uid": uid});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"deploymentName": "d", "replicas": 2}}))
            .unwrap()
    }

    #[test]
    fn a_new_deployment_is_owned_and_labelled_by_its_foo() {
        let made = serde_json::to_value(new_deployment(&foo("u"))).unwrap();
        assert_eq!(
            made,
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "d", "namespace": "ns", "ownerReferences": [{
                    "apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "name": "f", "uid": "u",
                    "controller": true, "blockOwnerDeletion": true,
                }]},
                "spec": {
                    "replicas": 2,
                    "selector": {"matchLabels": {"app": "nginx", "controller": "f"}},
                    "template": {
                        "metadata": {"labels": {"app": "nginx", "controller": "f"}},
                        "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
                    },
                },
            })
        );
    }

    #[test]
    fn ownership_is_decided_by_uid() {
        let deployment = new_deployment(&foo("u"));
        assert!(is_controlled_by(&deployment, &foo("u")));
        assert!(!is_controlled_by(&deployment, &foo("another")));
        assert!(!is_controlled_by(&Deployment::default(), &foo("u")));
    }
}
