//! Rewritten histories, and the times at which a server has to prove its own.

use super::*;
use crate::clock::Clock;

const SILENCE: Duration = Duration::from_secs(150);

struct Timed {
    history: History,
    generator: Generator,
    now: Instant,
}

impl Timed {
    /// A history that was listed at version 7, and is watched.
    fn watching() -> Self {
        let mut timed = Self {
            history: History::new(SILENCE),
            generator: Generator::seeded(1),
            now: Clock::system().now(),
        };
        assert_eq!(timed.history.listed(&"7".into()), None);
        timed.open();
        timed
    }

    fn open(&mut self) {
        self.history.opened(self.now, &self.generator);
    }

    /// Ends the watch by a lost connection, and opens the next one.
    fn reconnect(&mut self) {
        self.history.ended();
        self.history.doubt();
        self.open();
    }

    fn due_in(&self) -> Option<(Duration, Due)> {
        self.history.due().map(|(at, due)| (at - self.now, due))
    }

    fn probe(&mut self, answer: Option<u64>) -> Probed {
        let (at, due) = self.history.due().unwrap();
        assert_eq!(due, Due::Probe);
        self.now = at;
        self.history.probe();
        self.history.probed(answer.map(ResourceVersion::from).as_ref())
    }

    fn relists_at(&mut self, version: u64) -> Option<SetBack> {
        self.history.ended();
        let set_back = self.history.listed(&version.into());
        self.open();
        set_back
    }
}

fn set_back(from: u64, to: u64) -> SetBack {
    SetBack { from: from.into(), to: to.into() }
}

#[test]
fn an_event_below_the_last_version_shows_a_rewritten_history_and_does_not_count() {
    let mut timed = Timed::watching();
    assert_eq!(timed.history.saw(&9.into()), Ok(()));
    assert_eq!(timed.history.saw(&8.into()), Err(set_back(9, 8)));
    assert_eq!(*timed.history.last(), 9.into());
    // The list that follows is not reported again, and versions start anew.
    assert_eq!(timed.relists_at(8), None);
    assert_eq!(timed.history.saw(&9.into()), Ok(()));
}

#[test]
fn versions_without_an_order_show_nothing() {
    let mut timed = Timed::watching();
    for version in ["x", "3", "y"] {
        assert_eq!(timed.history.saw(&version.into()), Ok(()));
    }
    assert_eq!(timed.history.listed(&ResourceVersion::UNSET), None);
}

#[test]
fn a_list_below_the_last_version_shows_a_rewritten_history_once() {
    let mut timed = Timed::watching();
    assert_eq!(timed.relists_at(5), Some(set_back(7, 5)));
    assert_eq!((timed.relists_at(5), timed.relists_at(6)), (None, None));
}

#[test]
fn a_watch_with_bookmarks_is_never_probed_and_is_dead_when_they_stay_away() {
    let mut timed = Timed::watching();
    for version in 8..20 {
        timed.now += Duration::from_secs(60);
        timed.history.heard(timed.now);
        timed.history.bookmarked();
        timed.history.saw(&version.into()).unwrap();
        assert_eq!(timed.due_in(), Some((SILENCE, Due::Reopen)));
    }
}

#[test]
fn a_silent_watch_is_probed_once_and_goes_on() {
    for is_bookmarked in [false, true] {
        let mut timed = Timed::watching();
        if is_bookmarked {
            timed.history.bookmarked();
        }
        assert_eq!(timed.due_in(), Some((SILENCE, Due::Probe)));
        assert_eq!(timed.probe(Some(7)), Probed::Quiet);
        assert_eq!(timed.due_in(), None, "not again in this watch");
        timed.history.heard(timed.now);
        assert_eq!(timed.due_in(), None, "and it is not expected to send bookmarks");
        timed.open();
        assert_eq!(timed.due_in(), Some((SILENCE, Due::Probe)), "the next watch is another one");
    }
}

#[test]
fn a_silent_watch_of_a_server_that_was_set_back_or_cannot_be_asked_ends() {
    let mut timed = Timed::watching();
    assert_eq!(timed.probe(Some(6)), Probed::SetBack(set_back(7, 6)));
    let mut timed = Timed::watching();
    assert_eq!(timed.probe(None), Probed::Unknown);
}

#[test]
fn a_lost_connection_is_followed_by_one_probe_soon_after_the_next_watch_is_open() {
    let mut timed = Timed::watching();
    timed.history.ended();
    timed.open();
    assert_eq!(timed.due_in(), Some((SILENCE, Due::Probe)), "an ordinary end");
    for _ in 0..20 {
        timed.reconnect();
        assert!(timed.due_in().is_some_and(|(wait, due)| wait < SPREAD && due == Due::Probe));
        // What arrives in between proves nothing.
        timed.history.heard(timed.now);
        timed.history.bookmarked();
        assert_eq!(timed.probe(Some(9)), Probed::GoOn);
        assert!(timed.due_in().is_some_and(|(_, due)| due == Due::Reopen));
        timed.history.ended();
        timed.open();
        assert_eq!(timed.due_in(), Some((SILENCE, Due::Probe)), "an ordinary end");
    }
    timed.reconnect();
    assert_eq!(timed.probe(Some(6)), Probed::SetBack(set_back(7, 6)));
}

#[test]
fn a_probe_without_an_answer_is_repeated_after_a_silence_and_after_the_next_watch() {
    let mut timed = Timed::watching();
    timed.reconnect();
    assert_eq!(timed.probe(None), Probed::GoOn);
    assert!(timed.due_in().is_some_and(|(wait, _)| wait > SILENCE - SPREAD));
    timed.history.ended();
    timed.open();
    assert!(timed.due_in().is_some_and(|(wait, _)| wait < SPREAD));
    // A list makes up for it.
    timed.relists_at(8);
    assert_eq!(timed.due_in(), Some((SILENCE, Due::Probe)));
}

#[test]
fn nothing_is_due_while_a_probe_is_under_way() {
    let mut timed = Timed::watching();
    timed.reconnect();
    timed.history.probe();
    assert_eq!(timed.due_in(), None);
}

#[test]
fn a_server_whose_versions_have_no_order_is_not_listed_over_and_over() {
    let mut timed = Timed::watching();
    for last in 7..10 {
        assert_eq!(timed.history.saw(&1.into()), Err(set_back(last, 1)));
        assert_eq!(timed.relists_at(last + 1), None);
    }
    assert_eq!(timed.history.saw(&1.into()), Ok(()));
    assert_eq!(timed.due_in(), None, "its version says nothing either");
    timed.now += REMEMBERED;
    timed.history.saw(&10.into()).unwrap();
    timed.open();
    assert_eq!(timed.history.saw(&1.into()), Err(set_back(10, 1)));
    // A list that confirms an alarm is one that counts.
    let mut timed = Timed::watching();
    for _ in 0..5 {
        timed.history.saw(&9.into()).unwrap();
        assert_eq!(timed.history.saw(&8.into()), Err(set_back(9, 8)));
        timed.relists_at(7);
    }
}
