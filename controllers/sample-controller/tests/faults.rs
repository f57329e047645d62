//! The sample controller through every fault, and with stale caches; in process, on virtual time.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use sample_controller::api::{self, Foo, FooSpec};
use sample_controller::{Options, Program, new_deployment};
use serde_json::json;
use watchkeeper::ObjectName;
use watchkeeper::process::Pages;
use watchkeeper::queue::QueueKind;
use watchkeeper_sim::{Check, Cluster, Scenario, User};

fn key(name: &str) -> ObjectName {
    ObjectName::namespaced("default", name)
}

fn foo(name: &str) -> Foo {
    let mut foo = Foo::new(name, FooSpec { deployment_name: format!("{name}-d"), replicas: Some(1) });
    foo.metadata.namespace = Some("default".into());
    foo
}

async fn create_foo(cluster: &Cluster, name: &str) {
    cluster.user.api::<Foo>().create(&foo(name)).await.unwrap();
}

/// Users create, scale and delete, and delete Deployments by hand.
async fn users(user: &User) {
    for name in ["a", "b", "c"] {
        user.create(&foo(name)).await;
    }
    user.eventually::<Deployment>("default/b-d", |_| true).await;
    user.patch::<Foo>("default/a", json!({"spec": {"replicas": 3}})).await;
    user.delete::<Deployment>("default/b-d").await;
    let is_scaled = |it: &Deployment| it.spec.as_ref().unwrap().replicas == Some(3);
    user.eventually::<Deployment>("default/a-d", is_scaled).await;
    let status = json!({"status": {"replicas": 3, "readyReplicas": 3, "availableReplicas": 3}});
    user.patch_status::<Deployment>("default/a-d", status).await;
    user.delete::<Foo>("default/c").await;
    user.settle().await;
}

fn check(queue: QueueKind) {
    let report = Check::builder()
        .name(&format!("sample-controller {queue:?}"))
        .definition(api::crd())
        .pairs(20)
        .seeds(40)
        // A backup is restored while a cache has not seen the controller's last write: the server has lost it.
        .schedule(
            "restart @ step 6; set-back @ step 7; stall @ watch foos.samplecontroller.k8s.io #3 event 1",
        )
        .run_program(
            |_| (),
            async move |life, ()| {
                let options = Options { queue, ..Options::default() };
                sample_controller::run(&life.client, &options, life.stop).await.unwrap_or_default();
            },
            users,
        )
        .unwrap();
    println!("{report}");
}

#[test]
fn through_every_fault_foos_become_as_they_are_without() {
    check(QueueKind::Ordered);
}

#[test]
fn through_every_fault_foos_become_as_they_are_without_on_a_delta_fifo() {
    check(QueueKind::Delta);
}

/// Returns whether every Foo has its own Deployment with its replicas, and a status that agrees.
async fn is_as_wished(cluster: &Cluster) -> bool {
    for name in ["a", "b"] {
        let requests = cluster.user.requests();
        let foo = requests.api::<Foo>().get(&key(name)).await.unwrap();
        let Ok(deployment) = requests.api::<Deployment>().get(&key(&format!("{name}-d"))).await else {
            return false;
        };
        let owner = deployment.metadata.owner_references.unwrap_or_default().pop();
        let is_own = owner.is_some_and(|owner| Some(owner.uid) == foo.metadata.uid);
        if !is_own || deployment.spec.unwrap().replicas != foo.spec.replicas || foo.status.is_none() {
            return false;
        }
    }
    true
}

/// Holds back the caches of the controller for `held` seconds: first its new Deployment, then its write to a Foo.
async fn caches_behind(cluster: &Cluster, held: u64) {
    let requests = cluster.user.requests();
    let has_deployment = async |name: &str| requests.api::<Deployment>().get(&key(name)).await.is_ok();
    requests.api::<CustomResourceDefinition>().create(&api::crd()).await.unwrap();
    cluster.env.clock.sleep(Duration::from_secs(30)).await;

    cluster.net.hold("deployments");
    create_foo(cluster, "a").await;
    cluster.env.clock.sleep(Duration::from_secs(held)).await;
    cluster.net.release();

    create_foo(cluster, "b").await;
    // By now the Foo itself was delivered, and has its Deployment.
    cluster.env.clock.sleep(Duration::from_nanos(1)).await;
    assert!(has_deployment("b-d").await);
    cluster.net.hold("foos");
    requests.api::<Deployment>().delete(&key("b-d")).await.unwrap();
    cluster.env.clock.sleep(Duration::from_secs(held)).await;
    cluster.net.release();
    assert!(cluster.converged(async || is_as_wished(cluster).await).await, "{held} s: it did not converge");
}

// A conflict usually resolves itself, and is not reported. One that does not must not be hidden.
#[test]
fn a_foo_that_conflicts_for_ever_is_explained_at_once_and_reported_after_a_few_retries() {
    for queue in [QueueKind::Ordered, QueueKind::Delta] {
        let options = Options { queue, ..Options::default() };
        let (told, foos) = (Arc::new(Mutex::new(Vec::new())), Mutex::new(None));
        Scenario::new(1).run(
            async |client, stop| {
                let into = told.clone();
                client.env().reporter.add_hook(move |report| {
                    into.lock().unwrap().push(format!("{} {}", report.subject, report.incident));
                });
                let program = Program::new(&client, &options, &mut Pages::default()).unwrap();
                *foos.lock().unwrap() = Some(program.queue().clone());
                program.run(stop).await.unwrap();
            },
            async |cluster| {
                let requests = cluster.user.requests();
                requests.api::<CustomResourceDefinition>().create(&api::crd()).await.unwrap();
                cluster.env.clock.sleep(Duration::from_secs(30)).await;
                told.lock().unwrap().clear();
                // The controller is not notified of a Deployment that another client created.
                cluster.net.hold("deployments");
                let mut foreign = new_deployment(&Foo::new("x", FooSpec::default()));
                (foreign.metadata.name, foreign.metadata.namespace) =
                    (Some("a-d".into()), Some("default".into()));
                requests.api::<Deployment>().create(&foreign).await.unwrap();
                create_foo(cluster, "a").await;
                cluster.env.clock.sleep(Duration::from_millis(1)).await;
                let foos = foos.lock().unwrap().clone().unwrap();
                let record = foos.explain(&key("a")).unwrap();
                let reason = record.last_error.unwrap().message;
                assert!(
                    reason.contains("cannot create the Deployment") && reason.contains("already exists"),
                    "{reason}"
                );
                assert_eq!((record.retries, told.lock().unwrap().len()), (1, 0));
                cluster.env.clock.sleep(Duration::from_secs(600)).await;
                let told = std::mem::take(&mut *told.lock().unwrap());
                let retries = foos.retries(&key("a"));
                assert!(retries >= 16, "{retries}");
                assert_eq!(told.len(), 3, "at the retries 4, 8 and 16: {told:?}");
                assert!(
                    told.iter().all(|line| line.starts_with("foos ") && line.contains("already exists")),
                    "{told:?}"
                );
            },
        );
    }
}

// Kubernetes: ReplicaSets that made too many Pods while their cache was behind (issue 129795).
#[test]
fn nothing_is_written_twice_while_the_cache_is_behind_its_own_writes() {
    for queue in [QueueKind::Ordered, QueueKind::Delta] {
        for held in [1, 360] {
            let options = Options { queue, ..Options::default() };
            let run = Scenario::new(1).run(
                async |client, stop| {
                    sample_controller::run(&client, &options, stop).await.unwrap_or_default()
                },
                async |cluster| caches_behind(cluster, held).await,
            );
            let creates = "create deployments.apps";
            assert_eq!((run.count(creates, 201), run.count(creates, 409)), (3, 0), "{held} s: {run:#?}");
            // client-go: TestDoNothing. A Deployment that is as the Foo wants it is left alone.
            let is_update = |(what, _): &&(String, u16)| {
                ["update", "patch", "apply"]
                    .iter()
                    .any(|verb| what.starts_with(&format!("{verb} deployments")))
            };
            assert_eq!(run.requests.iter().filter(is_update).count(), 0, "{held} s: {run:#?}");
        }
    }
}
