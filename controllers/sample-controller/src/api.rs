//! The Foo API: a Foo asks for a Deployment with a given name and number of replicas.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The desired state of a Foo.
#[allow(clippy::duplicated_attributes, reason = "two columns may have one type")]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "samplecontroller.k8s.io",
    version = "v1alpha1",
    kind = "Foo",
    doc = "Asks for a Deployment with a given name and number of replicas.",
    namespaced,
    status = "FooStatus",
    derive = "PartialEq",
    crates(kube_core = "kube_core"),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.availableReplicas"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", default)]
pub struct FooSpec {
    /// Name of the Deployment.
    pub deployment_name: String,
    /// Desired number of replicas.
    #[schemars(range(min = 1, max = 10))]
    pub replicas: Option<i32>,
}

/// The observed state of a Foo.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FooStatus {
    /// Number of available replicas of the Deployment.
    pub available_replicas: i32,
}

/// The Foo CRD, with the annotation that a real API server requires of groups under `k8s.io`.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = Foo::crd();
    let approval = "unapproved, experimental-only; a sample".to_owned();
    crd.metadata
        .annotations
        .get_or_insert_default()
        .insert("api-approved.kubernetes.io".to_owned(), approval);
    crd
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_crd_has_what_a_real_api_server_demands() {
        let crd = serde_json::to_value(crd()).unwrap();
        assert_eq!(crd["metadata"]["name"], "foos.samplecontroller.k8s.io");
        assert!(
            crd["metadata"]["annotations"]["api-approved.kubernetes.io"]
                .as_str()
                .unwrap()
                .starts_with("unapproved")
        );
        let version = &crd["spec"]["versions"][0];
        assert_eq!(version["subresources"]["status"], json!({}));
        let replicas = &version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["replicas"];
        assert_eq!((&replicas["minimum"], &replicas["maximum"]), (&json!(1.0), &json!(10.0)));
        let required = &version["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"];
        assert!(required.is_null(), "an empty deployment name is reported, not refused: {required}");
    }

    #[test]
    fn a_foo_without_replicas_or_name_is_still_a_foo() {
        let foo: Foo = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {}})).unwrap();
        assert_eq!(foo.spec, FooSpec::default());
    }
}
