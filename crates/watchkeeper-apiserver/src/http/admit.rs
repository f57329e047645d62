//! The gate of every request: as whom it is made, and whether that user may make it.

use std::sync::Arc;

use http::Method;
use http::request::Parts;
use percent_encoding::percent_decode_str;

use crate::access::attributes::{Attributes, Object, Resource};
use crate::access::authenticate::Caller;
use crate::access::impersonate;
use crate::access::rbac::escalation::Granting;
use crate::access::user::User;
use crate::failure::{Details, Failure, Result, quoted};
use crate::http::handler::Call;
use crate::http::route::{Query, Route, Target};
use crate::http::shared::Shared;
use crate::kinds::kind::Kind;
use crate::verbs::draft::Draft;

/// Returns the user who makes a request, after impersonation, or refuses it; `None` is the server's own admin, whose
/// requests are not looked at any further.
pub(crate) fn admit(
    shared: &Shared,
    head: &Parts,
    route: &Route,
    query: &Query,
) -> Result<Option<Arc<User>>> {
    let caller = head.extensions.get::<Caller>().map(|Caller(user)| user);
    let wanted = impersonate::wanted(&head.headers)?;
    if caller.is_none() && wanted.is_none() {
        return Ok(None);
    }
    let path = percent_decode_str(head.uri.path()).decode_utf8_lossy();
    let asked = attributes(&head.method, &path, route, query);
    let mut user = caller.cloned().unwrap_or_else(|| Arc::new(User::admin()));
    if let Some(wanted) = wanted {
        let may = |asked: &Attributes<'_>| shared.authorizer.check(&shared.core, &user, asked);
        user = Arc::new(impersonate::impersonate(&user, &wanted, &asked, &may)?);
    }
    shared.authorizer.check(&shared.core, &user, &asked)?;
    Ok(Some(user))
}

/// Returns what a request asks for.
pub(super) fn attributes<'a>(
    method: &Method,
    path: &'a str,
    route: &'a Route,
    query: &'a Query,
) -> Attributes<'a> {
    let Route::Resource(target) = route else {
        return Attributes { verb: lower_case(method), object: Object::Path(path) };
    };
    let Target { group, resource, namespace, name, subresource, .. } = target;
    let text = |part: &'a Option<String>| part.as_deref().unwrap_or_default();
    let verb = match *method {
        _ if target.watch => "watch",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if name.is_none() => "deletecollection",
        Method::DELETE => "delete",
        Method::GET | Method::HEAD if name.is_some() => "get",
        Method::GET | Method::HEAD if query.flag("watch").unwrap_or(false) => "watch",
        Method::GET | Method::HEAD => "list",
        _ => "",
    };
    let is_list = ["list", "watch"].contains(&verb) && !target.watch && name.is_none();
    let asked = Resource {
        group,
        resource,
        subresource: text(subresource),
        // A namespace is an object in itself.
        namespace: if resource == "namespaces" && namespace.is_none() { text(name) } else { text(namespace) },
        name: if is_list { selected_name(query.text("fieldSelector")) } else { text(name) },
    };
    Attributes::of_resource(verb, asked)
}

/// Verbs of paths other than resources are the methods.
fn lower_case(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "",
    }
}

/// The one name that a field selector allows; empty if it allows several.
fn selected_name(selector: &str) -> &str {
    let values = selector.split(',').filter_map(|term| term.strip_prefix("metadata.name="));
    let mut values = values.map(|value| value.strip_prefix('=').unwrap_or(value));
    values
        .next()
        .filter(|name| !name.contains(['/', '%', '\\']) && ![".", ".."].contains(name))
        .unwrap_or_default()
}

impl Call {
    /// The user who makes the request.
    pub(crate) fn user(&self) -> Arc<User> {
        self.user.clone().unwrap_or_else(|| Arc::new(User::admin()))
    }

    /// Refuses a write of a role or binding that grants more than its author has.
    pub(crate) fn check_grants(&self, kind: &Kind, draft: &Draft) -> Result<()> {
        let (Some(what), Some(user)) = (kind.behaviour.grants(), &self.user) else { return Ok(()) };
        let (old, new) = draft.versions();
        let (old, new) = (old.map(|old| old.value()), new.value());
        let granting = Granting {
            kind,
            what,
            asked_name: self.target.name.as_deref().unwrap_or_default(),
            namespace: self.target.namespace.as_deref().unwrap_or_default(),
            old: old.as_ref(),
            new: &new,
        };
        self.shared.authorizer.check_granting(&self.shared.core, user, &granting)
    }

    /// Refuses a write of a node to the object of another node.
    pub(crate) fn check_node(&self, kind: &Kind, draft: &Draft) -> Result<()> {
        let user = self.user.as_ref().filter(|user| !self.shared.authorizer.trusts(user));
        let Some(node) = user.and_then(|user| user.node()) else { return Ok(()) };
        let (_, new) = draft.versions();
        let object = new.value();
        match kind.behaviour.node(&object) {
            Some(other) if other != node => {
                let (node, shown) = (quoted(node), quoted(other));
                let why = format!("node {node} is not allowed to modify node {shown}");
                Err(Failure::new(
                    403,
                    "Forbidden",
                    format!("{} {shown} is forbidden: {why}", kind.resource()),
                )
                .with_details(Details {
                    name: other.to_owned(),
                    group: kind.group.clone(),
                    kind: kind.plural.clone(),
                    ..Details::default()
                }))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::route::route;

    fn asked(method: Method, uri: &str) -> String {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let (route, query) = (route(path), Query::parse(Some(query)));
        let Attributes { verb, object } = attributes(&method, path, &route, &query);
        match object {
            Object::Path(path) => format!("{verb} {path}"),
            Object::Resource(Resource { group, resource, subresource, namespace, name }) => {
                format!("{verb} {group}/{resource}/{subresource} {namespace}/{name}")
            }
        }
    }

    #[test]
    fn a_request_asks_for_what_the_real_server_checks() {
        let cases = [
            (Method::GET, "/api/v1/namespaces/a/pods/b", "get /pods/ a/b"),
            (Method::GET, "/api/v1/namespaces/a/pods", "list /pods/ a/"),
            (Method::GET, "/api/v1/pods?watch=1", "watch /pods/ /"),
            (Method::GET, "/api/v1/pods?watch=0", "list /pods/ /"),
            (Method::GET, "/api/v1/watch/namespaces/a/pods", "watch /pods/ a/"),
            (Method::GET, "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Db", "list /pods/ a/b"),
            (Method::GET, "/api/v1/pods?fieldSelector=metadata.name%3D%3Db,x%3Dy", "list /pods/ /b"),
            (Method::GET, "/api/v1/pods?fieldSelector=metadata.name%3Da%2Fb", "list /pods/ /"),
            (Method::GET, "/api/v1/pods?fieldSelector=metadata.name!%3Db", "list /pods/ /"),
            (Method::HEAD, "/api/v1/nodes/a", "get /nodes/ /a"),
            (Method::POST, "/apis/apps/v1/namespaces/a/deployments", "create apps/deployments/ a/"),
            (Method::PATCH, "/apis/e.dev/v1/namespaces/a/x/b/status", "patch e.dev/x/status a/b"),
            (Method::PUT, "/api/v1/namespaces/a/finalize", "update /namespaces/finalize a/a"),
            (Method::GET, "/api/v1/namespaces/a", "get /namespaces/ a/a"),
            (Method::GET, "/api/v1/namespaces", "list /namespaces/ /"),
            (Method::DELETE, "/api/v1/namespaces/a/pods", "deletecollection /pods/ a/"),
            (Method::DELETE, "/api/v1/nodes/a", "delete /nodes/ /a"),
            (Method::OPTIONS, "/api/v1/nodes/a", " /nodes/ /a"),
            (Method::GET, "/apis/unknown/v1/things", "list unknown/things/ /"),
            (Method::GET, "/api/v1", "get /api/v1"),
            (Method::POST, "/version", "post /version"),
        ];
        for (method, uri, expected) in cases {
            assert_eq!(asked(method, uri), expected, "{uri}");
        }
    }
}
