//! The form that asks why an object is or is not reconciled.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::words::kind;
use crate::explain::{KindView, Overview};

/// Returns the form, with the kinds that the controllers watch; nothing if there are none.
pub(super) fn ask(overview: &Overview) -> Markup {
    let watched = overview.controllers.iter().flat_map(|controller| {
        let related = controller.related.iter().map(|related| &related.kind);
        std::iter::once(&controller.kind).chain(related)
    });
    let kinds: BTreeSet<(String, String)> = watched.map(option).collect();
    html! {
        @if !kinds.is_empty() {
            form class="search" role="search" aria-label="Objects" action="/explain" method="get" {
                label class="unseen" for="ask-kind" { "Kind" }
                select id="ask-kind" name="kind" {
                    @for (name, value) in &kinds { option value=(value) { (name) } }
                }
                label class="unseen" for="ask-key" { "Namespace and name" }
                input id="ask-key" name="key" type="search" required placeholder="NAMESPACE/NAME" autocomplete="off"
                    spellcheck="false";
                button type="submit" { "Explain" }
            }
        }
    }
}

/// What is shown of a kind, and what is asked for.
fn option(of: &KindView) -> (String, String) {
    (of.kind.clone(), kind(of))
}
