//! Requests that race with others: starting over, conflicts, definitions that change meanwhile.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderValue;
use http::{HeaderMap, Method, Request};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::http::backlog::Backlog;
use crate::http::body::LARGE;
use crate::http::handler::{Call, Named, handle};
use crate::http::route::{Query, Route, route};
use crate::http::transaction::{LARGE_TRIES, TRIES};
use crate::server::ApiServer;
use crate::state::core::Core;
use crate::state::store::Key;
use crate::verbs::create::Name;
use crate::verbs::draft::Seen;
use crate::verbs::patch::Patch;
use crate::verbs::update::{MODIFIED, Part};
use crate::verbs::write::Write;

use http_body_util::{BodyExt, Empty};
use serde_json::{Value, json};
use watchkeeper::Env;

fn definition(version: &str) -> Value {
    json!({"metadata": {"name": "bars.example.com"}, "spec": {
        "group": "example.com", "scope": "Cluster", "names": {"kind": "Bar", "plural": "bars"},
        "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
}

fn get(server: &ApiServer, path: &str) -> Call {
    let uri: http::Uri = path.parse().unwrap();
    let Route::Resource(target) = route(uri.path()) else { panic!("{path} is no resource") };
    Call {
        shared: server.shared.clone(),
        method: Method::GET,
        headers: HeaderMap::new(),
        query: Query::parse(uri.query()),
        target,
        user: None,
        admission: None,
        stop: None,
        bookmark_period: server.shared.bookmark_period,
        body: OnceLock::new(),
        tries: AtomicUsize::new(0),
        turn: OnceLock::new(),
        backlog: Mutex::new(Backlog::new(&server.shared)),
    }
}

#[test]
fn a_write_works_without_the_lock_and_conflicts_after_too_many_attempts() {
    let large = "x".repeat(LARGE);
    for (first, limit) in [("small", TRIES), (large.as_str(), LARGE_TRIES)] {
        let server = ApiServer::new(&Env::simulated(1));
        let call = get(&server, "/api/v1/namespaces/default/configmaps/a");
        let Ok(Some(Named::Kind(kind))) = call.find() else { panic!("a ConfigMap is a kind") };
        let key = Key::new("default", "a");
        let map = |data: &str| json!({"metadata": {"name": "a", "namespace": "default"}, "data": {"k": data, "first": first}});
        let set = |data: &str| {
            server.shared.run(|core| {
                let seen = core.see(&kind, &key);
                let draft = seen.replace(&kind, map(data), Part::Main, &Write::own()).unwrap();
                core.store(&draft).unwrap()
            })
        };
        server.shared.run(|core| core.create(&kind, "default", map(""), &Write::own()).unwrap());
        let patch = Patch::Merge(json!({"data": {"own": "x"}}));
        for attempt in 1..=limit {
            let written = call.write(
                &kind,
                |core| Ok(core.see(&kind, &key)),
                |seen| {
                    assert!(server.shared.core.try_lock().is_some(), "attempt {attempt}");
                    set(&attempt.to_string());
                    seen.patch(&kind, &patch, Part::Main, &mut Write::own())
                },
            );
            let failure = written.unwrap_err();
            assert_eq!(failure.outdated, attempt < limit, "attempt {attempt}");
            if attempt == limit {
                assert_eq!((failure.code, failure.reason), (409, "Conflict"));
                assert_eq!(
                    failure.message,
                    format!("Operation cannot be fulfilled on configmaps \"a\": {MODIFIED}")
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn small_writes_that_may_take_long_run_outside_the_worker_thread() {
    let server = ApiServer::new(&Env::simulated(1));
    server.shared.run(|core| {
        let definitions = core.registry.custom_resource_definitions().unwrap();
        let maps = core.registry.find("", "v1", "configmaps").unwrap().clone();
        core.create(&definitions, "", definition("v1"), &Write::own()).unwrap();
        let bars = core.registry.find("example.com", "v1", "bars").unwrap().clone();
        let object = || json!({"metadata": {"name": "a"}});
        core.create(&bars, "", object(), &Write::own()).unwrap();
        core.create(&maps, "default", object(), &Write::own()).unwrap();
    });
    let cases = [
        ("/apis/example.com/v1/bars/a", "", "application/merge-patch+json"),
        ("/api/v1/namespaces/default/configmaps/a", "default", "application/json-patch+json"),
    ];
    for (path, namespace, form) in cases {
        let mut call = get(&server, path);
        call.stop = Some(CancellationToken::new());
        call.headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(form));
        let written = tokio::spawn(async move {
            let Ok(Some(Named::Kind(kind))) = call.find() else { panic!("{path} is served") };
            let (sender, other) = std::sync::mpsc::channel();
            tokio::spawn(async move { sender.send(()) });
            let key = Key::new(namespace, "a");
            let see = |core: &Core| Ok(core.see(&kind, &key));
            let work = |seen: &Seen| {
                // The runtime has one thread: nobody would send if this held it.
                other.recv_timeout(Duration::from_secs(60)).unwrap();
                let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
                seen.patch(&kind, &patch, Part::Main, &mut Write::own())
            };
            call.write(&kind, see, work).map(|_| ())
        });
        written.await.unwrap().unwrap();
    }
}

#[test]
fn a_generated_name_that_was_taken_meanwhile_is_generated_again() {
    let server = ApiServer::new(&Env::simulated(1));
    let mut core = server.shared.core.lock();
    let kind = core.registry.nodes().unwrap();
    let node = || json!({"apiVersion": "v1", "kind": "Node", "metadata": {"generateName": "n-"}});
    let seen = core.see_new(&kind, "", &Name::of(&node())).unwrap();
    let draft = || seen.create(&kind, node(), &Write::own(), true).unwrap();
    let (first, second) = (draft(), draft());
    core.store(&first).unwrap();
    assert!(core.store(&second).unwrap_err().outdated);
}

#[tokio::test]
async fn a_collection_is_deleted_in_slices_and_returned_whole_even_if_its_definition_changes() {
    let server = ApiServer::new(&Env::simulated(1));
    let (definitions, key, bars) = server.shared.run(|core| {
        let definitions = core.registry.custom_resource_definitions().unwrap();
        core.create(&definitions, "", definition("v1"), &Write::own()).unwrap();
        let bars = core.registry.find("example.com", "v1", "bars").unwrap().clone();
        for name in 0..100 {
            let bar = json!({"metadata": {"name": format!("b{name}")}});
            core.create(&bars, "", bar, &Write::own()).unwrap();
        }
        (definitions, Key::new("", "bars.example.com"), bars)
    });
    let left = || server.shared.core.lock().store.range(&bars.storage, None, None).count();
    let request = Request::delete("/apis/example.com/v1/bars").body(Empty::<Bytes>::new()).unwrap();
    let mut answer = Box::pin(handle(server.shared.clone(), request, None));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(answer.as_mut().poll(&mut context).is_pending());
    assert!((1..100).contains(&left()), "{} are left", left());
    server.shared.run(|core| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
        let seen = core.see(&definitions, &key);
        let draft = seen.patch(&definitions, &patch, Part::Main, &mut Write::own()).unwrap();
        core.store(&draft).unwrap();
        assert!(!Arc::ptr_eq(core.registry.find("example.com", "v1", "bars").unwrap(), &bars));
    });
    let reply = answer.await;
    assert_eq!((reply.status().as_u16(), left()), (200, 0));
    let body = reply.into_body().collect().await.unwrap().to_bytes();
    let list: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 100);
}

#[test]
fn an_object_created_meanwhile_conflicts_with_a_post_only() {
    let server = ApiServer::new(&Env::simulated(1));
    let mut core = server.shared.core.lock();
    let kind = core.registry.nodes().unwrap();
    let node = || json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    let seen = core.see(&kind, &Key::new("", "n"));
    let draft = |posted: bool| seen.create(&kind, node(), &Write::own(), posted).unwrap();
    let (posted, put) = (draft(true), draft(false));
    core.create(&kind, "", node(), &Write::own()).unwrap();
    assert_eq!(core.store(&posted).unwrap_err().reason, "AlreadyExists");
    assert!(core.store(&put).unwrap_err().outdated);
}

#[test]
fn two_services_never_get_the_same_address() {
    let server = ApiServer::new(&Env::simulated(1));
    let mut core = server.shared.core.lock();
    let kind = core.registry.services().unwrap();
    let service = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.7", "ports": [{"port": 80}]}})
    };
    let seen = core.see(&kind, &Key::new("default", "a"));
    let draft = seen.create(&kind, service("a"), &Write::own(), true).unwrap();
    core.create(&kind, "default", service("b"), &Write::own()).unwrap();
    assert!(core.store(&draft).unwrap_err().outdated);
}

#[tokio::test(start_paused = true)]
async fn a_read_starts_over_when_its_definition_changes() {
    for path in ["bars", "bars?watch=1", "bars/b"] {
        let server = ApiServer::new(&Env::simulated(1));
        let define = |version: &str| {
            server.shared.run(|core| {
                let kind = core.registry.custom_resource_definitions().unwrap();
                let key = Key::new("", "bars.example.com");
                let _may_be_absent = core.delete(&kind, &key, &Default::default());
                core.create(&kind, "", definition(version), &Write::own()).unwrap();
            });
        };
        define("v1");
        let call = get(&server, &format!("/apis/example.com/v1/{path}"));
        let found = call.find();
        define("v2");
        let answer = call.answer(found, Empty::<Bytes>::new()).await;
        assert!(answer.is_err_and(|failure| failure.outdated), "{path}");
        let request = Request::builder().uri(format!("/apis/example.com/v1/{path}"));
        let reply = handle(server.shared.clone(), request.body(Empty::<Bytes>::new()).unwrap(), None).await;
        assert_eq!(reply.status(), 404, "{path}");
    }
}
