//! Work that spans a collection is done in slices.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use watchkeeper::Env;

use crate::http::handler::handle;
use crate::http::reply::Reply;
use crate::kinds::identity::identify;
use crate::server::ApiServer;
use crate::state::core::{Core, held};
use crate::state::duty::Duty;
use crate::state::store::Key;
use crate::verbs::create::Name;
use crate::verbs::delete::DeleteOptions;
use crate::verbs::duties::{SLICE_BYTES, SLICE_OBJECTS};
use crate::verbs::write::Write;

const MAPS: &str = "/api/v1/namespaces/crowded/configmaps";
const BARS: &str = "/apis/example.com/v1/bars";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/bars.example.com";
const MERGE: &str = "application/merge-patch+json";

type Answer = Pin<Box<dyn Future<Output = Reply>>>;

fn begin(server: &ApiServer, method: &str, path: &str, body: &Value) -> Answer {
    let form = if method == "PATCH" { MERGE } else { "application/json" };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder().method(method).uri(path).header("content-type", form);
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    Box::pin(handle(server.shared.clone(), request, None))
}

async fn send(server: &ApiServer, method: &str, path: &str, body: &Value) -> (u16, Value) {
    read(begin(server, method, path, body).await).await
}

async fn read(reply: Reply) -> (u16, Value) {
    let code = reply.status().as_u16();
    let text = reply.into_body().collect().await.unwrap().to_bytes();
    // What is not served is answered in words.
    (code, serde_json::from_slice(&text).unwrap_or_default())
}

fn poll(answer: &mut Answer) -> Poll<Reply> {
    answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

async fn count(server: &ApiServer, path: &str) -> usize {
    send(server, "GET", path, &Value::Null).await.1["items"].as_array().unwrap().len()
}

fn definition(plural: &str, short: &[String], properties: &Value) -> Value {
    let spec = json!({"type": "object", "properties": properties});
    json!({"metadata": {"name": format!("{plural}.example.com")}, "spec": {
        "group": "example.com", "scope": "Cluster",
        "names": {"kind": plural.to_uppercase(), "plural": plural, "shortNames": short},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
}

/// Creates a namespace with large maps.
async fn crowd(server: &ApiServer, maps: usize, bytes: usize) {
    let namespace = json!({"metadata": {"name": "crowded"}});
    assert_eq!(send(server, "POST", "/api/v1/namespaces", &namespace).await.0, 201);
    for at in 0..maps {
        let map = json!({"metadata": {"name": format!("m{at:03}")}, "data": {"k": "x".repeat(bytes)}});
        assert_eq!(send(server, "POST", MAPS, &map).await.0, 201);
    }
}

/// Creates a definition and its objects, with a string of so many bytes each.
async fn define_large(server: &ApiServer, bars: usize, bytes: usize) {
    let properties = json!({"old": {"type": "string"}, "n": {"type": "integer"}});
    assert_eq!(send(server, "POST", DEFINITIONS, &definition("bars", &[], &properties)).await.0, 201);
    for at in 0..bars {
        let bar = json!({"apiVersion": "example.com/v1", "kind": "BARS",
            "metadata": {"name": format!("b{at:03}")}, "spec": {"old": "x".repeat(bytes), "n": at}});
        assert_eq!(send(server, "POST", BARS, &bar).await.0, 201);
    }
}

async fn define(server: &ApiServer, bars: usize) {
    define_large(server, bars, 1).await;
}

/// Adds a finalizer to every other object.
async fn hold_half(server: &ApiServer, bars: usize) {
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    for at in (1..bars).step_by(2) {
        assert_eq!(send(server, "PATCH", &format!("{BARS}/b{at:03}"), &hold).await.0, 200);
    }
}

#[tokio::test]
async fn a_definition_goes_after_its_objects_which_go_in_slices() {
    let server = ApiServer::new(&Env::simulated(1));
    define(&server, 200).await;
    hold_half(&server, 200).await;
    held::reset();
    let mut answer = begin(&server, "DELETE", DEFINITION, &Value::Null);
    assert!(poll(&mut answer).is_pending());
    let left = count(&server, BARS).await;
    assert!((101..200).contains(&left), "{left} are left after the first slice");
    let bar = json!({"apiVersion": "example.com/v1", "kind": "BARS", "metadata": {"name": "late"}});
    assert_eq!(send(&server, "POST", BARS, &bar).await.0, 403);
    // An object that changes meanwhile is deleted, too.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(send(&server, "PATCH", &format!("{BARS}/b198"), &label).await.0, 200);
    assert_eq!(read(answer.await).await.0, 200);
    let most = held::most().0;
    assert!(most <= SLICE_OBJECTS, "{most} objects were changed at once");
    let bars = send(&server, "GET", BARS, &Value::Null).await.1["items"].take();
    let bars = bars.as_array().unwrap();
    assert_eq!(bars.len(), 100, "those with a finalizer");
    assert!(bars.iter().all(|bar| bar["metadata"]["deletionTimestamp"].is_string()));
    for bar in bars {
        assert_eq!(send(&server, "GET", DEFINITION, &Value::Null).await.0, 200);
        let path = format!("{BARS}/{}", bar["metadata"]["name"].as_str().unwrap());
        assert_eq!(send(&server, "PATCH", &path, &json!({"metadata": {"finalizers": null}})).await.0, 200);
    }
    assert_eq!(send(&server, "GET", DEFINITION, &Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_slice_of_large_objects_has_fewer_of_them() {
    let server = ApiServer::new(&Env::simulated(1));
    define_large(&server, 12, SLICE_BYTES / 2).await;
    hold_half(&server, 12).await;
    held::reset();
    assert_eq!(send(&server, "DELETE", DEFINITION, &Value::Null).await.0, 200);
    let (most, parsed) = held::most();
    assert!(most <= 2, "{most} objects were changed at once");
    assert!(parsed < SLICE_BYTES / 2, "{parsed} bytes were parsed under the lock");
    assert_eq!(count(&server, BARS).await, 6);
}

#[tokio::test]
async fn objects_are_read_by_a_new_schema_in_slices_and_watches_end_with_the_last() {
    let server = ApiServer::new(&Env::simulated(1));
    define(&server, 100).await;
    let mut watch =
        begin(&server, "GET", &format!("{BARS}?watch=1&resourceVersion={}", server.revision()), &Value::Null)
            .await
            .into_body();
    held::reset();
    let properties = json!({"n": {"type": "integer"}, "new": {"type": "string", "default": "filled"}});
    let versions = definition("bars", &[], &properties)["spec"]["versions"].take();
    let mut answer = begin(&server, "PATCH", DEFINITION, &json!({"spec": {"versions": versions}}));
    assert!(poll(&mut answer).is_pending());
    assert_eq!(count(&server, BARS).await, 100);
    // One that is written meanwhile is written by the new schema.
    let path = format!("{BARS}/b099");
    let patched = send(&server, "PATCH", &path, &json!({"spec": {"n": 7}})).await.1;
    assert_eq!(patched["spec"], json!({"n": 7, "new": "filled"}));
    assert_eq!(read(answer.await).await.0, 200);
    let most = held::most().0;
    assert!(most <= SLICE_OBJECTS, "{most} objects were read anew at once");
    let bars = send(&server, "GET", BARS, &Value::Null).await.1["items"].take();
    for (at, bar) in bars.as_array().unwrap().iter().enumerate() {
        assert_eq!(bar["spec"], json!({"n": if at == 99 { 7 } else { at }, "new": "filled"}));
    }
    while let Some(frame) = watch.frame().await {
        let text = frame.unwrap().into_data().unwrap();
        assert!(!text.windows(3).any(|part| part == b"old"), "{}", String::from_utf8_lossy(&text));
    }
}

#[tokio::test]
async fn a_request_that_is_given_up_completes_what_it_has_begun() {
    let server = ApiServer::new(&Env::simulated(1));
    define(&server, 100).await;
    hold_half(&server, 100).await;
    let mut answer = begin(&server, "DELETE", DEFINITION, &Value::Null);
    assert!(poll(&mut answer).is_pending());
    assert!(count(&server, BARS).await > 50);
    drop(answer);
    assert_eq!(count(&server, BARS).await, 50, "those with a finalizer");
}

#[tokio::test]
async fn a_start_completes_what_a_killed_server_had_begun() {
    let folder = tempfile::tempdir().unwrap();
    let open = || ApiServer::builder(&Env::simulated(1)).open(folder.path().join("data")).unwrap();
    let server = open();
    define(&server, 3).await;
    hold_half(&server, 3).await;
    // The duties are dropped, as by a kill.
    let (_, duties) = server.shared.commit(|core| {
        let kind = core.registry.custom_resource_definitions().unwrap();
        core.delete_one(&kind, &Key::new("", "bars.example.com"), &DeleteOptions::default()).unwrap();
    });
    assert_eq!((duties.len(), count(&server, BARS).await), (1, 3));
    drop(server);
    let server = open();
    assert_eq!(count(&server, BARS).await, 1, "the one with a finalizer");
    let path = format!("{BARS}/b001");
    assert_eq!(send(&server, "PATCH", &path, &json!({"metadata": {"finalizers": null}})).await.0, 200);
    assert_eq!(send(&server, "GET", DEFINITION, &Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_definition_created_anew_keeps_its_objects() {
    let server = ApiServer::new(&Env::simulated(1));
    define(&server, 4).await;
    server.shared.run(|core| {
        let kind = core.registry.custom_resource_definitions().unwrap();
        let mut other = core.get(&kind, &Key::new("", "bars.example.com")).unwrap().at(1);
        (other.uid, other.terminating) = ("another".to_owned(), true);
        core.duties.push_back(Duty::empty(&other));
    });
    assert_eq!(count(&server, BARS).await, 4);
}

#[tokio::test]
async fn names_are_handed_on_in_slices() {
    const COUNT: usize = 100;
    let server = ApiServer::new(&Env::simulated(1));
    let short: Vec<_> = (0..COUNT).map(|at| format!("s{at}")).collect();
    assert_eq!(send(&server, "POST", DEFINITIONS, &definition("bars", &short, &json!({}))).await.0, 201);
    for (at, name) in short.iter().enumerate() {
        let other = definition(&format!("d{at}"), std::slice::from_ref(name), &json!({}));
        assert_eq!(send(&server, "POST", DEFINITIONS, &other).await.0, 201);
    }
    held::reset();
    assert_eq!(send(&server, "DELETE", DEFINITION, &Value::Null).await.0, 200);
    let (most, parsed) = held::most();
    assert!(most <= SLICE_OBJECTS, "{most} definitions were changed at once");
    assert!(parsed < 20_000, "{parsed} bytes were parsed under the lock");
    let registry = server.shared.core.lock().registry.clone();
    for (at, name) in short.iter().enumerate() {
        let kind = registry.find("example.com", "v1", &format!("d{at}")).unwrap();
        assert_eq!(kind.short_names, std::slice::from_ref(name));
    }
}

#[tokio::test]
async fn no_write_parses_an_object_under_the_lock() {
    let server = ApiServer::new(&Env::simulated(1));
    crowd(&server, 2, 50_000).await;
    let description = json!({"n": {"type": "integer", "description": "x".repeat(50_000)}});
    assert_eq!(send(&server, "POST", DEFINITIONS, &definition("bars", &[], &description)).await.0, 201);
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    assert_eq!(send(&server, "PATCH", &format!("{MAPS}/m001"), &hold).await.0, 200);
    held::reset();
    let requests = [
        ("PATCH", format!("{MAPS}/m000"), json!({"data": {"other": "x"}})),
        ("DELETE", format!("{MAPS}/m000"), Value::Null),
        ("DELETE", format!("{MAPS}/m001"), Value::Null),
        ("PATCH", format!("{MAPS}/m001"), json!({"metadata": {"finalizers": null}})),
        ("PATCH", DEFINITION.to_owned(), json!({"metadata": {"labels": {"a": "b"}}})),
        ("PATCH", DEFINITION.to_owned(), json!({"spec": {"names": {"shortNames": ["b"]}}})),
    ];
    for (method, path, body) in requests {
        let code = send(&server, method, &path, &body).await.0;
        assert_eq!((code, held::most().1), (200, 0), "{method} {path}");
    }
}

#[tokio::test]
async fn a_definition_that_was_outrun_too_often_is_decided_under_the_lock() {
    let server = ApiServer::new(&Env::simulated(1));
    let names = |plural: &str| definition(plural, &["shared".to_owned()], &json!({}));
    server.shared.run(|core| {
        let kind = core.registry.custom_resource_definitions().unwrap();
        let draft = |core: &Core, plural: &str| {
            let mut value = names(plural);
            identify(&kind, &mut value);
            let name = Name::of(&value);
            core.see_new(&kind, "", &name).unwrap().create(&kind, value, &Write::own(), true).unwrap()
        };
        let (first, second) = (draft(core, "bars"), draft(core, "foos"));
        core.store(&first).unwrap();
        assert!(core.store(&second).unwrap_err().outdated, "the kinds are others by now");
        core.store_definition(second).unwrap();
        let short = |plural: &str| {
            core.registry.find("example.com", "v1", plural).map(|kind| kind.short_names.clone())
        };
        assert_eq!(short("bars"), Some(vec!["shared".to_owned()]));
        assert_eq!(short("foos"), None, "a name that it asks for is taken");
    });
}
