//! Verdicts on what cannot be planted on a server. `docs/explain.md` has the others.

use std::time::Duration;

use super::*;
use crate::env::Env;
use crate::explain::facts::{ObjectFacts, WatchFacts};
use crate::explain::view::{KindView, ProgramPhase};
use crate::reflector::{Cause as Trouble, Phase};
use crate::source::{Scope, Selection};
use crate::workqueue::{Priority, RateLimitingQueue, Reason, Trigger, WorkItem, limiter};

fn kind() -> KindView {
    let [version, kind, plural] = ["v1", "ConfigMap", "configmaps"].map(str::to_owned);
    KindView { group: String::new(), version, kind, plural }
}

fn watch(namespace: &str) -> WatchFacts {
    WatchFacts {
        phase: Phase::Watching,
        ..WatchFacts::of(&kind(), &Scope::Namespace(namespace.to_owned()), &Selection::default())
    }
}

/// Returns the verdict on a key whose run 20 s ago ended well and saw version 7, while the cache has another one.
async fn after_a_run(cached: u64, change: impl FnOnce(&mut Facts<'_>)) -> Verdict {
    after(cached, WorkItem::forget, change).await
}

/// The same with another end of the run.
async fn after(
    cached: u64,
    end: impl FnOnce(WorkItem<ObjectName>),
    change: impl FnOnce(&mut Facts<'_>),
) -> Verdict {
    let (env, key, kind) = (Env::simulated(1), ObjectName::namespaced("default", "a"), kind());
    let queue = RateLimitingQueue::new("maps", limiter::default_controller(), &env);
    queue.add_because(key.clone(), Priority::Normal, Trigger::itself(Reason::Changed, &"7".into()));
    let mut item = queue.get().await.unwrap();
    item.saw(&"7".into());
    end(item);
    env.clock.sleep(Duration::from_secs(20)).await;
    let object = ObjectFacts { version: cached.into(), ..ObjectFacts::default() };
    let mut facts = Facts {
        now: env.clock.now(),
        controller: "maps",
        kind: &kind,
        key: &key,
        phase: ProgramPhase::Running,
        leader: None,
        is_paused: false,
        workers: 1,
        runs: Vec::new(),
        has_forgotten: false,
        watches: vec![watch("")],
        others: Vec::new(),
        blockers: &[],
        has_predicates: false,
        finalizer: None,
        object: Some(object),
        record: queue.explain(&key),
        writes: Vec::new(),
    };
    change(&mut facts);
    verdict(&facts)
}

#[tokio::test(start_paused = true)]
async fn a_change_that_waits_for_a_handler_is_told_with_the_backlog() {
    let text = "ConfigMap default/a has changed to version 9 since its last run 20 s ago, which saw version 7, and 12 \
                changes of configmaps still wait for the cache or for a handler. Find out what the handlers of the \
                informer wait for: a handler must be quick, and not block.";
    for has_predicates in [false, true] {
        let behind = after_a_run(9, |facts| {
            facts.watches[0].backlog = 12;
            facts.has_predicates = has_predicates;
        });
        let behind = behind.await;
        assert_eq!((behind.text.as_str(), behind.causes), (text, vec!["cacheBehind".to_owned()]));
    }
    assert_eq!(after_a_run(9, |_| {}).await.causes, ["changeLost"]);
    assert_eq!(after_a_run(9, |facts| facts.has_predicates = true).await.causes, ["filtered"]);
}

#[tokio::test(start_paused = true)]
async fn a_change_after_a_terminal_error_that_waits_for_a_handler_is_told_with_the_backlog() {
    let text = "The last reconcile of ConfigMap default/a failed 20 s ago with an error that is not retried (no size); \
                it saw version 7, the cached one is 9, and 1 change of configmaps still waits for the cache or for a \
                handler. Find out what the handlers of the informer wait for: a handler must be quick, and not block.";
    for has_predicates in [false, true] {
        let behind = after(
            9,
            |item| item.give_up(std::io::Error::other("no size")),
            |facts| {
                facts.watches[0].backlog = 1;
                facts.has_predicates = has_predicates;
            },
        );
        assert_eq!(behind.await.text, text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_is_called_the_cached_one_only_if_it_is() {
    let seen = async |cached| after_a_run(cached, |_| {}).await.text;
    assert!(seen(7).await.contains("saw version 7, which is the cached one."), "{}", seen(7).await);
    assert!(
        seen(5).await.contains("saw version 7, while the cache still has version 5."),
        "{}",
        seen(5).await
    );
}

#[tokio::test(start_paused = true)]
async fn troubles_of_two_causes_are_told_and_those_of_one_only_once() {
    let degraded = |namespace: &str, cause, now| WatchFacts {
        degraded: Some((now, cause, "no luck".to_owned())),
        ..watch(namespace)
    };
    let verdict = after_a_run(7, |facts| {
        let now = facts.now;
        facts.watches.insert(0, WatchFacts { has_synced: false, ..watch("") });
        facts.watches.push(degraded("default", Trouble::Failing, now));
        facts.others.push(degraded("a", Trouble::Failing, now));
        facts.others.push(degraded("b", Trouble::NoPermission, now));
    })
    .await;
    assert_eq!(verdict.causes, ["watchFailing", "noPermission"], "{}", verdict.text);
    assert_eq!(verdict.level, Level::Problem);
}

#[test]
fn every_listed_cause_is_one_of_the_code() {
    const CODE: [&str; 6] = [
        include_str!("caches.rs"),
        include_str!("failing.rs"),
        include_str!("key.rs"),
        include_str!("mod.rs"),
        include_str!("program.rs"),
        include_str!("related.rs"),
    ];
    for (at, word) in CAUSES.iter().enumerate() {
        assert!(!CAUSES[..at].contains(word), "{word} is listed twice");
        let places: usize = CODE.iter().map(|file| file.matches(&format!("\"{word}\"")).count()).sum();
        // One of them is the list.
        assert!(places > 1, "no verdict has the cause {word}");
    }
}
