//! Why an object is not reconciled: the verdicts of `docs/explain.md`, on the embedded server.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod fields;
mod net;
mod situations;
#[path = "../operator/kind.rs"]
#[allow(dead_code, reason = "it has more than is needed here")]
mod website;
mod world;

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use watchkeeper::controller::{Action, Controller, Error, Watch};
use watchkeeper::explain::{ExplainError, ExplainSource, KeyState, KeyView, KeysQuery, TimelineKind};
use watchkeeper::record::EventType;

use crate::world::World;

const PAGE: &str = include_str!("../../../../docs/explain.md");

/// The situations of the page, with the expected sentences.
fn expected() -> Vec<(&'static str, &'static str)> {
    let rows = PAGE.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        let (_, verdict) = rest.split_once(" | ")?;
        Some((name, verdict.strip_suffix(" |")?))
    });
    rows.collect()
}

/// Writes versions, which depend on how much was written before, as N.
fn masked(text: &str) -> String {
    let mut pieces = text.split("version ");
    let mut masked = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let rest = piece.trim_start_matches(|sign: char| sign.is_ascii_digit());
        masked += if rest.len() < piece.len() { "version N" } else { "version " };
        masked += rest;
    }
    masked
}

#[tokio::test(start_paused = true)]
async fn every_situation_of_the_page_has_the_verdict_that_stands_there() {
    let expected = expected();
    assert!(expected.len() >= 20, "{} situations", expected.len());
    let mut wrong = Vec::new();
    for (situation, sentences) in expected {
        let mut world = World::new();
        let asked = situations::plant(&mut world, situation).await;
        let (kind, key) = asked.unwrap_or_else(|| panic!("nothing plants {situation}"));
        let explanation = world.explain(kind, key);
        let found = masked(&explanation.verdict.text);
        if found != sentences {
            wrong.push(format!("{situation}\n  expected: {sentences}\n  found:    {found}\n"));
        }
        world.end().await;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn a_key_shows_its_children_versions_and_history() {
    let mut world = World::new();
    let (kind, key) = situations::plant(&mut world, "write-not-seen").await.unwrap();
    let view = world.explain(kind, key).views.remove(0);
    assert_eq!((view.state, view.waits_for.len()), (KeyState::Parked, 1));
    assert_eq!(view.waits_for[0].name, "default/a");
    assert_eq!(view.versions.cached, view.versions.reconciled);
    assert_eq!(view.versions.written, view.waits_for[0].version);
    assert!(view.timeline.iter().any(|entry| entry.text.starts_with("wrote Secret default/a")));
    world.net.set(net::Way::Open, "");
    world.pass(10_000).await;
    let view = world.explain(kind, key).views.remove(0);
    let children: Vec<_> =
        view.children.iter().map(|child| (child.kind.as_str(), child.key.as_str())).collect();
    assert_eq!(children, [("Secret", "default/a")]);
    assert!(view.timeline.is_sorted_by_key(|entry| entry.at.clone()));
    world.end().await;
}

fn texts(view: &KeyView, kind: TimelineKind) -> Vec<&str> {
    view.timeline.iter().filter(|entry| entry.kind == kind).map(|entry| entry.text.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_timeline_has_triggers_runs_errors_writes_and_events() {
    let mut world = World::new();
    world
        .start(|manager| {
            let maps = Controller::<ConfigMap>::new(manager).owns(Watch::<Secret>::new());
            maps.reconcile(|map, cx| async move {
                let mut secret = Secret::default();
                secret.metadata.name = map.metadata.name.clone();
                cx.apply(&secret).await?;
                if cx.attempt() < 2 {
                    return Err(Error::message("disk full"));
                }
                cx.event(EventType::Normal, "Synced", "the disk has room");
                cx.env().clock.sleep(Duration::from_millis(20)).await;
                Ok(Action::done())
            })
            .unwrap();
        })
        .await;
    world.map("a").await;
    world.pass(10_000).await;
    let view = world.explain("ConfigMap", "default/a").views.remove(0);
    let failures = texts(&view, TimelineKind::Error);
    assert!(
        failures.len() == 3
            && failures.iter().all(|text| text.starts_with("failed after ") && text.ends_with(": disk full")),
        "{failures:?}"
    );
    let runs = texts(&view, TimelineKind::Run);
    assert!(runs.iter().any(|text| text.starts_with("reconciled in 20 ms, at version ")), "{runs:?}");
    let writes = texts(&view, TimelineKind::Write);
    assert!(writes.len() == 1 && writes[0].starts_with("wrote Secret default/a in version "), "{writes:?}");
    assert_eq!(texts(&view, TimelineKind::Event), ["Normal Synced the disk has room"]);
    let triggers = texts(&view, TimelineKind::Trigger);
    assert!(triggers.contains(&"a retry was due"), "{triggers:?}");
    assert!(view.timeline.is_sorted_by_key(|entry| entry.at.clone()));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_running_key_names_its_worker() {
    let mut world = World::new();
    let (kind, key) = situations::plant(&mut world, "running").await.unwrap();
    let view = world.explain(kind, key).views.remove(0);
    assert_eq!((view.state, view.worker), (KeyState::Running, Some(1)));
    assert!(texts(&view, TimelineKind::Run).contains(&"the current run started on worker 1"));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_is_reconciled_on_request_though_it_waits_for_a_retry() {
    let mut world = World::new();
    let (kind, key) = situations::plant(&mut world, "fails-with-delay").await.unwrap();
    let explain = world.explain.clone().unwrap();
    let before = world.explain(kind, key).views.remove(0);
    explain.reconcile_now("configmap", "a").unwrap();
    world.pass(1).await;
    let after = world.explain(kind, key).views.remove(0);
    assert!(after.last_outcome.unwrap().at > before.last_outcome.unwrap().at, "it ran at once");
    assert!(
        texts(&after_view(&world, kind, key), TimelineKind::Trigger).contains(&"a reconcile was requested")
    );
    let missing = explain.reconcile_now("configmap", "default/missing").unwrap_err();
    assert!(matches!(missing, ExplainError::NoObject { .. }) && missing.is_not_found(), "{missing}");
    world.stop();
    world.pass(1).await;
    let stopped = explain.reconcile_now("configmap", "default/a").unwrap_err();
    assert!(matches!(stopped, ExplainError::NotRunning { .. }), "{stopped}");
    world.end().await;
}

fn after_view(world: &World, kind: &str, key: &str) -> KeyView {
    world.explain(kind, key).views.remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_does_not_lead_names_the_one_to_ask() {
    let mut world = World::new();
    situations::plant(&mut world, "not-leader").await.unwrap();
    let refused = world.explain.as_ref().unwrap().reconcile_now("configmap", "default/a").unwrap_err();
    assert!(refused.to_string().ends_with("ask other, which leads"), "{refused}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_of_the_contents_of_objects_is_ever_told() {
    const MARK: &str = "c2VjcmV0LW1hcms=";
    let mut world = World::new();
    world
        .start(|manager| {
            let secrets = Controller::<Secret>::new(manager).owns(Watch::<ConfigMap>::new());
            secrets
                .reconcile(|secret, cx| async move {
                    let mut map = ConfigMap::default();
                    map.metadata.name = secret.metadata.name.clone();
                    map.data = Some([("copy".to_owned(), MARK.to_owned())].into());
                    cx.apply(&map).await?;
                    cx.event(EventType::Normal, "Copied", "the Secret was copied");
                    Err(Error::message("disk full"))
                })
                .unwrap();
        })
        .await;
    let secret = json!({
        "metadata": {"name": "s", "namespace": "default", "annotations": {"mark": MARK}, "labels": {"mark": "c2VjcmV0LW1hcms"}},
        "data": {"password": MARK},
    });
    world.user.api::<Secret>().create(&serde_json::from_value(secret).unwrap()).await.unwrap();
    world.pass(5_000).await;
    let explain = world.explain.clone().unwrap();
    let told = [
        serde_json::to_string(&explain.overview()).unwrap(),
        serde_json::to_string(&ExplainSource::informers(&explain)).unwrap(),
        serde_json::to_string(&explain.keys("secret", &KeysQuery::default()).unwrap()).unwrap(),
        serde_json::to_string(&explain.explain("Secret", "default/s").unwrap()).unwrap(),
        serde_json::to_string(&explain.explain("ConfigMap", "default/s").unwrap()).unwrap(),
    ];
    assert!(told[3].contains("default/s") && told[3].contains("disk full"), "{}", told[3]);
    for told in told {
        assert!(!told.contains("c2VjcmV0LW1hcms"), "{told}");
    }
    world.end().await;
}
