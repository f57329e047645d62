//! A controller: its charts and its keys, by state.

use http::StatusCode;
use maud::{Markup, html};

use super::chart::chart;
use super::frame::{crumbs, verdict};
use super::links::{self, LIMIT, Listing};
use super::overview::health;
use super::words::{ago, ahead, badge, count, kind, lasting, rate, short, state, things};
use super::{Page, Shown, not_answered};
use crate::explain::{
    ControllerView, ExplainError, KeyCounts, KeySort, KeyState, KeySummary, KeysPage, KeysQuery,
};

/// The highest number of a page that is shown.
const MAX_PAGE: usize = 1_000_000;

/// What a list of keys shows.
struct Asked {
    query: KeysQuery,
    page: usize,
}

pub(super) fn show(page: &Page, name: &str, query: &str) -> Shown {
    let asked = match Asked::parse(query) {
        Ok(asked) => asked,
        Err(error) => return not_answered(page, &error, |_| None),
    };
    let keys = match page.source.keys(name, &asked.query) {
        Ok(keys) => keys,
        Err(error) => {
            let is_name = matches!(error, ExplainError::NoController { .. });
            return not_answered(page, &error, |name| is_name.then(|| links::controller(name)));
        }
    };
    let overview = page.source.overview();
    let controller =
        overview.controllers.into_iter().find(|controller| controller.name == name).unwrap_or_default();
    let course = page.samples.course(name);
    let (word, tone) = health(&controller);
    let content = html! {
        (crumbs(&[("/", "Overview")]))
        h1 { (name) " " span class={ "badge " (tone) } { (word) } }
        p class="lead" { (about(&controller)) }
        @if controller.paused {
            (verdict("bad", "No reconcile starts, as a cache is out of date. The informers say which, and why."))
        }
        div class="wide-charts" {
            div class="card" { (chart("Waiting", "wait", &course.waiting, 5.0, |value| count(value as u64))) }
            div class="card" { (chart("Reconciles", "ok", &course.rate, 1.0, rate)) }
            div class="card" { (chart("Errors", "bad", &course.errors, 1.0, rate)) }
            div class="card" { (chart("Reconcile time", "busy", &course.time, 0.01, short)) }
        }
        (triggers(&controller))
        h2 class="unseen" { "Keys" }
        (filters(name, &asked, &keys))
        (search(name, &asked))
        (list(name, &asked, &keys))
    };
    Shown { title: name.to_owned(), tab: None, status: StatusCode::OK, content }
}

impl Asked {
    /// Reads the query of a URL. The number of the page is only shown.
    fn parse(query: &str) -> Result<Self, ExplainError> {
        let (mut rest, mut page) = (form_urlencoded::Serializer::new(String::new()), 1);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "page" => page = value.parse().unwrap_or(1).clamp(1, MAX_PAGE),
                _ => {
                    rest.append_pair(&name, &value);
                }
            }
        }
        let mut query = KeysQuery::parse(&rest.finish())?;
        query.limit = LIMIT;
        Ok(Self { query, page })
    }

    /// The order as a URL names it; empty for the usual one.
    fn sort(&self) -> &'static str {
        name_of(self.query.sort)
    }

    fn listing(&self) -> Listing<'_> {
        let KeysQuery { state, q, is_reversed, .. } = &self.query;
        Listing { state: *state, q, sort: self.sort(), is_reversed: *is_reversed }
    }
}

/// An order as a URL names it; empty for the usual one.
fn name_of(sort: KeySort) -> &'static str {
    if sort == KeySort::default() { "" } else { sort.as_str() }
}

fn about(controller: &ControllerView) -> Markup {
    let others: Vec<_> = controller.related.iter().map(|related| related.kind.kind.as_str()).collect();
    html! {
        "Reconciles " (controller.kind.kind)
        @if !others.is_empty() { ", after changes of " (others.join(", ")) " too" }
        " · " (controller.active) " of " (things(controller.workers, "worker")) " busy"
        @if let Some(seconds) = controller.oldest_waiting_seconds { " · the oldest key has waited for " (short(seconds)) }
    }
}

/// What led to reconciles since the start; nothing if that is not known.
fn triggers(controller: &ControllerView) -> Markup {
    let counted: Vec<_> = controller.triggers.iter().filter(|(_, adds)| **adds > 0).collect();
    html! {
        @if !counted.is_empty() {
            h2 { "What led to reconciles, since the start" }
            ul class="counts" {
                @for (cause, adds) in counted { li { (led(cause)) " " b { (count(*adds)) } } }
            }
        }
    }
}

/// A cause as people say it.
fn led(cause: &str) -> &str {
    match cause {
        "itself" => "Changes of the objects",
        "owner" => "Changes of owned objects",
        "mapping" => "Changes of mapped objects",
        "initial_list" => "Initial list",
        "resync" => "Resyncs",
        "retry" => "Retries",
        "requeue" => "Delayed runs",
        "own_writes" => "Waits for own writes",
        "external" => "Adds from outside",
        "manual" => "On request",
        other => other,
    }
}

fn number(counts: &KeyCounts, of: KeyState) -> usize {
    match of {
        KeyState::Running => counts.running,
        KeyState::Waiting => counts.waiting,
        KeyState::Parked => counts.parked,
        KeyState::Retrying => counts.retrying,
        KeyState::Delayed => counts.delayed,
        KeyState::Failed => counts.failed,
        KeyState::Idle => counts.idle,
        KeyState::Cached => counts.cached,
        KeyState::Unknown => 0,
    }
}

fn filters(name: &str, asked: &Asked, keys: &KeysPage) -> Markup {
    let chosen = asked.query.state;
    let href = |state| links::keys(name, Listing { state, ..asked.listing() });
    let all = KeyState::ALL.into_iter().map(|of| number(&keys.counts, of)).sum::<usize>();
    html! {
        nav aria-label="Keys by state" {
            ul class="filters" {
                li {
                    a href=(href(None)) aria-current=[chosen.is_none().then_some("true")] {
                        "All " span { (count(all as u64)) }
                    }
                }
                @for of in KeyState::ALL.into_iter().filter(|of| *of != KeyState::Unknown) {
                    li {
                        a href=(href(Some(of))) aria-current=[(chosen == Some(of)).then_some("true")] {
                            (state(of).0) " " span { (count(number(&keys.counts, of) as u64)) }
                        }
                    }
                }
            }
        }
    }
}

fn search(name: &str, asked: &Asked) -> Markup {
    html! {
        form class="search" role="search" action=(links::controller(name)) method="get" {
            label class="unseen" for="q" { "Search keys" }
            input id="q" name="q" type="search" value=(asked.query.q) placeholder="Search keys" autocomplete="off" spellcheck="false";
            @if let Some(of) = asked.query.state { input id="state" name="state" type="hidden" value=(of.as_str()); }
            @if !asked.sort().is_empty() { input id="sort" name="sort" type="hidden" value=(asked.sort()); }
            @if asked.query.is_reversed { input id="reverse" name="reverse" type="hidden" value="true"; }
            button type="submit" { "Search" }
        }
    }
}

fn list(name: &str, asked: &Asked, keys: &KeysPage) -> Markup {
    let first = (asked.page - 1) * LIMIT;
    let caption = match keys.matched {
        0 => "No keys".to_owned(),
        matched => format!(
            "{} to {} of {}",
            count(first as u64 + 1),
            count((first + keys.keys.len()) as u64),
            things(matched, "key")
        ),
    };
    let kind = kind(&keys.kind);
    html! {
        div class="card" {
            div class="scroll" tabindex="0" role="region" aria-label="Keys" {
                table {
                    caption { (caption) }
                    thead {
                        tr {
                            (heading(name, asked, "Key", KeySort::Key, ""))
                            (heading(name, asked, "State", KeySort::State, ""))
                            (heading(name, asked, "Since", KeySort::Since, "wide"))
                            (heading(name, asked, "Next try", KeySort::Until, ""))
                            (heading(name, asked, "Failures", KeySort::Failures, "number wide"))
                            th scope="col" class="wide" { "Last success" }
                        }
                    }
                    tbody { @for key in &keys.keys { (row(&kind, &keys.at, key)) } }
                }
            }
            @if keys.keys.is_empty() { p class="empty" { "No key matches." } }
            (pager(name, asked, keys))
        }
    }
}

/// A heading that sorts by its column; the second time, the other way round.
fn heading(name: &str, asked: &Asked, text: &str, sort: KeySort, class: &str) -> Markup {
    let is_current = sort == asked.query.sort;
    // The most failures come first.
    let falls = matches!(sort, KeySort::Failures) != (is_current && asked.query.is_reversed);
    let order = is_current.then_some(if falls { "descending" } else { "ascending" });
    let is_reversed = is_current && !asked.query.is_reversed;
    let href = links::keys(name, Listing { sort: name_of(sort), is_reversed, ..asked.listing() });
    html! {
        th scope="col" class=[(!class.is_empty()).then_some(class)] aria-sort=[order] {
            a href=(href) {
                (text)
                @if order.is_some() { span aria-hidden="true" { (if falls { " ↓" } else { " ↑" }) } }
            }
        }
    }
}

fn row(kind: &str, now: &str, key: &KeySummary) -> Markup {
    html! {
        tr {
            th scope="row" {
                a href=(links::explain(kind, &key.key)) { (key.key) }
                @if let Some(error) = &key.last_error { div class="error clip" { (error) } }
                // What has a column of its own on a wide screen.
                div class="soft small narrow" {
                    @if let Some(since) = &key.since { (lasting(now, since)) }
                    @if key.failures > 0 { " · " (things(key.failures as usize, "failure")) }
                }
            }
            td { (badge(key.state)) }
            td class="when wide" { @if let Some(since) = &key.since { (lasting(now, since)) } @else { (none()) } }
            td class="when" { @if let Some(until) = &key.until { (ahead(now, until)) } @else { (none()) } }
            td class="number wide" { (key.failures) }
            td class="when wide" { @if let Some(at) = &key.last_success { (ago(now, at)) } @else { (none()) } }
        }
    }
}

fn none() -> Markup {
    html! { span class="soft" aria-label="none" role="img" { "–" } }
}

fn pager(name: &str, asked: &Asked, keys: &KeysPage) -> Markup {
    let listing = asked.listing();
    let pages = keys.matched.div_ceil(LIMIT);
    // The page before the second one is the first one, also if keys were added since.
    let previous = match (&keys.previous, asked.page) {
        (_, 2) => Some(links::keys(name, listing)),
        (Some(previous), 3..) => Some(links::more_keys(name, listing, previous, asked.page - 1)),
        _ => None,
    };
    html! {
        @if asked.page > 1 || keys.next.is_some() {
            nav class="pager" aria-label="Pages" {
                span { "Page " (count(asked.page as u64)) " of " (count(pages as u64)) }
                div {
                    @if asked.page > 2 { a href=(links::keys(name, listing)) { "First page" } }
                    @if let Some(previous) = &previous { a rel="prev" href=(previous) { "Previous page" } }
                    @if let Some(next) = &keys.next {
                        a rel="next" href=(links::more_keys(name, listing, next, asked.page + 1)) { "Next page" }
                    }
                }
            }
        }
    }
}
