//! The requests of the plan after every kind of outcome.

mod kinds;

use super::*;
use crate::clock::Clock;

/// A plan, and its current time.
struct TimedPlan {
    plan: Plan,
    now: Instant,
}

fn timed_plan() -> TimedPlan {
    TimedPlan::new(false)
}

fn page(version: &str, token: &str) -> ListMeta {
    ListMeta { version: version.into(), continue_token: token.into(), remaining: None }
}

fn error(class: Class) -> ApiError {
    ApiError::new(class, "test")
}

fn answer(code: u16) -> ApiError {
    ApiError::from_response(http::StatusCode::from_u16(code).unwrap(), None, b"")
}

impl TimedPlan {
    fn new(streams: bool) -> Self {
        let plan = Plan::new(&Options::default(), streams, Generator::seeded(1));
        Self { plan, now: Clock::system().now() }
    }

    fn streams(&self) -> bool {
        matches!(self.plan.ask(), Ask::Watch(options) if options.initial_events)
    }

    fn watching(version: &str) -> Self {
        let mut timed = timed_plan();
        assert_eq!(timed.plan.listed(&page(version, "")), Some(version.into()));
        timed
    }

    fn ended(&mut self, ended: Ended, lived: u64) -> Duration {
        self.plan.watch_ended(&ended, Duration::from_secs(lived), self.now)
    }

    fn asks_for_list(&self) -> Option<ListOptions> {
        match self.plan.ask() {
            Ask::List(options) => Some(options),
            Ask::Watch(_) | Ask::Discovery => None,
        }
    }

    fn watches_from(&self) -> Option<ResourceVersion> {
        match self.plan.ask() {
            Ask::Watch(options) => Some(options.version),
            Ask::List(_) | Ask::Discovery => None,
        }
    }
}

#[test]
fn the_first_list_is_consistent_and_paged() {
    let options = timed_plan().asks_for_list().unwrap();
    assert_eq!(options, ListOptions { limit: 500, ..ListOptions::default() });
}

#[test]
fn lists_bring_a_whole_state_paged_or_streamed_and_watches_do_not() {
    let worlds = [timed_plan(), TimedPlan::new(true), TimedPlan::watching("7")];
    assert_eq!(worlds.each_ref().map(|timed| timed.plan.ask().brings_whole_state()), [true, true, false]);
    assert_eq!(worlds.each_ref().map(|timed| timed.plan.is_streaming_list()), [false, true, false]);
}

#[test]
fn pages_follow_their_tokens_and_the_watch_follows_the_first() {
    let mut timed = timed_plan();
    assert_eq!(timed.plan.listed(&page("7", "t1")), None);
    assert_eq!(timed.asks_for_list().unwrap().continue_token, "t1");
    // A server whose pages have different versions: changes since the first must not be missed.
    assert_eq!(timed.plan.listed(&page("9", "")), Some("7".into()));
    assert_eq!(timed.watches_from(), Some("7".into()));
}

// client-go: TestReflectorFullListIfExpired
#[test]
fn an_expired_token_leads_to_one_list_without_pages_at_once() {
    let mut timed = timed_plan();
    timed.plan.listed(&page("7", "t1"));
    assert_eq!(timed.plan.list_failed(&error(Class::Expired), timed.now), Duration::ZERO);
    assert_eq!(timed.asks_for_list(), Some(ListOptions::default()));
    assert!(timed.plan.list_failed(&error(Class::Expired), timed.now) > Duration::ZERO);
    assert_eq!(timed.asks_for_list().unwrap().limit, 500);
}

#[test]
fn a_failed_list_starts_again_at_the_first_page_after_a_delay() {
    let mut timed = timed_plan();
    timed.plan.listed(&page("7", "t1"));
    assert!(timed.plan.list_failed(&error(Class::Other), timed.now) >= Duration::from_millis(800));
    assert_eq!(timed.asks_for_list().unwrap(), ListOptions { limit: 500, ..ListOptions::default() });
}

#[test]
fn a_page_that_fails_for_now_is_asked_for_again_and_only_in_the_end_the_whole_list() {
    for failure in [
        || error(Class::TooManyRequests),
        || error(Class::ConnectionRefused),
        || error(Class::Unreachable),
        || error(Class::Unauthorized),
        || error(Class::ConnectionLost),
        || error(Class::Timeout),
        || answer(500),
        || answer(503),
    ] {
        let mut timed = timed_plan();
        timed.plan.listed(&page("7", "t1"));
        for token in ["t2", "t3"] {
            for _ in 0..PAGE_TRIES {
                assert!(!timed.plan.list_failed(&failure(), timed.now).is_zero() && timed.plan.keeps_pages());
            }
            assert_eq!(timed.plan.listed(&page("8", token)), None);
            assert_eq!(timed.asks_for_list().unwrap().continue_token, token);
        }
        for tries in (0..=PAGE_TRIES).rev() {
            timed.plan.list_failed(&failure(), timed.now);
            assert_eq!(timed.plan.keeps_pages(), tries > 0);
        }
        assert_eq!(timed.asks_for_list(), Some(ListOptions { limit: 500, ..ListOptions::default() }));
        // A first page has nothing before it to keep, and the failures of the next list are counted anew.
        timed.plan.list_failed(&failure(), timed.now);
        assert!(!timed.plan.keeps_pages());
        timed.plan.listed(&page("9", "t4"));
        timed.plan.list_failed(&failure(), timed.now);
        assert_eq!(timed.asks_for_list().unwrap().continue_token, "t4");
    }
    let mut timed = timed_plan();
    timed.plan.listed(&page("7", "t1"));
    let busy = ApiError::from_response(http::StatusCode::TOO_MANY_REQUESTS, Some(50), b"");
    assert_eq!(timed.plan.list_failed(&busy, timed.now), Duration::from_secs(50));
    assert_eq!(timed.plan.listed(&page("9", "")), Some("7".into()));
}

#[test]
fn a_closed_watch_resumes_at_once_from_the_last_version_seen() {
    let mut timed = TimedPlan::watching("7");
    timed.plan.watched(&"9".into()).unwrap();
    assert_eq!(timed.ended(Ended::Closed, 0), Duration::ZERO);
    assert_eq!(timed.watches_from(), Some("9".into()));
    assert_eq!(timed.ended(Ended::Closed, 300), Duration::ZERO);
    assert_eq!(timed.ended(Ended::Failed(error(Class::ConnectionLost)), 5), Duration::ZERO);
    assert_eq!(timed.watches_from(), Some("9".into()));
}

#[test]
fn a_very_short_watch_waits_and_does_not_relist() {
    let mut timed = TimedPlan::watching("7");
    assert!(timed.ended(Ended::Closed, 0) >= Duration::from_millis(800));
    assert_eq!(timed.watches_from(), Some("7".into()));
    // A bookmark of the same version is nothing new.
    timed.plan.watched(&"7".into()).unwrap();
    assert!(timed.ended(Ended::Closed, 0) >= Duration::from_millis(800));
}

#[test]
fn a_version_that_is_gone_leads_to_a_list_wherever_the_answer_came() {
    for class in [Class::Expired, Class::VersionTooLarge] {
        for ended in [Ended::NotOpened(error(class)), Ended::Failed(error(class))] {
            let mut timed = TimedPlan::watching("7");
            timed.plan.watched(&"8".into()).unwrap();
            assert!(timed.ended(ended, 60) >= Duration::from_millis(800));
            assert!(timed.asks_for_list().unwrap().version.is_unset());
            let reason =
                if class == Class::Expired { ListReason::Expired } else { ListReason::VersionTooLarge };
            assert_eq!(timed.plan.reason(), reason);
        }
    }
}

// client-go: TestNoRelistOnTooManyRequests
#[test]
fn a_server_that_is_away_or_busy_is_watched_again_and_not_listed() {
    let mut timed = TimedPlan::watching("7");
    for _ in 0..20 {
        assert!(timed.ended(Ended::NotOpened(error(Class::ConnectionRefused)), 0) > Duration::ZERO);
        assert!(timed.ended(Ended::Failed(error(Class::TooManyRequests)), 0) > Duration::ZERO);
    }
    assert_eq!(timed.watches_from(), Some("7".into()));
}

#[test]
fn a_version_that_keeps_failing_is_given_up() {
    let mut timed = TimedPlan::watching("7");
    timed.ended(Ended::NotOpened(error(Class::Other)), 0);
    timed.ended(Ended::NotOpened(error(Class::Other)), 0);
    assert!(timed.watches_from().is_some());
    timed.ended(Ended::NotOpened(error(Class::Other)), 0);
    assert!(timed.asks_for_list().is_some());
    assert_eq!(timed.plan.reason(), ListReason::KeptFailing);
}

#[test]
fn failures_with_good_watches_between_them_are_not_in_a_row() {
    let mut timed = TimedPlan::watching("7");
    for _ in 0..5 {
        assert!(timed.ended(Ended::Closed, 0) > Duration::ZERO);
        assert_eq!(timed.ended(Ended::Closed, 300), Duration::ZERO);
    }
    assert_eq!(timed.watches_from(), Some("7".into()));
}

// client-go: TestReflectorReplacesStoreOnUnsafeDelete
#[test]
fn an_error_that_the_server_tells_of_itself_leads_to_a_list_at_once() {
    let mut timed = TimedPlan::watching("7");
    let reported = ApiError::from_event(br#"{"kind":"Status","code":500,"reason":"StoreReadError"}"#);
    assert!(timed.ended(Ended::Failed(reported), 60) > Duration::ZERO);
    assert!(timed.asks_for_list().is_some());
    assert_eq!(timed.plan.reason(), ListReason::ServerError);
}

fn internal() -> Ended {
    Ended::Failed(ApiError::from_event(br#"{"kind":"Status","code":500,"reason":"InternalError"}"#))
}

// client-go: TestRetryInternalError, TestRetryWithDeadline
#[test]
fn internal_errors_are_answered_with_another_watch_for_the_time_that_is_set() {
    // Counts how many of 50 errors, one per `pause`, are followed by a watch before the first list.
    let retries = |limit: u64, pause: u64, gap_after: usize| {
        let mut timed = TimedPlan::watching("7");
        timed.plan.internal_errors.limit = Duration::from_secs(limit);
        (0..50)
            .take_while(|retry| {
                assert!(timed.ended(internal(), 0) >= Duration::from_millis(800));
                let gap = if retry + 1 == gap_after { 60 } else { pause };
                timed.now += Duration::from_secs(gap);
                timed.watches_from() == Some("7".into())
            })
            .count()
    };
    assert_eq!(retries(0, 1, 0), 0, "by default a list follows at once");
    assert_eq!(retries(30, 1, 0), 31);
    assert_eq!(retries(30, 1, 10), 41, "a minute without an error begins the time anew");
    // Other errors of the server do not count.
    let mut timed = TimedPlan::watching("7");
    timed.plan.internal_errors.limit = Duration::from_secs(30);
    timed.ended(
        Ended::Failed(ApiError::from_event(br#"{"kind":"Status","code":500,"reason":"StoreReadError"}"#)),
        9,
    );
    assert!(timed.asks_for_list().is_some());
    // After the list the time starts over.
    let mut timed = TimedPlan::watching("7");
    timed.plan.internal_errors.limit = Duration::from_secs(5);
    for version in ["7", "8"] {
        for _ in 0..6 {
            timed.ended(internal(), 0);
            assert_eq!(timed.watches_from(), Some(version.into()));
            timed.now += Duration::from_secs(1);
        }
        timed.ended(internal(), 0);
        assert_eq!(timed.plan.reason(), ListReason::ServerError);
        timed.plan.listed(&page("8", ""));
    }
}

#[test]
fn retry_after_is_honoured() {
    let mut timed = TimedPlan::watching("7");
    let busy = ApiError::from_response(http::StatusCode::TOO_MANY_REQUESTS, Some(50), b"");
    assert_eq!(timed.ended(Ended::NotOpened(busy), 0), Duration::from_secs(50));
    let asleep = ApiError::from_response(http::StatusCode::SERVICE_UNAVAILABLE, Some(1 << 60), b"");
    assert_eq!(timed.ended(Ended::NotOpened(asleep), 0), LONGEST);
}

#[test]
fn the_first_state_is_streamed_where_the_server_can() {
    let mut timed = TimedPlan::new(true);
    assert!(timed.streams());
    timed.plan.synced(&"7".into());
    assert_eq!((timed.watches_from(), timed.streams()), (Some("7".into()), false));
    // So is the next one, after a gap.
    timed.ended(Ended::Failed(error(Class::Expired)), 60);
    assert!(timed.streams());
}

// client-go: TestWatchList "returning any other error", TestNewReflectorWithDisablementWatchList
#[test]
fn a_server_that_cannot_stream_is_listed_at_once_and_not_asked_again_for_a_while() {
    for ended in [
        Ended::NotOpened(error(Class::Invalid)),
        Ended::NotOpened(error(Class::NotFound)),
        Ended::NotOpened(error(Class::Undecodable)),
        Ended::NotOpened(error(Class::Timeout)),
        Ended::NotOpened(answer(405)),
        Ended::Failed(error(Class::Other)),
        Ended::Failed(error(Class::Timeout)),
    ] {
        let mut timed = TimedPlan::new(true);
        assert_eq!(timed.ended(ended, 0), Duration::ZERO);
        assert_eq!(timed.asks_for_list().unwrap().limit, 500);
        timed.plan.listed(&page("7", ""));
        timed.ended(Ended::Failed(error(Class::Expired)), 60);
        assert!(timed.asks_for_list().is_some(), "remembered");
        timed.plan.listed(&page("8", ""));
        timed.now += REMEMBERED;
        timed.ended(Ended::Failed(error(Class::Expired)), 60);
        assert!(timed.streams(), "tried again");
    }
}

// client-go: TestWatchList "retries 429", "stopping a watcher before sync"
#[test]
fn a_streamed_list_that_breaks_off_is_tried_again_and_given_up_in_the_end() {
    let mut timed = TimedPlan::new(true);
    for _ in 0..10 {
        assert!(timed.ended(Ended::NotOpened(error(Class::ConnectionRefused)), 0) > Duration::ZERO);
        assert!(timed.ended(Ended::Failed(error(Class::TooManyRequests)), 0) > Duration::ZERO);
        assert!(timed.streams());
    }
    assert!(timed.ended(Ended::Failed(error(Class::ConnectionLost)), 9) > Duration::ZERO);
    assert!(timed.ended(Ended::Closed, 9) > Duration::ZERO && timed.streams());
    assert_eq!(timed.ended(Ended::Closed, 9), Duration::ZERO);
    assert!(timed.asks_for_list().is_some());
    for class in [Class::Unauthorized, Class::Expired] {
        let mut timed = TimedPlan::new(true);
        assert!(
            timed.ended(Ended::NotOpened(error(class)), 0) > Duration::ZERO && timed.streams(),
            "{class:?}"
        );
    }
}

#[test]
fn a_server_that_is_unwell_may_stream_all_the_same_and_is_listed_only_in_the_end() {
    for code in [500, 502, 503, 504] {
        for failed in [Ended::NotOpened, Ended::Failed] {
            let mut timed = TimedPlan::new(true);
            for _ in 1..SUSPECT {
                assert!(!timed.ended(failed(answer(code)), 0).is_zero() && timed.streams(), "{code}");
            }
            assert_eq!(timed.ended(failed(answer(code)), 0), Duration::ZERO);
            assert!(timed.asks_for_list().is_some());
        }
    }
    for code in [400, 404, 405, 406, 501] {
        let mut timed = TimedPlan::new(true);
        assert_eq!(timed.ended(Ended::NotOpened(answer(code)), 0), Duration::ZERO);
        assert!(timed.asks_for_list().is_some(), "{code}");
    }
    let mut timed = TimedPlan::new(true);
    let asleep = ApiError::from_response(http::StatusCode::SERVICE_UNAVAILABLE, Some(20), b"");
    assert_eq!(timed.ended(Ended::NotOpened(asleep), 0), Duration::from_secs(20));
}

#[test]
fn who_cannot_be_asked_or_does_not_let_us_in_is_suspected_of_nothing() {
    for class in [Class::Unreachable, Class::Unauthorized] {
        let (mut watching, mut streaming) = (TimedPlan::watching("7"), TimedPlan::new(true));
        for _ in 0..20 {
            assert!(!watching.ended(Ended::NotOpened(error(class)), 0).is_zero());
            assert!(!streaming.ended(Ended::NotOpened(error(class)), 0).is_zero());
        }
        assert_eq!((watching.watches_from(), streaming.streams()), (Some("7".into()), true), "{class:?}");
        watching.ended(Ended::Closed, 0);
        assert!(watching.watches_from().is_some(), "that was the first");
    }
}

#[test]
fn a_stream_that_is_not_answered_is_tried_again_then_listed_once_and_not_turned_off() {
    for class in [Class::Other, Class::ConnectionLost] {
        let mut timed = TimedPlan::new(true);
        for _ in 0..3 {
            for _ in 1..SUSPECT {
                assert!(!timed.ended(Ended::NotOpened(error(class)), 0).is_zero());
                assert!(timed.streams(), "{class:?}");
            }
            assert!(!timed.ended(Ended::NotOpened(error(class)), 0).is_zero());
            assert_eq!(timed.asks_for_list().unwrap().limit, 500);
            timed.plan.list_failed(&error(class), timed.now);
            assert!(timed.streams(), "{class:?}: the list was not answered either");
        }
    }
}

#[test]
fn a_stream_that_lasts_as_long_as_a_watch_and_brings_no_list_is_given_up() {
    for ended in [Ended::Closed, Ended::Failed(error(Class::ConnectionLost))] {
        let mut timed = TimedPlan::new(true);
        assert!(timed.ended(Ended::Closed, 299) > Duration::ZERO && timed.streams());
        assert_eq!((timed.ended(ended, 300), timed.streams()), (Duration::ZERO, false));
    }
}

#[test]
fn page_size_and_watch_time_can_be_set() {
    let options = Options { page_size: 7, watch_timeout: Duration::from_secs(3600), ..Options::default() };
    let mut plan = Plan::new(&options, false, Generator::seeded(1));
    assert_eq!(plan.ask(), Ask::List(ListOptions { limit: 7, ..ListOptions::default() }));
    plan.synced(&"7".into());
    let Ask::Watch(watch) = plan.ask() else { unreachable!() };
    assert!((3600..7200).contains(&watch.timeout.as_secs()));
}

#[test]
fn watches_end_after_five_to_ten_minutes() {
    let timed = TimedPlan::watching("7");
    for _ in 0..100 {
        let Ask::Watch(options) = timed.plan.ask() else { unreachable!() };
        assert!((300..600).contains(&options.timeout.as_secs()) && options.bookmarks);
    }
}

#[test]
fn a_server_is_asked_for_its_version_after_a_connection_that_was_lost_and_not_after_other_ends() {
    let is_asked_after = |ended: Ended| {
        let mut timed = TimedPlan::watching("7");
        timed.plan.watch_opened(timed.now);
        timed.ended(ended, 300);
        timed.plan.watch_opened(timed.now);
        let (at, due) = timed.plan.history.due().unwrap();
        assert_eq!((due, timed.watches_from()), (Due::Probe, Some("7".into())));
        at - timed.now < Duration::from_secs(2)
    };
    for class in [Class::ConnectionLost, Class::ConnectionRefused, Class::Unreachable, Class::Timeout] {
        assert!(is_asked_after(Ended::NotOpened(error(class))), "{class:?}");
        assert!(is_asked_after(Ended::Failed(error(class))), "{class:?}");
    }
    assert!(is_asked_after(Ended::NotOpened(answer(503))) && is_asked_after(Ended::Closed));
    assert!(!is_asked_after(Ended::TimedOut));
    assert!(!is_asked_after(Ended::NotOpened(error(Class::TooManyRequests))));
}

#[test]
fn a_list_that_is_older_than_what_was_seen_is_told_once() {
    let mut timed = TimedPlan::watching("7");
    assert_eq!(timed.plan.take_set_back(), None);
    timed.plan.watched(&"9".into()).unwrap();
    timed.ended(Ended::Failed(error(Class::Expired)), 60);
    assert_eq!(timed.plan.listed(&page("8", "")), Some("8".into()));
    let told = timed.plan.take_set_back().unwrap().to_string();
    assert_eq!(told, "the server's history was set back from 9 to 8");
    assert_eq!(timed.plan.take_set_back(), None);
    // After an event that showed it, the list says nothing new.
    timed.plan.watched(&"6".into()).unwrap_err();
    assert_eq!(timed.watches_from(), Some("8".into()));
    timed.ended(Ended::Failed(error(Class::VersionTooLarge)), 60);
    timed.plan.listed(&page("6", ""));
    assert_eq!((timed.plan.take_set_back(), timed.watches_from()), (None, Some("6".into())));
}
