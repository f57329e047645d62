//! Manifests of the Foo CRD and of an example Foo; tests compare them with the types of this crate.

use crate::api::{Foo, FooSpec};

/// The example as a manifest.
pub const EXAMPLE: &str = include_str!("../artifacts/example-foo.yaml");

/// The CRD with the status subresource, as a manifest; the controller needs this one.
pub const CRD_STATUS_SUBRESOURCE: &str = include_str!("../artifacts/deploy/crd-status-subresource.yaml");

/// The CRD without the status subresource, as a manifest. The controller cannot use it: its status updates go through the subresource.
pub const CRD: &str = include_str!("../artifacts/crd.yaml");

/// The example Foo, in the namespace `default`.
pub fn example() -> Foo {
    let mut foo =
        Foo::new("example-foo", FooSpec { deployment_name: "example-foo".to_owned(), replicas: Some(1) });
    foo.metadata.namespace = Some("default".to_owned());
    foo
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

    use super::*;

    #[test]
    fn the_manifests_of_the_crd_are_made_from_the_type() {
        let whole = crate::api::crd();
        let mut plain = whole.clone();
        plain.spec.versions[0].subresources = None;
        for (manifest, crd) in [(CRD_STATUS_SUBRESOURCE, whole), (CRD, plain)] {
            let found: CustomResourceDefinition = serde_saphyr::from_str(manifest).unwrap();
            assert_eq!(found, crd, "{}", serde_saphyr::to_string(&crd).unwrap());
        }
    }

    /// The objects that `kubectl apply -k` makes.
    fn deployed() -> Vec<serde_json::Value> {
        let read = |file: &str| -> Vec<serde_json::Value> {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts/deploy").join(file);
            let text = std::fs::read_to_string(path).unwrap();
            text.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
        };
        let listed = &read("kustomization.yaml")[0]["resources"];
        listed.as_array().unwrap().iter().flat_map(|file| read(file.as_str().unwrap())).collect()
    }

    #[test]
    fn the_manifests_for_a_cluster_name_each_other_and_ask_for_no_more_than_needed() {
        let objects = deployed();
        let of = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
        let pod = &of("Deployment")["spec"]["template"]["spec"];
        assert_eq!(pod["serviceAccountName"], of("ServiceAccount")["metadata"]["name"]);
        assert_eq!(of("ClusterRoleBinding")["roleRef"]["name"], of("ClusterRole")["metadata"]["name"]);
        assert_eq!(of("Deployment")["metadata"]["namespace"], of("Namespace")["metadata"]["name"]);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"], true);
        let rules = of("ClusterRole")["rules"].as_array().unwrap();
        assert!(!rules.iter().any(|rule| rule.to_string().contains("\"*\"")), "nothing is granted wholesale");
    }

    #[test]
    fn a_cluster_gets_the_crd_the_controller_needs() {
        let objects = deployed();
        let crd = objects.iter().find(|object| object["kind"] == "CustomResourceDefinition").unwrap();
        let crd: CustomResourceDefinition = serde_json::from_value(crd.clone()).unwrap();
        assert_eq!(crd, crate::api::crd());
    }

    #[test]
    fn an_image_is_made_of_the_workspace_alone_and_one_that_is_there_is_not_pulled() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let ignored = std::fs::read_to_string(root.join(".dockerignore")).unwrap();
        let rules: Vec<_> = ignored.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            rules,
            ["*", "!Cargo.lock", "!Cargo.toml", "!bench", "!controllers", "!crates", "!examples"]
        );
        let objects = deployed();
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    }

    #[test]
    fn the_manifest_and_the_value_are_the_same_foo() {
        let mut manifest: Foo = serde_saphyr::from_str(EXAMPLE).unwrap();
        manifest.metadata.namespace = Some("default".to_owned());
        assert_eq!(manifest, example());
    }
}
