//! Does the sample-controller converge through any schedule of faults, and the same way each time? Seeded, in process, on virtual time.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::params::Patch;
use sample_controller::Options;
use sample_controller::api::{self, Foo, FooSpec};
use serde_json::json;
use watchkeeper::ObjectName;
use watchkeeper::informer::QueueKind;
use watchkeeper_sim::{Rates, Run, Simulation, World};

const FOOS: [&str; 3] = ["a", "b", "c"];

fn key(name: &str) -> ObjectName {
    ObjectName::namespaced("default", name)
}

/// Users create, scale and delete, and delete Deployments by hand.
async fn users(world: &World) {
    let requests = world.user.requests();
    requests.of::<CustomResourceDefinition>().create(&api::crd()).await.unwrap();
    for name in FOOS {
        world.pause(Duration::from_secs(3)).await;
        let mut foo = Foo::new(name, FooSpec { deployment_name: format!("{name}-d"), replicas: Some(1) });
        foo.metadata.namespace = Some("default".into());
        requests.of::<Foo>().create(&foo).await.unwrap();
    }
    for _ in 0..6 {
        world.pause(Duration::from_secs(20)).await;
        let name = FOOS[world.env.generator.below(3) as usize];
        match world.env.generator.below(4) {
            0 => drop(requests.of::<Deployment>().delete(&key(&format!("{name}-d"))).await),
            1 => world.server.compact_now(),
            _ => {
                let replicas = 1 + world.env.generator.below(10);
                let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
                requests.of::<Foo>().patch(&key(name), &patch).await.unwrap();
            }
        }
    }
    requests.of::<Foo>().delete(&key("c")).await.unwrap();
}

/// Every Foo has its own Deployment with its replicas, and its status tells of it.
async fn is_as_wished(world: &World) -> bool {
    for name in ["a", "b"] {
        let requests = world.user.requests();
        let foo = requests.of::<Foo>().get(&key(name)).await.unwrap();
        let Ok(deployment) = requests.of::<Deployment>().get(&key(&format!("{name}-d"))).await else {
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

fn simulate(seed: u64, rates: Rates, queue: QueueKind) -> Run {
    let options = Options { queue, ..Options::default() };
    Simulation::new(seed).rates(rates).run(
        async |clients, stop| sample_controller::run(&clients, &options, &stop).await.unwrap_or_default(),
        async |world| {
            users(world).await;
            assert!(
                world.converged(async || is_as_wished(world).await).await,
                "seed {seed} did not converge"
            );
            // And it stays so.
            world.env.clock.sleep(Duration::from_secs(60)).await;
            assert!(is_as_wished(world).await, "seed {seed} did not stay");
        },
    )
}

fn queue_of(seed: u64) -> QueueKind {
    if seed.is_multiple_of(2) { QueueKind::Ordered } else { QueueKind::Delta }
}

#[test]
fn two_hundred_schedules_converge_and_each_gives_the_same_trace_twice() {
    let (mut crashes, mut cuts, mut expired, mut lost) = (0, 0, 0, 0);
    for seed in 0..200 {
        let run = simulate(seed, Rates::STORM, queue_of(seed));
        let again = simulate(seed, Rates::STORM, queue_of(seed));
        if let Some((a, b)) = run.trace.iter().zip(&again.trace).find(|(a, b)| a != b) {
            panic!("seed {seed} gave two traces, first apart at\n{a}\n{b}");
        }
        assert_eq!(run, again, "seed {seed} gave traces of different lengths");
        let count = |word: &str| run.trace.iter().filter(|line| line.contains(word)).count();
        crashes += count(" crashes");
        cuts += count(" cut");
        expired += count(" expired");
        lost += count(" lost");
    }
    // The faults were really there.
    assert!(crashes > 100 && cuts > 100 && expired > 100 && lost > 100, "{crashes} {cuts} {expired} {lost}");
}

#[test]
fn without_faults_there_is_one_life_and_nothing_is_lost() {
    for queue in [QueueKind::Ordered, QueueKind::Delta] {
        let run = simulate(1, Rates::CALM, queue);
        assert_eq!(run.lives, 1);
        let trace = run.trace.join("\n");
        assert!(!trace.contains(" lost") && !trace.contains(" crash"), "{trace}");
        let created =
            run.trace.iter().filter(|line| line.contains("/deployments?") && line.ends_with(" 201"));
        assert!(created.count() >= 3, "{trace}");
    }
}
