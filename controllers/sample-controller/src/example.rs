//! What does a Foo look like? The example that the documentation uses.

use crate::api::{Foo, FooSpec};

/// The example as a manifest.
pub const EXAMPLE: &str = include_str!("../artifacts/example-foo.yaml");

/// The example Foo, in the namespace `default`.
pub fn example() -> Foo {
    let mut foo =
        Foo::new("example-foo", FooSpec { deployment_name: "example-foo".to_owned(), replicas: Some(1) });
    foo.metadata.namespace = Some("default".to_owned());
    foo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_and_the_value_are_the_same_foo() {
        let mut manifest: Foo = serde_saphyr::from_str(EXAMPLE).unwrap();
        manifest.metadata.namespace = Some("default".to_owned());
        assert_eq!(manifest, example());
    }
}
