//! What to ask the API server next? Decided from outcomes alone: no sockets, no clock, no chance of its own.

use std::time::Duration;

use super::backoff::Backoff;
use super::metrics::ListReason;
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
    page_size: u32,
    /// How often in a row a watch from the same version has failed.
    failures: u32,
    /// Why the list under way, or the next one, is made.
    reason: ListReason,
    /// Whether the watch under way has brought a new version.
    moved: bool,
}

#[derive(Debug)]
enum State {
    List {
        page: ListOptions,
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
    Watch(WatchOptions),
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

pub(crate) const PAGE: u32 = 500;
/// A watch that ends sooner than this, and without anything new, counts as a failure.
const VERY_SHORT: Duration = Duration::from_secs(1);
/// However long a server, or a proxy before it, asks to wait.
const LONGEST: Duration = Duration::from_secs(300);
/// After so many failures in a row the version itself is suspected.
const SUSPECT: u32 = 3;

impl Plan {
    pub(crate) fn new(backoff: Backoff, generator: Generator, page_size: u32) -> Self {
        Self {
            state: Self::first_page(page_size),
            backoff,
            generator,
            page_size,
            failures: 0,
            reason: ListReason::First,
            moved: false,
        }
    }

    /// A list of the newest state: no stale replica may answer it.
    fn first_page(limit: u32) -> State {
        State::List { page: ListOptions { limit, ..ListOptions::default() }, unpaged: limit == 0 }
    }

    pub(crate) fn ask(&self) -> Ask {
        match &self.state {
            State::List { page, .. } => Ask::List(page.clone()),
            State::Watch { from } => {
                let seconds = 300 + self.generator.below(300);
                let timeout = Duration::from_secs(seconds);
                Ask::Watch(WatchOptions { version: from.clone(), timeout, bookmarks: true })
            }
        }
    }

    /// A page has arrived; true when it was the last, and the watch goes on from its version.
    pub(crate) fn listed(&mut self, meta: &ListMeta) -> bool {
        if !meta.continue_token.is_empty()
            && let State::List { page, .. } = &mut self.state
        {
            page.continue_token.clone_from(&meta.continue_token);
            return false;
        }
        self.failures = 0;
        self.state = State::Watch { from: meta.version.clone() };
        true
    }

    /// A list has failed: how long to wait before the next try.
    pub(crate) fn list_failed(&mut self, error: &ApiError, now: Instant) -> Duration {
        let State::List { page, unpaged } = &self.state else { return Duration::ZERO };
        if error.class() == Class::Expired && !page.continue_token.is_empty() && !unpaged {
            self.state = State::List { page: ListOptions::default(), unpaged: true };
            return Duration::ZERO;
        }
        self.state = Self::first_page(self.page_size);
        self.delay(error, now)
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
        let (error, opened) = match ended {
            Ended::NotOpened(error) => (Some(error), false),
            Ended::Failed(error) => (Some(error), true),
            Ended::Closed => (None, true),
        };
        if error.is_some_and(ApiError::is_version_unusable) {
            return self.relist(error, now);
        }
        // A connection that broke after some use is like one that was closed.
        let worn_out = opened && (moved || lived >= VERY_SHORT);
        let gone_by_itself = error.is_none_or(|error| error.class() == Class::ConnectionLost);
        if worn_out && gone_by_itself {
            return Duration::ZERO;
        }
        let server_is_away = error
            .is_some_and(|error| matches!(error.class(), Class::ConnectionRefused | Class::TooManyRequests));
        if !server_is_away {
            self.failures += 1;
            if self.failures >= SUSPECT {
                return self.relist(error, now);
            }
        }
        match error {
            Some(error) => self.delay(error, now),
            None => self.backoff.draw(now, &self.generator),
        }
    }

    fn relist(&mut self, error: Option<&ApiError>, now: Instant) -> Duration {
        self.failures = 0;
        self.reason = match error.map(ApiError::class) {
            Some(Class::Expired) => ListReason::Expired,
            Some(Class::VersionTooLarge) => ListReason::VersionTooLarge,
            _ => ListReason::KeptFailing,
        };
        self.state = Self::first_page(self.page_size);
        match error {
            Some(error) => self.delay(error, now),
            None => self.backoff.draw(now, &self.generator),
        }
    }

    fn delay(&mut self, error: &ApiError, now: Instant) -> Duration {
        let backoff = self.backoff.draw(now, &self.generator);
        backoff.max(error.retry_after().unwrap_or_default().min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    struct World {
        plan: Plan,
        now: Instant,
    }

    fn world() -> World {
        World { plan: Plan::new(Backoff::default(), Generator::seeded(1), PAGE), now: Clock::system().now() }
    }

    fn page(version: &str, token: &str) -> ListMeta {
        ListMeta { version: version.into(), continue_token: token.into(), remaining: None }
    }

    fn error(class: Class) -> ApiError {
        ApiError::new(class, "test")
    }

    impl World {
        fn watching(version: &str) -> Self {
            let mut world = world();
            assert!(world.plan.listed(&page(version, "")));
            world
        }

        fn ended(&mut self, ended: Ended, lived: u64) -> Duration {
            self.plan.watch_ended(&ended, Duration::from_secs(lived), self.now)
        }

        fn asks_for_list(&self) -> Option<ListOptions> {
            match self.plan.ask() {
                Ask::List(options) => Some(options),
                Ask::Watch(_) => None,
            }
        }

        fn watches_from(&self) -> Option<ResourceVersion> {
            match self.plan.ask() {
                Ask::Watch(options) => Some(options.version),
                Ask::List(_) => None,
            }
        }
    }

    #[test]
    fn the_first_list_is_consistent_and_paged() {
        let options = world().asks_for_list().unwrap();
        assert_eq!(options, ListOptions { limit: 500, ..ListOptions::default() });
    }

    #[test]
    fn pages_follow_their_tokens_and_the_watch_follows_the_last() {
        let mut world = world();
        assert!(!world.plan.listed(&page("7", "t1")));
        assert_eq!(world.asks_for_list().unwrap().continue_token, "t1");
        assert!(world.plan.listed(&page("7", "")));
        assert_eq!(world.watches_from(), Some("7".into()));
    }

    // client-go: TestReflectorFullListIfExpired
    #[test]
    fn an_expired_token_leads_to_one_list_without_pages_at_once() {
        let mut world = world();
        world.plan.listed(&page("7", "t1"));
        assert_eq!(world.plan.list_failed(&error(Class::Expired), world.now), Duration::ZERO);
        assert_eq!(world.asks_for_list(), Some(ListOptions::default()));
        assert!(world.plan.list_failed(&error(Class::Expired), world.now) > Duration::ZERO);
        assert_eq!(world.asks_for_list().unwrap().limit, 500);
    }

    #[test]
    fn a_failed_list_starts_again_at_the_first_page_after_a_delay() {
        let mut world = world();
        world.plan.listed(&page("7", "t1"));
        assert!(world.plan.list_failed(&error(Class::Other), world.now) >= Duration::from_millis(800));
        assert_eq!(world.asks_for_list().unwrap(), ListOptions { limit: 500, ..ListOptions::default() });
    }

    #[test]
    fn a_closed_watch_resumes_at_once_from_the_last_version_seen() {
        let mut world = World::watching("7");
        world.plan.watched(&"9".into());
        assert_eq!(world.ended(Ended::Closed, 0), Duration::ZERO);
        assert_eq!(world.watches_from(), Some("9".into()));
        assert_eq!(world.ended(Ended::Closed, 300), Duration::ZERO);
        assert_eq!(world.ended(Ended::Failed(error(Class::ConnectionLost)), 5), Duration::ZERO);
        assert_eq!(world.watches_from(), Some("9".into()));
    }

    #[test]
    fn a_very_short_watch_waits_and_does_not_relist() {
        let mut world = World::watching("7");
        assert!(world.ended(Ended::Closed, 0) >= Duration::from_millis(800));
        assert_eq!(world.watches_from(), Some("7".into()));
        // A bookmark of the same version is nothing new.
        world.plan.watched(&"7".into());
        assert!(world.ended(Ended::Closed, 0) >= Duration::from_millis(800));
    }

    #[test]
    fn a_version_that_is_gone_leads_to_a_list_wherever_the_answer_came() {
        for class in [Class::Expired, Class::VersionTooLarge] {
            for ended in [Ended::NotOpened(error(class)), Ended::Failed(error(class))] {
                let mut world = World::watching("7");
                world.plan.watched(&"8".into());
                assert!(world.ended(ended, 60) >= Duration::from_millis(800));
                assert!(world.asks_for_list().unwrap().version.is_unset());
                let reason =
                    if class == Class::Expired { ListReason::Expired } else { ListReason::VersionTooLarge };
                assert_eq!(world.plan.reason(), reason);
            }
        }
    }

    // client-go: TestNoRelistOnTooManyRequests
    #[test]
    fn a_server_that_is_away_or_busy_is_watched_again_and_not_listed() {
        let mut world = World::watching("7");
        for _ in 0..20 {
            assert!(world.ended(Ended::NotOpened(error(Class::ConnectionRefused)), 0) > Duration::ZERO);
            assert!(world.ended(Ended::Failed(error(Class::TooManyRequests)), 0) > Duration::ZERO);
        }
        assert_eq!(world.watches_from(), Some("7".into()));
    }

    #[test]
    fn a_version_that_keeps_failing_is_given_up() {
        let mut world = World::watching("7");
        world.ended(Ended::NotOpened(error(Class::Other)), 0);
        world.ended(Ended::NotOpened(error(Class::Other)), 0);
        assert!(world.watches_from().is_some());
        world.ended(Ended::NotOpened(error(Class::Other)), 0);
        assert!(world.asks_for_list().is_some());
        assert_eq!(world.plan.reason(), ListReason::KeptFailing);
    }

    #[test]
    fn retry_after_is_honoured() {
        let mut world = World::watching("7");
        let busy = ApiError::from_response(http::StatusCode::TOO_MANY_REQUESTS, Some(50), b"");
        assert_eq!(world.ended(Ended::NotOpened(busy), 0), Duration::from_secs(50));
        let asleep = ApiError::from_response(http::StatusCode::SERVICE_UNAVAILABLE, Some(1 << 60), b"");
        assert_eq!(world.ended(Ended::NotOpened(asleep), 0), LONGEST);
    }

    #[test]
    fn watches_end_after_five_to_ten_minutes() {
        let world = World::watching("7");
        for _ in 0..100 {
            let Ask::Watch(options) = world.plan.ask() else { unreachable!() };
            assert!((300..600).contains(&options.timeout.as_secs()) && options.bookmarks);
        }
    }
}
