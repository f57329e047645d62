//! Checks of small operators, right and wrong ones.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_core::params::Patch;
use parking_lot::Mutex;
use serde_json::json;
use watchkeeper::ObjectName;
use watchkeeper::controller::{Action, Controller, Manager, SetupError, Watch};
use watchkeeper_sim::{Check, Class, Difference, Failure, Life, Objects, Outside, User, Violation};

/// Keeps a Secret for each ConfigMap.
fn mirror(manager: &mut Manager) -> Result<(), SetupError> {
    Controller::<ConfigMap>::new(manager).owns(Watch::<Secret>::new()).reconcile(|map, cx| async move {
        let mut secret = Secret::default();
        secret.metadata.name = map.metadata.name.clone();
        secret.string_data = map.data.clone();
        cx.apply(&secret).await?;
        Ok(Action::done())
    })
}

fn map(name: &str, text: &str) -> ConfigMap {
    serde_json::from_value(
        json!({"metadata": {"name": name, "namespace": "default"}, "data": {"text": text}}),
    )
    .unwrap()
}

async fn story(user: &User) {
    user.create(&map("a", "one")).await;
    user.create(&map("b", "one")).await;
    user.eventually::<Secret>("default/a", |_| true).await;
    user.delete::<Secret>("default/a").await;
    user.patch::<ConfigMap>("default/b", json!({"data": {"text": "two"}})).await;
    user.settle().await;
    user.delete::<ConfigMap>("default/b").await;
}

#[test]
fn an_operator_that_is_right_passes() {
    let report = Check::builder()
        .name("mirror")
        .pairs(100)
        .seeds(200)
        .run(|_| (), |manager, ()| mirror(manager), story)
        .unwrap();
    println!("{report}");
    assert!(report.schedules() > 500, "{report}");
    let unused: Vec<_> = report.unused().into_iter().map(|kind| kind.name()).collect();
    assert_eq!(unused, [] as [&str; 0], "{report}");
}

/// A wrong operator: it creates the Secret under a generated name, and knows of it only from memory.
fn forgetful(manager: &mut Manager) -> Result<(), SetupError> {
    let client = manager.client().clone();
    let known = Arc::new(Mutex::new(BTreeSet::new()));
    Controller::<ConfigMap>::new(manager).reconcile(move |map, cx| {
        let (client, known) = (client.clone(), known.clone());
        async move {
            if known.lock().insert(cx.key().clone()) {
                let name = format!("{}-", cx.key().name());
                let secret = json!({"metadata": {"generateName": name, "namespace": map.metadata.namespace}});
                client.api::<Secret>().create(&serde_json::from_value(secret)?).await?;
            }
            Ok(Action::done())
        }
    })
}

async fn one_map(user: &User) {
    user.create(&map("a", "one")).await;
    user.settle().await;
    user.patch::<ConfigMap>("default/a", json!({"data": {"text": "two"}})).await;
}

#[test]
fn an_operator_that_is_wrong_is_shown_with_the_fewest_faults_and_steps() {
    let check = Check::builder().name("forgetful").seeds(10).pairs(0);
    let failure = check.clone().run(|_| (), |manager, ()| forgetful(manager), one_map).unwrap_err();
    let text = failure.to_string();
    let replay = failure.replay().unwrap();
    assert_eq!(replay.matches('@').count(), 1, "{text}");
    assert!(replay.starts_with("steps=1; "), "one step is enough: {text}");
    assert!(matches!(failure.violation(), Some(Violation::Differs(_) | Violation::Doubled(_))), "{text}");
    assert!(text.contains("user       step 1: create configmaps default/a"), "{text}");
    assert!(text.contains("FAULT") && text.contains("SIM_REPLAY="), "{text}");
    let page = std::fs::read_to_string(failure.page().unwrap()).unwrap();
    assert!(page.contains("<tr class=\"fault\">") && page.contains("create configmaps"), "{page}");
}

/// A wrong operator, about one ConfigMap only.
fn forgets_one(manager: &mut Manager) -> Result<(), SetupError> {
    let client = manager.client().clone();
    let known = Arc::new(Mutex::new(BTreeSet::new()));
    Controller::<ConfigMap>::new(manager).reconcile(move |_, cx| {
        let (client, known) = (client.clone(), known.clone());
        async move {
            if cx.key().name() == "wrong" && known.lock().insert(cx.key().clone()) {
                let secret = json!({"metadata": {"generateName": "s-", "namespace": "default"}});
                client.api::<Secret>().create(&serde_json::from_value(secret)?).await?;
            }
            Ok(Action::done())
        }
    })
}

async fn wrong_in_the_end(user: &User) {
    user.create(&map("a", "one")).await;
    user.create(&map("needed", "one")).await;
    user.eventually::<ConfigMap>("default/needed", |_| true).await;
    user.patch::<ConfigMap>("default/a", json!({"data": {"text": "two"}})).await;
    user.create(&map("wrong", "one")).await;
    user.settle().await;
    user.delete::<ConfigMap>("default/a").await;
}

#[test]
fn steps_in_the_middle_are_left_out_unless_the_story_needs_them() {
    let check = Check::builder().name("forgets one").seeds(0).pairs(0);
    let failure = check.run(|_| (), |manager, ()| forgets_one(manager), wrong_in_the_end).unwrap_err();
    let (replay, text) = (failure.replay().unwrap(), failure.to_string());
    // Without its creation, the object of step 3 could not be read in place of the patch, so step 1 stays, too.
    assert!(replay.starts_with("steps=4; without=3; "), "{text}");
    assert!(text.contains("step 2: create configmaps default/needed") && !text.contains("step 3:"), "{text}");
}

#[test]
fn a_story_that_does_not_converge_without_faults_is_reported_first() {
    let restless = |manager: &mut Manager| {
        let client = manager.client().clone();
        Controller::<ConfigMap>::new(manager).reconcile(move |_, cx| {
            let client = client.clone();
            async move {
                let touch = Patch::Merge(json!({"data": {"at": cx.env().clock.wall().to_string()}}));
                client.api::<ConfigMap>().patch(cx.key(), &touch).await?;
                Ok(Action::requeue_after(Duration::from_secs(60)))
            }
        })
    };
    let failure = Check::builder().run(|_| (), move |manager, ()| restless(manager), one_map).unwrap_err();
    assert_eq!(failure.class(), Some(Class::WithoutFaults), "{failure}");
    assert!(failure.to_string().contains("goes wrong without faults"), "{failure}");
}

#[test]
fn a_story_or_a_controller_that_panics_keeps_its_trace() {
    let failure = Check::builder().run(
        |_| (),
        |manager, ()| mirror(manager),
        async |user| {
            user.create(&map("a", "one")).await;
            user.settle().await;
            panic!("the story is over");
        },
    );
    let text = failure.unwrap_err().to_string();
    assert!(text.contains("the story cannot go on: the story is over"), "{text}");
    assert!(text.contains("apply secrets default/a (created)"), "{text}");
    let panics = |manager: &mut Manager| {
        Controller::<ConfigMap>::new(manager).reconcile(|_, _| async { panic!("no such thing") })
    };
    let failure = Check::builder().run(|_| (), move |manager, ()| panics(manager), one_map).unwrap_err();
    assert!(failure.to_string().contains("the controller panicked"), "{failure}");
    assert!(failure.to_string().contains("no such thing"), "{failure}");
}

#[test]
fn an_invariant_is_checked_after_every_change() {
    let at_most = |most: usize| {
        move |objects: &Objects| match objects.list::<Secret>().len() {
            count if count > most => Err(format!("{count} Secrets")),
            _ => Ok(()),
        }
    };
    let check = |most| {
        let check = Check::builder().singles(false).pairs(0).seeds(5).always("few Secrets", at_most(most));
        check.run(|_| (), |manager, ()| mirror(manager), story)
    };
    check(2).unwrap();
    let failure = check(1).unwrap_err();
    assert!(failure.to_string().contains("\"few Secrets\" does not hold: 2 Secrets"), "{failure}");
}

#[test]
fn a_check_that_checks_nothing_is_refused_with_a_sentence() {
    let refused =
        |check: Check| check.run(|_| (), |manager, ()| mirror(manager), story).unwrap_err().to_string();
    let without = refused(Check::builder().singles(false).pairs(0).seeds(0));
    assert_eq!(without, "a check without single faults, pairs and seeds checks nothing");
    let no_faults = refused(Check::builder().faults([]));
    assert_eq!(no_faults, "a check without any kind of fault checks nothing");
    assert!(refused(Check::builder().replicas(0)).contains("at least one replica"));
    assert!(refused(Check::builder().threads(0)).contains("one thread"));
    assert!(refused(Check::builder().rest(Duration::ZERO)).contains("must not be zero"));
    assert!(refused(Check::builder().converge(Duration::ZERO)).contains("must not be zero"));
    assert!(refused(Check::builder().patience(Duration::ZERO)).contains("must not be zero"));
}

#[test]
fn a_controller_that_never_awaits_is_a_finding() {
    let is_over = Arc::new(AtomicBool::new(false));
    let theirs = is_over.clone();
    let spins = move |manager: &mut Manager| {
        let is_over = theirs.clone();
        Controller::<ConfigMap>::new(manager).reconcile(move |_, _| {
            let is_over = is_over.clone();
            async move {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                Ok(Action::done())
            }
        })
    };
    let check = Check::builder().name("spins").patience(Duration::from_millis(200));
    let failure = check.run(|_| (), move |manager, ()| spins(manager), one_map).unwrap_err();
    // Its thread is not needed any more.
    is_over.store(true, Ordering::Relaxed);
    let text = failure.to_string();
    assert!(text.starts_with("spins: a run does not end: "), "{text}");
    assert!(text.contains("never awaits") && text.contains("SIM_REPLAY='calm'"), "{text}");
}

/// What one life does that spins, of all runs.
const NONE: u32 = 0;
const SPINS: u32 = 1;
const DONE: u32 = 2;

#[test]
fn when_a_schedule_does_not_end_the_other_threads_end_their_work() {
    let (spinning, runs) = (Arc::new(AtomicU32::new(NONE)), Arc::new(AtomicU32::new(0)));
    let (theirs, counted) = (spinning.clone(), runs.clone());
    // Dropped with the last thread.
    let (alive, gone) = std::sync::mpsc::channel::<()>();
    let outside = move |_: &Outside| {
        let _alive = &alive;
        counted.fetch_add(1, Ordering::Relaxed);
        AtomicBool::new(false)
    };
    // The first that is started again spins.
    let program = async move |life: Life, has_lived: &AtomicBool| {
        let spins = has_lived.swap(true, Ordering::Relaxed)
            && theirs.compare_exchange(NONE, SPINS, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        while spins && theirs.load(Ordering::Relaxed) == SPINS {
            std::hint::spin_loop();
        }
        life.stop.cancelled().await;
    };
    let check = Check::builder().name("spins later").patience(Duration::from_secs(6)).threads(2);
    let check = check.faults(["kill".parse().unwrap()]).pairs(0).seeds(400_000);
    let failure = check.run_program(outside, program, one_map).unwrap_err();
    assert!(failure.to_string().contains("never awaits"), "{failure}");
    assert_eq!(spinning.swap(DONE, Ordering::Relaxed), SPINS);
    assert!(gone.recv().is_err());
    let runs = runs.load(Ordering::Relaxed);
    assert!(runs < 200_000, "{runs} runs");
}

#[test]
fn what_is_found_is_told_even_if_another_schedule_does_not_end() {
    let spinning = Arc::new(AtomicU32::new(NONE));
    let theirs = spinning.clone();
    let outside = |outside: &Outside| (AtomicBool::new(false), outside.clone());
    // The first that is started again spins, and the others leave something.
    let program = async move |life: Life, (has_lived, outside): &(AtomicBool, Outside)| {
        if has_lived.swap(true, Ordering::Relaxed) {
            let spins = theirs.compare_exchange(NONE, SPINS, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            while spins && theirs.load(Ordering::Relaxed) == SPINS {
                std::hint::spin_loop();
            }
            outside.show("left", Some(json!(true)));
        }
        life.stop.cancelled().await;
    };
    let check = Check::builder().name("leaves").patience(Duration::from_secs(6)).threads(2);
    let check = check.faults(["kill".parse().unwrap()]).pairs(0).seeds(0);
    let failure = check.run_program(outside, program, story_of_two).unwrap_err();
    spinning.store(DONE, Ordering::Relaxed);
    assert!(matches!(failure.violation(), Some(Violation::Differs(_))), "{failure}");
}

async fn story_of_two(user: &User) {
    for name in ["a", "b", "c"] {
        user.create(&map(name, "one")).await;
        user.settle().await;
    }
}

#[test]
fn a_panic_outside_the_controller_and_the_story_is_named() {
    let named = Check::builder().name("panics");
    let failure = named.clone().run(|_| panic!("no disk"), |manager, ()| mirror(manager), story).unwrap_err();
    assert_eq!(failure.to_string(), "panics: `outside` panicked: no disk\n  replay: SIM_REPLAY='calm'");
    let known = named.known("it is so", |difference| panic!("what is {}?", difference.what));
    let failure = known.run(|_| (), |manager, ()| forgetful(manager), one_map).unwrap_err();
    let text = failure.to_string();
    assert!(text.starts_with("panics: `known` of \"it is so\" panicked: what is "), "{text}");
    assert!(text.contains("SIM_REPLAY='") && !text.contains("'calm'"), "{text}");
}

#[test]
fn a_panic_of_an_invariant_is_named() {
    let check = Check::builder().always("few Secrets", |_| panic!("too many to count"));
    let text = check.run(|_| (), |manager, ()| mirror(manager), story).unwrap_err().to_string();
    assert!(text.contains("\"few Secrets\" does not hold: it panicked: too many to count"), "{text}");
}

#[test]
fn an_invariant_holds_after_changes_of_the_story_too() {
    let one_at_most = |objects: &Objects| match objects.list::<ConfigMap>().len() {
        0 | 1 => Ok(()),
        count => Err(format!("{count} ConfigMaps")),
    };
    let check = Check::builder().always("one ConfigMap", one_at_most);
    let idle = async |life: Life, (): &()| life.stop.cancelled().await;
    let failure = check.run_program(|_| (), idle, story).unwrap_err();
    assert!(failure.to_string().contains("\"one ConfigMap\" does not hold: 2 ConfigMaps"), "{failure}");
}

#[test]
fn a_story_that_does_not_end_is_a_finding_with_a_timeline() {
    let told = |failure: Failure| {
        let text = failure.to_string();
        assert!(text.contains("the story has not ended after 24.75 hours of virtual time"), "{text}");
        assert!(text.contains("step 1: create configmaps default/a"), "{text}");
    };
    let sleeps = async |user: &User| {
        user.create(&map("a", "one")).await;
        loop {
            user.sleep(Duration::from_secs(60)).await;
        }
    };
    told(Check::builder().run(|_| (), |manager, ()| mirror(manager), sleeps).unwrap_err());
    let waits = async |user: &User| {
        user.create(&map("a", "one")).await;
        std::future::pending().await
    };
    told(Check::builder().run(|_| (), |manager, ()| mirror(manager), waits).unwrap_err());
}

#[test]
fn a_plan_without_schedules_is_an_error() {
    // It writes nothing that could be delivered twice.
    let idle = async |life: Life, (): &()| life.stop.cancelled().await;
    let check = Check::builder().faults(["double".parse().unwrap()]).seeds(0);
    let text = check.run_program(|_| (), idle, one_map).unwrap_err().to_string();
    assert_eq!(
        text,
        "a_plan_without_schedules_is_an_error: the plan has no schedules: the story has no place for a fault of \
         these kinds"
    );
}

#[test]
fn a_line_that_tests_nothing_any_more_is_an_error() {
    let run = |line: &str| {
        let check = Check::builder().name("lines").singles(false).pairs(0).seeds(0).schedule(line);
        check.run(|_| (), |manager, ()| mirror(manager), story)
    };
    let create = "lose-answer @ apply secrets default/a #1";
    assert_eq!(run(create).unwrap().schedules(), 1);
    let gone = format!("{create}; kill @ step 9");
    let text = run(&gone).unwrap_err().to_string();
    assert_eq!(text, format!("lines: there was no place for kill @ step 9: {gone}"));
    // After the last step, nothing asks for ConfigMaps within a minute.
    let idle = format!("forbid(configmaps) @ step 5; {create}");
    let text = run(&idle).unwrap_err().to_string();
    assert_eq!(text, format!("lines: there was no effect of forbid(configmaps) @ step 5: {idle}"));
}

/// Creates and deletes a Secret.
async fn in_each_life(life: Life, (): &()) {
    let secret = json!({"metadata": {"name": "once", "namespace": "default"}});
    let secrets = life.client.api::<Secret>();
    let _made = secrets.create(&serde_json::from_value(secret).unwrap()).await;
    let _gone = secrets.delete(&ObjectName::namespaced("default", "once")).await;
    life.stop.cancelled().await;
}

#[test]
fn what_is_done_more_often_can_be_known() {
    let check = Check::builder().name("twice").faults(["kill".parse().unwrap()]).pairs(0).seeds(0);
    let known = |done: &'static str| move |it: &Difference| it.what == format!("{done} secrets default/once");
    let half = check.clone().known("each life does", known("created"));
    for (check, count) in [(check, 2), (half.clone(), 1)] {
        let failure = check.run_program(|_| (), in_each_life, one_map).unwrap_err();
        let Some(Violation::Doubled(excess)) = failure.violation() else { panic!("{failure}") };
        assert_eq!(excess.len(), count, "{failure}");
    }
    half.known("each life does", known("deleted")).run_program(|_| (), in_each_life, one_map).unwrap();
}

#[test]
fn a_controller_that_ends_without_faults_is_a_finding() {
    let twice = |manager: &mut Manager| {
        mirror(manager)?;
        mirror(manager)
    };
    let failure = Check::builder().run(|_| (), move |manager, ()| twice(manager), story).unwrap_err();
    let Some(Violation::Ended(why)) = failure.violation() else { panic!("{failure}") };
    assert!(why.starts_with("ends: cannot register: "), "{why}");
    assert!(failure.to_string().contains("wrong: without faults, the controller ends: cannot"), "{failure}");
    // Nothing that the story writes would differ.
    let idle = Check::builder().run_program(|_| (), async |_, ()| (), one_map).unwrap_err();
    assert_eq!(idle.violation(), Some(&Violation::Ended("ends".to_owned())), "{idle}");
    assert_eq!(idle.class(), Some(Class::WithoutFaults));
}

#[test]
fn an_oracle_that_is_never_true_is_a_finding_without_faults() {
    let check = Check::builder().always("never", |_| Err("no state will do".to_owned()));
    let failure = check.run(|_| (), |manager, ()| mirror(manager), story).unwrap_err();
    assert_eq!(failure.class(), Some(Class::WithoutFaults), "{failure}");
    assert!(failure.to_string().contains("\"never\" does not hold: no state will do"), "{failure}");
    let failure = Check::builder().run(
        |_| (),
        |manager, ()| mirror(manager),
        async |user| {
            user.create(&map("a", "one")).await;
            user.eventually::<Secret>("default/a", |_| false).await;
        },
    );
    let text = failure.unwrap_err().to_string();
    assert!(text.contains("goes wrong without faults"), "{text}");
    assert!(text.contains("the story cannot go on: Secret default/a is not as the story expects"), "{text}");
}

#[test]
fn requests_without_end_are_a_finding() {
    let busy = |manager: &mut Manager| {
        let client = manager.client().clone();
        manager.add("busy", move |stop| async move {
            while !stop.is_cancelled() {
                let _found = client.api::<ConfigMap>().get_opt(&ObjectName::namespaced("default", "a")).await;
            }
            Ok::<(), std::io::Error>(())
        });
        mirror(manager)
    };
    // A hundred thousand requests take a while on a busy machine.
    let check = Check::builder().patience(Duration::from_secs(600));
    let failure = check.run(|_| (), move |manager, ()| busy(manager), story).unwrap_err();
    assert!(failure.to_string().contains("the controller makes requests without end"), "{failure}");
}
