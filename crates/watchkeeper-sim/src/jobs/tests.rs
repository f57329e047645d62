use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::atomic::AtomicU32;

use k8s_openapi::api::core::v1::ConfigMap;
use watchkeeper::ObjectName;

use super::*;
use crate::check::Check;
use crate::outside::Outside;
use crate::subject::{Life, Program};
use crate::user::User;

/// A program that reads an object once per life; `name` says which.
fn reads<N: Fn(u32) -> String + Send + Sync + 'static>(name: N) -> Arc<dyn Subject> {
    let program = async move |life: Life, lives: &AtomicU32| {
        let name = name(lives.fetch_add(1, Ordering::Relaxed));
        let key = ObjectName::namespaced("default", &name);
        let _found = life.client.api::<ConfigMap>().get_opt(&key).await;
        life.stop.cancelled().await;
    };
    let outside = |_: &Outside| AtomicU32::new(0);
    Arc::new(Program { outside, program, story, external: PhantomData })
}

async fn story(user: &User) {
    for name in ["a", "b"] {
        let mut map = ConfigMap::default();
        (map.metadata.name, map.metadata.namespace) = (Some(name.into()), Some("default".into()));
        user.create(&map).await;
        user.settle().await;
    }
}

fn options(shard: u64, folder: &Path) -> Options {
    Options { shard: Some((shard, 4)), state: Some(folder.to_owned()), ..Options::default() }
}

fn check(kinds: &[&'static str]) -> Check {
    Check::builder().name("shards").threads(2).pairs(10).faults(kinds.iter().map(|kind| FaultKind(kind)))
}

#[test]
fn four_shards_run_each_schedule_once_and_go_on_where_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let subject = reads(|_| "a".to_owned());
    let check = |seeds| check(&["kill", "lose-answer"]).seeds(seeds);
    let whole = check(20).run_with(Options::default(), subject.clone()).unwrap().schedules();
    let run = |shard, seeds| check(seeds).run_with(options(shard, folder.path()), subject.clone());
    let parts = [1, 2, 3, 4].map(|shard| run(shard, 20).unwrap().schedules());
    assert_eq!(parts.iter().sum::<u64>(), whole, "{parts:?}");
    for (shard, part) in (1..).zip(parts) {
        let kept = std::fs::read(folder.path().join(format!("shards-{shard}-of-4.json"))).unwrap();
        let kept: serde_json::Value = serde_json::from_slice(&kept).unwrap();
        assert_eq!((kept["next"].as_u64(), kept["schedules"].as_u64()), (Some(part), Some(part)));
        // Nothing is left to do; then there are more seeds.
        assert_eq!(run(shard, 20).unwrap().schedules(), part);
        assert_eq!(run(shard, 24).unwrap().schedules(), part + 1);
    }
}

#[test]
fn a_check_does_not_go_on_with_what_is_kept_of_another_plan() {
    let folder = tempfile::tempdir().unwrap();
    let run = |kinds: &[&'static str]| {
        check(kinds).seeds(2).run_with(options(1, folder.path()), reads(|_| "a".to_owned()))
    };
    run(&["kill"]).unwrap();
    let text = run(&["kill", "lose-answer"]).unwrap_err().to_string();
    assert!(text.contains("shards-1-of-4.json is of another plan") && text.contains("remove it"), "{text}");
    let file = folder.path().join("shards-1-of-4.json");
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap().replace("\"plan\"", "\"old\"")).unwrap();
    assert!(run(&["kill"]).unwrap_err().to_string().contains("is of another plan"));
}

#[test]
fn every_shard_runs_some_schedules_twice_and_shows_where_they_differ() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    // The second life reads something else in every run.
    let unsteady = || {
        reads(|life| match life {
            0 => "a".to_owned(),
            _ => format!("b{}", RUNS.fetch_add(1, Ordering::Relaxed)),
        })
    };
    for shard in 1..=4 {
        let options = Options { shard: Some((shard, 4)), ..Options::default() };
        let kills = (0..4).fold(check(&["kill"]), |check, _| check.schedule("kill @ step 1"));
        let failure = kills.seeds(10).run_with(options, unsteady()).unwrap_err();
        assert_eq!(failure.violation(), Some(&Violation::NotDeterministic), "{failure}");
        let text = failure.to_string();
        assert!(
            text.contains("the other run of the schedule is different from here on: it goes on"),
            "{text}"
        );
        assert!(text.contains("the request \"get configmaps default/b"), "{text}");
    }
}

#[test]
fn what_is_done_early_is_reported_in_the_order_of_schedules() {
    let report = Report::new("order", 0, 0, Vec::new());
    let mut progress = Progress { report, next: 5, early: BTreeMap::new() };
    let mut add = |number| {
        progress.add(number, Tally::default());
        (progress.next, progress.report.schedules())
    };
    assert_eq!([7, 6, 5, 8].map(&mut add), [(5, 0), (5, 0), (8, 3), (9, 4)]);
}

#[test]
fn every_seed_has_a_world_of_its_own() {
    let drawn = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = drawn.clone();
    let outside = move |outside: &Outside| {
        seen.lock().insert(outside.env().generator.below(u64::MAX));
    };
    let program = async |life: Life, (): &()| life.stop.cancelled().await;
    let subject = Arc::new(Program { outside, program, story, external: PhantomData });
    let check = check(&["kill"]).singles(false).pairs(0).seeds(10);
    check.run_with(Options::default(), subject).unwrap();
    // Those of the seeds, and that of the run without faults.
    assert_eq!(drawn.lock().len(), 11);
}
