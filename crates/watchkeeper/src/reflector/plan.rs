//! What to ask the API server next? Decided from outcomes alone: no sockets, no clock, no chance of its own.

use std::time::Duration;

use super::backoff::Backoff;
use super::metrics::ListReason;
use super::options::{ListMode, Options};
use crate::clock::{Generator, Instant};
use crate::object::ResourceVersion;
use crate::source::{ListOptions, WatchOptions};
use crate::wire::{ApiError, Class, ListMeta};

/// The decisions of one reflector.
#[derive(Debug)]
pub(crate) struct Plan {
    state: State,
    backoff: Backoff,
    generator: Generator,
    mode: ListMode,
    page_size: u32,
    watch_timeout: Duration,
    /// How often in a row a watch from the same version, a page, or a streamed list has failed.
    failures: u32,
    /// Why the list under way, or the next one, is made.
    reason: ListReason,
    /// Whether the watch under way has brought a new version.
    moved: bool,
    /// Until when lists are not streamed, because the server could not.
    paged_until: Option<Instant>,
    internal_errors: InternalErrors,
}

/// For how long internal errors that end a watch are answered with another watch.
#[derive(Debug)]
struct InternalErrors {
    limit: Duration,
    /// When the first and the last of those in a row came.
    row: Option<(Instant, Instant)>,
}

impl InternalErrors {
    /// Takes note of one; whether the watch is tried again.
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
    /// A list as the beginning of a watch.
    Stream,
    List {
        page: ListOptions,
        /// The version of the first page: nothing that happened since is missed.
        version: ResourceVersion,
        /// The one list without pages, after a continue token expired.
        unpaged: bool,
    },
    Watch {
        from: ResourceVersion,
    },
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    List(ListOptions),
    /// A watch, which begins with a list if its options say so.
    Watch(WatchOptions),
}

impl Ask {
    /// Whether the answer is a whole state, which waits in the queue as one piece.
    pub(crate) fn brings_whole_state(&self) -> bool {
        match self {
            Self::List(_) => true,
            Self::Watch(options) => options.initial_events,
        }
    }
}

/// How a watch came to its end.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The request itself failed.
    NotOpened(ApiError),
    /// The stream told or met an error.
    Failed(ApiError),
    /// The server closed it.
    Closed,
}

impl Ended {
    pub(crate) fn error(&self) -> Option<&ApiError> {
        match self {
            Self::NotOpened(error) | Self::Failed(error) => Some(error),
            Self::Closed => None,
        }
    }
}

/// A watch that ends sooner than this, and without anything new, counts as a failure.
pub(super) const VERY_SHORT: Duration = Duration::from_secs(1);
/// However long a server, or a proxy before it, asks to wait.
const LONGEST: Duration = Duration::from_secs(300);
/// After so many failures in a row the version itself, or the streamed list, is suspected.
const SUSPECT: u32 = 3;
/// A server that cannot stream lists is not asked to for this time.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// Internal errors of a server that are farther apart than this are not in a row.
const ROW_ENDS: Duration = Duration::from_secs(60);
/// So often in a row a page is asked for again before the whole list is, as by client-go's client.
const PAGE_TRIES: u32 = 10;

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
        };
        if mode == ListMode::Paged {
            plan.state = plan.first_page();
        }
        plan
    }

    /// A list of the newest state: no stale replica may answer it.
    fn first_page(&self) -> State {
        let page = ListOptions { limit: self.page_size, ..ListOptions::default() };
        State::List { page, version: ResourceVersion::UNSET, unpaged: self.page_size == 0 }
    }

    /// How the next list is made.
    fn fresh_list(&self, now: Instant) -> State {
        let stream = self.mode == ListMode::Stream && self.paged_until.is_none_or(|until| now >= until);
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
            State::Watch { from } => Ask::Watch(WatchOptions { version: from.clone(), ..watch }),
        }
    }

    /// A page has arrived; the version of the list when it was the last, from which the watch goes on.
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

    /// A whole state is there; the watch goes on from its version.
    pub(crate) fn synced(&mut self, version: &ResourceVersion) {
        self.failures = 0;
        // A streamed list goes on as a watch, which has brought something new by then.
        self.moved = matches!(self.state, State::Stream);
        self.state = State::Watch { from: version.clone() };
    }

    /// A list has failed: how long to wait before the next try.
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

    /// Whether what is asked for is a list as the beginning of a watch, not yet whole.
    pub(crate) fn is_streaming_list(&self) -> bool {
        matches!(self.state, State::Stream)
    }

    /// Whether the pages so far are part of what is asked for next.
    pub(crate) fn keeps_pages(&self) -> bool {
        matches!(&self.state, State::List { page, .. } if !page.continue_token.is_empty())
    }

    /// Why the last list was made, or the next one is.
    pub(crate) fn reason(&self) -> ListReason {
        self.reason
    }

    /// An event or a bookmark has arrived.
    pub(crate) fn watched(&mut self, version: &ResourceVersion) {
        if let State::Watch { from } = &mut self.state
            && !version.is_unset()
            && from != version
        {
            from.clone_from(version);
            self.failures = 0;
            self.moved = true;
        }
    }

    /// A watch has ended after `lived`: how long to wait before the next try.
    pub(crate) fn watch_ended(&mut self, ended: &Ended, lived: Duration, now: Instant) -> Duration {
        let moved = std::mem::take(&mut self.moved);
        let error = ended.error();
        if matches!(self.state, State::Stream) {
            return self.stream_ended(ended, lived, now);
        }
        if error.is_some_and(ApiError::is_version_unusable) {
            return self.relist(error, now);
        }
        // A connection that broke after some use is like one that was closed.
        let opened = !matches!(ended, Ended::NotOpened(_));
        let worn_out = opened && (moved || lived >= VERY_SHORT);
        let gone_by_itself =
            error.is_none_or(|error| matches!(error.class(), Class::ConnectionLost | Class::Timeout));
        if worn_out && gone_by_itself {
            self.failures = 0;
            return Duration::ZERO;
        }
        let told = matches!(ended, Ended::Failed(error) if error.code().is_some());
        if told && error.is_some_and(ApiError::is_internal) && self.internal_errors.retry(now) {
            return self.delay(error, now);
        }
        // A server that tells of an error of its own may have missed something itself.
        if told
            && error
                .is_some_and(|error| matches!(error.class(), Class::Other | Class::Invalid | Class::NotFound))
        {
            return self.relist(error, now);
        }
        if !tells_nothing(error) {
            self.failures += 1;
            if self.failures >= SUSPECT {
                return self.relist(error, now);
            }
        }
        self.delay(error, now)
    }

    /// A streamed list has ended before it was whole.
    fn stream_ended(&mut self, ended: &Ended, lived: Duration, now: Instant) -> Duration {
        let error = ended.error();
        if tells_nothing(error) {
            return self.delay(error, now);
        }
        if matches!(ended, Ended::NotOpened(error) if is_unanswered(error)) {
            self.failures += 1;
            if self.failures >= SUSPECT {
                // This list comes in pages, in case that streams are what fails, but the next one does not.
                self.failures = 0;
                self.state = self.first_page();
            }
            return self.delay(error, now);
        }
        // A server that does not know the way refuses it, or answers with something else, or never comes to the end.
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

/// Whether the server is away or too busy, or does not let the caller in: that tells nothing about what was asked for, and the same is asked again.
fn tells_nothing(error: Option<&ApiError>) -> bool {
    error.is_some_and(|error| {
        matches!(
            error.class(),
            Class::ConnectionRefused
                | Class::Unreachable
                | Class::TooManyRequests
                | Class::Unauthorized
                | Class::Forbidden
        )
    })
}

/// Whether there was no answer, for a reason that is not known: that tells little about what the server can do.
fn is_unanswered(error: &ApiError) -> bool {
    error.code().is_none() && matches!(error.class(), Class::Other | Class::ConnectionLost)
}

/// Whether the server, or a proxy before it, failed over what it was asked.
fn is_unwell(error: &ApiError) -> bool {
    error.code().is_some_and(|code| code >= 500 && code != 501)
}

/// Whether the server may answer the same a little later.
fn may_pass(error: &ApiError) -> bool {
    matches!(error.class(), Class::Timeout | Class::ConnectionLost)
        || is_unwell(error)
        || tells_nothing(Some(error))
}

#[cfg(test)]
mod tests;
