//! Stale caches, kinds that cannot be listed, and refused requests.

use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body_util::Full;
use k8s_openapi::api::core::v1::Secret;
use kube_client::client::Body;
use kube_core::params::{Patch, PropagationPolicy};
use serde_json::json;

use crate::cluster::{Cluster, blocking};
use crate::common::Server;

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
