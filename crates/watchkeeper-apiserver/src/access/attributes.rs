//! What a request wants to do, as authorization sees it.

use crate::failure::{Details, Failure, quoted};

/// A verb, and what it is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes<'a> {
    pub(crate) verb: &'a str,
    pub(crate) object: Object<'a>,
}

/// What a verb is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object<'a> {
    Resource(Resource<'a>),
    /// Any other path, such as `/version`.
    Path(&'a str),
}

/// A resource, or one object or subresource of it. Parts that are not given are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resource<'a> {
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    /// Empty for cluster-scoped resources and for all namespaces.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl<'a> Attributes<'a> {
    pub(crate) fn of_resource(verb: &'a str, resource: Resource<'a>) -> Self {
        Self { verb, object: Object::Resource(resource) }
    }

    /// The namespace whose role bindings count; empty if only those of the cluster do.
    pub(crate) fn namespace(&self) -> &'a str {
        match self.object {
            Object::Resource(resource) => resource.namespace,
            Object::Path(_) => "",
        }
    }

    /// Refuses the request of a user; `reason` explains the decision, if it is not empty.
    pub(crate) fn forbidden(&self, user: &str, reason: &str) -> Box<Failure> {
        let mut why = sanitized(&self.refusal(user));
        if !reason.is_empty() {
            why = format!("{why}: {reason}");
        }
        let Object::Resource(Resource { group, resource, name, .. }) = self.object else {
            return Failure::new(403, "Forbidden", format!("forbidden: {why}"))
                .with_details(Details::default());
        };
        let dot = if group.is_empty() { "" } else { "." };
        let named = if name.is_empty() { String::new() } else { format!(" {}", quoted(name)) };
        let message = format!("{resource}{dot}{group}{named} is forbidden: {why}");
        Failure::new(403, "Forbidden", message).with_details(Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: resource.to_owned(),
            ..Details::default()
        })
    }

    /// What the user cannot do, in the words of the real server.
    fn refusal(&self, user: &str) -> String {
        let Self { verb, object } = self;
        let user = quoted(user);
        let Resource { group, resource, subresource, namespace, .. } = match object {
            Object::Path(path) => return format!("User {user} cannot {verb} path {}", quoted(path)),
            Object::Resource(resource) => resource,
        };
        let slash = if subresource.is_empty() { "" } else { "/" };
        let resource = quoted(&format!("{resource}{slash}{subresource}"));
        let place = match *namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {}", quoted(namespace)),
        };
        format!("User {user} cannot {verb} resource {resource} in API group {} {place}", quoted(group))
    }
}

/// Escapes what could pass for HTML.
fn sanitized(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_worded_as_by_the_real_server() {
        let deployment = Resource {
            group: "apps",
            resource: "deployments",
            subresource: "status",
            namespace: "default",
            name: "web",
        };
        let refused = |verb, object, reason| Attributes { verb, object }.forbidden("x", reason).message;
        assert_eq!(
            refused("get", Object::Resource(deployment), ""),
            r#"deployments.apps "web" is forbidden: User "x" cannot get resource "deployments/status" in API group "apps" in the namespace "default""#
        );
        let nodes = Resource { resource: "nodes", ..Resource::default() };
        assert_eq!(
            refused("list", Object::Resource(nodes), "RBAC: x"),
            r#"nodes is forbidden: User "x" cannot list resource "nodes" in API group "" at the cluster scope: RBAC: x"#
        );
        let path = Object::Path("/<b>");
        assert_eq!(refused("get", path, ""), r#"forbidden: User "x" cannot get path "/&lt;b&gt;""#);
    }
}
