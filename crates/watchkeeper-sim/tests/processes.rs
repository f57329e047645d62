//! What happens to the processes of a controller: pauses, kills and wrong clocks, for one replica or several, and how long they rest.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::params::Patch;
use parking_lot::Mutex;
use serde_json::json;
use watchkeeper::ObjectName;
use watchkeeper::controller::{Action, Controller};
use watchkeeper_sim::{Check, Class, Life, User, Violation};

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}})).unwrap()
}

async fn two_steps(user: &User) {
    user.create(&map("a")).await;
    user.sleep(Duration::from_secs(200)).await;
    user.create(&map("b")).await;
}

/// Only faults of these kinds, one at a time.
fn only(kinds: &[&str]) -> Check {
    Check::builder().pairs(0).seeds(0).faults(kinds.iter().map(|kind| kind.parse().unwrap()))
}

/// The seconds at which a program was awake, for each run.
type Ticks = Arc<Mutex<Vec<u64>>>;

#[test]
fn a_suspended_program_does_nothing_and_its_timers_expire_at_the_end() {
    let runs = Arc::new(Mutex::new(Vec::<Ticks>::new()));
    let theirs = runs.clone();
    let check = only(&["pause"]).threads(1).run_program(
        move |outside| {
            let (begun, ticks) = (outside.env().clock.now(), Ticks::default());
            theirs.lock().push(ticks.clone());
            (begun, ticks)
        },
        async |life: Life, (begun, ticks)| {
            let (clock, maps) = (life.client.env().clock.clone(), life.client.api::<ConfigMap>());
            let work = async {
                while !life.stop.is_cancelled() {
                    clock.sleep(Duration::from_secs(15)).await;
                    let _found = maps.get_opt(&ObjectName::namespaced("default", "a")).await;
                    ticks.lock().push((clock.now() - *begun).as_secs());
                }
            };
            let _is_stopped = life.stop.run_until_cancelled(work).await;
        },
        two_steps,
    );
    let report = check.unwrap();
    assert_eq!(report.schedules(), 3, "before the story, and after each step");
    let first = |number: usize, count: usize| runs.lock()[number].lock()[..count].to_vec();
    assert_eq!(first(0, 3), [15, 30, 45], "without faults");
    // Four runs without faults come first, and the first schedule is run twice.
    for number in [4, 5] {
        assert_eq!(first(number, 3), [60, 75, 90], "suspended when it was started");
    }
    assert_eq!(first(6, 3), [60, 75, 90], "paused after the first step");
    let last = runs.lock()[7].lock().clone();
    let gap = last.windows(2).find(|pair| pair[1] - pair[0] > 15).unwrap().to_vec();
    assert_eq!(gap, [195, 260], "paused after the second step");
}

#[test]
fn every_replica_is_killed_and_has_its_clock_set() {
    let lives = Arc::new(Mutex::new(BTreeSet::new()));
    let theirs = lives.clone();
    let program = async move |life: Life, (): &()| {
        let begun = 1_767_225_600;
        let hours = (life.client.env().clock.wall().as_second() - begun).div_euclid(3600);
        theirs.lock().insert((life.replica, hours));
        life.stop.cancelled().await;
    };
    let check = only(&["kill", "clock-offset", "clock-rate"]).replicas(3);
    let report = check.run_program(|_| (), program, two_steps).unwrap();
    // At three places, three replicas are killed; each of their clocks can be wrong in four ways.
    assert_eq!(report.schedules(), 3 * 3 + 3 * 4);
    for replica in 0..3 {
        for hours in [-1, 0, 1] {
            assert!(lives.lock().contains(&(replica, hours)), "{replica} {hours}: {:?}", lives.lock());
        }
    }
}

#[test]
fn a_clock_that_nobody_reads_has_no_effect() {
    let hits = |sleeps: bool| {
        let program = async move |life: Life, (): &()| {
            if sleeps {
                life.client.env().clock.sleep(Duration::from_secs(10)).await;
                let _found =
                    life.client.api::<ConfigMap>().get_opt(&ObjectName::namespaced("default", "a")).await;
            }
            life.stop.cancelled().await;
        };
        let report = only(&["clock-rate", "clock-offset"]).run_program(|_| (), program, two_steps).unwrap();
        assert_eq!(report.schedules(), 4);
        ["clock-rate", "clock-offset"].map(|kind| report.hits(kind.parse().unwrap()))
    };
    assert_eq!(hits(false), [0, 0]);
    // When it reads the object follows from the rate of its clock, not from the offset.
    assert_eq!(hits(true), [2, 0]);
}

#[test]
fn a_controller_must_rest_for_two_of_its_longest_requeues() {
    let writes = |delay: Duration| {
        let check = Check::builder().name("writes").singles(false).pairs(0).seeds(1);
        check.run(
            |_| (),
            move |manager, ()| {
                let client = manager.client().clone();
                Controller::<ConfigMap>::new(manager).reconcile(move |_, cx| {
                    let client = client.clone();
                    async move {
                        let touch = Patch::Merge(json!({"data": {"at": cx.env().clock.wall().to_string()}}));
                        client.api::<ConfigMap>().patch(cx.key(), &touch).await?;
                        Ok(Action::requeue_after(delay))
                    }
                })
            },
            two_steps,
        )
    };
    for minutes in [5, 30, 60] {
        let failure = writes(Duration::from_secs(minutes * 60)).unwrap_err();
        assert_eq!(failure.class(), Some(Class::WithoutFaults), "{failure}");
        let Some(Violation::Restless { rest, .. }) = failure.violation() else { panic!("{failure}") };
        assert_eq!(rest.as_secs() / 60, (2 * minutes + 1).max(11));
    }
}
