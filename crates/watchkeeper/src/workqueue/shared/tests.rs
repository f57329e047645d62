use std::pin::pin;
use std::task::Context;
use std::time::Duration;

use foldhash::fast::FixedState;

use super::*;
use crate::clock::Clock;
use crate::workqueue::limiter::ItemExponential;
use crate::workqueue::priority::Priority;
use crate::workqueue::queue::Queue;

const MS: Duration = Duration::from_millis(1);

fn shared() -> (Shared<&'static str>, Tick) {
    let epoch = Clock::system().now();
    let (queue, limiter) = (Queue::new(0, FixedState::default()), Box::new(ItemExponential::new(MS, MS)));
    (Shared::new(Keys::new(queue, limiter, epoch)), Tick::at(epoch, epoch))
}

#[test]
fn whoever_stops_waiting_for_a_drain_leaves_nothing_behind() {
    let (shared, now) = shared();
    shared.with(now, |state| state.keys.add("foo", Priority::Normal, now));
    let _held = shared.with(now, |state| state.keys.get(0, now)).unwrap();
    shared.shut_down(now, true);
    {
        let mut drain = pin!(shared.drained());
        assert!(drain.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(!shared.state.lock().drains.is_empty());
    }
    assert!(shared.state.lock().drains.is_empty());
}

#[test]
fn a_get_that_leaves_gives_up_its_own_timer_and_no_other() {
    let (shared, now) = shared();
    shared.with(now, |state| state.keys.add_after("late", 9 * MS, now));
    let mut first = Waiting::new(&shared, 0);
    assert!(matches!(first.look(Waker::noop(), now), Found::Nothing));
    assert_eq!(first.armed, Some(now.after(9 * MS)));
    // A `get` that is woken for an earlier time hands the timer to another.
    shared.with(now, |state| state.keys.add_after("early", 5 * MS, now));
    let mut second = Waiting::new(&shared, 0);
    assert!(matches!(second.look(Waker::noop(), now), Found::Nothing));
    assert_eq!(second.armed, Some(now.after(5 * MS)));
    drop(first);
    assert_eq!(shared.state.lock().armed, Some(now.after(5 * MS)));
    drop(second);
    let state = shared.state.lock();
    assert_eq!((state.armed, state.on_their_way), (None, 0));
}
