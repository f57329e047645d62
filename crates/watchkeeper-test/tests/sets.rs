//! StatefulSets, DaemonSets, ReplicationControllers and disruption budgets on a test cluster.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    EndpointAddress, Endpoints, Event, Node, PersistentVolumeClaim, Pod, ReplicationController,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube_core::params::Patch;
use serde_json::{Value, json};
use watchkeeper::source::{Scope, Selection};
use watchkeeper::{Env, Kind, ObjectName};
use watchkeeper_test::TestCluster;

async fn cluster(nodes: usize) -> TestCluster {
    let patience = Duration::from_secs(600);
    TestCluster::builder().env(&Env::simulated(1)).patience(patience).nodes(nodes).without_operator().await
}

async fn list<K>(cluster: &TestCluster, labels: &str) -> Vec<K>
where
    K: Kind<DynamicType: Default>,
{
    let selection = Selection { labels: labels.to_owned(), ..Selection::default() };
    let scope = Scope::Namespace("default".to_owned());
    cluster.client().api::<K>().list(&scope, &selection).await.unwrap().complete().unwrap()
}

fn names<K: Kind>(objects: &[K]) -> Vec<String> {
    let mut names: Vec<_> = objects.iter().map(|object| object.meta().name.clone().unwrap()).collect();
    names.sort();
    names
}

async fn patch<K: Kind<DynamicType: Default>>(cluster: &TestCluster, key: &ObjectName, patch: Value) {
    cluster.client().api::<K>().patch(key, &Patch::Merge(patch)).await.unwrap();
}

fn key(name: &str) -> ObjectName {
    ObjectName::namespaced("default", name)
}

const DB: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 3
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}, annotations: {watchkeeper.dev/ready-delay: 2s}}
    spec: {containers: [{name: main, image: 'db:1'}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";

fn is_updated(set: &StatefulSet, replicas: i32) -> bool {
    let status = set.status.clone().unwrap_or_default();
    status.observed_generation == set.metadata.generation
        && status.replicas == replicas
        && status.ready_replicas.unwrap_or_default() == replicas
        && status.updated_replicas.unwrap_or_default() == replicas
        && status.current_revision == status.update_revision
}

fn image(pod: &Pod) -> String {
    pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_grows_shrinks_and_keeps_its_claims() {
    let cluster = cluster(1).await;
    cluster.apply(DB).await;
    cluster.eventually::<Pod>("default/db-0", |_| true).await;
    assert!(cluster.get::<Pod>("default/db-1").await.is_none());
    cluster.eventually::<StatefulSet>("default/db", |set| is_updated(set, 3)).await;
    let pods = list::<Pod>(&cluster, "app=db").await;
    assert_eq!(names(&pods), ["db-0", "db-1", "db-2"]);
    let created: Vec<_> = pods.iter().map(|pod| pod.metadata.creation_timestamp.clone()).collect();
    assert!(created[0] < created[1] && created[1] < created[2], "{created:?}");
    patch::<StatefulSet>(&cluster, &key("db"), json!({"spec": {"replicas": 1}})).await;
    cluster.eventually::<StatefulSet>("default/db", |set| is_updated(set, 1)).await;
    assert_eq!(names(&list::<Pod>(&cluster, "app=db").await), ["db-0"]);
    let claims = list::<PersistentVolumeClaim>(&cluster, "app=db").await;
    assert_eq!(names(&claims), ["data-db-0", "data-db-1", "data-db-2"]);
    assert_eq!(
        cluster.get::<StatefulSet>("default/db").await.unwrap().status.unwrap().available_replicas,
        Some(1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_is_updated_down_to_its_partition_and_rolled_back() {
    let cluster = cluster(1).await;
    cluster.apply(DB).await;
    cluster.eventually::<StatefulSet>("default/db", |set| is_updated(set, 3)).await;
    let containers = |image: &str| json!({"spec": {"containers": [{"name": "main", "image": image}]}});
    let rolling =
        |partition: i32| json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
    let canary = json!({"spec": {"template": containers("db:2"), "updateStrategy": rolling(2)}});
    patch::<StatefulSet>(&cluster, &key("db"), canary).await;
    cluster.eventually::<Pod>("default/db-2", |pod| image(pod) == "db:2").await;
    let is_partial = |set: &StatefulSet| {
        let status = set.status.clone().unwrap_or_default();
        status.updated_replicas == Some(1)
            && status.ready_replicas == Some(3)
            && status.current_replicas == Some(2)
    };
    cluster.eventually::<StatefulSet>("default/db", is_partial).await;
    patch::<StatefulSet>(&cluster, &key("db"), json!({"spec": {"updateStrategy": rolling(0)}})).await;
    cluster.eventually::<StatefulSet>("default/db", |set| is_updated(set, 3)).await;
    assert!(list::<Pod>(&cluster, "app=db").await.iter().all(|pod| image(pod) == "db:2"));
    patch::<StatefulSet>(&cluster, &key("db"), json!({"spec": {"template": containers("db:1")}})).await;
    cluster.eventually::<Pod>("default/db-0", |pod| image(pod) == "db:1").await;
    cluster.eventually::<StatefulSet>("default/db", |set| is_updated(set, 3)).await;
    let revisions = list::<ControllerRevision>(&cluster, "app=db").await;
    let mut numbers: Vec<_> = revisions.iter().map(|revision| revision.revision).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3]);
}

#[tokio::test(start_paused = true)]
async fn the_fields_that_identify_a_stateful_set_cannot_change() {
    let cluster = cluster(1).await;
    cluster.apply(DB).await;
    let change = json!({"spec": {"serviceName": "other"}});
    let answer = cluster.client().api::<StatefulSet>().patch(&key("db"), &Patch::Merge(change)).await;
    assert!(answer.unwrap_err().to_string().contains("updates to statefulset spec for fields other than"));
}

const AGENT: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: main, image: 'agent:1'}]}
";

fn runs_on(set: &DaemonSet, nodes: i32) -> bool {
    let status = set.status.clone().unwrap_or_default();
    status.observed_generation == set.metadata.generation
        && status.desired_number_scheduled == nodes
        && status.number_available.unwrap_or_default() == nodes
        && status.updated_number_scheduled.unwrap_or_default() == nodes
        && status.number_misscheduled == 0
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_runs_on_every_node_and_follows_taints_and_updates() {
    let cluster = cluster(3).await;
    cluster.apply(AGENT).await;
    cluster.eventually::<DaemonSet>("default/agent", |set| runs_on(set, 3)).await;
    let mut nodes: Vec<_> = list::<Pod>(&cluster, "app=agent")
        .await
        .iter()
        .map(|pod| pod.spec.clone().unwrap().node_name.unwrap())
        .collect();
    nodes.sort();
    assert_eq!(nodes, ["node-1", "node-2", "node-3"]);
    let taint = json!({"spec": {"taints": [{"key": "broken", "effect": "NoExecute"}]}});
    patch::<Node>(&cluster, &ObjectName::cluster("node-2"), taint).await;
    cluster.eventually::<DaemonSet>("default/agent", |set| runs_on(set, 2)).await;
    patch::<Node>(&cluster, &ObjectName::cluster("node-2"), json!({"spec": {"taints": null}})).await;
    cluster.eventually::<DaemonSet>("default/agent", |set| runs_on(set, 3)).await;
    let update =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "agent:2"}]}}}});
    patch::<DaemonSet>(&cluster, &key("agent"), update).await;
    cluster.eventually::<DaemonSet>("default/agent", |set| runs_on(set, 3)).await;
    let pods = list::<Pod>(&cluster, "app=agent").await;
    assert!(pods.len() == 3 && pods.iter().all(|pod| image(pod) == "agent:2"));
    assert_eq!(list::<ControllerRevision>(&cluster, "app=agent").await.len(), 2);
    let annotations = cluster.get::<DaemonSet>("default/agent").await.unwrap().metadata.annotations.unwrap();
    assert_eq!(annotations["deprecated.daemonset.template.generation"], "2");
}

const CONTROLLER: &str = "
apiVersion: v1
kind: ReplicationController
metadata: {name: web}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: 'web:1'}]}
";

#[tokio::test(start_paused = true)]
async fn a_replication_controller_keeps_its_pods_and_releases_those_that_it_does_not_select() {
    let cluster = cluster(1).await;
    cluster.apply(CONTROLLER).await;
    let is_ready = |of: &ReplicationController| {
        of.status.as_ref().is_some_and(|status| status.ready_replicas == Some(2))
    };
    let made = cluster.eventually::<ReplicationController>("default/web", is_ready).await;
    assert_eq!(made.spec.unwrap().selector.unwrap()["app"], "web");
    let pod = list::<Pod>(&cluster, "app=web").await[0].metadata.name.clone().unwrap();
    patch::<Pod>(&cluster, &key(&pod), json!({"metadata": {"labels": {"app": "other"}}})).await;
    cluster.eventually::<Pod>(&format!("default/{pod}"), |pod| pod.metadata.owner_references.is_none()).await;
    cluster.eventually::<ReplicationController>("default/web", is_ready).await;
    assert_eq!(list::<Pod>(&cluster, "app=web").await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_budget_says_how_many_pods_may_be_evicted() {
    let cluster = cluster(1).await;
    cluster.apply(CONTROLLER).await;
    cluster.apply("{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}}").await;
    let allows = |budget: &PodDisruptionBudget, number: i64| {
        let status = serde_json::to_value(&budget.status).unwrap();
        status["disruptionsAllowed"] == number && status["expectedPods"] == 2
    };
    cluster.eventually::<PodDisruptionBudget>("default/web", |budget| allows(budget, 1)).await;
    let pods = list::<Pod>(&cluster, "app=web").await;
    let evict = async |pod: &Pod| {
        let name = pod.metadata.name.clone().unwrap();
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}});
        cluster.client().api::<Pod>().create_subresource("eviction", &key(&name), &eviction).await
    };
    evict(&pods[0]).await.unwrap();
    assert!(evict(&pods[1]).await.unwrap_err().to_string().contains("disruption budget"));
    cluster.eventually::<PodDisruptionBudget>("default/web", |budget| allows(budget, 1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_dies_loses_its_pods_and_gets_others_when_it_is_back() {
    let cluster = cluster(2).await;
    let ready = |node: &Node| {
        let conditions = node.status.clone().unwrap_or_default().conditions.unwrap_or_default();
        conditions.into_iter().find(|it| it.type_ == "Ready").map(|it| it.status).unwrap_or_default()
    };
    let taints = |node: &Node| node.spec.clone().unwrap_or_default().taints.unwrap_or_default().len();
    cluster.eventually::<Node>("node-2", |node| ready(node) == "True" && taints(node) == 0).await;
    cluster.apply(&CONTROLLER.replace("replicas: 2", "replicas: 4")).await;
    cluster.apply("{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}").await;
    let is_ready = |of: &ReplicationController| {
        of.status.as_ref().is_some_and(|status| status.ready_replicas == Some(4))
    };
    cluster.eventually::<ReplicationController>("default/web", is_ready).await;
    let on = |pods: &[Pod], node: &str| {
        let is_there = |pod: &&Pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some(node);
        pods.iter().filter(is_there).filter(|pod| pod.metadata.deletion_timestamp.is_none()).count()
    };
    assert_eq!(on(&list::<Pod>(&cluster, "app=web").await, "node-1"), 2);
    let node = ObjectName::cluster("node-1");
    patch::<Node>(
        &cluster,
        &node,
        json!({"metadata": {"annotations": {"watchkeeper.dev/dead-node": "true"}}}),
    )
    .await;
    cluster.eventually::<Node>("node-1", |node| ready(node) == "Unknown" && taints(node) == 2).await;
    // Its Pods are still there, but serve nobody any more.
    let counts = |available: i32| {
        move |of: &ReplicationController| {
            let status = of.status.clone().unwrap_or_default();
            (status.replicas, status.available_replicas.unwrap_or_default()) == (4, available)
        }
    };
    cluster.eventually::<ReplicationController>("default/web", counts(2)).await;
    let addresses = |of: &Endpoints| {
        let subsets = of.subsets.clone().unwrap_or_default();
        let count = |all: Option<Vec<EndpointAddress>>| all.unwrap_or_default().len();
        subsets.into_iter().fold((0, 0), |(ready, not), subset| {
            (ready + count(subset.addresses), not + count(subset.not_ready_addresses))
        })
    };
    cluster.eventually::<Endpoints>("default/web", |of| addresses(of) == (2, 2)).await;
    let serving = |of: &EndpointSlice| {
        let conditions = of.endpoints.iter().flatten().filter_map(|endpoint| endpoint.conditions.clone());
        conditions.filter(|conditions| conditions.ready == Some(true)).count()
    };
    let slices = names(&list::<EndpointSlice>(&cluster, "").await);
    let slice = slices.iter().find(|name| name.starts_with("web-")).unwrap();
    cluster.eventually::<EndpointSlice>(&format!("default/{slice}"), |of| serving(of) == 2).await;
    let is_warned = |event: &&Event| event.reason.as_deref() == Some("NodeNotReady");
    let warned = list::<Event>(&cluster, "").await;
    let warned = warned.iter().filter(is_warned).map(|event| event.involved_object.name.clone().unwrap());
    assert_eq!(warned.filter(|name| name.starts_with("web-")).count(), 2);
    // A node that is back in time keeps its Pods.
    let annotate = |value: Value| json!({"metadata": {"annotations": {"watchkeeper.dev/dead-node": value}}});
    patch::<Node>(&cluster, &node, annotate(Value::Null)).await;
    cluster.eventually::<ReplicationController>("default/web", counts(4)).await;
    cluster.eventually::<Endpoints>("default/web", |of| addresses(of) == (4, 0)).await;
    patch::<Node>(&cluster, &node, annotate("true".into())).await;
    cluster.eventually::<Node>("node-1", |node| ready(node) == "Unknown" && taints(node) == 2).await;
    // The server lets Pods tolerate that for five minutes.
    cluster.client().env().clock.sleep(Duration::from_secs(310)).await;
    cluster.eventually::<ReplicationController>("default/web", is_ready).await;
    let pods = list::<Pod>(&cluster, "app=web").await;
    assert_eq!((on(&pods, "node-1"), on(&pods, "node-2")), (0, 4));
    patch::<Node>(&cluster, &node, json!({"metadata": {"annotations": {"watchkeeper.dev/dead-node": null}}}))
        .await;
    cluster.eventually::<Node>("node-1", |node| ready(node) == "True" && taints(node) == 0).await;
}
