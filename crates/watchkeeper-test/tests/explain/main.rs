//! Why an object is not reconciled: the verdicts of `docs/explain.md`, on the embedded server.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod fields;
mod net;
mod situations;
#[path = "../operator/kind.rs"]
#[allow(dead_code, reason = "it has more than is needed here")]
mod website;
mod world;

use std::sync::mpsc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use serde_json::json;
use watchkeeper::ObjectName;
use watchkeeper::controller::{Action, Controller, Error, Watch};
use watchkeeper::explain::{ExplainError, ExplainSource, KeyState, KeyView, KeysQuery, TimelineKind};
use watchkeeper::informer::{Change, on_change};
use watchkeeper::record::EventType;
use watchkeeper::workqueue::{Priority, Trigger};

use crate::world::World;

/// A page of the documentation.
fn page(name: &str) -> String {
    let file = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// A situation of the page, with the expected level, first cause and sentences.
struct Row<'a> {
    name: &'a str,
    verdict: (&'a str, &'a str),
    sentences: &'a str,
}

fn expected(page: &str) -> Vec<Row<'_>> {
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let &[name, _, verdict, sentences] = &cells[..] else { return None };
        let name = name.strip_prefix('`')?.strip_suffix('`')?;
        let (level, cause) = verdict.strip_suffix('`')?.split_once(", `")?;
        Some(Row { name, verdict: (level, cause), sentences })
    });
    rows.collect()
}

/// Writes versions, which depend on how much was written before, as N and M in the order in which they occur.
fn masked(text: &str) -> String {
    const NAMES: [&str; 3] = ["N", "M", "L"];
    let mut pieces = text.split("version ");
    let mut masked = pieces.next().unwrap_or_default().to_owned();
    let mut known: Vec<&str> = Vec::new();
    for piece in pieces {
        let rest = piece.trim_start_matches(|sign: char| sign.is_ascii_digit());
        let version = &piece[..piece.len() - rest.len()];
        masked += "version ";
        if !version.is_empty() {
            let at = known.iter().position(|other| *other == version).unwrap_or_else(|| {
                known.push(version);
                known.len() - 1
            });
            masked += NAMES[at];
        }
        masked += rest;
    }
    masked
}

#[test]
fn versions_are_told_apart() {
    let text = "changed to version 17, saw version 9; the other is at version 17, in some version";
    let masked = masked(text);
    assert_eq!(masked, "changed to version N, saw version M; the other is at version N, in some version");
}

#[tokio::test(start_paused = true)]
async fn every_situation_of_the_page_has_the_verdict_that_stands_there() {
    let page = page("explain.md");
    let expected = expected(&page);
    assert!(expected.len() >= 20, "{} situations", expected.len());
    let mut wrong = Vec::new();
    for Row { name, verdict: (level, cause), sentences } in expected {
        let mut world = World::new();
        let asked = situations::plant(&mut world, name).await;
        let (kind, key) = asked.unwrap_or_else(|| panic!("nothing plants {name}"));
        let found = world.explain(kind, key).verdict;
        let (text, found_level) = (masked(&found.text), serde_json::to_value(found.level).unwrap());
        if text != sentences || found_level != level || found.causes[0] != cause {
            wrong.push(format!(
                "{name}\n  expected: {level}, `{cause}` | {sentences}\n  found:    {}, `{}` | {text}\n",
                found_level.as_str().unwrap(),
                found.causes[0]
            ));
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

#[tokio::test(start_paused = true)]
async fn a_child_that_another_controller_reconciles_shows_its_state_and_its_own_children() {
    let mut world = World::new();
    world
        .start(|manager| {
            let maps = Controller::<ConfigMap>::new(manager).owns(Watch::<Secret>::new());
            maps.reconcile(|map, cx| async move {
                let mut secret = Secret::default();
                secret.metadata.name = map.metadata.name.clone();
                cx.apply(&secret).await?;
                Ok(Action::done())
            })
            .unwrap();
            let secrets = Controller::<Secret>::new(manager).owns(Watch::<ServiceAccount>::new());
            secrets
                .reconcile(|secret, cx| async move {
                    let mut account = ServiceAccount::default();
                    account.metadata.name = secret.metadata.name.clone();
                    cx.apply(&account).await?;
                    Ok(Action::requeue_after(Duration::from_secs(600)))
                })
                .unwrap();
        })
        .await;
    world.map("a").await;
    world.pass(10_000).await;
    let view = world.explain("ConfigMap", "default/a").views.remove(0);
    let [secret] = &view.children[..] else { panic!("{:?}", view.children) };
    assert_eq!((secret.kind.as_str(), secret.key.as_str()), ("Secret", "default/a"));
    assert_eq!((secret.controller.as_deref(), secret.state), (Some("secret"), Some(KeyState::Delayed)));
    let [account] = &secret.children[..] else { panic!("{:?}", secret.children) };
    assert_eq!((account.kind.as_str(), account.key.as_str()), ("ServiceAccount", "default/a"));
    assert_eq!((&account.controller, account.state, account.children.len()), (&None, None, 0));
    assert_eq!(view.children_left_off, 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn of_many_children_the_first_hundred_are_shown() {
    let mut world = World::new();
    world
        .start(|manager| {
            let maps = Controller::<ConfigMap>::new(manager).owns(Watch::<Secret>::new());
            maps.reconcile(|_, _| async { Ok(Action::done()) }).unwrap();
        })
        .await;
    world.map("a").await;
    let owner = world.user.api::<ConfigMap>().get(&ObjectName::namespaced("default", "a")).await.unwrap();
    let mut shown = Vec::new();
    for number in 0..101 {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": owner.metadata.uid, "controller": true});
        let name = format!("s-{number:03}");
        world.secret(json!({"name": name, "namespace": "default", "ownerReferences": [owner]})).await;
        if number == 99 {
            world.pass(5_000).await;
            let view = world.explain("ConfigMap", "default/a").views.remove(0);
            assert_eq!((view.children.len(), view.children_left_off), (100, 0));
            shown = view.children;
        }
    }
    world.pass(5_000).await;
    let view = world.explain("ConfigMap", "default/a").views.remove(0);
    assert_eq!((view.children_left_off, &view.children), (1, &shown), "in the order of their names");
    world.end().await;
}

/// On threads, as the handler blocks one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_change_behind_a_blocked_handler_is_not_said_to_be_filtered_out() {
    for has_predicates in [false, true] {
        let mut world = World::new();
        let (release, blocked) = mpsc::channel::<()>();
        let (tell, mut changes) = tokio::sync::mpsc::unbounded_channel();
        let queue = world
            .low_level_with(|informer, explained| {
                let blocks = move |_: Change<'_, ConfigMap>| {
                    let _released = blocked.recv();
                };
                informer.add_handler(on_change(blocks)).unwrap();
                let tells = move |change: Change<'_, ConfigMap>| {
                    let version = change.last_known().map(|map| map.version().clone());
                    tell.send(version.unwrap()).unwrap();
                };
                informer.add_handler(on_change(tells)).unwrap();
                if has_predicates { explained.filtered() } else { explained }
            })
            .await;
        world.map("a").await;
        let version = changes.recv().await.unwrap();
        queue.add_because(ObjectName::namespaced("default", "a"), Priority::Normal, Trigger::External);
        let mut item = queue.get().await.unwrap();
        item.saw(&version);
        item.forget();
        situations::grow(&world).await;
        let newer = changes.recv().await.unwrap();
        let verdict = world.explain("ConfigMap", "default/a").verdict;
        assert_eq!(verdict.causes, ["cacheBehind"], "{}", verdict.text);
        assert!(verdict.text.contains(&format!("has changed to version {newer} since")), "{}", verdict.text);
        assert!(verdict.text.contains(" of configmaps still wait"), "{}", verdict.text);
        drop(release);
        world.end().await;
    }
}
