//! Why an object is not reconciled: the verdicts of `docs/explain.md`, on the embedded server.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod net;
mod situations;
#[path = "../operator/kind.rs"]
#[allow(dead_code, reason = "it has more than is needed here")]
mod website;
mod world;

use watchkeeper::explain::KeyState;

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
    assert!(view.timeline.iter().any(|entry| entry.text.starts_with("a run wrote Secret default/a")));
    world.net.set(net::Way::Open, "");
    world.pass(10_000).await;
    let view = world.explain(kind, key).views.remove(0);
    let children: Vec<_> =
        view.children.iter().map(|child| (child.kind.as_str(), child.key.as_str())).collect();
    assert_eq!(children, [("Secret", "default/a")]);
    assert!(view.timeline.is_sorted_by_key(|entry| entry.at.clone()));
    world.end().await;
}
