//! The sample controller end to end: in process on the paused clock, and over a socket in real time, there
//! also on a real API server (`WATCHKEEPER_TEST_KUBECONFIG`); on both queues.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod world;

use std::cell::Cell;
use std::process::Command;

use kube_core::params::Patch;
use sample_controller::api::{Foo, FooSpec};
use serde_json::json;
use watchkeeper::informer::QueueKind;
use world::{Transport, World};

/// The whole story of a Foo: created, scaled, edited by hand, deleted.
async fn the_story_of_a_foo(world: World) {
    world.create_foo("a", "web", 1).await;
    world.until("the Deployment is there", |w| w.replicas("web") == Some(1)).await;
    world.until("the status is written", |w| w.foo("a").is_some_and(|foo| foo.status.is_some())).await;
    world.until("the event is sent", |w| w.has_event("a", "Normal", "Synced")).await;

    world.scale_foo("a", 3).await;
    world.until("the Deployment follows", |w| w.replicas("web") == Some(3)).await;

    world.set_available("web", 2).await;
    let available = |w: &World| w.foo("a").and_then(|foo| foo.status).map(|status| status.available_replicas);
    world.until("the status follows", |w| available(w) == Some(2)).await;

    let patch = Patch::Merge(json!({"spec": {"replicas": 9}}));
    world.deployments().patch(&world.key("web"), &patch).await.unwrap();
    world.until("the edit is set back", |w| w.replicas("web") == Some(3)).await;

    let before = world.deployment("web").unwrap().metadata.uid;
    world.deployments().delete(&world.key("web")).await.unwrap();
    world
        .until("a new Deployment is there", |w| w.deployment("web").is_some_and(|d| d.metadata.uid != before))
        .await;

    world.foos().delete(&world.key("a")).await.unwrap();
    world.until("the Foo is gone", |w| w.foo("a").is_none()).await;
    world.until("its Deployment goes along", |w| w.deployment("web").is_none()).await;
    // Who has served the next Foo has seen the first one go: both come by one watch. From now on nobody makes its Deployment; one made
    // just before, by a controller that saw the Deployment go first, is collected like the other.
    world.create_foo("b", "other", 1).await;
    world.until("the next Foo is served", |w| w.replicas("other") == Some(1)).await;
    world.until("nothing is left of the first Foo", |w| w.deployment("web").is_none()).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_foo_is_served_in_process_on_the_ordered_queue() {
    the_story_of_a_foo(World::start(Transport::InProcess, QueueKind::Ordered).await).await;
}

#[tokio::test(start_paused = true)]
async fn a_foo_is_served_in_process_on_the_delta_queue() {
    the_story_of_a_foo(World::start(Transport::InProcess, QueueKind::Delta).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foo_is_served_over_a_socket_on_the_ordered_queue() {
    the_story_of_a_foo(World::start(Transport::Socket, QueueKind::Ordered).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foo_is_served_over_a_socket_on_the_delta_queue() {
    the_story_of_a_foo(World::start(Transport::Socket, QueueKind::Delta).await).await;
}

/// A Deployment of the wanted name that belongs to nobody, or to somebody else.
async fn a_foreign_deployment(world: World) {
    let mut foreign = sample_controller::new_deployment(&Foo::new("x", FooSpec::default()));
    foreign.metadata.name = Some("web".into());
    foreign.metadata.namespace = world.key("web").namespace().map(str::to_owned);
    foreign.spec.as_mut().unwrap().replicas = Some(7);
    world.deployments().create(&foreign).await.unwrap();
    world.create_foo("a", "web", 1).await;
    world.until("the user is warned", |w| w.has_event("a", "Warning", "ErrResourceExists")).await;
    world.until("both are seen", |w| w.deployment("web").is_some() && w.foo("a").is_some()).await;
    assert_eq!(world.replicas("web"), Some(7));
    assert!(world.foo("a").unwrap().status.is_none());
    world.deployments().delete(&world.key("web")).await.unwrap();
    // A retry finds the name free.
    world.until("the Foo's own Deployment is there", |w| w.replicas("web") == Some(1)).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_deployment_is_left_alone_and_told_in_process() {
    for queue in [QueueKind::Ordered, QueueKind::Delta] {
        a_foreign_deployment(World::start(Transport::InProcess, queue).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_deployment_is_left_alone_and_told_over_a_socket() {
    for queue in [QueueKind::Ordered, QueueKind::Delta] {
        a_foreign_deployment(World::start(Transport::Socket, queue).await).await;
    }
}

/// Watches cut, history forgotten, the server restarted: the world converges all the same.
async fn trouble_with_the_server(mut world: World) {
    world.create_foo("a", "web", 1).await;
    world.until("the Deployment is there", |w| w.replicas("web") == Some(1)).await;

    world.cut_watches().await;
    world.scale_foo("a", 2).await;
    world.until("the Deployment follows after a cut", |w| w.replicas("web") == Some(2)).await;

    world.lose_server().await;
    world.scale_foo("a", 3).await;
    world.deployments().delete(&world.key("web")).await.unwrap();
    world.create_foo("b", "new", 4).await;
    world.find_server_again().await;
    world
        .until("what was missed is made good", |w| {
            w.replicas("web") == Some(3) && w.replicas("new") == Some(4)
        })
        .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn it_converges_after_cuts_and_410s_in_process() {
    for queue in [QueueKind::Ordered, QueueKind::Delta] {
        trouble_with_the_server(World::start(Transport::InProcess, queue).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_converges_after_a_restart_of_the_server() {
    for queue in [QueueKind::Ordered, QueueKind::Delta] {
        trouble_with_the_server(World::start(Transport::Socket, queue).await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_deployment_name_is_reported_and_not_tried_again() {
    let world = World::start(Transport::InProcess, QueueKind::Ordered).await;
    world.create_foo("a", "", 1).await;
    world.until("it is reported", |w| w.controller_env.reporter.errors() > 0).await;
    world.controller_env.clock.sleep(std::time::Duration::from_secs(20)).await;
    assert_eq!(world.controller_env.reporter.errors(), 1);
    let patch = Patch::Merge(json!({"spec": {"deploymentName": "web"}}));
    world.foos().patch(&world.key("a"), &patch).await.unwrap();
    world.until("the name is given", |w| w.replicas("web") == Some(1)).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_only_when_it_changes() {
    let world = World::start(Transport::InProcess, QueueKind::Ordered).await;
    world.create_foo("a", "web", 1).await;
    world.until("the status is written", |w| w.foo("a").is_some_and(|foo| foo.status.is_some())).await;
    let version = world.foo("a").unwrap().metadata.resource_version;
    // Several resyncs later the Foo is as it was.
    world.controller_env.clock.sleep(std::time::Duration::from_secs(100)).await;
    assert_eq!(world.foo("a").unwrap().metadata.resource_version, version);
    // A cache that is behind our own writes is no error.
    assert_eq!(world.controller_env.reporter.errors(), 0);
    world.stop().await;
}

async fn five_thousand_foos(world: World) {
    const FOOS: usize = 5_000;
    world.create_foos(FOOS).await;
    // The first that has not been seen to be served.
    let next = Cell::new(0);
    let served = |w: &World, number: usize| {
        let name = format!("f{number}");
        w.deployment(&name).is_some() && w.foo(&name).is_some_and(|foo| foo.status.is_some())
    };
    let all = |w: &World| {
        while next.get() < FOOS && served(w, next.get()) {
            next.set(next.get() + 1);
        }
        next.get() == FOOS
    };
    world.until("every Foo has its Deployment and its status", all).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn five_thousand_foos_are_served_in_process() {
    for queue in [QueueKind::Ordered, QueueKind::Delta] {
        five_thousand_foos(World::start(Transport::InProcess, queue).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_foos_are_served_over_a_socket() {
    for queue in [QueueKind::Ordered, QueueKind::Delta] {
        five_thousand_foos(World::start(Transport::Socket, queue).await).await;
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
