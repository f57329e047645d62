//! The requests for kinds that may not be watched, or are not served.

use super::*;

#[test]
fn a_kind_that_may_be_listed_but_not_watched_is_polled_until_it_may() {
    for refusal in [|| error(Class::Forbidden), || answer(405)] {
        let mut timed = TimedPlan::watching("7");
        for round in 0..20 {
            let wait = timed.ended(Ended::NotOpened(refusal()), 0);
            assert!(!wait.is_zero() && wait < Duration::from_secs(60), "{wait:?}");
            assert!(round < 9 || wait >= Duration::from_secs(30), "{wait:?}");
            assert!(timed.asks_for_list().is_some() && timed.plan.is_polling());
            assert_eq!(timed.plan.reason(), ListReason::Polled);
            timed.now += wait;
            timed.plan.listed(&page("8", ""));
            assert_eq!(timed.watches_from(), Some("8".into()), "the permission may be back");
        }
        timed.plan.watch_opened(timed.now);
        assert!(!timed.plan.is_polling());
    }
}

#[test]
fn a_watch_that_was_permitted_is_tried_again_before_its_kind_is_polled() {
    let mut timed = TimedPlan::watching("7");
    timed.plan.watch_opened(timed.now);
    for _ in 0..DOUBTED {
        let wait = timed.ended(Ended::NotOpened(error(Class::Forbidden)), 0);
        assert!(!wait.is_zero() && !timed.plan.is_polling());
        assert_eq!(timed.watches_from(), Some("7".into()));
    }
    timed.ended(Ended::NotOpened(error(Class::Forbidden)), 0);
    assert!(timed.asks_for_list().is_some() && timed.plan.is_polling());
    timed.plan.listed(&page("8", ""));
    timed.ended(Ended::NotOpened(error(Class::Forbidden)), 0);
    assert!(timed.asks_for_list().is_some(), "it is polled until it is permitted");
    timed.plan.watch_opened(timed.now);
    timed.plan.synced(&"9".into());
    timed.ended(Ended::NotOpened(error(Class::Forbidden)), 0);
    assert_eq!(timed.watches_from(), Some("9".into()));
}

#[test]
fn a_streamed_list_that_is_forbidden_is_listed_at_once_and_streamed_again_if_that_is_forbidden_too() {
    let mut timed = TimedPlan::new(true);
    for _ in 0..5 {
        assert_eq!(timed.ended(Ended::NotOpened(error(Class::Forbidden)), 0), Duration::ZERO);
        assert!(timed.asks_for_list().is_some());
        assert!(!timed.plan.list_failed(&error(Class::Forbidden), timed.now).is_zero());
        assert!(timed.streams());
    }
    timed.ended(Ended::NotOpened(error(Class::Forbidden)), 0);
    timed.plan.listed(&page("7", ""));
    timed.ended(Ended::NotOpened(error(Class::Forbidden)), 0);
    timed.plan.list_failed(&error(Class::Other), timed.now);
    assert!(timed.asks_for_list().is_some(), "what is polled is not streamed");
}

#[test]
fn a_parked_kind_is_asked_for_ever_less_often_and_listed_when_it_is_served() {
    let mut timed = TimedPlan::new(true);
    for base in [1, 2, 4, 8, 10, 10] {
        let wait = timed.plan.park(timed.now);
        assert!((Duration::from_secs(base)..Duration::from_secs(2 * base)).contains(&wait), "{wait:?}");
        assert_eq!(timed.plan.ask(), Ask::Discovery);
        timed.now += wait;
    }
    timed.plan.unpark(timed.now);
    assert!(timed.streams() && timed.plan.reason() == ListReason::First);
    timed.plan.synced(&"7".into());
    timed.plan.park(timed.now);
    timed.plan.unpark(timed.now);
    assert!(timed.streams() && timed.plan.reason() == ListReason::ServedAgain);
}
