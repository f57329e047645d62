//! The overview: is anything wrong, and how busy are the controllers?

use http::StatusCode;
use maud::{Markup, html};

use super::ask::ask;
use super::chart::chart;
use super::frame::{Tab, statement};
use super::links::Listing;
use super::samples::{Course, Samples};
use super::words::{bytes, count, rate, short, span, state, things};
use super::{Shown, links};
use crate::explain::{ControllerView, KeyCounts, KeyState, LeaderView, Overview, ProgramPhase};

/// The time after which a reconcile, or the wait for one, is worth a remark.
const LONG: f64 = 60.0;

pub(super) fn show(overview: &Overview, samples: &Samples) -> Shown {
    let courses: Vec<_> =
        overview.controllers.iter().map(|controller| samples.course(&controller.name)).collect();
    let content = html! {
        h1 { "Overview" }
        p class="lead" { (summary(overview)) }
        (verdict(overview))
        (ask(overview))
        (tiles(overview, &courses))
        h2 id="controllers" { "Controllers" }
        @if overview.controllers.is_empty() { p class="card empty" { "This program has no controllers." } }
        ul class="controllers" aria-labelledby="controllers" {
            @for (controller, course) in overview.controllers.iter().zip(&courses) { (card(controller, course)) }
        }
        h2 { "Caches and leader" }
        (caches(overview))
    };
    Shown { title: "Overview".to_owned(), tab: Some(Tab::Overview), status: StatusCode::OK, content }
}

fn summary(overview: &Overview) -> Markup {
    let informers = overview.informers;
    html! {
        (things(overview.controllers.len(), "controller")) " on " (things(informers.objects, "cached object"))
        @match overview.phase {
            ProgramPhase::Starting => ", starting",
            ProgramPhase::Standby => ", on standby",
            ProgramPhase::Running => ", running",
            ProgramPhase::Stopping => ", stopping",
        }
    }
}

/// One sentence if all is well, else what is not.
fn verdict(overview: &Overview) -> Markup {
    let mut remarks = Vec::new();
    for controller in &overview.controllers {
        remark(controller, &mut remarks);
    }
    let degraded = overview.informers.degraded;
    if degraded > 0 {
        let caches = if degraded == 1 { "its cache" } else { "their caches" };
        let text = format!(
            "{} cannot follow the API server: {caches} may be out of date",
            things(degraded, "informer")
        );
        remarks.push(("bad", html! { a href="/informers" { (text) } }));
    }
    let tone = if remarks.iter().any(|(tone, _)| *tone == "bad") { "bad" } else { "warn" };
    let (phase_tone, phase) = match overview.phase {
        ProgramPhase::Starting => ("busy", "Starting: the controllers wait for the caches to sync."),
        ProgramPhase::Standby => ("still", "On standby: another replica is the leader and reconciles."),
        ProgramPhase::Running => ("ok", "All is well: no key fails, and none waits for long."),
        ProgramPhase::Stopping => ("busy", "Stopping: no more reconciles start."),
    };
    if remarks.is_empty() {
        return statement(phase_tone, html! { p { (phase) } });
    }
    let heading = match remarks.len() {
        1 => "One thing needs attention".to_owned(),
        many => format!("{many} things need attention"),
    };
    statement(
        tone,
        html! {
            @if phase_tone != "ok" { p { (phase) } }
            p { (heading) }
            ul { @for (_, remark) in &remarks { li { (remark) } } }
        },
    )
}

fn remark(controller: &ControllerView, remarks: &mut Vec<(&'static str, Markup)>) {
    let KeyCounts { failed, retrying, .. } = controller.keys;
    let name = &controller.name;
    let link = |state: KeyState, text: String| {
        let href = links::keys(name, Listing { state: Some(state), ..Listing::default() });
        html! { a href=(href) { (text) } " of " (name) }
    };
    if failed > 0 {
        let text = link(KeyState::Failed, things(failed, "key"));
        remarks.push(("bad", html! { (text) " failed with an error that is not retried" }));
    }
    if retrying > 0 {
        let text = link(KeyState::Retrying, things(retrying, "key"));
        remarks.push(("warn", html! { (text) " will be retried after an error" }));
    }
    if controller.paused {
        remarks.push(("bad", html! { (name) " starts no reconciles, as a cache is out of date" }));
    }
    if let Some(seconds) = controller.longest_running_seconds.filter(|seconds| *seconds > LONG) {
        let text = link(KeyState::Running, "a reconcile".to_owned());
        remarks.push(("warn", html! { (text) " has been running for " (span(seconds)) }));
    }
    if let Some(seconds) = controller.oldest_waiting_seconds.filter(|seconds| *seconds > LONG) {
        let waiting = controller.keys.waiting;
        let have = if waiting == 1 { "has" } else { "have" };
        let text = link(KeyState::Waiting, things(waiting, "key"));
        remarks.push((
            "warn",
            html! { (text) " " (have) " been waiting for a worker for up to " (span(seconds)) },
        ));
    }
}

fn tiles(overview: &Overview, courses: &[Course]) -> Markup {
    let sum = |of: fn(&KeyCounts) -> usize| -> u64 {
        overview.controllers.iter().map(|controller| of(&controller.keys) as u64).sum()
    };
    // There is no rate before the second sample.
    let last = |of: fn(&Course) -> &Vec<f64>| -> String {
        let rates: Vec<_> = courses.iter().filter_map(|course| of(course).last()).collect();
        if rates.is_empty() { "–".to_owned() } else { rate(rates.into_iter().sum()) }
    };
    html! {
        dl class="tiles" {
            div class="card" { dt { "Reconciles" } dd { (last(|course| &course.rate)) } }
            div class="card" { dt { "Errors" } dd { (last(|course| &course.errors)) } }
            div class="card" { dt { "Running" } dd { (count(sum(|keys| keys.running))) } }
            div class="card" { dt { "Waiting" } dd { (count(sum(|keys| keys.waiting))) } }
            div class="card" { dt { "Retrying" } dd { (count(sum(|keys| keys.retrying))) } }
            div class="card" { dt { "Failed" } dd { (count(sum(|keys| keys.failed))) } }
        }
    }
}

fn card(controller: &ControllerView, course: &Course) -> Markup {
    let (word, tone) = health(controller);
    html! {
        li class="card" {
            header {
                h3 { a href=(links::controller(&controller.name)) { (controller.name) } }
                span class={ "badge " (tone) } { (word) }
            }
            (counts(controller))
            div class="charts" {
                (chart("Reconciles", "ok", &course.rate, 1.0, rate))
                (chart("Waiting", "wait", &course.waiting, 5.0, |value| count(value as u64)))
                (chart("Reconcile time", "busy", &course.time, 0.01, short))
            }
            p class="soft small" {
                (controller.kind.kind) " · " (controller.active) " of " (things(controller.workers, "worker")) " busy"
                @if let Some(seconds) = controller.oldest_waiting_seconds {
                    " · the oldest key has waited for " (short(seconds))
                }
            }
        }
    }
}

/// One word about a controller.
pub(super) fn health(controller: &ControllerView) -> (&'static str, &'static str) {
    let KeyCounts { failed, retrying, waiting, .. } = controller.keys;
    match () {
        () if controller.paused => ("Paused", "bad"),
        () if failed > 0 => ("Failing", "bad"),
        () if retrying > 0 => ("Retrying", "warn"),
        () if controller.active > 0 || waiting > 0 => ("Busy", "busy"),
        () => ("Idle", "ok"),
    }
}

/// The states that an overview counts; the rest is in the view of the controller.
fn counts(controller: &ControllerView) -> Markup {
    let keys = controller.keys;
    let shown = [
        (KeyState::Running, keys.running),
        (KeyState::Waiting, keys.waiting),
        (KeyState::Delayed, keys.delayed),
        (KeyState::Retrying, keys.retrying),
        (KeyState::Failed, keys.failed),
    ];
    html! {
        ul class="counts" {
            @for (of, number) in shown {
                li class=[(number == 0).then_some("none")] { b { (count(number as u64)) } " " (state(of).0.to_lowercase()) }
            }
        }
    }
}

fn caches(overview: &Overview) -> Markup {
    let informers = overview.informers;
    html! {
        dl class="card facts" {
            dt { "Informers" }
            dd {
                a href="/informers" { (things(informers.total, "informer")) }
                ", " (informers.synced) " synced"
                @if informers.degraded > 0 { ", " span class="badge bad" { (informers.degraded) " degraded" } }
            }
            dt { "Cached" }
            dd { (things(informers.objects, "object")) ", " (bytes(informers.bytes)) }
            dt { "Leader" }
            dd { (leader(overview.leader.as_ref())) }
        }
    }
}

fn leader(leader: Option<&LeaderView>) -> Markup {
    html! {
        @match leader {
            None => "No election: this is the only replica, or each one works",
            Some(leader) if leader.is_leader => {
                "This replica, " span class="mono" { (leader.identity) } ", by Lease " span class="mono" { (leader.lease) }
            }
            Some(leader) if leader.leader.is_empty() => { "None at the moment, by Lease " span class="mono" { (leader.lease) } }
            Some(leader) => {
                span class="mono" { (leader.leader) } ", by Lease " span class="mono" { (leader.lease) }
                "; this replica is " span class="mono" { (leader.identity) }
            }
        }
    }
}
