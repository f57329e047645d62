//! Errors of objects without a usable key.

use std::any::type_name;
use std::fmt;

use k8s_openapi::api::core::v1::ObjectReference;
use kube_core::Resource;
use serde::Deserialize;

use super::identity::IdentityError;

/// The error of an object without a usable key: client-go's `KeyError`, with the object and the cause.
///
/// It contains what identifies the object and never its contents, as they may belong to a Secret.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("cannot determine the key of {}", Described(object))]
pub struct KeyError {
    /// The known parts of the object's identity.
    pub object: Box<ObjectReference>,
    /// The reason why it has no key.
    #[source]
    pub cause: IdentityError,
}

impl KeyError {
    /// Returns the error of a typed object without a name.
    pub(super) fn no_name<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        let reference = ObjectReference {
            kind: Some(short_name::<K>()),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            ..ObjectReference::default()
        };
        Self { object: Box::new(reference), cause: IdentityError::NoName }
    }

    /// Returns the error of a value of type `K` whose JSON is not a usable object.
    pub(super) fn of_json<K>(json: &[u8], cause: IdentityError) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Known {
            api_version: Option<String>,
            kind: Option<String>,
            metadata: Option<Metadata>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Metadata {
            namespace: Option<String>,
            name: Option<String>,
            uid: Option<String>,
        }
        let known: Known = serde_json::from_slice(json).unwrap_or_default();
        let Metadata { namespace, name, uid } = known.metadata.unwrap_or_default();
        let reference = ObjectReference {
            api_version: known.api_version,
            kind: known.kind.or_else(|| Some(short_name::<K>())),
            namespace,
            name,
            uid,
            ..ObjectReference::default()
        };
        Self { object: Box::new(reference), cause }
    }
}

/// Returns the name of a type without its modules and parameters.
fn short_name<K>() -> String {
    let name = type_name::<K>();
    let name = name.split('<').next().unwrap_or(name);
    name.rsplit("::").next().unwrap_or(name).to_owned()
}

struct Described<'a>(&'a ObjectReference);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = |field: &'_ Option<String>| field.clone().filter(|text| !text.is_empty());
        write!(f, "an object of kind {}", given(&self.0.kind).as_deref().unwrap_or("?"))?;
        for (what, field) in [("name", &self.0.name), ("namespace", &self.0.namespace), ("uid", &self.0.uid)]
        {
            if let Some(text) = given(field) {
                write!(f, ", {what} {text:?}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use k8s_openapi::api::core::v1::Secret;

    use super::*;
    use crate::object::{Object, ObjectName};

    // client-go: TestKeyError
    #[test]
    fn a_key_error_tells_the_object_and_its_cause_and_no_contents() {
        let mut secret = Secret::default();
        secret.metadata.namespace = Some("ns".into());
        secret.metadata.uid = Some("u1".into());
        secret.string_data = Some([("password".into(), "hunter2".into())].into());
        for error in [ObjectName::of(&secret).unwrap_err(), Object::from_typed(&secret).unwrap_err()] {
            assert_eq!(
                error.to_string(),
                r#"cannot determine the key of an object of kind Secret, namespace "ns", uid "u1""#
            );
            assert_eq!(error.object.kind.as_deref(), Some("Secret"));
            assert_eq!(error.cause, IdentityError::NoName);
            let source = error.source().unwrap().downcast_ref::<IdentityError>();
            assert_eq!(source, Some(&IdentityError::NoName));
            // It can be downcast from an error that wraps it.
            let wrapped: Box<dyn Error + Send + Sync> = error.clone().into();
            assert!(wrapped.downcast_ref::<KeyError>().is_some());
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
    }

    #[test]
    fn a_value_that_is_no_object_at_all_is_told_by_its_type() {
        let error = Object::from_typed(&vec![7]).unwrap_err();
        assert_eq!(error.to_string(), "cannot determine the key of an object of kind Vec");
        assert!(matches!(error.cause, IdentityError::Malformed(_)), "{error:?}");
        let unencodable = std::collections::BTreeMap::from([((1, 2), "hunter2")]);
        let error = Object::from_typed(&unencodable).unwrap_err();
        assert!(matches!(error.cause, IdentityError::Unencodable(_)), "{error:?}");
    }
}
