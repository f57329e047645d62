//! A server with a garbage collector, and objects that own each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{Either, Full};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::client::Body;
use kube_core::params::{DeleteParams, Patch, PropagationPolicy};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use watchkeeper::{Client, ObjectName};
use watchkeeper_controllers::garbage_collector;

use crate::common::{Server, inside};

pub(crate) struct Cluster {
    pub(crate) server: Server,
    pub(crate) clients: Client,
    pub(crate) stop: CancellationToken,
    /// Our collector; `None` on a server that has its own.
    pub(crate) collector: Option<JoinHandle<()>>,
}

/// More requests than a collector needs in a test.
pub(crate) const MANY: u64 = 1_000;

/// The requests of a collector.
#[derive(Default)]
pub(crate) struct Requests {
    made: AtomicU64,
    /// Cancelled for a collector in a busy loop, under which a paused clock never advances.
    too_many: CancellationToken,
}

impl Requests {
    pub(crate) fn count(&self) {
        if self.made.fetch_add(1, Ordering::SeqCst) == 20 * MANY {
            self.too_many.cancel();
        }
    }

    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::SeqCst)
    }
}

impl Cluster {
    pub(crate) async fn new() -> Self {
        let server = Server::start().await;
        let theirs = server.clients();
        Self::around(server, theirs)
    }

    /// An embedded server whose collector gets no answer to requests that are `held`, until the token is cancelled.
    pub(crate) async fn holding(streaming_lists: bool, held: fn(&Uri) -> bool) -> (Self, CancellationToken) {
        let server = Server::embedded(|settings| settings.streaming_lists(streaming_lists)).await;
        let (inside, open) = (inside(&server).service(), CancellationToken::new());
        let token = open.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (inside, open) = (inside.clone(), token.clone());
            async move {
                if held(request.uri()) {
                    open.cancelled().await;
                }
                inside.oneshot(request).await
            }
        });
        let theirs = Client::from_kube(kube_client::Client::new(service, "default"), &server.env);
        (Self::around(server, theirs), open)
    }

    /// An embedded server without a collector, and a client for it that counts requests and lets `answer` intercept
    /// them.
    pub(crate) async fn counting(
        answer: impl Fn(&Request<Body>) -> Option<Response<Full<Bytes>>> + Clone + Send + 'static,
    ) -> (Self, Client, Arc<Requests>) {
        let server = Server::embedded(|settings| settings).await;
        let (inside, requests) = (inside(&server).service(), Arc::new(Requests::default()));
        let counted = requests.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            counted.count();
            let (inside, answered) = (inside.clone(), answer(&request));
            async move {
                // Lets the test observe a collector in a busy loop.
                tokio::task::yield_now().await;
                match answered {
                    Some(answer) => Ok(answer.map(Either::Left)),
                    None => inside.oneshot(request).await.map(|answer| answer.map(Either::Right)),
                }
            }
        });
        let theirs = Client::from_kube(kube_client::Client::new(service, "default"), &server.env);
        (Self::without_collector(server), theirs, requests)
    }

    /// Waits until the collector has reported this many errors, then asserts that it makes few requests for a while.
    pub(crate) async fn assert_quiet_after(&self, errors: u64, requests: &Requests) {
        let reported = async || (self.server.env.reporter.errors() >= errors).then_some(());
        let quiet = async {
            self.server.until("reported", reported).await;
            let before = requests.made();
            // Discovery and watches continue.
            self.server.env.clock.sleep(Duration::from_secs(600)).await;
            assert!(requests.made() - before < MANY, "{} requests", requests.made() - before);
        };
        tokio::select! {
            () = quiet => {}
            () = requests.too_many.cancelled() => panic!("a storm of requests"),
        }
    }

    /// Starts the collector with the client `theirs`.
    pub(crate) fn around(server: Server, theirs: Client) -> Self {
        let mut cluster = Self::without_collector(server);
        if cluster.server.inside().is_some() {
            cluster.start(theirs);
        }
        cluster
    }

    pub(crate) fn without_collector(server: Server) -> Self {
        let (clients, stop) = (server.clients(), CancellationToken::new());
        Self { server, clients, stop, collector: None }
    }

    pub(crate) fn start(&mut self, theirs: Client) {
        let token = self.stop.clone();
        self.collector = Some(tokio::spawn(async move { garbage_collector::run(&theirs, token).await }));
    }

    pub(crate) fn key(&self, name: &str) -> ObjectName {
        ObjectName::namespaced(self.server.ours(), name)
    }

    /// Creates a ConfigMap with these owner references; returns a reference to it.
    pub(crate) async fn create(&self, name: &str, owners: &[Value]) -> Value {
        let metadata = json!({"name": name, "namespace": self.server.ours(), "ownerReferences": owners});
        let object: ConfigMap = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        let made = self.clients.api::<ConfigMap>().create(&object).await.unwrap();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made.metadata.uid})
    }

    pub(crate) async fn create_secret(&self, name: &str, owner: Value, finalizers: &[&str]) {
        let metadata = json!({"name": name, "namespace": self.server.ours(), "ownerReferences": [owner], "finalizers": finalizers});
        let object: Secret = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        self.clients.api::<Secret>().create(&object).await.unwrap();
    }

    pub(crate) async fn secret(&self, name: &str) -> Option<Secret> {
        self.clients.api::<Secret>().get(&self.key(name)).await.ok()
    }

    pub(crate) async fn get(&self, name: &str) -> Option<ConfigMap> {
        self.clients.api::<ConfigMap>().get(&self.key(name)).await.ok()
    }

    pub(crate) async fn delete(&self, name: &str, policy: PropagationPolicy) {
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        self.clients.api::<ConfigMap>().delete_with(&self.key(name), &params).await.unwrap();
    }

    /// Waits for the collector, then asserts that of `names` exactly those in `expected` remain.
    pub(crate) async fn left(&self, names: &[&str], expected: &str) {
        let left = async || {
            let mut left = Vec::new();
            for name in names {
                if self.get(name).await.is_some() {
                    left.push(*name);
                }
            }
            left.join(" ")
        };
        self.server.until(expected, async || (left().await == expected).then_some(())).await;
        self.settle().await;
        assert_eq!(left().await, expected);
    }

    /// Waits until the collector has processed all earlier writes, by an object with an absent owner that it deletes.
    pub(crate) async fn settle(&self) {
        let absent = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "no-such-uid"});
        self.create("marker", &[absent]).await;
        self.server.until("settled", async || self.get("marker").await.is_none().then_some(())).await;
    }

    pub(crate) async fn set_finalizers(&self, name: &str, finalizers: &[&str]) {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        self.clients.api::<ConfigMap>().patch(&self.key(name), &patch).await.unwrap();
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        if let Some(collector) = self.collector {
            collector.await.unwrap();
        }
        let reporter = &self.server.env.reporter;
        assert_eq!((reporter.errors(), reporter.panics()), (0, 0));
    }
}

pub(crate) fn blocking(mut reference: Value) -> Value {
    reference["blockOwnerDeletion"] = true.into();
    reference
}
