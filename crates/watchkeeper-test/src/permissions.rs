//! Permissions that an operator needs: those that it declares, and those that its requests use.

use std::convert::Infallible;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use kube_client::client::Body;
use parking_lot::Mutex;
use serde::Deserialize;
use tower::{Service, ServiceExt};
use watchkeeper::controller::Role;
use watchkeeper_apiserver::{ApiService, ReplyBody};

/// The permissions that an operator needs: those of its [manager's role](watchkeeper::controller::Manager::role), which include
/// what only failures ask for, and those that its requests have used so far. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Permissions(Arc<Mutex<Role>>);

impl Permissions {
    /// The permissions, as a role.
    pub fn role(&self) -> Role {
        self.0.lock().clone()
    }

    /// Adds a permission that is needed though no request of the test shows it: that of a path which the test does not take, or one
    /// that only an admission plugin of a real cluster asks for.
    pub fn add(&self, group: &str, resource: &str, verb: &str) {
        self.0.lock().add(group, resource, verb);
    }

    /// Checks the rules of the roles in a manifest: they grant what is needed, and nothing else.
    ///
    /// # Errors
    ///
    /// Permissions that are missing or superfluous, or a manifest that cannot be read.
    pub fn check(&self, manifest: &str) -> Result<(), String> {
        let (needed, granted) = (self.role(), read_role(manifest)?);
        let (missing, superfluous) = (needed.beyond(&granted), granted.beyond(&needed));
        if missing.is_empty() && superfluous.is_empty() {
            return Ok(());
        }
        let list = |what: &str, permissions: Vec<String>| match permissions.is_empty() {
            true => String::new(),
            false => format!("{what}: {}\n", permissions.join(", ")),
        };
        Err(format!(
            "the role does not match what the operator needs\n{}{}what it needs:\n{needed}",
            list("missing", missing),
            list("superfluous", superfluous)
        ))
    }

    /// Adds what an operator declares to need.
    pub(crate) fn declare(&self, role: &Role) {
        self.0.lock().extend(role);
    }

    /// A client's requests to `service`, recorded.
    pub(crate) fn record(&self, service: ApiService) -> Recorded {
        Recorded { permissions: self.clone(), service }
    }
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    rules: Vec<RuleText>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RuleText {
    #[serde(default)]
    api_groups: Vec<String>,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
}

/// The rules of all Roles and ClusterRoles of a manifest.
fn read_role(manifest: &str) -> Result<Role, String> {
    let documents: Vec<Document> =
        serde_saphyr::from_multiple(manifest).map_err(|error| format!("the role is not YAML: {error}"))?;
    let mut role = Role::default();
    let mut is_there = false;
    for document in documents.iter().filter(|document| matches!(&*document.kind, "Role" | "ClusterRole")) {
        is_there = true;
        for RuleText { api_groups, resources, verbs } in &document.rules {
            for (group, resource) in
                api_groups.iter().flat_map(|group| resources.iter().map(move |of| (group, of)))
            {
                verbs.iter().for_each(|verb| role.add(group, resource, verb));
            }
        }
    }
    if is_there { Ok(role) } else { Err("the manifest has no Role or ClusterRole".to_owned()) }
}

/// What a request needs: group, resource and verb; nothing for discovery and the like.
fn needed(request: &Request<Body>) -> Option<(String, String, &'static str)> {
    let mut segments =
        request.uri().path().trim_matches('/').split('/').filter(|segment| !segment.is_empty());
    let group = match segments.next()? {
        "api" => String::new(),
        "apis" => segments.next()?.to_owned(),
        _ => return None,
    };
    let _version = segments.next()?;
    let mut rest: Vec<&str> = segments.collect();
    if rest.first() == Some(&"namespaces") && rest.len() > 2 && !matches!(rest[2], "status" | "finalize") {
        rest.drain(..2);
    }
    let (resource, name, subresource) = (rest.first()?, rest.get(1), rest.get(2));
    // Everybody may ask about themselves.
    if group == "authorization.k8s.io" && resource.starts_with("selfsubject") {
        return None;
    }
    let is_watch =
        request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"));
    let verb = match (request.method(), name) {
        (&Method::GET, None) if is_watch => "watch",
        (&Method::GET, None) => "list",
        (&Method::GET, Some(_)) => "get",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, None) => "deletecollection",
        (&Method::DELETE, Some(_)) => "delete",
        _ => return None,
    };
    let resource =
        subresource.map_or((*resource).to_owned(), |subresource| format!("{resource}/{subresource}"));
    Some((group, resource, verb))
}

/// A service that records what is needed for each request that it passes on.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    permissions: Permissions,
    service: ApiService,
}

impl Service<Request<Body>> for Recorded {
    type Response = Response<ReplyBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let needed = needed(&request);
        let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let is_apply = content_type.is_some_and(|value| value.starts_with("application/apply-patch"));
        if let Some((group, resource, verb)) = &needed {
            self.permissions.0.lock().add(group, resource, verb);
        }
        // A streamed list is a list, too: a server without streaming is asked for one.
        if let Some((group, resource, "watch")) = &needed {
            self.permissions.0.lock().add(group, resource, "list");
        }
        let (permissions, service) = (self.permissions.clone(), self.service.clone());
        async move {
            let answer = service.oneshot(request).await?;
            // An apply that creates needs both permissions.
            if let Some((group, resource, _)) = needed
                && is_apply
                && answer.status() == StatusCode::CREATED
            {
                permissions.0.lock().add(&group, &resource, "create");
            }
            Ok(answer)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed_for(method: Method, uri: &str) -> Option<String> {
        let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
        needed(&request).map(|(group, resource, verb)| format!("{verb} {group}/{resource}"))
    }

    #[test]
    fn a_request_needs_the_verb_that_a_real_server_would_check() {
        let cases = [
            (Method::GET, "/api/v1/namespaces/a/secrets/b", "get /secrets"),
            (Method::GET, "/api/v1/namespaces/a/secrets", "list /secrets"),
            (Method::GET, "/apis/apps/v1/deployments?watch=true&x=1", "watch apps/deployments"),
            (Method::POST, "/apis/apps/v1/namespaces/a/deployments", "create apps/deployments"),
            (Method::PATCH, "/apis/e.dev/v1/namespaces/a/sites/b/status", "patch e.dev/sites/status"),
            (Method::PUT, "/api/v1/namespaces/a/finalize", "update /namespaces/finalize"),
            (Method::GET, "/api/v1/namespaces/a", "get /namespaces"),
            (Method::DELETE, "/api/v1/nodes/a", "delete /nodes"),
            (Method::DELETE, "/api/v1/namespaces/a/pods", "deletecollection /pods"),
        ];
        for (method, uri, expected) in cases {
            assert_eq!(needed_for(method, uri).as_deref(), Some(expected), "{uri}");
        }
        for uri in ["/version", "/api/v1", "/apis", "/apis/apps/v1"] {
            assert_eq!(needed_for(Method::GET, uri), None, "{uri}");
        }
        let own = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        assert_eq!(needed_for(Method::POST, own), None);
    }

    #[test]
    fn a_role_that_grants_less_or_more_is_named() {
        let permissions = Permissions::default();
        permissions.0.lock().add("apps", "deployments", "get");
        permissions.0.lock().add("", "events", "create");
        let role = |verbs: &str| {
            format!(
                "kind: ClusterRole\nrules:\n- apiGroups: [apps]\n  resources: [deployments]\n  verbs: [{verbs}]\n---\n\
                 kind: Role\nrules:\n- apiGroups: ['']\n  resources: [events]\n  verbs: [create]\n"
            )
        };
        assert_eq!(permissions.check(&role("get")), Ok(()));
        let error = permissions.check(&role("list")).unwrap_err();
        assert!(
            error.contains("missing: get deployments.apps\nsuperfluous: list deployments.apps"),
            "{error}"
        );
        assert!(permissions.check("kind: Pod").unwrap_err().contains("no Role"));
    }
}
