//! A small API server in memory: objects with versions, lists and watches, optimistic concurrency.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::unfold;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube_client::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

/// The body of an answer.
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// The server. Clones share the objects.
#[derive(Clone, Default)]
pub(crate) struct Server(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    revision: u64,
    /// By path.
    objects: BTreeMap<String, Value>,
    log: Vec<Change>,
}

struct Change {
    kind: &'static str,
    path: String,
    object: Value,
}

/// What a request is about: a collection, or one object of it.
struct Target {
    /// The path up to the version.
    prefix: String,
    namespace: Option<String>,
    resource: String,
    name: Option<String>,
}

impl Target {
    fn of(path: &str) -> Self {
        let parts: Vec<_> = path.trim_matches('/').split('/').collect();
        let (prefix, rest) = parts.split_at(if parts[0] == "api" { 2 } else { 3 });
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some((*namespace).to_owned()), rest),
            rest => (None, rest),
        };
        let name = rest.get(1).map(|name| (*name).to_owned());
        Self { prefix: prefix.join("/"), namespace, resource: rest[0].to_owned(), name }
    }

    fn path(&self, name: &str) -> String {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        format!("{}/{}/{namespace}/{name}", self.prefix, self.resource)
    }

    fn covers(&self, path: &str, name: Option<&str>) -> bool {
        let namespace = self.namespace.as_ref().map_or_else(String::new, |namespace| format!("{namespace}/"));
        let within = path.starts_with(&format!("{}/{}/{namespace}", self.prefix, self.resource));
        within && name.is_none_or(|name| path.ends_with(&format!("/{name}")))
    }
}

type Answer = (StatusCode, Value);

fn status(code: StatusCode, reason: &str) -> Answer {
    (
        code,
        json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code.as_u16(), "message": reason}),
    )
}

impl Server {
    pub(crate) fn client(&self) -> kube_client::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        kube_client::Client::new(service, "default")
    }

    /// The holder of the Lease `leader`; empty without one.
    pub(crate) fn holder(&self) -> String {
        let state = self.0.state.lock();
        let lease = state.objects.get("apis/coordination.k8s.io/v1/leases/default/leader");
        let holder = lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str());
        holder.unwrap_or_default().to_owned()
    }

    pub(crate) async fn answer(&self, request: Request<Body>) -> Response<AnswerBody> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let target = Target::of(parts.uri.path());
        let query: BTreeMap<String, String> =
            form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        if query.get("watch").is_some_and(|watch| watch == "true") && !query.contains_key("sendInitialEvents")
        {
            return self.watch(target, &query);
        }
        let (code, answer) =
            self.act(&parts.method, &target, &query, serde_json::from_slice(&body).unwrap_or_default());
        self.0.changed.notify_waiters();
        let body = Full::new(Bytes::from(answer.to_string())).map_err(|never| match never {}).boxed_unsync();
        Response::builder().status(code).body(body).unwrap()
    }

    fn act(&self, method: &Method, target: &Target, query: &BTreeMap<String, String>, body: Value) -> Answer {
        let mut state = self.0.state.lock();
        match (method, &target.name) {
            // Streamed lists are not offered.
            (&Method::GET, None) if query.contains_key("sendInitialEvents") => {
                status(StatusCode::UNPROCESSABLE_ENTITY, "Invalid")
            }
            (&Method::GET, None) => (StatusCode::OK, state.list(target, query)),
            (&Method::GET, Some(name)) => match state.objects.get(&target.path(name)) {
                Some(object) => (StatusCode::OK, object.clone()),
                None => status(StatusCode::NOT_FOUND, "NotFound"),
            },
            (&Method::POST, None) => state.create(target, body),
            (&Method::PUT, Some(name)) => state.update(&target.path(name), body),
            (&Method::PATCH, Some(name)) => state.merge(&target.path(name), &body),
            _ => status(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
        }
    }

    fn watch(&self, target: Target, query: &BTreeMap<String, String>) -> Response<AnswerBody> {
        let from = query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
        let name = name_of(query).map(str::to_owned);
        let cursor = (self.clone(), target, name, from);
        let events = unfold(cursor, |(server, target, name, seen)| async move {
            let (seen, line) = server.next(seen, &target, name.as_deref()).await;
            Some((Ok::<_, std::io::Error>(Frame::data(Bytes::from(line))), (server, target, name, seen)))
        });
        Response::new(StreamBody::new(events).boxed_unsync())
    }

    /// Waits for the first change of a collection after a version; returns its version and the line of a watch.
    async fn next(&self, seen: u64, target: &Target, name: Option<&str>) -> (u64, String) {
        loop {
            let changed = self.0.changed.notified();
            let next = self.0.state.lock().after(seen, target, name);
            if let Some(next) = next {
                return next;
            }
            changed.await;
        }
    }
}

fn name_of(query: &BTreeMap<String, String>) -> Option<&str> {
    query.get("fieldSelector")?.strip_prefix("metadata.name=")
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl State {
    fn list(&self, target: &Target, query: &BTreeMap<String, String>) -> Value {
        let name = name_of(query);
        let items =
            self.objects.iter().filter(|(path, _)| target.covers(path, name)).map(|(_, object)| object);
        json!({"metadata": {"resourceVersion": self.revision.to_string()}, "items": items.collect::<Vec<_>>()})
    }

    /// The first change of a collection after a version, as a line of a watch.
    fn after(&self, seen: u64, target: &Target, name: Option<&str>) -> Option<(u64, String)> {
        let later = self.log.partition_point(|change| version(&change.object) <= seen);
        let change = self.log[later..].iter().find(|change| target.covers(&change.path, name))?;
        Some((
            version(&change.object),
            format!("{}\n", json!({"type": change.kind, "object": change.object})),
        ))
    }

    fn store(&mut self, kind: &'static str, path: String, mut object: Value) -> Value {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self.objects.insert(path.clone(), object.clone());
        self.log.push(Change { kind, path, object: object.clone() });
        object
    }

    fn create(&mut self, target: &Target, mut object: Value) -> Answer {
        if let Some(prefix) = object["metadata"]["generateName"].as_str() {
            object["metadata"]["name"] = format!("{prefix}{}", self.revision).into();
        }
        let path = target.path(object["metadata"]["name"].as_str().unwrap());
        if self.objects.contains_key(&path) {
            return status(StatusCode::CONFLICT, "AlreadyExists");
        }
        object["metadata"]["uid"] = format!("u{}", self.revision).into();
        (StatusCode::CREATED, self.store("ADDED", path, object))
    }

    fn update(&mut self, path: &str, object: Value) -> Answer {
        match self.objects.get(path) {
            None => status(StatusCode::NOT_FOUND, "NotFound"),
            Some(known) if version(known) != version(&object) => status(StatusCode::CONFLICT, "Conflict"),
            Some(_) => (StatusCode::OK, self.store("MODIFIED", path.to_owned(), object)),
        }
    }

    fn merge(&mut self, path: &str, patch: &Value) -> Answer {
        let Some(mut object) = self.objects.get(path).cloned() else {
            return status(StatusCode::NOT_FOUND, "NotFound");
        };
        for (field, value) in patch.as_object().into_iter().flatten() {
            if field != "metadata" {
                object[field] = value.clone();
            }
        }
        (StatusCode::OK, self.store("MODIFIED", path.to_owned(), object))
    }
}
