//! Background deletion and orphaning: dependents are deleted with their last owner.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::params::PropagationPolicy;
use kube_core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use watchkeeper::ObjectName;

use crate::cluster::{Cluster, blocking};
use crate::common::Server;
use crate::common::{call, post};

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
    post(&cluster.server, definitions, &crd("Namespaced")).await;
    let lamp = json!({"apiVersion": "example.com/v1", "kind": "Lamp", "metadata": {"name": "desk"}});
    let lamps = format!("/apis/example.com/v1/namespaces/{}/lamps", cluster.server.ours());
    let owner = |made: &Value| json!({"apiVersion": "example.com/v1", "kind": "Lamp", "name": "desk", "uid": made["metadata"]["uid"]});
    let first = post(&cluster.server, &lamps, &lamp).await;
    cluster.create("first", &[owner(&first)]).await;
    cluster.left(&["first"], "first").await;
    call(&cluster.server, "DELETE", &format!("{definitions}/lamps.example.com"), &Value::Null).await;
    post(&cluster.server, definitions, &crd("Cluster")).await;
    let second = post(&cluster.server, "/apis/example.com/v1/lamps", &lamp).await;
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
