//! The reflector through the public API of an informer, in process, on the paused clock.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod absent;
#[path = "../common/mod.rs"]
mod common;
mod cuts;
mod failures;
mod polled;
mod silence;
mod streamed_lists;
mod unusable;
mod verified;

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::SharedInformerBuilder;
use watchkeeper::source::{Asked, ListOptions, Reply, ScriptedSource};
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::{Env, SharedInformer};

fn object(name: &str, version: u64) -> Value {
    let metadata =
        json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": version.to_string()});
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata})
}

fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn bookmark(version: u64, annotation: Option<&str>) -> String {
    let mut object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": version.to_string()}});
    if let Some(value) = annotation {
        object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": value});
    }
    event("BOOKMARK", &object)
}

fn list(version: u64, names: &[&str]) -> Reply {
    let items: Vec<_> = names.iter().map(|name| object(name, 1)).collect();
    Reply::body(json!({"items": items, "metadata": {"resourceVersion": version.to_string()}}).to_string())
}

fn error(class: Class) -> ApiError {
    ApiError::new(class, "scripted")
}

/// The request for the first page of a list.
fn first_page(limit: u32) -> Asked {
    let mut options = ListOptions::default();
    options.limit = limit;
    Asked::List(options)
}

/// An informer whose source plays a script; tests check the requests and results of its reflector.
struct ScriptedReflector {
    env: Env,
    source: ScriptedSource,
    informer: SharedInformer<ConfigMap>,
    stop: CancellationToken,
}

impl ScriptedReflector {
    fn start(
        source: ScriptedSource,
        build: impl FnOnce(SharedInformerBuilder<ConfigMap>) -> SharedInformerBuilder<ConfigMap>,
    ) -> Self {
        let env = Env::simulated(1);
        let informer = build(SharedInformer::builder(source.clone(), &env)).build();
        let stop = CancellationToken::new();
        let (running, token) = (informer.clone(), stop.clone());
        tokio::spawn(async move { running.run(token).await });
        Self { env, source, informer, stop }
    }

    fn cached(&self) -> Vec<String> {
        let snapshot = self.informer.indexer().snapshot();
        let mut all: Vec<_> = snapshot.iter().map(|o| format!("{}@{}", o.name(), o.version())).collect();
        all.sort();
        all
    }

    async fn settle(&self) {
        self.env.clock.sleep(Duration::from_millis(1)).await;
    }

    /// Waits for an hour at most: on the paused clock, until nothing else can happen.
    async fn soon(&self, future: impl Future<Output = ()>) {
        self.env.clock.timeout(Duration::from_secs(3600), future).await.expect("waited for an hour");
    }

    async fn until_synced(&self) {
        self.soon(self.informer.wait_until_synced()).await;
    }

    /// Waits until `count` requests have come.
    async fn until_asked(&self, count: usize) {
        self.soon(self.source.until_asked(count)).await;
    }

    fn watched_from(&self, request: usize) -> (String, bool) {
        match &self.source.asked()[request] {
            Asked::Watch(options) => (options.version.to_string(), options.initial_events),
            other => panic!("{other:?}"),
        }
    }
}
