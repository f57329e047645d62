//! A whole operator through lost requests and answers, cut watches, crashes and stale caches, on virtual time.

use std::sync::Arc;
use std::time::Duration;

use crate::website::{Outside, Website, WebsiteSpec, register};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube_core::params::Patch;
use serde_json::json;
use watchkeeper::controller::Manager;
use watchkeeper::report::WithCauses;
use watchkeeper::source::{Scope, Selection};
use watchkeeper::{Client, Kind, ObjectName};
use watchkeeper_sim::{Cluster, Moment, Rates, Run, Simulation};

const SITES: [&str; 3] = ["a", "b", "c"];

fn key(name: &str) -> ObjectName {
    ObjectName::namespaced("default", name)
}

/// One life of the operator. One that cannot start is started again, as by a kubelet.
async fn operator(client: Client, stop: tokio_util::sync::CancellationToken, outside: &Arc<Outside>) {
    let mut manager = Manager::builder("website-operator", &client).build();
    register(&mut manager, outside).unwrap();
    if let Err(error) = manager.run(stop).await {
        tracing::info!(error = %WithCauses(&error), "the operator ended");
    }
}

async fn create(cluster: &Cluster, name: &str, replicas: i32) {
    let mut site =
        Website::new(name, WebsiteSpec { image: "nginx".to_owned(), replicas, secret: String::new() });
    site.metadata.namespace = Some("default".to_owned());
    // The operator installs the definition.
    while let Err(error) = cluster.user.api::<Website>().create(&site).await {
        assert!(error.is_not_found(), "{error}");
        cluster.env.clock.sleep(Duration::from_millis(100)).await;
    }
}

/// Users create, change and delete websites, and edit and delete children by hand.
async fn users(cluster: &Cluster) {
    let requests = cluster.user.requests();
    for name in SITES {
        cluster.pause(Duration::from_secs(3)).await;
        create(cluster, name, 1).await;
    }
    for _ in 0..8 {
        cluster.pause(Duration::from_secs(20)).await;
        let name = key(SITES[cluster.env.generator.below(3) as usize]);
        let replicas = Patch::Merge(json!({"spec": {"replicas": 1 + cluster.env.generator.below(9)}}));
        match cluster.env.generator.below(5) {
            0 => drop(requests.api::<Deployment>().delete(&name).await),
            1 => drop(requests.api::<Deployment>().patch(&name, &replicas).await),
            2 => drop(requests.api::<ConfigMap>().delete(&name).await),
            3 => cluster.server.compact_now(),
            _ => drop(requests.api::<Website>().patch(&name, &replicas).await.unwrap()),
        }
    }
    requests.api::<Website>().delete(&key("c")).await.unwrap();
}

/// Whether the sites `names` have their children and a status that agrees.
async fn are_up(cluster: &Cluster, names: &[&str]) -> bool {
    let requests = cluster.user.requests();
    for name in names {
        let name = key(name);
        let site = requests.api::<Website>().get(&name).await.unwrap();
        let Ok(deployment) = requests.api::<Deployment>().get(&name).await else { return false };
        let owner = deployment.metadata.owner_references.unwrap_or_default().pop();
        let is_own = owner.is_some_and(|owner| Some(owner.uid) == site.metadata.uid);
        let is_observed = site.status.as_ref().is_some_and(|status| {
            status.conditions.iter().all(|it| it.observed_generation == site.metadata.generation)
        });
        let replicas = deployment.spec.unwrap().replicas;
        let others = requests.api::<Service>().get(&name).await.is_ok()
            && requests.api::<ConfigMap>().get(&name).await.is_ok();
        if !is_own || replicas != Some(site.spec.replicas) || !site.is_ready() || !is_observed || !others {
            return false;
        }
    }
    true
}

/// Whether nothing is left of a site.
async fn is_gone(cluster: &Cluster, name: &str) -> bool {
    let requests = cluster.user.requests();
    requests.api::<Website>().get_opt(&key(name)).await.unwrap().is_none()
        && requests.api::<Deployment>().get_opt(&key(name)).await.unwrap().is_none()
        && requests.api::<ConfigMap>().get_opt(&key(name)).await.unwrap().is_none()
}

/// The versions of all websites and children. Events are not counted: a late one may be written at rest.
async fn versions(cluster: &Cluster) -> Vec<Option<String>> {
    async fn of<K: Kind<DynamicType: Default>>(cluster: &Cluster) -> Vec<Option<String>> {
        let all = cluster.user.api::<K>().list(&Scope::Cluster, &Selection::default()).await.unwrap();
        all.complete().unwrap().iter().map(|object| object.meta().resource_version.clone()).collect()
    }
    let mut versions = of::<Website>(cluster).await;
    versions.extend(of::<Deployment>(cluster).await);
    versions.extend(of::<Service>(cluster).await);
    versions.extend(of::<ConfigMap>(cluster).await);
    versions
}

fn simulate(simulation: &Simulation, what: &str) -> Run {
    let outside = Arc::<Outside>::default();
    simulation.clone().collect_garbage().run(
        async |client, stop| operator(client, stop, &outside).await,
        async |cluster| {
            users(cluster).await;
            let holds = async || are_up(cluster, &["a", "b"]).await && is_gone(cluster, "c").await;
            assert!(cluster.converged(holds).await, "{what} did not converge");
            assert_eq!(outside.buckets.lock().len(), 2, "{what}: buckets");
            cluster.env.clock.sleep(Duration::from_secs(60)).await;
            let before = versions(cluster).await;
            cluster.env.clock.sleep(Duration::from_secs(3600)).await;
            assert_eq!(versions(cluster).await, before, "{what}: writes at rest");
            assert!(are_up(cluster, &["a", "b"]).await, "{what} did not stay");
        },
    )
}

#[test]
fn fifty_schedules_converge_and_one_seed_gives_one_trace() {
    for seed in 0..50 {
        let run = simulate(&Simulation::new(seed).rates(Rates::STORM), &format!("seed {seed}"));
        if seed % 10 == 0 {
            let again = simulate(&Simulation::new(seed).rates(Rates::STORM), &format!("seed {seed} again"));
            assert_eq!(run.trace, again.trace, "seed {seed}");
        }
    }
}

#[test]
fn without_faults_there_is_no_conflict_of_its_own_making() {
    for seed in 0..10 {
        let run = simulate(&Simulation::new(seed).rates(Rates::CALM), &format!("seed {seed}"));
        let conflicts: Vec<_> = run.trace.iter().filter(|line| line.ends_with(" 409")).collect();
        assert!(conflicts.is_empty(), "seed {seed}: {conflicts:#?}");
    }
}

/// One website, created on a calm network.
async fn one_site(cluster: &Cluster) {
    create(cluster, "a", 1).await;
    assert!(cluster.converged(async || are_up(cluster, &["a"]).await).await);
    cluster.env.clock.sleep(Duration::from_secs(60)).await;
}

#[test]
fn a_crash_at_each_request_leaves_nothing_behind() {
    let calm = |simulation: Simulation| {
        let outside = Arc::<Outside>::default();
        simulation
            .rates(Rates::CALM)
            .run(async |client, stop| operator(client, stop, &outside).await, one_site)
    };
    let run = calm(Simulation::new(1));
    let requests = run.trace.iter().filter(|line| line.contains("GET ") || line.contains("P")).count() as u64;
    assert!(requests > 10, "{:#?}", run.trace);
    for request in 1..=requests.min(40) {
        for moment in [Moment::BeforeSending, Moment::AfterActing] {
            let run = calm(Simulation::new(1).crash_at(request, moment));
            assert!(run.lives <= 2, "request {request} {moment:?}");
        }
    }
}

#[test]
fn stale_caches_lead_to_no_write_twice() {
    for (held, resource) in
        [(1, "deployments"), (360, "deployments"), (1, "websites"), (360, "websites"), (360, "configmaps")]
    {
        let outside = Arc::<Outside>::default();
        let run = Simulation::new(3).rates(Rates::CALM).run(
            async |client, stop| operator(client, stop, &outside).await,
            async |cluster| {
                create(cluster, "warm", 1).await;
                assert!(cluster.converged(async || are_up(cluster, &["warm"]).await).await);
                cluster.net.hold(resource);
                create(cluster, "a", 1).await;
                for _ in 0..held {
                    cluster.env.clock.sleep(Duration::from_secs(1)).await;
                    // Something else brings the key back, again and again.
                    let touch = Patch::Merge(
                        json!({"metadata": {"annotations": {"t": cluster.env.clock.wall().to_string()}}}),
                    );
                    drop(cluster.user.api::<Service>().patch(&key("a"), &touch).await);
                }
                cluster.net.release();
                assert!(
                    cluster.converged(async || are_up(cluster, &["a"]).await).await,
                    "{held} s of {resource}"
                );
            },
        );
        let count = |what: &str, code: &str| {
            run.trace.iter().filter(|line| line.contains(what) && line.ends_with(code)).count()
        };
        for child in ["deployments/a", "configmaps/a", "services/a"] {
            assert_eq!(count(child, " 201"), 1, "{child}, {held} s of {resource}: {:#?}", run.trace);
        }
        assert_eq!(count("", " 409"), 0, "{held} s of {resource}: {:#?}", run.trace);
        assert!(count("deployments/a", " 200") <= 1, "{held} s of {resource}: {:#?}", run.trace);
    }
}
