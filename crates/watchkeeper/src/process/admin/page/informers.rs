//! The informers: what each cache has, and whether it follows the API server.

use http::StatusCode;
use jiff::Timestamp;
use maud::{Markup, html};

use super::Shown;
use super::frame::{Tab, verdict};
use super::words::{ago, bytes, count, lasting, things};
use crate::explain::InformerView;

pub(super) fn show(informers: &[InformerView], now: Timestamp) -> Shown {
    let now = format!("{now:.3}");
    let degraded = informers.iter().filter(|informer| informer.degraded.is_some()).count();
    let behind = informers.iter().filter(|informer| !informer.synced).count();
    let content = html! {
        h1 { "Informers" }
        p class="lead" { "Each informer keeps a cache of one kind, by a list and a watch." }
        @match (degraded, behind) {
            (0, 0) => (verdict("ok", "All caches follow the API server.")),
            (0, _) => (verdict("busy", &format!("{} without the initial list yet.", things(behind, "cache")))),
            _ => (verdict("bad", &format!("{} cannot follow the API server.", things(degraded, "cache")))),
        }
        h2 class="unseen" { "Caches" }
        div class="card" {
            div class="scroll" tabindex="0" role="region" aria-label="Caches" {
                table {
                    caption { (things(informers.len(), "informer")) }
                    thead {
                        tr {
                            th scope="col" { "Kind" }
                            th scope="col" { "Phase" }
                            th scope="col" class="number" { "Objects" }
                            th scope="col" class="number wide" { "Bytes" }
                            th scope="col" class="number wide" { "Lag" }
                            th scope="col" class="wide" { "Last contact" }
                            th scope="col" class="wide" { "Lists" }
                        }
                    }
                    tbody { @for informer in informers { (row(&now, informer)) } }
                }
            }
            @if informers.is_empty() { p class="empty" { "There are no informers." } }
        }
    };
    Shown { title: "Informers".to_owned(), tab: Some(Tab::Informers), status: StatusCode::OK, content }
}

fn row(now: &str, informer: &InformerView) -> Markup {
    let (word, tone) = phase(informer);
    let pending: usize = informer.handlers.iter().map(|handler| handler.pending).sum();
    html! {
        tr {
            th scope="row" {
                (informer.name)
                div class="soft small mono" { (informer.id) }
                // What has a column of its own on a wide screen.
                div class="soft small narrow" {
                    (bytes(informer.bytes)) " · last contact " (contact(now, informer))
                    " · lag " (count(informer.queued as u64))
                    @if pending > 0 { ", " (count(pending as u64)) " for handlers" }
                    @if !informer.lists.is_empty() { " · lists: " (lists(informer)) }
                }
                @if let Some(degraded) = &informer.degraded {
                    div class="error" { (degraded.cause.replace('_', " ")) ", " (lasting(now, &degraded.since)) ": " (degraded.why) }
                }
            }
            td { span class={ "badge " (tone) } { (word) } }
            td class="number" { (count(informer.objects as u64)) }
            td class="number wide" { (bytes(informer.bytes)) }
            td class="number wide" {
                (count(informer.queued as u64))
                @if pending > 0 { div class="soft small" { (count(pending as u64)) " for handlers" } }
            }
            td class="when wide" { (contact(now, informer)) }
            td class="wide small" { (lists(informer)) }
        }
    }
}

fn contact(now: &str, informer: &InformerView) -> Markup {
    html! { @if let Some(at) = &informer.last_contact { (ago(now, at)) } @else { "never" } }
}

fn phase(informer: &InformerView) -> (&str, &'static str) {
    match &*informer.phase {
        _ if informer.degraded.is_some() => ("Degraded", "bad"),
        "watching" if informer.synced => ("Watching", "ok"),
        "listing" => ("Listing", "busy"),
        "waiting" => ("Waiting", "warn"),
        "parked" => ("Parked", "warn"),
        "stopped" => ("Stopped", "still"),
        other => (other, "still"),
    }
}

/// The lists by reason; all but the first are relists.
fn lists(informer: &InformerView) -> Markup {
    html! {
        @for (at, (reason, number)) in informer.lists.iter().enumerate() {
            @if at > 0 { ", " }
            (count(*number)) " " (reason.replace('_', " "))
        }
        @if informer.differences > 0 { ", " (things(informer.differences as usize, "difference")) }
    }
}
