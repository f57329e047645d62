//! The sample controller converges through any fault schedule, and one seed gives one trace; in process, on virtual time.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::params::Patch;
use sample_controller::api::{self, Foo, FooSpec};
use sample_controller::{Options, Program, new_deployment};
use serde_json::json;
use watchkeeper::ObjectName;
use watchkeeper::process::Pages;
use watchkeeper::queue::QueueKind;
use watchkeeper_sim::{Cluster, Moment, Rates, Run, Simulation};

const FOOS: [&str; 3] = ["a", "b", "c"];

fn key(name: &str) -> ObjectName {
    ObjectName::namespaced("default", name)
}

async fn create_foo(cluster: &Cluster, name: &str) {
    let mut foo = Foo::new(name, FooSpec { deployment_name: format!("{name}-d"), replicas: Some(1) });
    foo.metadata.namespace = Some("default".into());
    cluster.user.api::<Foo>().create(&foo).await.unwrap();
}

/// Users create, scale and delete, and delete Deployments by hand.
async fn users(cluster: &Cluster) {
    let requests = cluster.user.requests();
    requests.api::<CustomResourceDefinition>().create(&api::crd()).await.unwrap();
    for name in FOOS {
        cluster.pause(Duration::from_secs(3)).await;
        create_foo(cluster, name).await;
    }
    for _ in 0..6 {
        cluster.pause(Duration::from_secs(20)).await;
        let name = FOOS[cluster.env.generator.below(3) as usize];
        match cluster.env.generator.below(4) {
            0 => drop(requests.api::<Deployment>().delete(&key(&format!("{name}-d"))).await),
            1 => cluster.server.compact_now(),
            _ => {
                let replicas = 1 + cluster.env.generator.below(10);
                let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
                requests.api::<Foo>().patch(&key(name), &patch).await.unwrap();
            }
        }
    }
    requests.api::<Foo>().delete(&key("c")).await.unwrap();
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

fn simulate(seed: u64, rates: Rates, queue: QueueKind) -> Run {
    let options = Options { queue, ..Options::default() };
    Simulation::new(seed).rates(rates).run(
        async |client, stop| sample_controller::run(&client, &options, stop).await.unwrap_or_default(),
        async |cluster| {
            users(cluster).await;
            assert!(
                cluster.converged(async || is_as_wished(cluster).await).await,
                "seed {seed} did not converge"
            );
            // And it stays so.
            cluster.env.clock.sleep(Duration::from_secs(60)).await;
            assert!(is_as_wished(cluster).await, "seed {seed} did not stay");
        },
    )
}

fn queue_of(seed: u64) -> QueueKind {
    if seed.is_multiple_of(2) { QueueKind::Ordered } else { QueueKind::Delta }
}

#[test]
fn two_hundred_schedules_converge_and_each_gives_the_same_trace_twice() {
    let faults = [
        "crashes",
        "cut",
        "expired",
        "lost",
        "conflict",
        "throttled for",
        "failed before acting",
        "failed after acting",
    ];
    let mut counts = [0; 8];
    for seed in 0..200 {
        let run = simulate(seed, Rates::STORM, queue_of(seed));
        let again = simulate(seed, Rates::STORM, queue_of(seed));
        if let Some((a, b)) = run.trace.iter().zip(&again.trace).find(|(a, b)| a != b) {
            panic!("seed {seed} gave two traces, first apart at\n{a}\n{b}");
        }
        assert_eq!(run, again, "seed {seed} gave traces of different lengths");
        for (count, fault) in counts.iter_mut().zip(faults) {
            *count += run.trace.iter().filter(|line| line.contains(&format!(" {fault}"))).count();
        }
    }
    // The faults were really there.
    assert!(counts.iter().all(|count| *count > 100), "{faults:?}: {counts:?}");
}

#[test]
fn what_a_deleted_foo_owned_is_collected_through_any_faults() {
    for seed in 0..4 {
        let options = Options { queue: queue_of(seed), ..Options::default() };
        let simulate = || {
            Simulation::new(seed).collect_garbage().run(
                async |client, stop| {
                    sample_controller::run(&client, &options, stop).await.unwrap_or_default()
                },
                async |cluster| {
                    users(cluster).await;
                    let deployments = cluster.user.api::<Deployment>();
                    let is_gone =
                        async || deployments.get(&key("c-d")).await.is_err_and(|error| error.is_not_found());
                    let holds = async || is_as_wished(cluster).await && is_gone().await;
                    assert!(cluster.converged(holds).await, "seed {seed}");
                    cluster.env.clock.sleep(Duration::from_secs(60)).await;
                    assert!(is_gone().await, "seed {seed}");
                },
            )
        };
        assert_eq!(simulate(), simulate(), "seed {seed}");
    }
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
        let is_write = |line: &&String| line.contains(" POST ") || line.contains(" PUT ");
        let mut writes = run.trace.iter().filter(is_write).filter(|line| !line.contains("/events"));
        assert!(writes.all(|line| line.contains("fieldManager=sample-controller")), "{trace}");
    }
}

/// A short story whose steps are awaited, so that the controller makes the same requests each time.
async fn a_short_story(cluster: &Cluster) {
    let requests = cluster.user.requests();
    requests.api::<CustomResourceDefinition>().create(&api::crd()).await.unwrap();
    for name in ["a", "b"] {
        create_foo(cluster, name).await;
    }
    assert!(cluster.converged(async || is_as_wished(cluster).await).await, "the Foos are not served");
    let patch = Patch::Merge(json!({"spec": {"replicas": 3}}));
    requests.api::<Foo>().patch(&key("a"), &patch).await.unwrap();
    requests.api::<Deployment>().delete(&key("b-d")).await.unwrap();
    assert!(cluster.converged(async || is_as_wished(cluster).await).await, "the changes are not followed");
    let status = json!({"replicas": 3, "readyReplicas": 3, "availableReplicas": 3});
    let patch = Patch::Merge(json!({"status": status}));
    requests.api::<Deployment>().patch_status(&key("a-d"), &patch).await.unwrap();
    let available = async || {
        let foo = requests.api::<Foo>().get(&key("a")).await.unwrap();
        foo.status.is_some_and(|status| status.available_replicas == 3)
    };
    assert!(cluster.converged(available).await, "the status does not follow");
    // A controller that crashed over the last request restarts, and finds nothing to do.
    cluster.env.clock.sleep(Duration::from_secs(45)).await;
    assert!(is_as_wished(cluster).await && available().await, "it did not stay so");
}

fn tell_with(crash: Option<(u64, Moment)>, queue: QueueKind) -> Run {
    let options = Options { queue, ..Options::default() };
    let mut simulation = Simulation::new(1).rates(Rates::CALM);
    if let Some((request, moment)) = crash {
        simulation = simulation.crash_at(request, moment);
    }
    simulation.run(
        async |client, stop| sample_controller::run(&client, &options, stop).await.unwrap_or_default(),
        a_short_story,
    )
}

#[test]
fn killed_over_any_request_before_or_after_the_server_acted_it_converges() {
    for queue in [QueueKind::Ordered, QueueKind::Delta] {
        let calm = tell_with(None, queue);
        let requests = calm.trace.iter().filter(|line| line.contains(" /")).count() as u64;
        // Lists and watches of two kinds, Deployments, statuses, events.
        assert!(requests > 12, "{:?}", calm.trace);
        for request in 1..=requests {
            for moment in [Moment::BeforeSending, Moment::AfterActing] {
                let run = tell_with(Some((request, moment)), queue);
                assert_eq!(run.lives, 2, "request {request}, {moment:?}: {:?}", run.trace);
            }
        }
    }
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
        Simulation::new(1).rates(Rates::CALM).run(
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
            let run = Simulation::new(1).rates(Rates::CALM).run(
                async |client, stop| {
                    sample_controller::run(&client, &options, stop).await.unwrap_or_default()
                },
                async |cluster| caches_behind(cluster, held).await,
            );
            let count = |end| {
                let posts = run.trace.iter().filter(|line| line.contains("/deployments?"));
                posts.filter(|line| line.ends_with(end)).count()
            };
            assert_eq!((count(" 201"), count(" 409")), (3, 0), "{held} s: {:#?}", run.trace);
            // client-go: TestDoNothing. A Deployment that is as the Foo wants it is left alone.
            let is_update = |line: &&String| line.contains(" PUT ") || line.contains(" PATCH ");
            let updates = run.trace.iter().filter(|line| line.contains("/deployments/")).filter(is_update);
            assert_eq!(updates.count(), 0, "{held} s: {:#?}", run.trace);
        }
    }
}
