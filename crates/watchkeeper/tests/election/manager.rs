//! Managers with leader election: standbys, take-overs, loss and the end.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::clock::Instant;
use watchkeeper::controller::{Action, Controller, Manager, ManagerError, Watch};
use watchkeeper::leader::LeaderElection;
use watchkeeper::source::{Scope, Selection};
use watchkeeper::{Client, Env, ObjectName, SharedInformerFactory};

use crate::link::{Cluster, Link};

const SECOND: Duration = Duration::from_secs(1);

/// One program with a manager.
struct Program {
    link: Link,
    stop: CancellationToken,
    run: JoinHandle<Result<(), ManagerError>>,
    ready: watchkeeper::process::Checks,
    factory: SharedInformerFactory,
}

impl Program {
    async fn ended(self) -> Result<(), ManagerError> {
        self.run.await.unwrap()
    }

    /// Ends it without a word, and its requests with it.
    fn kill(self) {
        self.run.abort();
        self.link.dead.cancel();
    }
}

struct World {
    env: Env,
    cluster: Cluster,
    user: Client,
    /// Who reconciled what, and when.
    reconciled: Arc<Mutex<Vec<(usize, Instant)>>>,
}

impl World {
    fn new() -> Self {
        let env = Env::simulated(1);
        let cluster = Cluster::new(&env);
        let user = Client::from_kube(cluster.server.client(), &env.fork("user"));
        Self { env, cluster, user, reconciled: Arc::default() }
    }

    /// Starts a program, with what `register` adds.
    fn start(&self, number: usize, register: impl FnOnce(&mut Manager, &Self)) -> Program {
        let env = Env::new(self.env.clock.clone(), self.env.generator.fork("program"));
        let link = Link::new(&self.cluster, number, env.generator.fork("link"), Duration::from_millis(5));
        let client = Client::from_kube(link.client(), &env);
        let election = LeaderElection::builder(&client, "default", "leader");
        let election = election.identity(&format!("{number}_")).build().unwrap();
        let mut manager = Manager::builder("operator", &client).leader_election(election).build();
        register(&mut manager, self);
        let (stop, ready) = (CancellationToken::new(), manager.pages().ready.clone());
        let factory = manager.factory().clone();
        let run = tokio::spawn(manager.run(stop.clone()));
        Program { link, stop, run, ready, factory }
    }

    /// Starts a program that keeps one Secret for each ConfigMap, under a generated name.
    fn operator(&self, number: usize) -> Program {
        self.start(number, |manager, world| {
            let (client, reconciled) = (manager.client().clone(), world.reconciled.clone());
            let clock = world.env.clock.clone();
            Controller::<ConfigMap>::new(manager)
                .owns(Watch::<Secret>::new())
                .reconcile(move |map, cx| {
                    let (client, reconciled, clock) = (client.clone(), reconciled.clone(), clock.clone());
                    async move {
                        reconciled.lock().push((number, clock.now()));
                        if cx.owned::<Secret>()?.into_parts().0.is_empty() {
                            let owner = json!({
                                "apiVersion": "v1", "kind": "ConfigMap", "name": map.metadata.name,
                                "uid": map.metadata.uid, "controller": true,
                            });
                            let metadata = json!({
                                "generateName": "s-", "namespace": "default", "ownerReferences": [owner],
                            });
                            let secret = serde_json::from_value(json!({"metadata": metadata}))?;
                            client.api::<Secret>().create(&secret).await?;
                        }
                        Ok(Action::done())
                    }
                })
                .unwrap();
        })
    }

    async fn create_map(&self, name: &str) {
        let map = json!({"metadata": {"name": name, "namespace": "default"}});
        self.user.api::<ConfigMap>().create(&serde_json::from_value(map).unwrap()).await.unwrap();
    }

    async fn secrets(&self) -> usize {
        let all = self.user.api::<Secret>().list(&Scope::Cluster, &Selection::default()).await.unwrap();
        all.complete().unwrap().len()
    }

    async fn lease(&self) -> Lease {
        self.user.api::<Lease>().get(&ObjectName::namespaced("default", "leader")).await.unwrap()
    }

    async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        for _ in 0..6_000 {
            if holds().await {
                return;
            }
            self.env.clock.sleep(SECOND / 100).await;
        }
        panic!("{what} did not happen within a minute");
    }

    async fn until_held_by(&self, number: usize) {
        let holder = format!("{number}_");
        self.until(&format!("replica {number} leads"), async || self.cluster.server.holder() == holder).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_is_ready_and_works_within_a_second_after_the_leader_has_stopped() {
    let world = World::new();
    world.create_map("a").await;
    let first = world.operator(0);
    world.until("a Secret", async || world.secrets().await == 1).await;
    let second = world.operator(1);
    world.env.clock.sleep(10 * SECOND).await;
    assert!(first.ready.failing().is_empty() && second.ready.failing().is_empty());
    assert!(world.reconciled.lock().iter().all(|(number, _)| *number == 0), "the standby only watches");

    let stopped = world.env.clock.now();
    first.stop.cancel();
    assert!(first.ended().await.is_ok());
    world.until_held_by(1).await;
    world.until("a reconcile", async || world.reconciled.lock().iter().any(|(number, _)| *number == 1)).await;
    let took = world.env.clock.now() - stopped;
    assert!(took < SECOND, "{took:?}");
    assert_eq!(world.secrets().await, 1);
    assert_eq!(world.lease().await.spec.unwrap().lease_transitions, Some(1));
    second.kill();
}

#[tokio::test(start_paused = true)]
async fn a_standby_whose_watch_is_behind_creates_nothing_twice() {
    // The leader leaves its lease at once, or is killed: then its lease has to expire.
    for (lag, is_killed) in [(6 * SECOND, false), (6 * SECOND, true), (20 * SECOND, true)] {
        let world = World::new();
        let (first, second) = (world.operator(0), {
            world.env.clock.sleep(SECOND).await;
            world.operator(1)
        });
        world.until_held_by(0).await;
        world.env.clock.sleep(5 * SECOND).await;
        second.link.lag(lag);
        world.create_map("a").await;
        world.until("a Secret", async || world.secrets().await == 1).await;
        if is_killed {
            first.kill();
        } else {
            first.stop.cancel();
            assert!(first.ended().await.is_ok());
        }
        world.until_held_by(1).await;
        world.create_map("b").await;
        world.until("a second Secret", async || world.secrets().await > 1).await;
        world.env.clock.sleep(60 * SECOND).await;
        assert_eq!(world.secrets().await, 2, "with a lag of {lag:?}");
        second.kill();
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_watch_of_a_standby_has_lost_is_repaired_before_it_works() {
    // Later events move the cache past what was lost, or there are none.
    for is_passed in [false, true] {
        let world = World::new();
        let first = world.operator(0);
        world.until_held_by(0).await;
        let second = world.operator(1);
        world.env.clock.sleep(5 * SECOND).await;
        second.link.deafen(true);
        world.create_map("a").await;
        world.until("a Secret", async || world.secrets().await == 1).await;
        world.env.clock.sleep(SECOND).await;
        second.link.deafen(false);
        if is_passed {
            world.create_map("b").await;
            world.until("a second Secret", async || world.secrets().await == 2).await;
            world.env.clock.sleep(SECOND).await;
        }
        let (stopped, all) = (world.env.clock.now(), if is_passed { 2 } else { 1 });
        first.stop.cancel();
        assert!(first.ended().await.is_ok());
        let is_seen =
            async || world.reconciled.lock().iter().filter(|(number, _)| *number == 1).count() >= all;
        world.until("the reconciles of the second", is_seen).await;
        let took = world.env.clock.now() - stopped;
        assert!(took < 15 * SECOND, "{took:?}");
        let (maps, secrets) = (second.factory.informer::<ConfigMap>(), second.factory.informer::<Secret>());
        assert_eq!((maps.health().differences, secrets.health().differences), (1, 1));
        world.env.clock.sleep(60 * SECOND).await;
        assert_eq!(world.secrets().await, all, "nothing was created twice");
        second.kill();
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_may_not_read_the_lease_is_not_ready() {
    let world = World::new();
    let first = world.operator(0);
    world.until_held_by(0).await;
    let second = world.operator(1);
    world.env.clock.sleep(60 * SECOND).await;
    assert!(second.ready.failing().is_empty());
    second.link.forbid_lease(true);
    world.env.clock.sleep(30 * SECOND).await;
    assert!(second.ready.failing().is_empty(), "it may be for a moment");
    world.env.clock.sleep(10 * SECOND).await;
    assert_eq!(second.ready.failing(), ["leaderElection"]);
    second.link.forbid_lease(false);
    world.env.clock.sleep(10 * SECOND).await;
    assert!(second.ready.failing().is_empty());
    assert!(first.ready.failing().is_empty());
    first.kill();
    second.kill();
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_loses_leadership_ends_with_an_error_and_drains_nothing() {
    let world = World::new();
    let program = world.start(0, |manager, _| {
        manager.add("stuck", |_stop| async {
            pending::<()>().await;
            Ok::<(), std::io::Error>(())
        });
        manager.add_on_all_replicas("stuck too", |_stop| pending::<Result<(), std::io::Error>>());
    });
    world.until_held_by(0).await;
    world.env.clock.sleep(5 * SECOND).await;
    let cut = world.env.clock.now();
    program.link.cut(3600 * SECOND);
    let error = program.ended().await.unwrap_err();
    let took = world.env.clock.now() - cut;
    assert!(matches!(error, ManagerError::LeaderElectionLost(_)), "{error}");
    assert!(error.to_string().starts_with("leader election lost"), "{error}");
    // The renew deadline, and three seconds for events.
    assert!(took > 7 * SECOND && took < 14 * SECOND, "{took:?}");
    assert_eq!(world.cluster.server.holder(), "0_", "the lease is left to expire");
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_left_to_expire_while_a_write_may_be_under_way() {
    let world = World::new();
    let program = world.start(0, |manager, _| {
        let client = manager.client().clone();
        manager.add("writer", |stop| async move {
            let map = json!({"metadata": {"name": "late", "namespace": "default"}});
            let map = serde_json::from_value::<ConfigMap>(map).unwrap();
            // Dropped before the answer comes.
            let _sent = futures::poll!(std::pin::pin!(client.api::<ConfigMap>().create(&map)));
            stop.cancelled().await;
            Ok::<(), std::io::Error>(())
        });
    });
    world.until_held_by(0).await;
    world.env.clock.sleep(3 * SECOND).await;
    program.stop.cancel();
    assert!(program.ended().await.is_ok());
    assert_eq!(world.cluster.server.holder(), "0_");
}

#[tokio::test(start_paused = true)]
async fn runnables_run_on_the_leader_unless_they_are_for_all_and_events_tell_who_led() {
    let world = World::new();
    let ran = Arc::new(Mutex::new(Vec::new()));
    let start = |number: usize| {
        let ran = ran.clone();
        world.start(number, |manager, _| {
            let note = |what: &'static str| {
                let ran = ran.clone();
                move |stop: CancellationToken| async move {
                    ran.lock().push((what, number));
                    stop.cancelled().await;
                    Ok::<(), std::io::Error>(())
                }
            };
            manager.add("leading", note("leading"));
            manager.add_on_all_replicas("everywhere", note("everywhere"));
        })
    };
    let first = start(0);
    world.until("the leader's runnable", async || ran.lock().contains(&("leading", 0))).await;
    let second = start(1);
    world.env.clock.sleep(5 * SECOND).await;
    assert_eq!(*ran.lock(), [("everywhere", 0), ("leading", 0), ("everywhere", 1)]);
    first.stop.cancel();
    assert!(first.ended().await.is_ok());
    world.until_held_by(1).await;
    world.env.clock.sleep(SECOND).await;
    assert_eq!(ran.lock().last(), Some(&("leading", 1)));
    second.stop.cancel();
    assert!(second.ended().await.is_ok());

    let events = world.user.api::<Event>().list(&Scope::Cluster, &Selection::default()).await.unwrap();
    let mut events = events.complete().unwrap();
    events.sort_by_key(|event| event.metadata.resource_version.as_ref().unwrap().parse::<u64>().unwrap());
    let told = events.iter().map(|event| {
        assert_eq!(event.involved_object.kind.as_deref(), Some("Lease"));
        assert_eq!(event.involved_object.name.as_deref(), Some("leader"));
        assert_eq!(event.reason.as_deref(), Some("LeaderElection"));
        event.message.clone().unwrap()
    });
    // client-go: TestReleaseOnCancellation_Leases, TestRecordEventSuccess
    assert_eq!(
        told.collect::<Vec<_>>(),
        ["0_ became leader", "0_ stopped leading", "1_ became leader", "1_ stopped leading"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_is_stopped_ends_at_once_and_leaves_the_lease_alone() {
    let world = World::new();
    let first = world.operator(0);
    world.until_held_by(0).await;
    let second = world.operator(1);
    world.env.clock.sleep(5 * SECOND).await;
    let before = world.env.clock.now();
    second.stop.cancel();
    assert!(second.ended().await.is_ok());
    assert!(world.env.clock.now() - before < SECOND);
    assert_eq!(world.cluster.server.holder(), "0_");
    first.kill();
}
