//! The decisions of a reflector: the next request follows from outcomes alone, without sockets or a clock.

mod history;
mod outcome;

use std::time::Duration;

use super::backoff::Backoff;
use super::metrics::ListReason;
use super::options::{ListMode, Options};
use crate::clock::{Generator, Instant};
use crate::object::ResourceVersion;
use crate::source::{ListOptions, WatchOptions};
use crate::wire::{ApiError, Class, ListMeta};
pub(crate) use history::{Due, History, Probed, SetBack};
pub(crate) use outcome::Ended;
use outcome::{is_no_evidence, is_unanswered, is_unwell, may_pass};

/// The decisions of one reflector.
#[derive(Debug)]
pub(crate) struct Plan {
    state: State,
    backoff: Backoff,
    generator: Generator,
    mode: ListMode,
    page_size: u32,
    watch_timeout: Duration,
    /// The failures in a row of a watch from the same version, a page, or a streamed list.
    failures: u32,
    /// The reason of the current or the next list.
    reason: ListReason,
    /// Whether the current watch has delivered a new version.
    moved: bool,
    /// The time until which lists are paged, because the server does not support streamed ones.
    paged_until: Option<Instant>,
    internal_errors: InternalErrors,
    /// Whether watches are refused, so that the kind is listed again and again.
    is_polling: bool,
    /// The watches refused in a row; none before one was permitted.
    refusals: Option<u32>,
    /// The delays between questions whether a parked kind is served.
    discovery: Backoff,
    /// The versions seen so far.
    pub(super) history: History,
    /// A list that was older than what was seen before, until it is taken.
    set_back: Option<SetBack>,
}

/// Retries of a watch after internal errors of the server, for a limited time.
#[derive(Debug)]
struct InternalErrors {
    limit: Duration,
    /// The times of the first and the last error in a row.
    row: Option<(Instant, Instant)>,
}

impl InternalErrors {
    /// Records an error, and returns whether the watch is retried.
    fn retry(&mut self, now: Instant) -> bool {
        let recent = self.row.filter(|(_, last)| now.saturating_duration_since(*last) < ROW_ENDS);
        let first = recent.map_or(now, |(first, _)| first);
        let retry = !self.limit.is_zero() && now.saturating_duration_since(first) <= self.limit;
        self.row = retry.then_some((first, now));
        retry
    }
}

#[derive(Debug)]
enum State {
    /// A list at the beginning of a watch.
    Stream,
    List {
        page: ListOptions,
        /// The version of the first page, so that no later change is missed.
        version: ResourceVersion,
        /// The one list without pages, after a continue token expired.
        unpaged: bool,
    },
    /// A watch from the last version seen.
    Watch,
    /// The kind is not served.
    Parked,
}

/// The next request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    List(ListOptions),
    /// A watch, which begins with a list if its options say so.
    Watch(WatchOptions),
    /// Whether the kind is served.
    Discovery,
}

impl Ask {
    /// Returns whether the answer is a whole state, which is queued in one piece.
    pub(crate) fn brings_whole_state(&self) -> bool {
        match self {
            Self::List(_) => true,
            Self::Watch(options) => options.initial_events,
            Self::Discovery => false,
        }
    }
}

/// A watch that ends sooner than this, and without anything new, counts as a failure.
pub(super) const VERY_SHORT: Duration = Duration::from_secs(1);
/// The maximum delay, whatever a server or its proxy asks for.
const LONGEST: Duration = Duration::from_secs(300);
/// The number of failures in a row after which the version itself, or the streamed list, is suspected.
const SUSPECT: u32 = 3;
/// The number of refused watches in a row that are tried again, if one was permitted before: an API server that has just started
/// may not have read the roles yet.
const DOUBTED: u32 = 3;
/// The time for which a missing support of streamed lists is remembered.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// Internal errors of a server that are farther apart than this are not in a row.
const ROW_ENDS: Duration = Duration::from_secs(60);
/// The number of tries of a page before the whole list is started over, as in client-go's client.
const PAGE_TRIES: u32 = 10;
/// The first delay before a parked kind is asked for again, and the longest, without jitter.
const DISCOVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

impl Plan {
    pub(crate) fn new(options: &Options, streams: bool, generator: Generator) -> Self {
        let mode = if streams { options.list } else { ListMode::Paged };
        let mut plan = Self {
            state: State::Stream,
            backoff: options.backoff.clone(),
            generator,
            mode,
            page_size: options.page_size,
            watch_timeout: options.watch_timeout,
            failures: 0,
            reason: ListReason::First,
            moved: false,
            paged_until: None,
            internal_errors: InternalErrors { limit: options.retry_internal_errors, row: None },
            is_polling: false,
            refusals: None,
            discovery: Backoff::new(DISCOVERY.0, DISCOVERY.1),
            history: History::new(options.silence),
            set_back: None,
        };
        if mode == ListMode::Paged || planted!(StaleFirstList) {
            plan.state = plan.first_page();
        }
        plan
    }

    /// Requests the newest state, which no stale replica may answer.
    fn first_page(&self) -> State {
        let mut page = ListOptions { limit: self.page_size, ..ListOptions::default() };
        if planted!(StaleFirstList) && self.history.last().is_unset() {
            page.version = "0".into();
        }
        State::List { page, version: ResourceVersion::UNSET, unpaged: self.page_size == 0 }
    }

    /// Returns the first request of the next list.
    fn fresh_list(&self, now: Instant) -> State {
        let is_supported = self.paged_until.is_none_or(|until| now >= until);
        // A streamed list is a watch.
        let stream = self.mode == ListMode::Stream && is_supported && !self.is_polling;
        if stream { State::Stream } else { self.first_page() }
    }

    pub(crate) fn ask(&self) -> Ask {
        let timeout = self.watch_timeout.as_secs() + self.generator.below(self.watch_timeout.as_secs());
        let watch = WatchOptions {
            timeout: Duration::from_secs(timeout),
            bookmarks: true,
            ..WatchOptions::default()
        };
        match &self.state {
            State::List { page, .. } => Ask::List(page.clone()),
            State::Stream => Ask::Watch(WatchOptions { initial_events: true, ..watch }),
            State::Watch => Ask::Watch(WatchOptions { version: self.resume_from(), ..watch }),
            State::Parked => Ask::Discovery,
        }
    }

    /// Returns the version after which the next watch begins: the last one seen.
    fn resume_from(&self) -> ResourceVersion {
        let last = self.history.last();
        match last.as_number() {
            Some(number) if planted!(SkippedVersion) => (number + 1).into(),
            _ => last.clone(),
        }
    }

    /// Records a page. After the last one, returns the version of the list, from which the watch starts.
    pub(crate) fn listed(&mut self, meta: &ListMeta) -> Option<ResourceVersion> {
        let mut first = meta.version.clone();
        if let State::List { page, version, .. } = &mut self.state {
            if version.is_unset() {
                version.clone_from(&meta.version);
            }
            first.clone_from(version);
            if !meta.continue_token.is_empty() {
                page.continue_token.clone_from(&meta.continue_token);
                self.failures = 0;
                return None;
            }
        }
        self.synced(&first);
        Some(first)
    }

    /// Records a whole state, from whose version the watch goes on.
    pub(crate) fn synced(&mut self, version: &ResourceVersion) {
        self.failures = 0;
        // A streamed list goes on as a watch, which has delivered something new by then.
        self.moved = matches!(self.state, State::Stream);
        self.state = State::Watch;
        self.set_back = self.history.listed(version);
    }

    /// Returns whether the last whole state was older than what was seen before, once, unless an event, a bookmark or a
    /// probe has shown it already.
    pub(crate) fn take_set_back(&mut self) -> Option<SetBack> {
        self.set_back.take()
    }

    /// Records a failed list, and returns the delay before the next try.
    pub(crate) fn list_failed(&mut self, error: &ApiError, now: Instant) -> Duration {
        let State::List { page, unpaged, .. } = &self.state else { return Duration::ZERO };
        if error.class() == Class::Expired && !page.continue_token.is_empty() && !unpaged {
            self.state =
                State::List { page: ListOptions::default(), version: ResourceVersion::UNSET, unpaged: true };
            return Duration::ZERO;
        }
        if self.keeps_pages() && self.failures < PAGE_TRIES && may_pass(error) {
            self.failures += 1;
            return self.delay(Some(error), now);
        }
        self.failures = 0;
        self.state = self.fresh_list(now);
        self.delay(Some(error), now)
    }

    /// Returns whether the current request is a streamed list that is not complete.
    pub(crate) fn is_streaming_list(&self) -> bool {
        matches!(self.state, State::Stream)
    }

    /// Returns whether the pages so far belong to the next request.
    pub(crate) fn keeps_pages(&self) -> bool {
        matches!(&self.state, State::List { page, .. } if !page.continue_token.is_empty())
    }

    /// Returns the reason of the last or the next list.
    pub(crate) fn reason(&self) -> ListReason {
        self.reason
    }

    /// Records the version of an event or a bookmark. One below the last version seen does not count.
    pub(crate) fn watched(&mut self, version: &ResourceVersion) -> Result<(), SetBack> {
        if matches!(self.state, State::Watch) && !version.is_unset() && version != self.history.last() {
            self.history.saw(version)?;
            self.failures = 0;
            self.moved = true;
        }
        Ok(())
    }

    /// Records that a watch was opened.
    pub(crate) fn watch_opened(&mut self, now: Instant) {
        (self.is_polling, self.refusals) = (false, Some(0));
        self.history.opened(now, &self.generator);
    }

    /// Records the end of a watch after `lived`, and returns the delay before the next try.
    pub(crate) fn watch_ended(&mut self, ended: &Ended, lived: Duration, now: Instant) -> Duration {
        let moved = std::mem::take(&mut self.moved);
        let error = ended.error();
        self.history.ended();
        if ended.may_hide_restart() {
            self.history.doubt();
        }
        if matches!(self.state, State::Stream) {
            return self.stream_ended(ended, lived, now);
        }
        if matches!(ended, Ended::Differs) {
            (self.failures, self.reason) = (0, ListReason::Differs);
            self.state = self.fresh_list(now);
            return Duration::ZERO;
        }
        if error.is_some_and(ApiError::is_version_unusable) {
            return if planted!(DeafToExpiry) { self.delay(error, now) } else { self.relist(error, now) };
        }
        if ended.is_refused() {
            if let Some(refusals) = self.refusals.as_mut().filter(|refusals| **refusals < DOUBTED) {
                *refusals += 1;
                return self.delay(error, now);
            }
            self.failures = 0;
            (self.is_polling, self.reason) = (true, ListReason::Polled);
            self.state = self.first_page();
            return self.delay(error, now);
        }
        // A connection that broke after some use is treated like one that was closed.
        let opened = !matches!(ended, Ended::NotOpened(_));
        let worn_out = opened && (moved || lived >= VERY_SHORT);
        let gone_by_itself =
            error.is_none_or(|error| matches!(error.class(), Class::ConnectionLost | Class::Timeout));
        if worn_out && gone_by_itself {
            self.failures = 0;
            return Duration::ZERO;
        }
        let is_reported = matches!(ended, Ended::Failed(error) if error.code().is_some());
        if is_reported && error.is_some_and(ApiError::is_internal) && self.internal_errors.retry(now) {
            return self.delay(error, now);
        }
        // A server that reports an internal error may have missed something itself.
        if is_reported
            && error
                .is_some_and(|error| matches!(error.class(), Class::Other | Class::Invalid | Class::NotFound))
        {
            return self.relist(error, now);
        }
        if !is_no_evidence(error) {
            self.failures += 1;
            if self.failures >= SUSPECT {
                return self.relist(error, now);
            }
        }
        self.delay(error, now)
    }

    /// Handles a streamed list that ended before it was complete.
    fn stream_ended(&mut self, ended: &Ended, lived: Duration, now: Instant) -> Duration {
        let error = ended.error();
        if matches!(ended, Ended::NotOpened(error) if error.class() == Class::Forbidden) {
            // A streamed list is a watch; a list may be permitted all the same.
            self.state = self.first_page();
            return Duration::ZERO;
        }
        if is_no_evidence(error) {
            return self.delay(error, now);
        }
        if matches!(ended, Ended::NotOpened(error) if is_unanswered(error)) {
            self.failures += 1;
            if self.failures >= SUSPECT {
                // This list is paged, in case streaming is what fails; the next one is streamed again.
                self.failures = 0;
                self.state = self.first_page();
            }
            return self.delay(error, now);
        }
        // A server without support refuses the request, sends something else, or never completes the list.
        self.failures += 1;
        let refused = error.is_some_and(|error| {
            let class = error.class();
            matches!(
                class,
                Class::Invalid | Class::NotFound | Class::Other | Class::Undecodable | Class::Timeout
            ) && !is_unwell(error)
        });
        if refused || lived >= self.watch_timeout || self.failures >= SUSPECT {
            self.failures = 0;
            self.paged_until = Some(now + REMEMBERED);
            self.state = self.first_page();
            return Duration::ZERO;
        }
        self.delay(error, now)
    }

    /// Returns whether the kind is polled, as watches are refused.
    pub(crate) fn is_polling(&self) -> bool {
        self.is_polling
    }

    /// Returns whether there has been a whole state.
    pub(crate) fn has_listed(&self) -> bool {
        !self.history.last().is_unset()
    }

    /// Records that the kind is not served, and returns the delay before it is asked for again.
    pub(crate) fn park(&mut self, now: Instant) -> Duration {
        (self.state, self.failures) = (State::Parked, 0);
        self.discovery.draw(now, &self.generator)
    }

    /// Records that the kind is served again: its state is listed next.
    pub(crate) fn unpark(&mut self, now: Instant) {
        if self.has_listed() {
            self.reason = ListReason::ServedAgain;
        }
        self.state = self.fresh_list(now);
    }

    fn relist(&mut self, error: Option<&ApiError>, now: Instant) -> Duration {
        self.failures = 0;
        self.reason = match error.map(ApiError::class) {
            Some(Class::Expired) => ListReason::Expired,
            Some(Class::VersionTooLarge) => ListReason::VersionTooLarge,
            _ if error.is_some_and(|error| error.code().is_some()) => ListReason::ServerError,
            _ => ListReason::KeptFailing,
        };
        self.state = self.fresh_list(now);
        self.delay(error, now)
    }

    fn delay(&mut self, error: Option<&ApiError>, now: Instant) -> Duration {
        let asked_for = error.and_then(ApiError::retry_after).unwrap_or_default();
        self.backoff.draw(now, &self.generator).max(asked_for.min(LONGEST))
    }
}

#[cfg(test)]
mod tests;
