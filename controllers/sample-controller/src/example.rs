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

    #[test]
    fn the_manifest_and_the_value_are_the_same_foo() {
        let mut manifest: Foo = serde_saphyr::from_str(EXAMPLE).unwrap();
        manifest.metadata.namespace = Some("default".to_owned());
        assert_eq!(manifest, example());
    }
}
