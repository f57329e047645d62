//! Deletion of namespaces, by our namespace controller or, on a real server, by that of kube-controller-manager, which
//! must run.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use common::*;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Either, Full};
use kube_client::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use watchkeeper::Client;
use watchkeeper_controllers::namespace_controller;

const NAMESPACE: &str = "/api/v1/namespaces/wktest-n";
const MAPS: &str = "/api/v1/namespaces/wktest-n/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BARS: &str = "/apis/wktest.io/v1/namespaces/wktest-n/bars";

async fn create_namespace(server: &Server) {
    post(server, "/api/v1/namespaces", &json!({"metadata": {"name": "wktest-n"}})).await;
}

async fn delete_namespace(server: &Server) {
    let (code, marked) = call(server, "DELETE", NAMESPACE, &Value::Null).await;
    assert_eq!((code, &marked["status"]["phase"]), (200, &json!("Terminating")));
}

/// A ConfigMap that stays until somebody removes its finalizers.
async fn create_held(server: &Server, name: &str, finalizers: &[&str]) {
    let mut held = config_map(name, &json!({}));
    held["metadata"]["finalizers"] = json!(finalizers);
    post(server, MAPS, &held).await;
}

async fn release(server: &Server, name: &str) {
    let change = json!({"metadata": {"finalizers": []}});
    assert_eq!(patch(server, &format!("{MAPS}/{name}"), MERGE, &change).await.0, 200);
}

async fn gone(server: &Server) {
    server.until("gone", async || (get(server, NAMESPACE).await.0 == 404).then_some(())).await;
}

/// Waits until a condition has this status, and gives its reason and message.
async fn condition(server: &Server, type_: &str, status: &str) -> (String, String) {
    let said = async || {
        let (_, namespace) = get(server, NAMESPACE).await;
        let conditions = namespace["status"]["conditions"].as_array()?.clone();
        let found = conditions.into_iter().find(|it| it["type"] == type_ && it["status"] == status)?;
        let text = |field: &str| found[field].as_str().unwrap().to_owned();
        Some((text("reason"), text("message")))
    };
    server.until(&format!("{type_} is {status}"), said).await
}

/// A namespace controller whose requests `answer` may answer instead of the server.
struct Controller {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Controller {
    fn start(server: &Server) -> Self {
        Self::around(server.clients())
    }

    fn around(clients: Client) -> Self {
        let stop = CancellationToken::new();
        let token = stop.clone();
        Self { stop, task: tokio::spawn(async move { namespace_controller::run(&clients, token).await }) }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

/// Clients of the embedded server; while `broken`, `edit` may change an answer.
fn edited(
    server: &Server,
    broken: &Arc<AtomicBool>,
    edit: fn(&Request<()>, &mut Value) -> Option<u16>,
) -> Client {
    let (inside, broken) = (inside(server).service(), broken.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inside, broken) = (inside.clone(), broken.load(Ordering::SeqCst));
        async move {
            let mut head = Request::builder().method(request.method()).uri(request.uri()).body(()).unwrap();
            *head.headers_mut() = request.headers().clone();
            let is_watch = head.uri().query().is_some_and(|query| query.contains("watch"));
            let answer = inside.oneshot(request).await.unwrap_or_else(|never| match never {});
            if is_watch || !broken {
                return Ok::<_, std::convert::Infallible>(answer.map(Either::Left));
            }
            let (mut parts, body) = answer.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let Ok(mut value) = serde_json::from_slice::<Value>(&bytes) else {
                return Ok(Response::from_parts(parts, Either::Right(Full::new(bytes))));
            };
            if let Some(code) = edit(&head, &mut value) {
                parts.status = code.try_into().unwrap();
            }
            parts.headers.remove("content-length");
            Ok(Response::from_parts(parts, Either::Right(Full::new(Bytes::from(value.to_string())))))
        }
    });
    Client::from_kube(kube_client::Client::new(service, "default"), &server.env)
}

#[tokio::test(start_paused = true)]
async fn the_conditions_say_which_resources_and_finalizers_remain() {
    let server = Server::with_controllers().await;
    create_namespace(&server).await;
    create_held(&server, "a", &["example.com/f"]).await;
    create_held(&server, "b", &["example.com/f", "example.com/g"]).await;
    post(&server, MAPS, &config_map("free", &json!({}))).await;
    delete_namespace(&server).await;
    let expected = (
        "SomeResourcesRemain".to_owned(),
        "Some resources are remaining: configmaps. has 2 resource instances".to_owned(),
    );
    assert_eq!(condition(&server, "NamespaceContentRemaining", "True").await, expected);
    let expected = (
        "SomeFinalizersRemain".to_owned(),
        "Some content in the namespace has finalizers remaining: example.com/f in 2 resource instances, \
         example.com/g in 1 resource instances"
            .to_owned(),
    );
    assert_eq!(condition(&server, "NamespaceFinalizersRemaining", "True").await, expected);
    for (type_, reason, message) in [
        ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
    ] {
        let expected = (reason.to_owned(), message.to_owned());
        assert_eq!(condition(&server, type_, "False").await, expected);
    }
    let (_, left) = get(&server, MAPS).await;
    assert_eq!(names(&left), ["a", "b"]);
    release(&server, "a").await;
    release(&server, "b").await;
    gone(&server).await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_is_served_while_the_namespace_terminates_is_emptied_too() {
    let server = Server::with_controllers().await;
    let definition = json!({"metadata": {"name": "bars.wktest.io"}, "spec": {
        "group": "wktest.io", "scope": "Namespaced", "names": {"kind": "Bar", "plural": "bars"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    post(&server, DEFINITIONS, &definition).await;
    create_namespace(&server).await;
    let bar = |name: &str, finalizers: &[&str]| json!({"apiVersion": "wktest.io/v1", "kind": "Bar", "metadata": {"name": name, "finalizers": finalizers}});
    let made = async || (call(&server, "POST", BARS, &bar("b", &[])).await.0 == 201).then_some(());
    server.until("served", made).await;
    post(&server, BARS, &bar("held", &["example.com/f"])).await;
    let serve = async |served: bool| {
        let change = json!([{"op": "replace", "path": "/spec/versions/0/served", "value": served}]);
        assert_eq!(
            patch(&server, &format!("{DEFINITIONS}/bars.wktest.io"), JSON_PATCH, &change).await.0,
            200
        );
        let code = if served { 200 } else { 404 };
        server.until("served or not", async || (get(&server, BARS).await.0 == code).then_some(())).await;
    };
    serve(false).await;
    create_held(&server, "a", &["example.com/f"]).await;
    delete_namespace(&server).await;
    assert_eq!(
        condition(&server, "NamespaceContentRemaining", "True").await.1,
        "Some resources are remaining: configmaps. has 1 resource instances"
    );
    serve(true).await;
    let left = async || {
        let text = condition(&server, "NamespaceContentRemaining", "True").await.1;
        text.contains("bars.wktest.io has 1 resource instances").then_some(())
    };
    server.until("the held one is left", left).await;
    assert_eq!(names(&get(&server, BARS).await.1), ["held"]);
    release(&server, "a").await;
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(patch(&server, &format!("{BARS}/held"), MERGE, &free).await.0, 200);
    gone(&server).await;
}

#[tokio::test(start_paused = true)]
async fn a_group_that_cannot_be_discovered_keeps_the_namespace_and_is_named() {
    let server = Server::embedded(|settings| settings).await;
    let broken = Arc::new(AtomicBool::new(true));
    let controller = Controller::around(edited(&server, &broken, |request, answer| {
        if request.uri().path() == "/apis" {
            let groups = answer["items"].as_array_mut().unwrap();
            let group = groups.iter_mut().find(|group| group["metadata"]["name"] == "batch").unwrap();
            group["versions"][0]["freshness"] = "Stale".into();
        }
        None
    }));
    create_namespace(&server).await;
    post(&server, MAPS, &config_map("a", &json!({}))).await;
    delete_namespace(&server).await;
    let expected = (
        "DiscoveryFailed".to_owned(),
        "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: batch/v1: \
         stale GroupVersion discovery: batch/v1"
            .to_owned(),
    );
    assert_eq!(condition(&server, "NamespaceDeletionDiscoveryFailure", "True").await, expected);
    assert_eq!(get(&server, MAPS).await.1["items"], json!([]), "what is known is deleted");
    server.env.clock.sleep(Duration::from_secs(600)).await;
    assert_eq!(get(&server, NAMESPACE).await.0, 200);
    assert!(server.env.reporter.errors() > 0);
    broken.store(false, Ordering::SeqCst);
    gone(&server).await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_without_aggregated_discovery_does_not_make_a_namespace_look_empty() {
    let server = Server::embedded(|settings| settings).await;
    let broken = Arc::new(AtomicBool::new(true));
    let controller = Controller::around(edited(&server, &broken, |request, answer| {
        if request.uri().path() == "/apis" {
            *answer = json!({"kind": "APIGroupList", "groups": []});
        }
        None
    }));
    create_namespace(&server).await;
    post(&server, MAPS, &config_map("a", &json!({}))).await;
    delete_namespace(&server).await;
    let (reason, message) = condition(&server, "NamespaceDeletionDiscoveryFailure", "True").await;
    assert!(reason == "DiscoveryFailed" && message.contains("aggregated discovery at /apis"), "{message}");
    server.env.clock.sleep(Duration::from_secs(600)).await;
    assert_eq!(names(&get(&server, MAPS).await.1), ["a"]);
    broken.store(false, Ordering::SeqCst);
    gone(&server).await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_cannot_be_deleted_is_named_and_the_others_go() {
    let server = Server::embedded(|settings| settings).await;
    let broken = Arc::new(AtomicBool::new(true));
    let controller = Controller::around(edited(&server, &broken, |request, answer| {
        let is_secrets = request.uri().path().ends_with("/secrets");
        if !is_secrets || request.method() != Method::DELETE {
            return None;
        }
        *answer = json!({"kind": "Status", "status": "Failure", "reason": "InternalError", "code": 500,
            "message": "no disk"});
        Some(500)
    }));
    create_namespace(&server).await;
    let mut secret = config_map("s", &Value::Null);
    secret["kind"] = "Secret".into();
    secret["metadata"]["finalizers"] = json!(["example.com/f"]);
    post(&server, "/api/v1/namespaces/wktest-n/secrets", &secret).await;
    post(&server, MAPS, &config_map("a", &json!({}))).await;
    delete_namespace(&server).await;
    let (reason, message) = condition(&server, "NamespaceDeletionContentFailure", "True").await;
    assert_eq!(reason, "ContentDeletionFailed");
    let expected =
        "Failed to delete all resource types, 1 remaining: cannot delete secrets in namespace wktest-n: ";
    assert!(message.starts_with(expected) && message.contains("no disk"), "{message}");
    assert_eq!(get(&server, MAPS).await.1["items"], json!([]));
    broken.store(false, Ordering::SeqCst);
    let free = json!({"metadata": {"finalizers": null}});
    patch(&server, "/api/v1/namespaces/wktest-n/secrets/s", MERGE, &free).await;
    gone(&server).await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_started_again_goes_on() {
    let server = Server::embedded(|settings| settings).await;
    create_namespace(&server).await;
    create_held(&server, "a", &["example.com/f"]).await;
    delete_namespace(&server).await;
    let first = Controller::start(&server);
    condition(&server, "NamespaceContentRemaining", "True").await;
    first.stop().await;
    release(&server, "a").await;
    server.env.clock.sleep(Duration::from_secs(600)).await;
    assert_eq!(get(&server, NAMESPACE).await.0, 200, "nobody works on it");
    let second = Controller::start(&server);
    gone(&server).await;
    second.stop().await;
    assert_eq!((server.env.reporter.errors(), server.env.reporter.panics()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn pods_get_their_grace_period_and_everything_else_waits_for_them() {
    let server = Server::embedded(|settings| settings).await;
    let controller = Controller::start(&server);
    create_namespace(&server).await;
    let pods = "/api/v1/namespaces/wktest-n/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 60,
        "containers": [{"name": "c", "image": "i"}]}});
    post(&server, pods, &pod).await;
    post(&server, MAPS, &config_map("a", &json!({}))).await;
    delete_namespace(&server).await;
    assert_eq!(
        condition(&server, "NamespaceContentRemaining", "True").await.1,
        "Some resources are remaining: pods. has 1 resource instances"
    );
    let (_, pod) = get(&server, &format!("{pods}/p")).await;
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 60);
    assert_eq!(names(&get(&server, MAPS).await.1), ["a"]);
    assert_eq!(server.env.reporter.errors(), 0, "a grace period is no error");
    // Nobody ends the pod: there is no kubelet.
    assert_eq!(
        condition(&server, "NamespaceDeletionContentFailure", "True").await.1,
        "Failed to delete all resource types, 1 remaining: unexpected items still remain in namespace: wktest-n for gvr: \
         /v1, Resource=pods"
    );
    call(&server, "DELETE", &format!("{pods}/p"), &json!({"gracePeriodSeconds": 0})).await;
    gone(&server).await;
    controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_the_controller_a_namespace_waits_for_its_finalizer_alone() {
    let server = Server::embedded(|settings| settings).await;
    let namespace = json!({"metadata": {"name": "wktest-n", "finalizers": ["example.com/f"]}});
    post(&server, "/api/v1/namespaces", &namespace).await;
    post(&server, MAPS, &config_map("a", &json!({}))).await;
    delete_namespace(&server).await;
    call(&server, "DELETE", &format!("{MAPS}/a"), &Value::Null).await;
    let (code, mut namespace) = get(&server, NAMESPACE).await;
    assert_eq!((code, &namespace["spec"]["finalizers"]), (200, &json!(["kubernetes"])));
    namespace["spec"]["finalizers"] = json!([]);
    let (code, _) = call(&server, "PUT", &format!("{NAMESPACE}/finalize"), &namespace).await;
    assert_eq!((code, get(&server, NAMESPACE).await.0), (200, 200), "a finalizer of the other sort is left");
    patch(&server, NAMESPACE, MERGE, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(get(&server, NAMESPACE).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_objects_go_without_holding_up_other_requests() {
    const COUNT: usize = 10_000;
    let server = Server::embedded(|settings| settings).await;
    create_namespace(&server).await;
    for number in 0..COUNT {
        post(&server, MAPS, &config_map(&format!("m{number}"), &Value::Null)).await;
    }
    delete_namespace(&server).await;
    let controller = Controller::start(&server);
    // On one thread: each count in between was answered while the collection was being deleted.
    let mut between = 0;
    loop {
        let (_, list) = get(&server, &format!("{MAPS}?limit=1")).await;
        match list["items"].as_array().unwrap().len() {
            0 => break,
            _ => between += usize::from(list["metadata"]["remainingItemCount"] != COUNT - 1),
        }
        tokio::task::yield_now().await;
    }
    assert!(between > 50, "only {between} requests were answered meanwhile");
    gone(&server).await;
    controller.stop().await;
}
