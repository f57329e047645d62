//! The garbage collector: dependents are deleted with their last owner, and nothing else is. Runs with our collector,
//! or on a real server with that of its kube-controller-manager.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use common::Server;
use http::{Method, Request, Response, Uri};
use http_body_util::{Either, Full};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::client::Body;
use kube_core::params::{DeleteParams, Patch, PropagationPolicy};
use kube_core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use watchkeeper::{Client, ObjectName};
use watchkeeper_controllers::garbage_collector;

struct Cluster {
    server: Server,
    clients: Client,
    stop: CancellationToken,
    /// Our collector; `None` on a server that has its own.
    collector: Option<JoinHandle<()>>,
}

/// More requests than a collector needs in a test.
const MANY: u64 = 1_000;

/// The requests of a collector.
#[derive(Default)]
struct Requests {
    made: AtomicU64,
    /// Cancelled for a collector in a busy loop, under which a paused clock never advances.
    too_many: CancellationToken,
}

impl Requests {
    fn count(&self) {
        if self.made.fetch_add(1, Ordering::SeqCst) == 20 * MANY {
            self.too_many.cancel();
        }
    }

    fn made(&self) -> u64 {
        self.made.load(Ordering::SeqCst)
    }
}

impl Cluster {
    async fn new() -> Self {
        let server = Server::start().await;
        let theirs = server.clients();
        Self::around(server, theirs)
    }

    /// An embedded server whose collector gets no answer to requests that are `held`, until the token is cancelled.
    async fn holding(streaming_lists: bool, held: fn(&Uri) -> bool) -> (Self, CancellationToken) {
        let server = Server::embedded(|settings| settings.streaming_lists(streaming_lists)).await;
        let (inside, open) = (common::inside(&server).service(), CancellationToken::new());
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
    async fn counting(
        answer: impl Fn(&Request<Body>) -> Option<Response<Full<Bytes>>> + Clone + Send + 'static,
    ) -> (Self, Client, Arc<Requests>) {
        let server = Server::embedded(|settings| settings).await;
        let (inside, requests) = (common::inside(&server).service(), Arc::new(Requests::default()));
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
    async fn assert_quiet_after(&self, errors: u64, requests: &Requests) {
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
    fn around(server: Server, theirs: Client) -> Self {
        let mut cluster = Self::without_collector(server);
        if cluster.server.inside().is_some() {
            cluster.start(theirs);
        }
        cluster
    }

    fn without_collector(server: Server) -> Self {
        let (clients, stop) = (server.clients(), CancellationToken::new());
        Self { server, clients, stop, collector: None }
    }

    fn start(&mut self, theirs: Client) {
        let token = self.stop.clone();
        self.collector = Some(tokio::spawn(async move { garbage_collector::run(&theirs, token).await }));
    }

    fn key(&self, name: &str) -> ObjectName {
        ObjectName::namespaced(self.server.ours(), name)
    }

    /// Creates a ConfigMap with these owner references; returns a reference to it.
    async fn create(&self, name: &str, owners: &[Value]) -> Value {
        let metadata = json!({"name": name, "namespace": self.server.ours(), "ownerReferences": owners});
        let object: ConfigMap = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        let made = self.clients.api::<ConfigMap>().create(&object).await.unwrap();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made.metadata.uid})
    }

    async fn create_secret(&self, name: &str, owner: Value, finalizers: &[&str]) {
        let metadata = json!({"name": name, "namespace": self.server.ours(), "ownerReferences": [owner], "finalizers": finalizers});
        let object: Secret = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        self.clients.api::<Secret>().create(&object).await.unwrap();
    }

    async fn secret(&self, name: &str) -> Option<Secret> {
        self.clients.api::<Secret>().get(&self.key(name)).await.ok()
    }

    async fn get(&self, name: &str) -> Option<ConfigMap> {
        self.clients.api::<ConfigMap>().get(&self.key(name)).await.ok()
    }

    async fn delete(&self, name: &str, policy: PropagationPolicy) {
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        self.clients.api::<ConfigMap>().delete_with(&self.key(name), &params).await.unwrap();
    }

    /// Waits for the collector, then asserts that of `names` exactly those in `expected` remain.
    async fn left(&self, names: &[&str], expected: &str) {
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
    async fn settle(&self) {
        let absent = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "no-such-uid"});
        self.create("marker", &[absent]).await;
        self.server.until("settled", async || self.get("marker").await.is_none().then_some(())).await;
    }

    async fn set_finalizers(&self, name: &str, finalizers: &[&str]) {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        self.clients.api::<ConfigMap>().patch(&self.key(name), &patch).await.unwrap();
    }

    async fn end(self) {
        self.stop.cancel();
        if let Some(collector) = self.collector {
            collector.await.unwrap();
        }
        let reporter = &self.server.env.reporter;
        assert_eq!((reporter.errors(), reporter.panics()), (0, 0));
    }
}

fn blocking(mut reference: Value) -> Value {
    reference["blockOwnerDeletion"] = true.into();
    reference
}

#[tokio::test(start_paused = true)]
async fn dependents_of_dependents_go_in_the_background_and_others_stay() {
    let cluster = Cluster::new().await;
    let root = cluster.create("root", &[]).await;
    let child = cluster.create("child", std::slice::from_ref(&root)).await;
    cluster.create("grandchild", std::slice::from_ref(&child)).await;
    cluster.create("other", &[]).await;
    let all = ["root", "child", "grandchild", "other"];
    cluster.left(&all, "root child grandchild other").await;
    cluster.delete("root", PropagationPolicy::Background).await;
    assert!(cluster.get("root").await.is_none(), "at once");
    cluster.left(&all, "other").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_goes_with_its_last_owner_and_forgets_those_that_went_before() {
    let cluster = Cluster::new().await;
    let (a, b) = (cluster.create("a", &[]).await, cluster.create("b", &[]).await);
    cluster.create("child", &[a, b.clone()]).await;
    cluster.delete("a", PropagationPolicy::Background).await;
    cluster.left(&["child"], "child").await;
    let owners = async || {
        let owners = cluster.get("child").await.unwrap().metadata.owner_references.unwrap();
        (owners.len() == 1).then_some(owners)
    };
    let owners = cluster.server.until("one owner", owners).await;
    assert_eq!(owners[0].uid, b["uid"].as_str().unwrap());
    cluster.delete("b", PropagationPolicy::Background).await;
    cluster.left(&["child"], "").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_made_anew_under_the_same_name_does_not_count() {
    let cluster = Cluster::new().await;
    let old = cluster.create("owner", &[]).await;
    cluster.delete("owner", PropagationPolicy::Background).await;
    cluster.create("owner", &[]).await;
    cluster.create("child", &[old]).await;
    cluster.left(&["owner", "child"], "owner").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_an_owner_waits_for_those_that_block_it() {
    let cluster = Cluster::new().await;
    let root = cluster.create("root", &[]).await;
    cluster.create("blocking", &[blocking(root.clone())]).await;
    cluster.create("free", &[root]).await;
    cluster.set_finalizers("blocking", &["example.com/hold"]).await;
    cluster.set_finalizers("free", &["example.com/hold"]).await;
    cluster.delete("root", PropagationPolicy::Foreground).await;
    cluster.left(&["root", "blocking", "free"], "root blocking free").await;
    let root = cluster.get("root").await.unwrap().metadata;
    assert!(root.deletion_timestamp.is_some());
    assert_eq!(root.finalizers.unwrap(), ["foregroundDeletion"]);
    let marked = async || cluster.get("blocking").await?.metadata.deletion_timestamp;
    cluster.server.until("blocking marked", marked).await;
    cluster.set_finalizers("blocking", &[]).await;
    cluster.left(&["root", "blocking", "free"], "free").await;
    cluster.set_finalizers("free", &[]).await;
    cluster.left(&["free"], "").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_an_owner_goes_when_the_last_that_blocks_it_has_another_owner() {
    let cluster = Cluster::new().await;
    let (root, other) = (cluster.create("root", &[]).await, cluster.create("other", &[]).await);
    cluster.create("child", &[blocking(root)]).await;
    cluster.set_finalizers("child", &["example.com/hold"]).await;
    cluster.delete("root", PropagationPolicy::Foreground).await;
    let marked = async || cluster.get("child").await?.metadata.deletion_timestamp;
    cluster.server.until("child marked", marked).await;
    cluster.left(&["root", "child", "other"], "root child other").await;
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [blocking(other)]}}));
    cluster.clients.api::<ConfigMap>().patch(&cluster.key("child"), &patch).await.unwrap();
    cluster.left(&["root", "child", "other"], "child other").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_a_chain_goes_from_its_end() {
    let cluster = Cluster::new().await;
    let root = cluster.create("root", &[]).await;
    let child = cluster.create("child", &[blocking(root)]).await;
    cluster.create("grandchild", &[blocking(child)]).await;
    cluster.set_finalizers("grandchild", &["example.com/hold"]).await;
    cluster.delete("root", PropagationPolicy::Foreground).await;
    cluster.left(&["root", "child", "grandchild"], "root child grandchild").await;
    let waits = async || {
        let finalizers = cluster.get("child").await?.metadata.finalizers?;
        (finalizers == ["foregroundDeletion"]).then_some(())
    };
    cluster.server.until("the child waits", waits).await;
    cluster.set_finalizers("grandchild", &[]).await;
    cluster.left(&["root", "child", "grandchild"], "").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_and_forget_their_owner() {
    let cluster = Cluster::new().await;
    let root = cluster.create("root", &[]).await;
    cluster.create("child", &[blocking(root)]).await;
    cluster.settle().await;
    cluster.delete("root", PropagationPolicy::Orphan).await;
    cluster.left(&["root", "child"], "child").await;
    assert_eq!(cluster.get("child").await.unwrap().metadata.owner_references.unwrap_or_default(), []);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn two_that_own_each_other_go_in_the_foreground_too() {
    let cluster = Cluster::new().await;
    let a = cluster.create("a", &[]).await;
    let b = cluster.create("b", &[blocking(a)]).await;
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [blocking(b)]}}));
    cluster.clients.api::<ConfigMap>().patch(&cluster.key("a"), &patch).await.unwrap();
    cluster.left(&["a", "b"], "a b").await;
    cluster.delete("a", PropagationPolicy::Foreground).await;
    cluster.left(&["a", "b"], "").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn kinds_that_are_made_at_run_time_own_and_are_owned() {
    let cluster = Cluster::new().await;
    let group = format!("{}.example.com", cluster.server.ours());
    let crd: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": format!("lamps.{group}")},
        "spec": {
            "group": group, "scope": "Cluster",
            "names": {"kind": "Lamp", "plural": "lamps", "singular": "lamp"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    }))
    .unwrap();
    cluster.clients.api::<CustomResourceDefinition>().create(&crd).await.unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, "v1", "Lamp"));
    let lamps = cluster.clients.api_of::<DynamicObject>(kind.clone());
    let made = async || lamps.create(&DynamicObject::new("desk", &kind)).await.ok();
    let lamp = cluster.server.until("served", made).await;
    let owner = json!({"apiVersion": format!("{group}/v1"), "kind": "Lamp", "name": "desk", "uid": lamp.metadata.uid});
    cluster.create("child", std::slice::from_ref(&owner)).await;
    // The owner's kind is not served, so the collector cannot know whether the owner exists.
    let unknown = json!({"apiVersion": format!("{group}/v1"), "kind": "Switch", "name": "s", "uid": "u"});
    cluster.create("unclear", &[unknown]).await;
    cluster.left(&["child", "unclear"], "child unclear").await;
    lamps.delete(&ObjectName::cluster("desk")).await.unwrap();
    cluster.left(&["child", "unclear"], "unclear").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_made_anew_without_namespaces_owns_what_has_one() {
    let server = Server::embedded(|settings| settings).await;
    let theirs = server.clients();
    let cluster = Cluster::around(server, theirs);
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let crd = |scope: &str| {
        json!({"metadata": {"name": "lamps.example.com"}, "spec": {
            "group": "example.com", "scope": scope, "names": {"kind": "Lamp", "plural": "lamps"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
    };
    common::post(&cluster.server, definitions, &crd("Namespaced")).await;
    let lamp = json!({"apiVersion": "example.com/v1", "kind": "Lamp", "metadata": {"name": "desk"}});
    let lamps = format!("/apis/example.com/v1/namespaces/{}/lamps", cluster.server.ours());
    let owner = |made: &Value| json!({"apiVersion": "example.com/v1", "kind": "Lamp", "name": "desk", "uid": made["metadata"]["uid"]});
    let first = common::post(&cluster.server, &lamps, &lamp).await;
    cluster.create("first", &[owner(&first)]).await;
    cluster.left(&["first"], "first").await;
    common::call(&cluster.server, "DELETE", &format!("{definitions}/lamps.example.com"), &Value::Null).await;
    common::post(&cluster.server, definitions, &crd("Cluster")).await;
    let second = common::post(&cluster.server, "/apis/example.com/v1/lamps", &lamp).await;
    cluster.create("second", &[owner(&second)]).await;
    cluster.left(&["first", "second"], "second").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_in_one_namespace_cannot_have_an_owner_in_another() {
    let cluster = Cluster::new().await;
    let (far, owned) = (format!("{}-far", cluster.server.ours()), format!("{}-owned", cluster.server.ours()));
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": far}})).unwrap();
    cluster.clients.api::<Namespace>().create(&namespace).await.unwrap();
    let far: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "owner", "namespace": far}})).unwrap();
    let far = cluster.clients.api::<ConfigMap>().create(&far).await.unwrap();
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": far.metadata.uid});
    cluster.create("child", std::slice::from_ref(&owner)).await;
    cluster.left(&["child"], "").await;
    // A cluster-scoped object with a namespaced owner is invalid and must stay.
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": owned, "ownerReferences": [owner]}})).unwrap();
    cluster.clients.api::<Namespace>().create(&namespace).await.unwrap();
    cluster.settle().await;
    assert!(cluster.clients.api::<Namespace>().get(&ObjectName::cluster(&owned)).await.is_ok());
    cluster.end().await;
}

/// The request of the Secret informer, which covers all namespaces.
fn all_secrets(uri: &Uri) -> bool {
    uri.path() == "/api/v1/secrets"
}

fn watch_of_secrets(uri: &Uri) -> bool {
    all_secrets(uri) && uri.query().unwrap_or_default().contains("watch=true")
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_though_the_cache_of_their_kind_is_behind_or_empty() {
    // First the informer has not synced; then it has, but its watch is stalled.
    for (streaming_lists, held) in [(true, all_secrets as fn(&Uri) -> bool), (false, watch_of_secrets)] {
        let (cluster, open) = Cluster::holding(streaming_lists, held).await;
        cluster.settle().await;
        let root = cluster.create("root", &[]).await;
        cluster.create_secret("child", blocking(root.clone()), &[]).await;
        cluster.delete("root", PropagationPolicy::Orphan).await;
        cluster.left(&["root"], "").await;
        open.cancel();
        cluster.create_secret("marker", root, &[]).await;
        let settled = async || cluster.secret("marker").await.is_none().then_some(());
        cluster.server.until("settled", settled).await;
        let child = cluster.secret("child").await.expect("an orphan stays");
        assert_eq!(child.metadata.owner_references.unwrap_or_default(), []);
        cluster.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn orphans_on_more_than_a_page_stay_though_the_collector_started_after_the_delete() {
    let mut cluster = Cluster::without_collector(Server::embedded(|settings| settings).await);
    let root = cluster.create("root", &[]).await;
    for number in 0..501 {
        cluster.create_secret(&format!("child-{number}"), root.clone(), &[]).await;
    }
    cluster.delete("root", PropagationPolicy::Orphan).await;
    cluster.start(cluster.clients.clone());
    cluster.left(&["root"], "").await;
    cluster.create_secret("marker", root, &[]).await;
    let settled = async || cluster.secret("marker").await.is_none().then_some(());
    cluster.server.until("settled", settled).await;
    for number in 0..501 {
        let child = cluster.secret(&format!("child-{number}")).await.expect("an orphan stays");
        assert_eq!(child.metadata.owner_references.unwrap_or_default(), []);
    }
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_an_owner_waits_for_kinds_that_cannot_be_seen_yet_and_others_do_not() {
    let (cluster, open) = Cluster::holding(true, all_secrets).await;
    let root = cluster.create("root", &[]).await;
    cluster.create_secret("blocking", blocking(root), &["example.com/hold"]).await;
    cluster.delete("root", PropagationPolicy::Foreground).await;
    cluster.left(&["root"], "root").await;
    assert!(cluster.secret("blocking").await.unwrap().metadata.deletion_timestamp.is_none());
    open.cancel();
    let deleting = async || cluster.secret("blocking").await.unwrap().metadata.deletion_timestamp;
    cluster.server.until("deleted", deleting).await;
    cluster.left(&["root"], "root").await;
    let patch = Patch::Merge(json!({"metadata": {"finalizers": []}}));
    cluster.clients.api::<Secret>().patch(&cluster.key("blocking"), &patch).await.unwrap();
    cluster.left(&["root"], "").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_a_dependent_waits_for_its_own_of_kinds_that_cannot_be_seen_yet() {
    let (cluster, open) = Cluster::holding(true, all_secrets).await;
    let root = cluster.create("root", &[]).await;
    let child = cluster.create("child", &[blocking(root)]).await;
    cluster.create_secret("grandchild", blocking(child), &["example.com/hold"]).await;
    cluster.delete("root", PropagationPolicy::Foreground).await;
    cluster.left(&["root", "child"], "root child").await;
    open.cancel();
    let deleting = async || cluster.secret("grandchild").await.unwrap().metadata.deletion_timestamp;
    cluster.server.until("deleted", deleting).await;
    cluster.left(&["root", "child"], "root child").await;
    let patch = Patch::Merge(json!({"metadata": {"finalizers": []}}));
    cluster.clients.api::<Secret>().patch(&cluster.key("grandchild"), &patch).await.unwrap();
    cluster.left(&["root", "child"], "").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_of_a_kind_that_cannot_be_listed_is_kept() {
    let (cluster, open) = Cluster::holding(true, |uri| uri.path().ends_with("/secrets")).await;
    let root = cluster.create("root", &[]).await;
    cluster.create_secret("child", root, &[]).await;
    cluster.create("other", &[]).await;
    cluster.delete("root", PropagationPolicy::Orphan).await;
    cluster.delete("other", PropagationPolicy::Foreground).await;
    // Longer than every deadline.
    cluster.server.env.clock.sleep(std::time::Duration::from_secs(120)).await;
    cluster.left(&["root", "other"], "root other").await;
    assert_eq!(cluster.get("root").await.unwrap().metadata.finalizers.unwrap(), ["orphan"]);
    let reporter = &cluster.server.env.reporter;
    assert!(reporter.errors() > 0, "nobody is told");
    open.cancel();
    cluster.left(&["root", "other"], "").await;
    assert_eq!(cluster.secret("child").await.unwrap().metadata.owner_references.unwrap_or_default(), []);
    cluster.stop.cancel();
    cluster.collector.unwrap().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_foreground_delete_does_not_request_owners_of_a_kind_that_is_not_served() {
    let cluster = Cluster::new().await;
    let unknown = json!({"apiVersion": "no.io/v1", "kind": "Nope", "name": "x", "uid": "u1"});
    cluster.create("owned", &[unknown]).await;
    cluster.delete("owned", PropagationPolicy::Foreground).await;
    cluster.left(&["owned"], "").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn owners_that_wait_for_each_other_stay_and_are_reported_without_a_storm_of_requests() {
    // As with kube-controller-manager when all are deleted before it observes the first deletion.
    for names in [&["a"][..], &["a", "b"], &["a", "b", "c"]] {
        let (mut cluster, theirs, requests) = Cluster::counting(|_| None).await;
        let mut references = Vec::new();
        for name in names {
            references.push(blocking(cluster.create(name, &[]).await));
        }
        references.rotate_left(1);
        for (name, owner) in names.iter().zip(&references) {
            let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [owner]}}));
            cluster.clients.api::<ConfigMap>().patch(&cluster.key(name), &patch).await.unwrap();
        }
        for name in names {
            cluster.delete(name, PropagationPolicy::Foreground).await;
        }
        cluster.start(theirs);
        cluster.assert_quiet_after(1, &requests).await;
        cluster.left(names, &names.join(" ")).await;
        // Removing one reference by hand releases all of them.
        let patch = Patch::Merge(json!({"metadata": {"ownerReferences": []}}));
        cluster.clients.api::<ConfigMap>().patch(&cluster.key("a"), &patch).await.unwrap();
        cluster.left(names, "").await;
        cluster.stop.cancel();
    }
}

fn status(code: u16, reason: &str) -> Response<Full<Bytes>> {
    let text =
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code});
    Response::builder().status(code).body(Full::from(text.to_string())).unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_again_and_again_is_reported_without_a_storm_of_requests() {
    for (code, reason) in [(409, "Conflict"), (405, "MethodNotAllowed"), (403, "Forbidden")] {
        let answer =
            move |request: &Request<Body>| (request.method() == Method::DELETE).then(|| status(code, reason));
        let (mut cluster, theirs, requests) = Cluster::counting(answer).await;
        let absent = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "no-such-uid"});
        cluster.create("child", &[absent]).await;
        cluster.start(theirs);
        cluster.assert_quiet_after(1, &requests).await;
        assert!(cluster.get("child").await.is_some());
        cluster.stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_never_ends_is_given_up() {
    let answer = |request: &Request<Body>| {
        let is_page = request.uri().query().unwrap_or_default().contains("limit=500");
        let text = json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "items": [],
            "metadata": {"resourceVersion": "1", "continue": "again"},
        });
        let is_secrets = request.uri().path().ends_with("/secrets");
        (is_page && is_secrets).then(|| Response::new(Full::from(text.to_string())))
    };
    let (mut cluster, theirs, _requests) = Cluster::counting(answer).await;
    cluster.create("root", &[]).await;
    cluster.delete("root", PropagationPolicy::Orphan).await;
    cluster.start(theirs);
    let reported = async || (cluster.server.env.reporter.errors() >= 1).then_some(());
    cluster.server.until("reported", reported).await;
    assert!(cluster.get("root").await.is_some(), "nobody knows what it owns");
    cluster.stop.cancel();
}
