//! What is around every view: the head of the document, navigation and footer.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::assets::VERSION;

/// The views in the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Overview,
    Informers,
}

const TABS: [(Tab, &str, &str); 2] =
    [(Tab::Overview, "/", "Overview"), (Tab::Informers, "/informers", "Informers")];

/// An eye, which keeps watch.
const EYE: PreEscaped<&str> = PreEscaped(
    r#"<svg viewBox="0 0 24 24" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round"><path d="M2 12s3.6-6.5 10-6.5S22 12 22 12s-3.6 6.5-10 6.5S2 12 2 12Z"/><circle cx="12" cy="12" r="3"/></svg>"#,
);
const TICK: &str = "M7.5 12.5l3 3 6-6.5";
const DASH: &str = "M12 7.5V12l3 2";
const CRY: &str = "M12 7v6M12 16.5v.01";

/// The frame of a view.
pub(super) struct Frame<'a> {
    pub(super) program: &'a str,
    pub(super) title: &'a str,
    pub(super) tab: Option<Tab>,
    /// The path and query of the view.
    pub(super) url: &'a str,
    /// The time at which it was made.
    pub(super) at: &'a str,
}

impl Frame<'_> {
    pub(super) fn around(&self, content: &Markup) -> Markup {
        let Self { program, title, tab, url, at } = self;
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (title) " · " (program) }
                    link rel="icon" type="image/svg+xml" href={ "/page.svg?" (VERSION) };
                    link rel="stylesheet" href={ "/page.css?" (VERSION) };
                    script src={ "/page.js?" (VERSION) } defer {}
                }
                body {
                    a class="skip" href="#content" { "Skip to the content" }
                    header class="top" {
                        div class="frame" {
                            a class="brand" href="/" { (EYE) span { (program) } }
                            nav aria-label="Views" {
                                ul {
                                    @for (of, href, name) in TABS {
                                        li { a href=(href) aria-current=[(*tab == Some(of)).then_some("page")] { (name) } }
                                    }
                                }
                            }
                            p class="pulse" role="status" { "As of " (at) }
                        }
                    }
                    main id="content" class="frame" tabindex="-1" data-live=(url) { (content) }
                    footer class="frame" {
                        "Also here: " a href="/metrics" { "metrics" } ", " a href="/readyz?verbose" { "readiness" } ", "
                        a href="/healthz?verbose" { "health" } " and the same "
                        a href="/debug/controllers" { "as JSON" } "."
                    }
                }
            }
        }
    }
}

/// A statement in the colours of `tone`, with a sign that does not depend on them.
pub(super) fn verdict(tone: &str, text: &str) -> Markup {
    statement(tone, html! { p { (text) } })
}

pub(super) fn statement(tone: &str, content: Markup) -> Markup {
    let sign = match tone {
        "ok" => TICK,
        "bad" | "warn" => CRY,
        _ => DASH,
    };
    html! {
        div class={ "card verdict " (tone) } {
            svg class="mark" viewBox="0 0 24 24" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="2"
                stroke-linecap="round" stroke-linejoin="round" { circle cx="12" cy="12" r="9.5" {} path d=(sign) {} }
            div { (content) }
        }
    }
}

/// The way to a view that is below others.
pub(super) fn crumbs(above: &[(&str, &str)]) -> Markup {
    html! {
        nav class="crumbs" aria-label="Breadcrumb" {
            ol {
                @for (href, name) in above { li { a href=(href) { (name) } } }
            }
        }
    }
}
