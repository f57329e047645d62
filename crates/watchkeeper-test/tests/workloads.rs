//! Workloads on a test cluster: Deployments get ReplicaSets, Pods and fake nodes that pretend to run them.
#![allow(clippy::unwrap_used, reason = "a test may")]

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube_core::params::Patch;
use serde_json::{Value, json};
use watchkeeper::source::{Scope, Selection};
use watchkeeper::{Env, ObjectName};
use watchkeeper_test::TestCluster;

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: 'web:1'}]}
";

async fn cluster() -> TestCluster {
    TestCluster::builder().env(&Env::simulated(1)).nodes(1).without_operator().await
}

async fn patch(cluster: &TestCluster, name: &str, patch: Value) {
    let key = ObjectName::namespaced("default", name);
    cluster.client().api::<Deployment>().patch(&key, &Patch::Merge(patch)).await.unwrap();
}

async fn pods(cluster: &TestCluster, labels: &str) -> Vec<Pod> {
    let selection = Selection { labels: labels.to_owned(), ..Selection::default() };
    let scope = Scope::Namespace("default".to_owned());
    cluster.client().api::<Pod>().list(&scope, &selection).await.unwrap().complete().unwrap()
}

async fn events(cluster: &TestCluster, reason: &str) -> Vec<String> {
    let events = cluster.client().api::<Event>().list(&Scope::Cluster, &Selection::default()).await.unwrap();
    let events = events.complete().unwrap().into_iter();
    let of_reason = events.filter(|event| event.reason.as_deref() == Some(reason));
    of_reason.filter_map(|event| event.message).collect()
}

fn is_rolled_out(deployment: &Deployment, replicas: i32) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let is_complete = |it: &k8s_openapi::api::apps::v1::DeploymentCondition| {
        it.type_ == "Progressing" && it.reason.as_deref() == Some("NewReplicaSetAvailable")
    };
    status.observed_generation == deployment.metadata.generation
        && status.available_replicas.unwrap_or_default() == replicas
        && status.updated_replicas.unwrap_or_default() == replicas
        && status.replicas.unwrap_or_default() == replicas
        && conditions.iter().any(is_complete)
}

#[tokio::test(start_paused = true)]
async fn a_deployment_becomes_available_and_is_scaled() {
    let cluster = cluster().await;
    cluster.apply(WEB).await;
    let web = cluster.eventually::<Deployment>("default/web", |web| is_rolled_out(web, 3)).await;
    assert_eq!(web.metadata.annotations.unwrap()["deployment.kubernetes.io/revision"], "1");
    let made = pods(&cluster, "app=web").await;
    assert_eq!(made.len(), 3);
    let addresses: Vec<_> =
        made.iter().map(|pod| pod.status.as_ref().unwrap().pod_ip.clone().unwrap()).collect();
    assert!(addresses[0] != addresses[1] && addresses[1] != addresses[2], "{addresses:?}");
    assert!(made.iter().all(|pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some("node-1")));
    patch(&cluster, "web", json!({"spec": {"replicas": 1}})).await;
    cluster.eventually::<Deployment>("default/web", |web| is_rolled_out(web, 1)).await;
    cluster.eventually_any::<Event>(|event| event.reason.as_deref() == Some("SuccessfulDelete")).await;
    let scaled = events(&cluster, "ScalingReplicaSet").await;
    assert!(scaled.iter().any(|message| message.ends_with("from 0 to 3")), "{scaled:?}");
}

#[tokio::test(start_paused = true)]
async fn a_rolling_update_replaces_the_pods_and_a_rollback_brings_them_back() {
    let cluster = cluster().await;
    cluster.apply(WEB).await;
    cluster.eventually::<Deployment>("default/web", |web| is_rolled_out(web, 3)).await;
    let image = |image: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}});
    for (revision, of) in [("2", "web:2"), ("3", "web:1")] {
        patch(&cluster, "web", image(of)).await;
        let has_revision = |web: &Deployment| {
            web.metadata.annotations.as_ref().unwrap()["deployment.kubernetes.io/revision"] == revision
        };
        cluster
            .eventually::<Deployment>("default/web", |web| has_revision(web) && is_rolled_out(web, 3))
            .await;
    }
    let scope = Scope::Namespace("default".to_owned());
    let sets = cluster.client().api::<ReplicaSet>().list(&scope, &Selection::default()).await.unwrap();
    assert_eq!(sets.complete().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_rollout_of_pods_that_do_not_start_exceeds_its_deadline() {
    let cluster = cluster().await;
    cluster.apply(WEB).await;
    cluster.eventually::<Deployment>("default/web", |web| is_rolled_out(web, 3)).await;
    let broken = json!({"metadata": {"annotations": {"watchkeeper.dev/image-pull-error": "not found"}}});
    patch(&cluster, "web", json!({"spec": {"progressDeadlineSeconds": 5, "template": broken}})).await;
    let has_failed = |web: &Deployment| {
        let conditions = web.status.clone().unwrap_or_default().conditions.unwrap_or_default();
        conditions.iter().any(|it| it.reason.as_deref() == Some("ProgressDeadlineExceeded"))
    };
    let web = cluster.eventually::<Deployment>("default/web", has_failed).await;
    assert!(web.status.unwrap().available_replicas.unwrap() >= 2);
}

#[tokio::test(start_paused = true)]
async fn recreate_has_no_old_and_new_pods_at_once() {
    let cluster = cluster().await;
    cluster.apply(&WEB.replace("replicas: 3", "replicas: 2\n  strategy: {type: Recreate}")).await;
    cluster.eventually::<Deployment>("default/web", |web| is_rolled_out(web, 2)).await;
    let slow = json!({"metadata": {"annotations": {"watchkeeper.dev/stop-delay": "3s"}}});
    patch(&cluster, "web", json!({"spec": {"template": slow}})).await;
    cluster
        .eventually::<Deployment>("default/web", |web| {
            is_rolled_out(web, 2)
                && web.metadata.annotations.as_ref().unwrap()["deployment.kubernetes.io/revision"] == "2"
        })
        .await;
    assert_eq!(pods(&cluster, "app=web").await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_adopted_and_a_relabeled_pod_is_released() {
    let cluster = cluster().await;
    cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: orphan, labels: {app: web}}, spec: {containers: [{name: main, image: 'web:1'}]}}").await;
    let set = WEB.replace("kind: Deployment", "kind: ReplicaSet");
    cluster.apply(&set).await;
    let is_ready =
        |set: &ReplicaSet| set.status.as_ref().is_some_and(|status| status.ready_replicas == Some(3));
    cluster.eventually::<ReplicaSet>("default/web", is_ready).await;
    let owner = |pod: &Pod| {
        pod.metadata.owner_references.clone().unwrap_or_default().first().map(|it| it.name.clone())
    };
    let orphan = cluster.get::<Pod>("default/orphan").await.unwrap();
    assert_eq!(owner(&orphan).as_deref(), Some("web"));
    assert_eq!(pods(&cluster, "app=web").await.len(), 3);
    let key = ObjectName::namespaced("default", "orphan");
    let relabel = json!({"metadata": {"labels": {"app": "other"}}});
    cluster.client().api::<Pod>().patch(&key, &Patch::Merge(relabel)).await.unwrap();
    cluster.eventually::<Pod>("default/orphan", |pod| owner(pod).is_none()).await;
    cluster.eventually::<ReplicaSet>("default/web", is_ready).await;
    assert_eq!(pods(&cluster, "app=web").await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fits_nowhere_says_why_and_runs_when_it_does() {
    let cluster = cluster().await;
    cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: picky}, spec: {nodeSelector: {disk: ssd}, containers: [{name: main, image: 'web:1'}]}}").await;
    let is_refused = |pod: &Pod| {
        let conditions = pod.status.clone().unwrap_or_default().conditions.unwrap_or_default();
        conditions.iter().any(|it| {
            it.reason.as_deref() == Some("Unschedulable")
                && it.message.as_deref()
                    == Some("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.")
        })
    };
    cluster.eventually::<Node>("node-1", |_| true).await;
    cluster.eventually::<Pod>("default/picky", is_refused).await;
    let label = json!({"metadata": {"labels": {"disk": "ssd"}}});
    cluster.client().api::<Node>().patch(&ObjectName::cluster("node-1"), &Patch::Merge(label)).await.unwrap();
    let runs =
        |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
    cluster.eventually::<Pod>("default/picky", runs).await;
    cluster.delete::<Pod>("default/picky").await;
    cluster.eventually_gone::<Pod>("default/picky").await;
}

#[tokio::test(start_paused = true)]
async fn without_nodes_nothing_makes_pods() {
    let cluster = TestCluster::builder().env(&Env::simulated(1)).without_operator().await;
    cluster.apply(WEB).await;
    cluster.client().env().clock.sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(
        cluster.get::<Deployment>("default/web").await.unwrap().status.unwrap_or_default().replicas,
        None
    );
    assert!(cluster.get::<Node>("node-1").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_node_is_owned_by_it() {
    let cluster = cluster().await;
    let lease = cluster.eventually::<Lease>("kube-node-lease/node-1", |_| true).await;
    let node = cluster.client().api::<Node>().get(&ObjectName::cluster("node-1")).await.unwrap();
    let owner = &lease.metadata.owner_references.unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Node", "node-1"));
    assert_eq!(Some(&owner.uid), node.metadata.uid.as_ref());
}

#[tokio::test(start_paused = true)]
async fn the_pod_of_highest_priority_gets_the_room_that_another_leaves() {
    let admission = "*".parse().unwrap();
    let builder = TestCluster::builder().env(&Env::simulated(1)).nodes(1).admission(admission);
    let cluster = builder.without_operator().await;
    for (name, value) in [("low", 1), ("middle", 5), ("high", 9)] {
        let class = format!("{{kind: PriorityClass, metadata: {{name: {name}}}, value: {value}}}");
        cluster.apply(&class.replacen('{', "{apiVersion: scheduling.k8s.io/v1, ", 1)).await;
    }
    // Each takes more than half of the node.
    let pod = |name: &str, class: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{priorityClassName: {class}, containers: \
             [{{name: main, image: a, resources: {{requests: {{cpu: '600'}}}}}}]}}}}"
        )
    };
    let is_bound = |pod: &Pod| pod.spec.as_ref().unwrap().node_name.is_some();
    let waits = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|it| it.reason.as_deref() == Some("Unschedulable"))
    };
    cluster.apply(&pod("first", "low")).await;
    cluster.eventually::<Pod>("default/first", is_bound).await;
    let others = [("a", "low"), ("b", "middle"), ("c", "high")];
    for (name, class) in others {
        cluster.apply(&pod(name, class)).await;
        cluster.eventually::<Pod>(&format!("default/{name}"), waits).await;
    }
    let mut before = "first";
    for next in ["c", "b", "a"] {
        cluster.delete::<Pod>(&format!("default/{before}")).await;
        cluster.eventually::<Pod>(&format!("default/{next}"), is_bound).await;
        before = next;
    }
}

#[tokio::test(start_paused = true)]
async fn with_its_plugin_a_pod_gets_a_service_account_and_runs() {
    let admission = "ServiceAccount".parse().unwrap();
    let builder = TestCluster::builder().env(&Env::simulated(1)).nodes(1).admission(admission);
    let cluster = builder.without_operator().await;
    cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: new}}").await;
    // In one step with its namespace, as a user does.
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: new}, spec: {containers: [{name: main, image: a}]}}";
    cluster.apply(pod).await;
    let is_running = |pod: &Pod| pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Running"));
    let pod = cluster.eventually::<Pod>("new/a", is_running).await;
    assert_eq!(pod.spec.as_ref().unwrap().service_account_name.as_deref(), Some("default"));
}
