//! Does what nobody owns any more go away, and nothing else? In process, on the paused clock.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::params::{DeleteParams, Patch, PropagationPolicy};
use kube_core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::{Clients, Env, ObjectName};
use watchkeeper_apiserver::{ApiServer, collect_garbage};

struct World {
    env: Env,
    clients: Clients,
    stop: CancellationToken,
    collector: JoinHandle<()>,
}

impl World {
    fn new() -> Self {
        let env = Env::simulated(1);
        let clients = Clients::from_client(ApiServer::builder(&env).build().client(), &env);
        let (theirs, stop) = (clients.clone(), CancellationToken::new());
        let token = stop.clone();
        let collector = tokio::spawn(async move { collect_garbage(&theirs, &token).await });
        Self { env, clients, stop, collector }
    }

    /// A ConfigMap owned by others, each given by its reference; its own reference.
    async fn create(&self, name: &str, owners: &[Value]) -> Value {
        let metadata = json!({"name": name, "namespace": "default", "ownerReferences": owners});
        let object: ConfigMap = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        let made = self.clients.requests().of::<ConfigMap>().create(&object).await.unwrap();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made.metadata.uid})
    }

    async fn get(&self, name: &str) -> Option<ConfigMap> {
        self.clients.requests().of::<ConfigMap>().get(&ObjectName::namespaced("default", name)).await.ok()
    }

    async fn delete(&self, name: &str, policy: PropagationPolicy) {
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        let key = ObjectName::namespaced("default", name);
        self.clients.requests().of::<ConfigMap>().delete_with(&key, &params).await.unwrap();
    }

    /// Those of `names` that are there after everything has settled.
    async fn left(&self, names: &[&str]) -> String {
        self.env.clock.sleep(Duration::from_secs(5)).await;
        let mut left = Vec::new();
        for name in names {
            if self.get(name).await.is_some() {
                left.push(*name);
            }
        }
        left.join(" ")
    }

    async fn set_finalizers(&self, name: &str, finalizers: &[&str]) {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        let key = ObjectName::namespaced("default", name);
        self.clients.requests().of::<ConfigMap>().patch(&key, &patch).await.unwrap();
    }

    async fn end(self) {
        self.stop.cancel();
        self.collector.await.unwrap();
        assert_eq!((self.env.reporter.errors(), self.env.reporter.panics()), (0, 0));
    }
}

fn blocking(mut reference: Value) -> Value {
    reference["blockOwnerDeletion"] = true.into();
    reference
}

#[tokio::test(start_paused = true)]
async fn dependents_of_dependents_go_in_the_background_and_others_stay() {
    let world = World::new();
    let root = world.create("root", &[]).await;
    let child = world.create("child", std::slice::from_ref(&root)).await;
    world.create("grandchild", std::slice::from_ref(&child)).await;
    world.create("other", &[]).await;
    let all = ["root", "child", "grandchild", "other"];
    assert_eq!(world.left(&all).await, "root child grandchild other");
    world.delete("root", PropagationPolicy::Background).await;
    assert!(world.get("root").await.is_none(), "at once");
    assert_eq!(world.left(&all).await, "other");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_goes_with_its_last_owner_and_forgets_those_that_went_before() {
    let world = World::new();
    let (a, b) = (world.create("a", &[]).await, world.create("b", &[]).await);
    world.create("child", &[a, b.clone()]).await;
    world.delete("a", PropagationPolicy::Background).await;
    assert_eq!(world.left(&["child"]).await, "child");
    let owners = world.get("child").await.unwrap().metadata.owner_references.unwrap();
    assert_eq!((owners.len(), &owners[0].uid), (1, &b["uid"].as_str().unwrap().to_owned()));
    world.delete("b", PropagationPolicy::Background).await;
    assert_eq!(world.left(&["child"]).await, "");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_made_anew_under_the_same_name_does_not_count() {
    let world = World::new();
    let old = world.create("owner", &[]).await;
    world.delete("owner", PropagationPolicy::Background).await;
    world.create("owner", &[]).await;
    world.create("child", &[old]).await;
    assert_eq!(world.left(&["owner", "child"]).await, "owner");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_an_owner_waits_for_those_that_block_it() {
    let world = World::new();
    let root = world.create("root", &[]).await;
    world.create("blocking", &[blocking(root.clone())]).await;
    world.create("free", &[root]).await;
    world.set_finalizers("blocking", &["example.com/hold"]).await;
    world.set_finalizers("free", &["example.com/hold"]).await;
    world.delete("root", PropagationPolicy::Foreground).await;
    assert_eq!(world.left(&["root", "blocking", "free"]).await, "root blocking free");
    let root = world.get("root").await.unwrap().metadata;
    assert!(root.deletion_timestamp.is_some());
    assert_eq!(root.finalizers.unwrap(), ["foregroundDeletion"]);
    assert!(world.get("blocking").await.unwrap().metadata.deletion_timestamp.is_some());
    world.set_finalizers("blocking", &[]).await;
    assert_eq!(
        world.left(&["root", "blocking", "free"]).await,
        "free",
        "who does not block is not waited for"
    );
    world.set_finalizers("free", &[]).await;
    assert_eq!(world.left(&["free"]).await, "");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_a_chain_goes_from_its_end() {
    let world = World::new();
    let root = world.create("root", &[]).await;
    let child = world.create("child", &[blocking(root)]).await;
    world.create("grandchild", &[blocking(child)]).await;
    world.set_finalizers("grandchild", &["example.com/hold"]).await;
    world.delete("root", PropagationPolicy::Foreground).await;
    assert_eq!(world.left(&["root", "child", "grandchild"]).await, "root child grandchild");
    assert_eq!(world.get("child").await.unwrap().metadata.finalizers.unwrap(), ["foregroundDeletion"]);
    world.set_finalizers("grandchild", &[]).await;
    assert_eq!(world.left(&["root", "child", "grandchild"]).await, "");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_and_forget_their_owner() {
    let world = World::new();
    let root = world.create("root", &[]).await;
    world.create("child", &[blocking(root)]).await;
    world.left(&[]).await;
    world.delete("root", PropagationPolicy::Orphan).await;
    assert_eq!(world.left(&["root", "child"]).await, "child");
    assert_eq!(world.get("child").await.unwrap().metadata.owner_references.unwrap_or_default(), []);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn two_that_own_each_other_go_in_the_foreground_too() {
    let world = World::new();
    let a = world.create("a", &[]).await;
    let b = world.create("b", &[blocking(a)]).await;
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [blocking(b)]}}));
    let key = ObjectName::namespaced("default", "a");
    world.clients.requests().of::<ConfigMap>().patch(&key, &patch).await.unwrap();
    assert_eq!(world.left(&["a", "b"]).await, "a b");
    world.delete("a", PropagationPolicy::Foreground).await;
    assert_eq!(world.left(&["a", "b"]).await, "");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn kinds_that_are_made_at_run_time_own_and_are_owned() {
    let world = World::new();
    let crd: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "lamps.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"kind": "Lamp", "plural": "lamps", "singular": "lamp"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    }))
    .unwrap();
    world.clients.requests().of::<CustomResourceDefinition>().create(&crd).await.unwrap();
    world.env.clock.sleep(Duration::from_secs(1)).await;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Lamp"));
    let lamps = world.clients.requests().of_kind::<DynamicObject>(kind.clone());
    let lamp = lamps.create(&DynamicObject::new("desk", &kind)).await.unwrap();
    let owner =
        json!({"apiVersion": "example.com/v1", "kind": "Lamp", "name": "desk", "uid": lamp.metadata.uid});
    world.create("child", std::slice::from_ref(&owner)).await;
    // Owned by somebody of a kind that nobody serves: nobody can tell whether it is there.
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Switch", "name": "s", "uid": "u"});
    world.create("unclear", &[unknown]).await;
    assert_eq!(world.left(&["child", "unclear"]).await, "child unclear");
    lamps.delete(&ObjectName::cluster("desk")).await.unwrap();
    assert_eq!(world.left(&["child", "unclear"]).await, "unclear");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_in_one_namespace_is_owned_by_nobody_in_another() {
    let world = World::new();
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "far"}})).unwrap();
    world.clients.requests().of::<Namespace>().create(&namespace).await.unwrap();
    let far: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "owner", "namespace": "far"}})).unwrap();
    let far = world.clients.requests().of::<ConfigMap>().create(&far).await.unwrap();
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": far.metadata.uid});
    world.create("child", std::slice::from_ref(&owner)).await;
    assert_eq!(world.left(&["child"]).await, "", "its owner is not in its namespace: it is absent");
    // What has no namespace cannot be owned by what has one; nobody can tell, so it stays.
    let cluster: Namespace =
        serde_json::from_value(json!({"metadata": {"name": "owned", "ownerReferences": [owner]}})).unwrap();
    world.clients.requests().of::<Namespace>().create(&cluster).await.unwrap();
    world.left(&[]).await;
    assert!(world.clients.requests().of::<Namespace>().get(&ObjectName::cluster("owned")).await.is_ok());
    world.end().await;
}
