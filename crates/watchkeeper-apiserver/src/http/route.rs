//! Routing: the grammar of paths and queries.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::failure::{Failure, Result, quoted};

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/`: the list of paths.
    Index,
    Version,
    Metrics,
    /// `/healthz`, `/livez`, `/readyz`, and the checks below them.
    Health {
        name: String,
        checks: Vec<String>,
    },
    /// `/api`.
    Core,
    /// `/apis`.
    Groups,
    /// `/apis/{group}`.
    Group(String),
    /// `/api/v1` and `/apis/{group}/{version}`.
    GroupVersion {
        group: String,
        version: String,
    },
    /// `/openapi/v2`.
    Swagger,
    /// `/openapi/v3`.
    OpenApi,
    /// `/openapi/v3/{group version}`.
    OpenApiDocument(String),
    /// `/.well-known/openid-configuration`.
    Issuer,
    /// `/openid/v1/jwks`.
    IssuerKeys,
    Resource(Target),
    Unknown,
}

/// A resource, an object or a subresource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    /// `None` for all namespaces or a cluster-scoped resource.
    pub(crate) namespace: Option<String>,
    pub(crate) resource: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    /// The deprecated `/watch/` prefix.
    pub(crate) watch: bool,
    /// The path has more segments than any served one.
    pub(crate) too_deep: bool,
}

/// Parses a path.
pub(crate) fn route(path: &str) -> Route {
    let segments: Option<Vec<Cow<'_, str>>> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| percent_decode_str(segment).decode_utf8().ok())
        .collect();
    let Some(segments) = segments else { return Route::Unknown };
    let parts: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
    match parts.as_slice() {
        [] => Route::Index,
        ["version"] => Route::Version,
        ["metrics"] => Route::Metrics,
        [name @ ("healthz" | "livez" | "readyz"), checks @ ..] => Route::Health {
            name: (*name).to_owned(),
            checks: checks.iter().map(|check| (*check).to_owned()).collect(),
        },
        ["api"] => Route::Core,
        ["apis"] => Route::Groups,
        ["openapi", "v2"] => Route::Swagger,
        ["openapi", "v3"] => Route::OpenApi,
        ["openapi", "v3", document @ ..] => Route::OpenApiDocument(document.join("/")),
        [".well-known", "openid-configuration"] => Route::Issuer,
        ["openid", "v1", "jwks"] => Route::IssuerKeys,
        ["apis", group] => Route::Group((*group).to_owned()),
        ["api", version] => Route::GroupVersion { group: String::new(), version: (*version).to_owned() },
        ["apis", group, version] => {
            Route::GroupVersion { group: (*group).to_owned(), version: (*version).to_owned() }
        }
        ["api", version, rest @ ..] => Route::Resource(target("", version, rest)),
        ["apis", group, version, rest @ ..] => Route::Resource(target(group, version, rest)),
        _ => Route::Unknown,
    }
}

fn target(group: &str, version: &str, mut rest: &[&str]) -> Target {
    let mut target = Target { group: group.to_owned(), version: version.to_owned(), ..Target::default() };
    if let ["watch", after @ ..] = rest
        && !after.is_empty()
    {
        target.watch = true;
        rest = after;
    }
    // A segment after the name of a namespace is a resource in it, except for subresources of the namespace itself.
    if let ["namespaces", namespace, inner @ ..] = rest
        && !inner.is_empty()
        && !(inner.len() == 1 && ["status", "finalize"].contains(&inner[0]))
    {
        target.namespace = Some((*namespace).to_owned());
        rest = inner;
    }
    let mut rest = rest.iter();
    target.resource = rest.next().copied().unwrap_or_default().to_owned();
    target.name = rest.next().map(|name| (*name).to_owned());
    target.subresource = rest.next().map(|name| (*name).to_owned());
    target.too_deep = rest.next().is_some();
    target
}

/// The parameters of a query, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        Self(pairs.map(|(key, value)| (key.into_owned(), value.into_owned())).collect())
    }

    /// Returns the first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the first value of a parameter, or an empty string.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Returns every value of a parameter.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Returns a parameter that is a number; `None` if it is absent or empty.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>> {
        match self.text(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                Failure::bad_request(format!("strconv.ParseInt: parsing {}: invalid syntax", quoted(text)))
            }),
        }
    }

    /// Returns a boolean parameter: `0` and `false` are false, any other value, including an empty one, is true.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str) -> Target {
        match route(path) {
            Route::Resource(target) => target,
            other => panic!("{path} leads to {other:?}"),
        }
    }

    #[test]
    fn namespaces_are_both_a_resource_and_a_prefix() {
        assert_eq!(found("/api/v1/namespaces").resource, "namespaces");
        let one = found("/api/v1/namespaces/x");
        assert_eq!(
            (one.resource.as_str(), one.name.as_deref(), one.namespace),
            ("namespaces", Some("x"), None)
        );
        let status = found("/api/v1/namespaces/x/status");
        assert_eq!((status.resource.as_str(), status.subresource.as_deref()), ("namespaces", Some("status")));
        let pods = found("/api/v1/namespaces/x/pods/p/log");
        assert_eq!((pods.namespace.as_deref(), pods.resource.as_str()), (Some("x"), "pods"));
        assert_eq!((pods.name.as_deref(), pods.subresource.as_deref()), (Some("p"), Some("log")));
    }

    #[test]
    fn the_old_watch_prefix_is_understood() {
        let target = found("/api/v1/watch/namespaces/x/configmaps/c");
        assert!(target.watch);
        assert_eq!((target.namespace.as_deref(), target.name.as_deref()), (Some("x"), Some("c")));
    }

    #[test]
    fn slashes_at_the_end_do_not_matter_and_escapes_are_decoded() {
        assert_eq!(route("/version/"), Route::Version);
        assert_eq!(route("/apis/"), Route::Groups);
        assert_eq!(
            found("/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode").name.as_deref(),
            Some("system:node")
        );
        assert_eq!(route("/api/v1/pods/%FF"), Route::Unknown);
    }

    #[test]
    fn flags_are_true_unless_they_say_no() {
        let query = Query::parse(Some("&a=1&b=false&c=&d=0&e=true"));
        assert_eq!(
            ["a", "b", "c", "d", "e", "f"].map(|name| query.flag(name)),
            [Some(true), Some(false), Some(true), Some(false), Some(true), None]
        );
    }
}
