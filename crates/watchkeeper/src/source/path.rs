//! URL paths of kinds and objects, with escaped names.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::object::Kind;
use crate::wire::{ApiError, Class};

/// Characters that would end a path, or are not allowed in one. `:` and the like stay, as roles have such names.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The error of a name that would change the path, escaped or not: a server sees the path unescaped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(r#"the {what} {name:?} cannot be part of a URL: it must not be empty, "." or "..", nor contain "/" or "%""#)]
pub(super) struct BadName {
    what: &'static str,
    name: String,
}

impl From<BadName> for ApiError {
    fn from(bad: BadName) -> Self {
        Self::new(Class::Invalid, bad.to_string())
    }
}

/// Returns the name of an object as one segment of a path.
pub(super) fn name_segment(name: &str) -> Result<String, BadName> {
    segment("name", name)
}

/// Returns the path of the objects of a kind, in `namespace` or in all of them.
pub(super) fn collection<K: Kind>(kind: &K::DynamicType, namespace: Option<&str>) -> Result<String, BadName> {
    let namespace = namespace.map(|namespace| segment("namespace", namespace)).transpose()?;
    Ok(K::url_path(kind, namespace.as_deref()))
}

fn segment(what: &'static str, name: &str) -> Result<String, BadName> {
    // The rule of client-go's requests.
    if matches!(name, "" | "." | "..") || name.contains(['/', '%']) {
        return Err(BadName { what, name: name.to_owned() });
    }
    Ok(utf8_percent_encode(name, ESCAPED).to_string())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    #[test]
    fn names_are_escaped_and_those_that_change_the_path_are_refused() {
        for (name, escaped) in [
            ("web-1.a", "web-1.a"),
            ("system:controller:x@y", "system:controller:x@y"),
            ("a?b#c d", "a%3Fb%23c%20d"),
            ("é", "%C3%A9"),
        ] {
            assert_eq!(name_segment(name).as_deref(), Ok(escaped));
            let path = format!("/api/v1/namespaces/{escaped}/pods");
            assert_eq!(collection::<Pod>(&(), Some(name)), Ok(path));
        }
        assert_eq!(collection::<Pod>(&(), None).as_deref(), Ok("/api/v1/pods"));
        for name in ["", ".", "..", "a/b", "../secrets/x", "%2e%2e"] {
            let error = ApiError::from(name_segment(name).unwrap_err());
            assert_eq!(error.class(), Class::Invalid);
            assert!(error.to_string().starts_with(&format!("the name {name:?} cannot be part")), "{error}");
            assert!(collection::<Pod>(&(), Some(name)).is_err());
        }
    }
}
