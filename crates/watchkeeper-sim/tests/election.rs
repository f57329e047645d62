//! Replicas of an operator that elect a leader, through kills, pauses, wrong clocks and faults of requests and watches.
#![allow(clippy::unwrap_used, reason = "a test may")]

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use parking_lot::Mutex;
use serde_json::json;
use watchkeeper::controller::{Action, Controller, Manager, Watch};
use watchkeeper::leader::LeaderElection;
use watchkeeper_sim::{Check, FaultKind, Life, User, Violation};

/// What replicas look at before they lead.
type Lives = Mutex<[u32; 3]>;

/// Keeps one Secret for each ConfigMap, under a generated name: two leaders, or one with an old cache, would create two.
fn register(manager: &mut Manager) {
    let controller = Controller::<ConfigMap>::new(manager).owns(Watch::<Secret>::new());
    let registered = controller.reconcile(|map, cx| async move {
        if cx.owned::<Secret>()?.into_parts().0.is_empty() {
            let prefix = format!("{}-", map.metadata.name.as_deref().unwrap_or_default());
            let secret = serde_json::from_value::<Secret>(json!({"metadata": {"generateName": prefix}}))?;
            cx.create_generated(&secret).await?;
        }
        Ok(Action::done())
    });
    registered.unwrap();
}

/// One life of a replica, as a candidate for a Lease of that name.
async fn candidate(life: Life, lease: &str) {
    let identity = format!("{}_{}", life.replica, life.client.env().generator.uuid());
    let election = LeaderElection::builder(&life.client, "default", lease).identity(&identity).build();
    let mut manager = Manager::builder("operator", &life.client).leader_election(election.unwrap()).build();
    register(&mut manager);
    // Who has lost leadership ends, and is started again.
    let _lost = manager.run(life.stop).await;
}

async fn story(user: &User) {
    for name in ["a", "b"] {
        let map = json!({"metadata": {"name": name, "namespace": "default"}});
        user.create::<ConfigMap>(&serde_json::from_value(map).unwrap()).await;
        user.settle().await;
    }
    user.delete::<ConfigMap>("default/a").await;
    user.settle().await;
}

fn check(kinds: &[&str], replicas: usize) -> Check {
    let kinds = kinds.iter().map(|kind| kind.parse::<FaultKind>().unwrap());
    Check::builder().replicas(replicas).pairs(0).seeds(0).faults(kinds)
}

/// Faults after which leadership moves, or that leave a standby behind. A request that is lost or slow is not one of them: what a leader
/// has sent may arrive when another leads.
const KINDS: [&str; 15] = [
    "kill",
    "pause",
    "clock-offset",
    "crash-before",
    "crash-after",
    "expire",
    "expire-later",
    "cut",
    "stall",
    "delay",
    "duplicate",
    "hide",
    "no-bookmarks",
    "restart",
    "compact",
];

#[test]
fn two_replicas_create_nothing_twice() {
    let check = check(&KINDS, 2).name("two replicas").pairs(60).seeds(80);
    let report = check.run_program(|_| (), async |life, ()| candidate(life, "leader").await, story).unwrap();
    println!("{report}");
    assert!(report.schedules() > 200, "{report}");
}

#[test]
fn three_replicas_create_nothing_twice() {
    let check = check(&["kill", "pause", "crash-after", "delay", "hide"], 3).name("three replicas").seeds(40);
    let report = check.run_program(|_| (), async |life, ()| candidate(life, "leader").await, story).unwrap();
    println!("{report}");
    assert!(report.schedules() > 100, "{report}");
}

/// One clock at a time runs at 80 or 125 % of the true rate, so that no two differ by more than 1.4.
#[test]
fn clocks_of_different_rates_make_no_two_leaders() {
    let check = check(&["clock-rate"], 3).name("clock rates");
    let report = check.run_program(|_| (), async |life, ()| candidate(life, "leader").await, story).unwrap();
    println!("{report}");
    assert_eq!(report.schedules(), 6);
}

#[test]
fn a_replica_that_leads_by_a_lease_of_its_own_is_found() {
    let check = check(&["kill"], 2).name("two Leases");
    let program = async |life: Life, lives: &Lives| {
        let nth = {
            let mut lives = lives.lock();
            lives[life.replica] += 1;
            lives[life.replica]
        };
        candidate(life, if nth > 1 { "another" } else { "leader" }).await;
    };
    let failure = check.run_program(|_| Lives::default(), program, story).unwrap_err();
    assert!(
        matches!(failure.violation(), Some(Violation::Doubled(_) | Violation::Differs(_))),
        "two leaders are not noticed: {failure}"
    );
}
