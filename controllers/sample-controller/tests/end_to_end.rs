//! The sample controller end to end: in process on the paused clock, and over a socket in real time, there
//! also on a real API server (`WATCHKEEPER_TEST_KUBECONFIG`); on both queues.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod foo_cluster;

use std::cell::Cell;
use std::process::Command;

use foo_cluster::{FooCluster, Transport};
use kube_core::params::Patch;
use sample_controller::api::{Foo, FooSpec};
use serde_json::json;
use watchkeeper::explain::KeyState;
use watchkeeper::queue::QueueKind;

/// The whole story of a Foo: created, scaled, edited by hand, deleted.
async fn the_story_of_a_foo(foo_cluster: FooCluster) {
    foo_cluster.create_foo("a", "web", 1).await;
    foo_cluster.until("the Deployment is there", |w| w.replicas("web") == Some(1)).await;
    foo_cluster.until("the status is written", |w| w.foo("a").is_some_and(|foo| foo.status.is_some())).await;
    foo_cluster.until("the event is sent", |w| w.has_event("a", "Normal", "Synced")).await;

    foo_cluster.scale_foo("a", 3).await;
    foo_cluster.until("the Deployment follows", |w| w.replicas("web") == Some(3)).await;

    foo_cluster.set_available("web", 2).await;
    let available =
        |w: &FooCluster| w.foo("a").and_then(|foo| foo.status).map(|status| status.available_replicas);
    foo_cluster.until("the status follows", |w| available(w) == Some(2)).await;

    let patch = Patch::Merge(json!({"spec": {"replicas": 9}}));
    foo_cluster.deployments().patch(&foo_cluster.key("web"), &patch).await.unwrap();
    foo_cluster.until("the edit is set back", |w| w.replicas("web") == Some(3)).await;

    let before = foo_cluster.deployment("web").unwrap().metadata.uid;
    foo_cluster.deployments().delete(&foo_cluster.key("web")).await.unwrap();
    foo_cluster
        .until("a new Deployment is there", |w| w.deployment("web").is_some_and(|d| d.metadata.uid != before))
        .await;

    foo_cluster.foos().delete(&foo_cluster.key("a")).await.unwrap();
    foo_cluster.until("the Foo is gone", |w| w.foo("a").is_none()).await;
    foo_cluster.until("its Deployment goes along", |w| w.deployment("web").is_none()).await;
    // Who has served the next Foo has seen the first one go: both come by one watch. From now on nobody makes its Deployment; one made
    // just before, by a controller that saw the Deployment go first, is collected like the other.
    foo_cluster.create_foo("b", "other", 1).await;
    foo_cluster.until("the next Foo is served", |w| w.replicas("other") == Some(1)).await;
    foo_cluster.until("nothing is left of the first Foo", |w| w.deployment("web").is_none()).await;
    foo_cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_foo_is_served_in_process_on_the_ordered_queue() {
    the_story_of_a_foo(FooCluster::start(Transport::InProcess, QueueKind::Ordered).await).await;
}

#[tokio::test(start_paused = true)]
async fn a_foo_is_served_in_process_on_the_delta_queue() {
    the_story_of_a_foo(FooCluster::start(Transport::InProcess, QueueKind::Delta).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foo_is_served_over_a_socket_on_the_ordered_queue() {
    the_story_of_a_foo(FooCluster::start(Transport::Socket, QueueKind::Ordered).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foo_is_served_over_a_socket_on_the_delta_queue() {
    the_story_of_a_foo(FooCluster::start(Transport::Socket, QueueKind::Delta).await).await;
}

/// A Deployment of the wanted name that belongs to nobody, or to somebody else.
async fn a_foreign_deployment(foo_cluster: FooCluster) {
    let mut foreign = sample_controller::new_deployment(&Foo::new("x", FooSpec::default()));
    foreign.metadata.name = Some("web".into());
    foreign.metadata.namespace = foo_cluster.key("web").namespace().map(str::to_owned);
    foreign.spec.as_mut().unwrap().replicas = Some(7);
    foo_cluster.deployments().create(&foreign).await.unwrap();
    foo_cluster.create_foo("a", "web", 1).await;
    foo_cluster.until("the user is warned", |w| w.has_event("a", "Warning", "ErrResourceExists")).await;
    foo_cluster.until("both are seen", |w| w.deployment("web").is_some() && w.foo("a").is_some()).await;
    assert_eq!(foo_cluster.replicas("web"), Some(7));
    assert!(foo_cluster.foo("a").unwrap().status.is_none());
    foo_cluster.deployments().delete(&foo_cluster.key("web")).await.unwrap();
    // A retry finds the name free.
    foo_cluster.until("the Foo's own Deployment is there", |w| w.replicas("web") == Some(1)).await;
    foo_cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_deployment_is_left_alone_and_told_in_process() {
    for queue in [QueueKind::Ordered, QueueKind::Delta] {
        a_foreign_deployment(FooCluster::start(Transport::InProcess, queue).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_deployment_is_left_alone_and_told_over_a_socket() {
    for queue in [QueueKind::Ordered, QueueKind::Delta] {
        a_foreign_deployment(FooCluster::start(Transport::Socket, queue).await).await;
    }
}

/// Watches cut, history forgotten, the server restarted: the cluster converges all the same.
async fn trouble_with_the_server(mut foo_cluster: FooCluster) {
    foo_cluster.create_foo("a", "web", 1).await;
    foo_cluster.until("the Deployment is there", |w| w.replicas("web") == Some(1)).await;

    foo_cluster.cut_watches().await;
    foo_cluster.scale_foo("a", 2).await;
    foo_cluster.until("the Deployment follows after a cut", |w| w.replicas("web") == Some(2)).await;

    foo_cluster.lose_server().await;
    foo_cluster.scale_foo("a", 3).await;
    foo_cluster.deployments().delete(&foo_cluster.key("web")).await.unwrap();
    foo_cluster.create_foo("b", "new", 4).await;
    foo_cluster.find_server_again().await;
    foo_cluster
        .until("what was missed is made good", |w| {
            w.replicas("web") == Some(3) && w.replicas("new") == Some(4)
        })
        .await;
    foo_cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn it_converges_after_cuts_and_410s_in_process() {
    for queue in [QueueKind::Ordered, QueueKind::Delta] {
        trouble_with_the_server(FooCluster::start(Transport::InProcess, queue).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_converges_after_a_restart_of_the_server() {
    for queue in [QueueKind::Ordered, QueueKind::Delta] {
        trouble_with_the_server(FooCluster::start(Transport::Socket, queue).await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_deployment_name_is_reported_and_not_tried_again() {
    let foo_cluster = FooCluster::start(Transport::InProcess, QueueKind::Ordered).await;
    foo_cluster.create_foo("a", "", 1).await;
    foo_cluster.until("it is reported", |w| w.controller_env.reporter.errors() > 0).await;
    foo_cluster.controller_env.clock.sleep(std::time::Duration::from_secs(20)).await;
    assert_eq!(foo_cluster.controller_env.reporter.errors(), 1);
    let view = foo_cluster.explained("a");
    assert_eq!((view.state, view.verdict.causes), (KeyState::Failed, vec!["terminal".to_owned()]));
    assert!(
        view.verdict.text.contains("deployment name missing from the Foo's spec"),
        "{}",
        view.verdict.text
    );
    let failed = foo_cluster.overview();
    assert_eq!((failed.reconciles["error"], failed.terminal_errors, failed.keys.failed), (1, 1, 1));
    let patch = Patch::Merge(json!({"spec": {"deploymentName": "web"}}));
    foo_cluster.foos().patch(&foo_cluster.key("a"), &patch).await.unwrap();
    foo_cluster.until("the name is given", |w| w.replicas("web") == Some(1)).await;
    foo_cluster.until("the status is written", |w| w.foo("a").is_some_and(|foo| foo.status.is_some())).await;
    foo_cluster.controller_env.clock.sleep(std::time::Duration::from_secs(1)).await;
    let mended = foo_cluster.overview();
    assert_eq!((mended.reconciles["error"], mended.keys.failed), (1, 0));
    assert!(mended.reconciles["success"] > 0, "{:?}", mended.reconciles);
    assert_eq!(mended.reconciles.values().sum::<u64>(), mended.reconcile_time.count);
    foo_cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_only_when_it_changes() {
    let foo_cluster = FooCluster::start(Transport::InProcess, QueueKind::Ordered).await;
    foo_cluster.create_foo("a", "web", 1).await;
    foo_cluster.until("the status is written", |w| w.foo("a").is_some_and(|foo| foo.status.is_some())).await;
    let version = foo_cluster.foo("a").unwrap().metadata.resource_version;
    // Several resyncs later the Foo is as it was.
    foo_cluster.controller_env.clock.sleep(std::time::Duration::from_secs(100)).await;
    assert_eq!(foo_cluster.foo("a").unwrap().metadata.resource_version, version);
    // A cache that is behind our own writes is no error.
    assert_eq!(foo_cluster.controller_env.reporter.errors(), 0);
    foo_cluster.stop().await;
}

async fn five_thousand_foos(foo_cluster: FooCluster) {
    const FOOS: usize = 5_000;
    foo_cluster.create_foos(FOOS).await;
    // The first that has not been seen to be served.
    let next = Cell::new(0);
    let served = |w: &FooCluster, number: usize| {
        let name = format!("f{number}");
        w.deployment(&name).is_some() && w.foo(&name).is_some_and(|foo| foo.status.is_some())
    };
    let all = |w: &FooCluster| {
        while next.get() < FOOS && served(w, next.get()) {
            next.set(next.get() + 1);
        }
        next.get() == FOOS
    };
    foo_cluster.until("every Foo has its Deployment and its status", all).await;
    foo_cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn five_thousand_foos_are_served_in_process() {
    for queue in [QueueKind::Ordered, QueueKind::Delta] {
        five_thousand_foos(FooCluster::start(Transport::InProcess, queue).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_foos_are_served_over_a_socket() {
    for queue in [QueueKind::Ordered, QueueKind::Delta] {
        five_thousand_foos(FooCluster::start(Transport::Socket, queue).await).await;
    }
}

#[test]
fn why_it_did_not_run_is_logged_with_the_causes() {
    for format in ["text", "json"] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_sample-controller"));
        program.args(["--kubeconfig", "/is/not/there", "--log-format", format]).env_remove("RUST_LOG");
        let output = program.output().unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{log}");
        assert!(log.contains("cannot read the kubeconfig /is/not/there: No such file"), "{log}");
    }
}
