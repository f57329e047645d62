//! How a standby follows the Lease: by a watch of it, and by reads where it may not watch.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use watchkeeper::leader::{LeaderElection, LeaderElectionLost, LeaderStatus};
use watchkeeper::{Client, Env};

use crate::link::{Cluster, Link};

const SECOND: Duration = Duration::from_secs(1);

/// A candidate that leads until it is stopped.
struct Replica {
    link: Link,
    status: LeaderStatus,
    stop: CancellationToken,
    run: JoinHandle<Result<Option<()>, LeaderElectionLost>>,
}

impl Replica {
    fn start(cluster: &Cluster, env: &Env, number: usize) -> Self {
        let env = env.fork(&format!("replica {number}"));
        let link = Link::new(cluster, number, env.generator.fork("link"), Duration::from_millis(5));
        let client = Client::from_kube(link.client(), &env);
        let election = LeaderElection::builder(&client, "default", "leader");
        let election = election.identity(&format!("{number}_")).build().unwrap();
        let (status, stop) = (election.status().clone(), CancellationToken::new());
        let run = tokio::spawn(election.run(stop.clone(), {
            let stop = stop.clone();
            move |_| stop.cancelled_owned()
        }));
        Self { link, status, stop, run }
    }

    /// Ends it without a word, and its requests with it.
    fn kill(self) {
        self.run.abort();
        self.link.dead.cancel();
    }
}

/// Starts a leader, and a standby that has followed it for ten seconds.
async fn leader_and_standby(cluster: &Cluster, env: &Env) -> [Replica; 2] {
    let leader = Replica::start(cluster, env, 0);
    env.clock.sleep(SECOND).await;
    let standby = Replica::start(cluster, env, 1);
    env.clock.sleep(10 * SECOND).await;
    assert!(leader.status.is_leader() && !standby.status.is_leader());
    [leader, standby]
}

#[tokio::test(start_paused = true)]
async fn a_standby_does_not_read_the_lease_while_it_can_watch_it() {
    let env = Env::simulated(1);
    let cluster = Cluster::new(&env);
    let [leader, standby] = leader_and_standby(&cluster, &env).await;
    let before = standby.link.lease_reads();
    env.clock.sleep(60 * SECOND).await;
    assert_eq!(standby.link.lease_reads(), before);
    leader.kill();
    standby.kill();
}

#[tokio::test(start_paused = true)]
async fn a_standby_reads_the_lease_every_few_seconds_when_it_may_watch_it_no_more() {
    let env = Env::simulated(1);
    let cluster = Cluster::new(&env);
    let [leader, standby] = leader_and_standby(&cluster, &env).await;
    standby.link.forbid_watches();
    // The watch ends at the next renewal.
    env.clock.sleep(5 * SECOND).await;
    let before = standby.link.lease_reads();
    env.clock.sleep(60 * SECOND).await;
    let reads = standby.link.lease_reads() - before;
    assert!((13..=30).contains(&reads), "{reads}");
    leader.stop.cancel();
    let stopped = env.clock.now();
    while !standby.status.is_leader() {
        env.clock.sleep(SECOND / 10).await;
    }
    let took = env.clock.now() - stopped;
    assert!(took < 5 * SECOND, "{took:?}, after {reads} reads in a minute");
    standby.kill();
}

#[tokio::test(start_paused = true)]
async fn changes_of_other_leases_in_the_namespace_do_not_matter() {
    let env = Env::simulated(1);
    let cluster = Cluster::new(&env);
    let user = Client::from_kube(cluster.server.client(), &env.fork("user"));
    let [leader, standby] = leader_and_standby(&cluster, &env).await;
    leader.kill();
    for number in 0..17 {
        let lease = json!({
            "metadata": {"name": format!("other-{number}"), "namespace": "default"},
            "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15},
        });
        user.api::<Lease>().create(&serde_json::from_value(lease).unwrap()).await.unwrap();
        env.clock.sleep(SECOND).await;
    }
    assert!(standby.status.is_leader());
    standby.kill();
}
