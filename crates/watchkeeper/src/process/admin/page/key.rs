//! A key: the verdict first, then what happened, and the objects that it controls.

use http::StatusCode;
use maud::{Markup, html};

use super::frame::{crumbs, verdict};
use super::words::{ago, ahead, badge, kind, lasting, level, moment, short};
use super::{Shown, links};
use crate::explain::{
    ChildView, Explanation, KeyState, KeyView, PendingWriteView, TimelineEntry, TimelineKind, VersionsView,
    ViewRelation,
};

pub(super) fn show(explanation: &Explanation, has_actions: bool) -> Shown {
    let Explanation { at, key, .. } = explanation;
    let kind_name = &explanation.kind.kind;
    let above: Vec<_> = explanation
        .views
        .iter()
        .map(|view| (links::controller(&view.controller), &view.controller))
        .collect();
    let mut above: Vec<_> = above.iter().map(|(href, name)| (href.as_str(), name.as_str())).collect();
    above.truncate(1);
    above.insert(0, ("/", "Overview"));
    let is_alone = explanation.views.len() == 1;
    let content = html! {
        (crumbs(&above))
        h1 { (key) }
        p class="lead" { (kind_name) " " span class="mono" { (kind(&explanation.kind)) } }
        (verdict(level(explanation.verdict.level), &explanation.verdict.text))
        @if has_actions { (actions(explanation)) }
        @for view in &explanation.views { (as_seen(at, view, is_alone)) }
    };
    Shown { title: format!("{kind_name} {key}"), tab: None, status: StatusCode::OK, content }
}

/// What can be done about the key: each controller that reconciles it can be asked to.
fn actions(explanation: &Explanation) -> Markup {
    let own = explanation.views.iter().filter(|view| view.relation == ViewRelation::Itself);
    let own: Vec<_> = own.collect();
    html! {
        @for view in &own {
            form class="action" method="post" action=(links::reconcile(&view.controller, &explanation.key)) {
                button type="submit" {
                    "Reconcile now"
                    @if own.len() > 1 { " with " (view.controller) }
                }
            }
        }
    }
}

/// The key as one controller sees it.
fn as_seen(now: &str, view: &KeyView, is_alone: bool) -> Markup {
    html! {
        @if !is_alone {
            h2 { "For the controller " a href=(links::controller(&view.controller)) { (view.controller) } }
            (verdict(level(view.verdict.level), &view.verdict.text))
        }
        div class="columns" {
            section aria-label="Timeline" {
                h2 { "Timeline" }
                (timeline(now, &view.timeline))
            }
            div {
                section aria-label="State" {
                    h2 { "State" }
                    (facts(now, view))
                }
                @if !view.children.is_empty() {
                    section aria-label="Children" {
                        h2 { "Children" }
                        div class="card" {
                            ul class="tree" { @for child in &view.children { (branch(child)) } }
                            @if view.children_left_off > 0 {
                                p class="empty" { "and " (view.children_left_off) " more" }
                            }
                        }
                    }
                }
                @if !view.children_unknown.is_empty() {
                    p class="soft small" {
                        "Its children of kind " (view.children_unknown.join(", "))
                        " are not shown: the cache has too many objects to be searched, and no index of owners."
                    }
                }
            }
        }
    }
}

fn facts(now: &str, view: &KeyView) -> Markup {
    html! {
        dl class="card facts" {
            dt { "State" }
            dd { (badge(view.state)) " " @if let Some(since) = &view.since { (lasting(now, since)) } }
            @if let Some(until) = &view.until { dt { (due(view.state)) } dd { (ahead(now, until)) } }
            @if let Some(behind) = view.behind { dt { "Before it" } dd { (super::words::things(behind, "key")) } }
            @if let Some(worker) = view.worker { dt { "Worker" } dd { (worker) } }
            @if view.failures > 0 { dt { "Failures" } dd { (view.failures) " in a row" } }
            @if let Some(error) = &view.last_error {
                dt { "Last error" }
                dd { div class="error" { (error.message) } (ago(now, &error.at)) }
            }
            @if let Some(outcome) = &view.last_outcome {
                dt { "Last run" }
                dd { (outcome.result) ", took " (short(outcome.seconds)) ", " (ago(now, &outcome.at)) }
            }
            @if let Some(at) = &view.last_success { dt { "Last success" } dd { (ago(now, at)) } }
            (versions(&view.versions))
            @if view.deleting { dt { "Deletion" } dd { "requested" } }
            @if !view.finalizers.is_empty() { dt { "Finalizers" } dd class="mono" { (view.finalizers.join(", ")) } }
            @if !view.waits_for.is_empty() {
                dt { "Waits for" }
                dd {
                    @for write in &view.waits_for { div { (awaited(now, write)) } }
                    (left_off(view.waits_for_left_off))
                }
            }
            @if !view.maps_to.is_empty() {
                dt { "Reconciles" }
                dd { (view.maps_to.join(", ")) (left_off(view.maps_to_left_off)) }
            }
        }
    }
}

/// How many more there are than are shown.
fn left_off(number: usize) -> Markup {
    html! { @if number > 0 { " and " (super::words::count(number as u64)) " more" } }
}

fn due(state: KeyState) -> &'static str {
    match state {
        KeyState::Retrying => "Next try",
        KeyState::Parked => "At the latest",
        _ => "Due",
    }
}

fn versions(versions: &VersionsView) -> Markup {
    let shown = [
        ("Cached version", &versions.cached),
        ("Last run saw version", &versions.reconciled),
        ("Last success saw version", &versions.succeeded),
        ("Awaited write in version", &versions.written),
    ];
    html! {
        @for (name, version) in shown {
            @if let Some(version) = version { dt { (name) } dd class="mono" { (version) } }
        }
    }
}

fn awaited(now: &str, write: &PendingWriteView) -> Markup {
    html! {
        (write.kind) " " (write.name)
        @if write.deleted { ", deleted" }
        @if let Some(version) = &write.version { " at version " span class="mono" { (version) } }
        ", " (ago(now, &write.at))
    }
}

/// The newest entry first: what is due, then what happened.
fn timeline(now: &str, entries: &[TimelineEntry]) -> Markup {
    html! {
        @if entries.is_empty() { p class="card empty" { "Nothing is remembered." } }
        @else {
            ol class="card timeline" reversed {
                @for entry in entries.iter().rev() {
                    @let (name, tone) = entry_kind(entry.kind);
                    li class=(tone) {
                        p { strong class="unseen" { (name) ": " } (entry.text) }
                        (moment(now, &entry.at)) span class="soft small" aria-hidden="true" { " · " (name) }
                    }
                }
            }
        }
    }
}

fn entry_kind(kind: TimelineKind) -> (&'static str, &'static str) {
    match kind {
        TimelineKind::Trigger => ("Trigger", "busy"),
        TimelineKind::Run => ("Run", "ok"),
        TimelineKind::Error => ("Error", "bad"),
        TimelineKind::Write => ("Write", "wait"),
        TimelineKind::Event => ("Event", "still"),
        TimelineKind::Due => ("Due", "warn"),
    }
}

/// The kind of a child, as a URL names it.
fn child_kind(child: &ChildView) -> String {
    if child.group.is_empty() { child.kind.clone() } else { format!("{}.{}", child.kind, child.group) }
}

fn branch(child: &ChildView) -> Markup {
    html! {
        li {
            div {
                span class="soft small" { (child.kind) }
                a class="name" href=(links::explain(&child_kind(child), &child.key)) { (child.key) }
                @if let Some(state) = child.state { (badge(state)) }
                @if child.deleting { span class="badge warn" { "Deleting" } }
            }
            @if !child.children.is_empty() { ul { @for child in &child.children { (branch(child)) } } }
        }
    }
}
