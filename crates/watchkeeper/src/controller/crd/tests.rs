use std::sync::Arc;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube_client::client::Body;
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::env::Env;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// What the API server of these tests has and does.
#[derive(Default)]
struct State {
    crd: Option<Value>,
    /// The last version given to an object.
    version: u64,
    /// Requests that are answered by 403.
    forbidden: Vec<Method>,
    /// After how many reads a definition is established.
    reads_until_established: u32,
    names_refused: bool,
    /// Whether every write is invalid.
    refused: bool,
    /// What happens once, before the next write.
    meanwhile: Option<fn(&mut State)>,
    /// Answers of this code, before any other.
    failures: Vec<u16>,
    resources: Option<Value>,
    log: Vec<String>,
}

#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

fn status(code: u16, reason: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "m"}))
}

impl State {
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        if let Some(code) = self.failures.pop() {
            return status(code, "");
        }
        if path == "/apis/example.dev/v1" {
            return self.resources.clone().map_or(status(404, "NotFound"), |resources| (200, resources));
        }
        assert!(path.starts_with(CRDS), "{path}");
        if self.forbidden.contains(method) {
            return status(403, "Forbidden");
        }
        if *method != Method::GET
            && let Some(meanwhile) = self.meanwhile.take()
        {
            meanwhile(self);
        }
        if *method != Method::GET && self.refused {
            return status(422, "Invalid");
        }
        let body = || serde_json::from_slice::<Value>(body).unwrap();
        match (method, &self.crd) {
            (&Method::GET, Some(_)) => (200, self.read()),
            (&Method::POST, None) => (201, self.store(body())),
            (&Method::POST, Some(_)) => status(409, "AlreadyExists"),
            (&Method::PUT, Some(crd)) => {
                let sent = body();
                if sent["metadata"]["resourceVersion"] != crd["metadata"]["resourceVersion"] {
                    return status(409, "Conflict");
                }
                (200, self.store(sent))
            }
            _ => status(404, "NotFound"),
        }
    }

    fn store(&mut self, mut crd: Value) -> Value {
        self.version += 1;
        crd["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.crd = Some(crd);
        self.read()
    }

    /// The definition with its conditions.
    fn read(&mut self) -> Value {
        let mut crd = self.crd.clone().unwrap();
        let established = if self.reads_until_established == 0 { "True" } else { "False" };
        self.reads_until_established = self.reads_until_established.saturating_sub(1);
        let accepted = if self.names_refused { "False" } else { "True" };
        crd["status"] = json!({"storedVersions": ["v1"], "conditions": [
            {"type": "NamesAccepted", "status": accepted, "message": "taken by others"},
            {"type": "Established", "status": established, "message": "not yet"}]});
        crd
    }
}

impl Server {
    fn with(set: impl FnOnce(&mut State)) -> Self {
        let server = Self::default();
        set(&mut server.0.lock());
        server
    }

    fn client(&self) -> Client {
        let state = self.0.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let state = state.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let mut state = state.lock();
                let (code, answer) = state.answer(&parts.method, parts.uri.path(), &body);
                state.log.push(format!("{} {} {code}", parts.method, parts.uri));
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        Client::from_kube(kube_client::Client::new(service, "default"), &Env::simulated(1))
    }

    async fn ensure(&self, wanted: &Value) -> Result<Outcome, CrdError> {
        let wanted = serde_json::from_value(wanted.clone()).unwrap();
        ensure(&self.client(), &wanted, "v1", "site-operator", DEADLINE).await
    }

    /// The methods and codes of the requests.
    fn requests(&self) -> Vec<String> {
        let log = self.0.lock().log.clone();
        log.iter().map(|line| line.split(' ').step_by(2).collect::<Vec<_>>().join(" ")).collect()
    }
}

fn definition(properties: Value) -> Value {
    json!({
        "metadata": {"name": "sites.example.dev"},
        "spec": {"group": "example.dev", "scope": "Namespaced", "names": {"kind": "Site", "plural": "sites"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}}]},
    })
}

fn small() -> Value {
    definition(json!({"size": {"type": "integer"}}))
}

fn large() -> Value {
    definition(json!({"size": {"type": "integer"}, "color": {"type": "string"}}))
}

fn installed(definition: Value) -> Server {
    Server::with(|state| drop(state.store(definition)))
}

#[tokio::test(start_paused = true)]
async fn a_missing_definition_is_created_under_the_name_of_the_manager() {
    let server = Server::default();
    assert_eq!(server.ensure(&small()).await.unwrap(), Outcome::Created);
    let post = format!("POST {CRDS}?&fieldManager=site-operator 201");
    assert_eq!(server.0.lock().log, [format!("GET {CRDS}/sites.example.dev 404"), post]);
    assert_eq!(server.ensure(&small()).await.unwrap(), Outcome::Unchanged);
    assert_eq!(server.requests()[2..], ["GET 200"], "nothing is written");
}

#[tokio::test(start_paused = true)]
async fn an_older_definition_is_upgraded_and_a_narrower_one_refused() {
    let server = installed(small());
    assert_eq!(server.ensure(&large()).await.unwrap(), Outcome::Upgraded);
    assert_eq!(server.requests(), ["GET 200", "PUT 200"]);
    let error = server.ensure(&small()).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, CrdError::Narrows { .. }), "{text}");
    for part in [
        "sites.example.dev",
        "spec.versions[v1].schema.openAPIV3Schema.properties.color",
        "the field is gone",
        "new version",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(server.requests()[2..], ["GET 200"]);
}

#[tokio::test(start_paused = true)]
async fn replicas_that_start_at_once_all_succeed() {
    let server = Server::with(|state| state.meanwhile = Some(|state| drop(state.store(small()))));
    assert_eq!(server.ensure(&small()).await.unwrap(), Outcome::Unchanged);
    assert_eq!(server.requests(), ["GET 404", "POST 409", "GET 200"]);
    let server = installed(small());
    server.0.lock().meanwhile = Some(|state| drop(state.store(large())));
    assert_eq!(server.ensure(&large()).await.unwrap(), Outcome::Unchanged);
    assert_eq!(server.requests(), ["GET 200", "PUT 409", "GET 200"]);
    let server = installed(small());
    server.0.lock().meanwhile = Some(|state| state.crd = None);
    assert_eq!(server.ensure(&large()).await.unwrap(), Outcome::Created);
    assert_eq!(server.requests(), ["GET 200", "PUT 404", "GET 404", "POST 201"]);
}

#[tokio::test(start_paused = true)]
async fn whoever_may_not_create_is_told_what_to_do() {
    let server = Server::with(|state| state.forbidden = vec![Method::POST]);
    let error = server.ensure(&small()).await.unwrap_err();
    assert!(matches!(error, CrdError::MayNotCreate { .. }));
    let text = error.to_string();
    for part in
        ["sites.example.dev", "not installed", "kubectl", "customresourcedefinitions.apiextensions.k8s.io"]
    {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_may_not_upgrade_uses_what_is_installed_if_it_serves_the_version() {
    let server = installed(small());
    server.0.lock().forbidden = vec![Method::PUT];
    assert_eq!(server.ensure(&large()).await.unwrap(), Outcome::Checked);
    let mut other = small();
    other["spec"]["versions"][0]["name"] = json!("v1beta1");
    let server = installed(other);
    server.0.lock().forbidden = vec![Method::PUT];
    let error = server.ensure(&large()).await.unwrap_err();
    assert!(matches!(error, CrdError::NotServed { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn whoever_may_not_read_definitions_asks_discovery() {
    let resources = |name: &str| {
        json!({"kind": "APIResourceList", "groupVersion": "example.dev/v1",
            "resources": [{"name": name, "kind": "Site", "namespaced": true, "singularName": "", "verbs": []}]})
    };
    for (served, is_served) in [(Some("sites"), true), (Some("others"), false), (None, false)] {
        let server = Server::with(|state| {
            state.forbidden = vec![Method::GET];
            state.resources = served.map(resources);
        });
        match server.ensure(&small()).await {
            Ok(outcome) => assert!(is_served && outcome == Outcome::Checked),
            Err(error) => assert!(!is_served && matches!(error, CrdError::NotServed { .. }), "{error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn it_waits_until_the_definition_is_established_and_writes_once() {
    let server = Server::with(|state| state.reads_until_established = 5);
    assert_eq!(server.ensure(&small()).await.unwrap(), Outcome::Created);
    assert_eq!(server.requests().len(), 7);
    let server = installed(small());
    server.0.lock().reads_until_established = 2;
    assert_eq!(server.ensure(&small()).await.unwrap(), Outcome::Unchanged);
    let server = installed(small());
    server.0.lock().reads_until_established = 3;
    assert_eq!(server.ensure(&large()).await.unwrap(), Outcome::Upgraded);
    assert_eq!(server.requests(), ["GET 200", "PUT 200", "GET 200", "GET 200"]);
}

#[tokio::test(start_paused = true)]
async fn after_its_deadline_it_says_what_it_waited_for() {
    let server = Server::with(|state| state.reads_until_established = u32::MAX);
    let clock = Env::simulated(1).clock;
    let start = clock.now();
    let error = server.ensure(&small()).await.unwrap_err().to_string();
    assert_eq!(error, "custom resource definition sites.example.dev is not established after 30s: not yet");
    let took = clock.now() - start;
    assert!((28..=30).contains(&took.as_secs()), "{took:?}");
    let mut deleted = small();
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let error = installed(deleted).ensure(&large()).await.unwrap_err().to_string();
    assert!(error.ends_with("it is being deleted"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn names_that_are_taken_are_an_error_at_once() {
    let server = Server::with(|state| state.names_refused = true);
    let error = server.ensure(&small()).await.unwrap_err();
    assert!(matches!(&error, CrdError::NamesNotAccepted { message, .. } if message == "taken by others"));
    assert!(error.to_string().contains("sites.example.dev"));
}

#[tokio::test(start_paused = true)]
async fn errors_that_may_pass_are_tried_again_and_others_are_not() {
    let server = Server::with(|state| state.failures = vec![500, 503, 429, 504]);
    assert_eq!(server.ensure(&small()).await.unwrap(), Outcome::Created);
    let server = Server::with(|state| state.failures = vec![404]);
    let error = server.ensure(&small()).await.unwrap_err();
    assert!(matches!(error, CrdError::Read { .. }), "that server has no such kind: {error}");
    assert_eq!(server.requests(), ["GET 404"]);
    let server = Server::with(|state| state.refused = true);
    assert!(matches!(server.ensure(&small()).await.unwrap_err(), CrdError::Create { .. }));
    let server = installed(small());
    server.0.lock().refused = true;
    assert!(matches!(server.ensure(&large()).await.unwrap_err(), CrdError::Upgrade { .. }));
}
