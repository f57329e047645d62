//! The simulator itself: the effect of a crash, the answer of each fault, and the trace of a run that fails.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::cell::Cell;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use watchkeeper::source::{ApiSource, Scope};
use watchkeeper::wire::Class;
use watchkeeper::{Client, ObjectName, SharedInformer};
use watchkeeper_sim::{Cluster, Moment, Rates, Simulation};

const SECOND: Duration = Duration::from_secs(1);

fn key(name: &str) -> ObjectName {
    ObjectName::namespaced("default", name)
}

fn config_map(name: &str, owners: &[Value]) -> ConfigMap {
    let metadata = json!({"name": name, "namespace": "default", "ownerReferences": owners});
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

async fn create(client: &Client, name: &str) -> ConfigMap {
    client.api::<ConfigMap>().create(&config_map(name, &[])).await.unwrap()
}

async fn exists(cluster: &Cluster, name: &str) -> bool {
    cluster.user.api::<ConfigMap>().get(&key(name)).await.is_ok()
}

/// Writes an object a second, and watches them, on tasks that never end.
fn leave_tasks_behind(client: &Client, life: u64) -> SharedInformer<ConfigMap> {
    let (env, writer) = (client.env().clone(), client.clone());
    let source = ApiSource::new::<ConfigMap>(client, &(), &Scope::Cluster);
    let informer = SharedInformer::builder(source, &env).build();
    let running = informer.clone();
    tokio::spawn(async move { running.run(CancellationToken::new()).await });
    tokio::spawn(async move {
        for number in 0_u32.. {
            let made = config_map(&format!("life-{life}-{number}"), &[]);
            let _refused = writer.api::<ConfigMap>().create(&made).await;
            env.clock.sleep(SECOND).await;
        }
    });
    informer
}

#[test]
fn tasks_that_a_crashed_life_left_behind_reach_nothing_and_hear_of_nothing() {
    let (lives, first, found) = (Cell::new(0), Cell::new(None), Cell::new([0, 0]));
    let simulate = || {
        lives.set(0);
        Simulation::new(1).rates(Rates::CALM).crash_at(8, Moment::BeforeSending).run(
            async |client, stop| {
                lives.set(lives.get() + 1);
                let informer = leave_tasks_behind(&client, lives.get());
                if lives.get() == 1 {
                    first.set(Some(informer));
                }
                stop.cancelled().await;
            },
            async |cluster| {
                cluster.env.clock.sleep(60 * SECOND).await;
                let mut counts = [0, 0];
                for number in 0..60 {
                    for life in 1..=2 {
                        counts[life - 1] +=
                            usize::from(exists(cluster, &format!("life-{life}-{number}")).await);
                    }
                }
                found.set(counts);
            },
        )
    };
    let run = simulate();
    assert_eq!(run.lives, 2);
    let crash = run.trace.iter().position(|line| line.ends_with("life 1 crashes")).unwrap();
    let written = |lines: &[String]| lines.iter().filter(|line| line.ends_with(" 201")).count();
    let [of_the_first, of_the_second] = found.get();
    assert!(of_the_first > 0, "it lived");
    assert_eq!(written(&run.trace[..crash]), of_the_first, "{:#?}", run.trace);
    assert_eq!(written(&run.trace[crash..]), of_the_second);
    assert!(of_the_second > 45, "{of_the_second}");
    // The cache of the first life is from before the crash.
    let informer = first.take().unwrap();
    let seen = informer.indexer().snapshot();
    assert!(seen.iter().all(|object| object.name().starts_with("life-1-")), "{seen:?}");
    assert_eq!(simulate(), run);
}

/// Returns a client in the current life of the controller, with faults at these rates.
fn under(cluster: &Cluster, rates: Rates) -> Client {
    cluster.net.set_rates(rates);
    Client::from_kube(kube_client::Client::new(cluster.net.service(), "default"), &cluster.env)
}

#[test]
fn each_fault_is_answered_as_a_real_server_answers_and_acts_or_does_not() {
    Simulation::new(1).rates(Rates::CALM).run(
        async |_, stop| stop.cancelled().await,
        async |cluster| {
            let made = create(&cluster.user, "a").await;
            let mut unconditional = made.clone();
            unconditional.metadata.resource_version = None;

            let client = under(cluster, Rates { conflict: 1.0, ..Rates::CALM });
            let objects = client.api::<ConfigMap>();
            let error = objects.replace(&made).await.unwrap_err();
            assert_eq!(
                (error.class(), error.code(), error.reason()),
                (Class::Conflict, Some(409), "Conflict")
            );
            objects.replace(&unconditional).await.unwrap();
            create(&client, "b").await;
            objects.get(&key("b")).await.unwrap();
            objects.delete(&key("b")).await.unwrap();

            let client = under(cluster, Rates { throttle: 1.0, ..Rates::CALM });
            let error = client.api::<ConfigMap>().get(&key("a")).await.unwrap_err();
            assert_eq!((error.class(), error.code()), (Class::TooManyRequests, Some(429)));
            assert!((SECOND..=5 * SECOND).contains(&error.retry_after().unwrap()), "{error:?}");

            for (name, acts) in [("before", false), ("after", true)] {
                let rate = |is: bool| if is { 1.0 } else { 0.0 };
                let rates = Rates { fail_before: rate(!acts), fail_after: rate(acts), ..Rates::CALM };
                let client = under(cluster, rates);
                let error = client.api::<ConfigMap>().create(&config_map(name, &[])).await.unwrap_err();
                assert_eq!((error.code(), error.reason()), (Some(500), "InternalError"));
                assert_eq!(exists(cluster, name).await, acts);
            }
        },
    );
}

#[test]
fn with_a_garbage_collector_what_nobody_owns_goes_and_without_it_stays() {
    for collects in [false, true] {
        let simulation = Simulation::new(1).rates(Rates::CALM);
        let simulation = if collects { simulation.collect_garbage() } else { simulation };
        simulation.run(
            async |_, stop| stop.cancelled().await,
            async |cluster| {
                let owner = create(&cluster.user, "owner").await.metadata;
                let owner =
                    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid});
                let objects = cluster.user.api::<ConfigMap>();
                objects.create(&config_map("owned", &[owner])).await.unwrap();
                objects.delete(&key("owner")).await.unwrap();
                assert_eq!(cluster.converged(async || !exists(cluster, "owned").await).await, collects);
            },
        );
    }
}

/// Set for the process in which the workload fails.
const FAILING: &str = "WATCHKEEPER_TEST_FAILING_WORKLOAD";

#[test]
fn a_workload_that_fails_leaves_the_end_of_its_trace_and_the_whole_in_a_file() {
    if std::env::var_os(FAILING).is_some() {
        Simulation::new(3).rates(Rates::CALM).run(
            async |client, stop| {
                for number in 0..100 {
                    create(&client, &format!("object-{number}")).await;
                }
                stop.cancelled().await;
            },
            async |cluster| {
                cluster.env.clock.sleep(SECOND).await;
                panic!("not as wished");
            },
        );
        return;
    }
    let test = "a_workload_that_fails_leaves_the_end_of_its_trace_and_the_whole_in_a_file";
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(FAILING, "1").env("TMPDIR", folder.path());
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(said.contains("not as wished"), "{said}");
    assert!(said.contains("the last 40 of 102 lines") && said.contains("panicked: seed 3"), "{said}");
    let path = said.lines().find_map(|line| line.strip_prefix("the whole trace is in ")).unwrap();
    let whole = std::fs::read_to_string(path).unwrap();
    assert_eq!(whole.lines().count(), 102);
    assert!(whole.contains("life 1 begins") && !said.contains("life 1 begins"));
}
