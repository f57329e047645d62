//! A model of the shared queue: no key is lost or held twice, and no wake-up is missed, in thousands of schedules.
//!
//! `SCHEDULES=1000000 cargo test --release -p watchkeeper model::` tries more of them.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use foldhash::fast::FixedState;
use shuttle::future::{self, yield_now};
use shuttle::rand::Rng;
use shuttle::scheduler::RandomScheduler;

use super::*;
use crate::clock::Clock;
use crate::sync::model::{explore, sample, sample_preemptions, sample_random};
use crate::workqueue::keys::{Outcome, Remarks};
use crate::workqueue::limiter::ItemExponential;
use crate::workqueue::priority::Priority;
use crate::workqueue::queue::Queue;

const KEYS: usize = 2;
const NANO: Duration = Duration::from_nanos(1);

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// A `get` in the line is forgotten.
    LostWakeUp,
    /// A due time counts as attended although it is not.
    LostTimer,
    /// A waiting key is forgotten.
    LostKey,
    /// A key with a worker counts as done, and so is handed out to another.
    LostOwner,
    /// The waiters for a drain are forgotten.
    LostDrain,
    /// A key that is unparked while a worker has it is parked all the same.
    LostUnpark,
}

impl Fault {
    fn plant(self, state: &mut State<usize>) {
        match self {
            Self::None => {}
            Self::LostWakeUp => state.on_their_way += 1,
            Self::LostTimer => state.armed = Some(state.unattended().or(state.armed).unwrap_or(tick(0))),
            Self::LostKey => _ = state.keys.queue.get(0, tick(0)),
            Self::LostDrain => state.drains = Waiters::default(),
            // Caused by the worker itself.
            Self::LostOwner => {}
            // By whoever unparks.
            Self::LostUnpark => {}
        }
    }
}

/// The `nanos`th nanosecond of the model's time.
fn tick(nanos: u64) -> Tick {
    let epoch = Clock::system().now();
    Tick::at(epoch, epoch).after(Duration::from_nanos(nanos))
}

/// A clock that jumps to the next timer at any moment.
struct ModelTime(Mutex<Timers>);

#[derive(Default)]
struct Timers {
    now: u64,
    set: Vec<(Tick, Waker)>,
    mover: Option<Waker>,
    stopped: bool,
}

impl ModelTime {
    fn change<R>(&self, operation: impl FnOnce(&mut Timers) -> R) -> R {
        operation(&mut self.0.lock())
    }

    /// Moves the time from timer to timer until it is stopped.
    async fn run(self: Arc<Self>) {
        poll_fn(|context| {
            self.change(|timers| {
                timers.mover = Some(context.waker().clone());
                if let Some((due, _)) = timers.set.iter().min_by_key(|(due, _)| *due) {
                    timers.now = timers.now.max(due.since(tick(0)));
                    let now = tick(timers.now);
                    timers.set.extract_if(.., |(due, _)| *due <= now).for_each(|(_, waker)| waker.wake());
                    // On to the next one, whether or not another is set meanwhile.
                    context.waker().wake_by_ref();
                }
                if timers.stopped { Poll::Ready(()) } else { Poll::Pending }
            })
        })
        .await;
    }

    fn stop(&self) {
        self.change(|timers| {
            timers.stopped = true;
            timers.mover.iter().for_each(Waker::wake_by_ref);
        });
    }
}

impl Time for ModelTime {
    fn now(&self) -> Tick {
        self.change(|timers| tick(timers.now))
    }

    fn sleep_until(&self, due: Tick) -> impl Future<Output = ()> + Send {
        poll_fn(move |context| {
            self.change(|timers| {
                if tick(timers.now) >= due {
                    return Poll::Ready(());
                }
                timers.set.push((due, context.waker().clone()));
                timers.mover.iter().for_each(Waker::wake_by_ref);
                Poll::Pending
            })
        })
    }
}

/// The wanted and the done work of each key, and the waiter for both to be the same.
#[derive(Default)]
struct Tally {
    wanted: [u32; KEYS],
    seen: [u32; KEYS],
    held: [bool; KEYS],
    waker: Option<Waker>,
}

struct Crowd {
    fault: Fault,
    shared: Shared<usize>,
    time: Arc<ModelTime>,
    tally: Mutex<Tally>,
}

impl Crowd {
    fn new(fault: Fault) -> Arc<Self> {
        let queue = Queue::new(1, FixedState::default());
        let limiter = Box::new(ItemExponential::new(NANO, 4 * NANO));
        let shared = Shared::new(Keys::new(queue, limiter, Clock::system().now()));
        let (time, tally) =
            (Arc::new(ModelTime(Mutex::new(Timers::default()))), Mutex::new(Tally::default()));
        let crowd = Arc::new(Self { fault, shared, time, tally });
        if fault != Fault::None {
            let crowd = crowd.clone();
            // At any moment that the schedule selects.
            drop(future::spawn(async move { fault.plant(&mut crowd.shared.state.lock()) }));
        }
        crowd
    }

    fn produce(&self) {
        for _ in 0..2 {
            let mut chance = shuttle::rand::thread_rng();
            let (key, delay) = (chance.gen_range(0..KEYS), chance.gen_range(0..4));
            self.tally.lock().wanted[key] += 1;
            let now = self.time.now();
            self.shared.with(now, |state| match delay {
                0 => state.keys.add(key, Priority::Low, now),
                1 => state.keys.add(key, Priority::Normal, now),
                delay => state.keys.add_after(key, delay * NANO, now),
            });
        }
    }

    /// Works on a key; one time in four without success, and one time in four it is parked before.
    async fn work(&self, taken: Taken<usize>) {
        let Taken { key, ticket, priority, .. } = taken;
        let wanted = {
            let mut tally = self.tally.lock();
            assert!(!std::mem::replace(&mut tally.held[key], true), "key {key} is with two workers");
            tally.wanted[key]
        };
        if shuttle::rand::thread_rng().gen_bool(0.25) {
            self.tally.lock().held[key] = false;
            let now = self.time.now();
            let until = now.after(2 * NANO);
            return self.shared.with(now, |state| state.keys.park(ticket, priority, until, now));
        }
        let failed = shuttle::rand::thread_rng().gen_bool(0.25);
        let settle = || {
            let outcome = if failed { Outcome::Failure("no luck".into()) } else { Outcome::Success(None) };
            let now = self.time.now();
            self.shared
                .with(now, |state| state.keys.settle(ticket, priority, outcome, Remarks::default(), now))
        };
        let settle = if self.fault == Fault::LostOwner {
            settle();
            None
        } else {
            Some(settle)
        };
        yield_now().await;
        {
            let mut tally = self.tally.lock();
            tally.held[key] = false;
            if !failed {
                tally.seen[key] = wanted;
                tally.waker.iter().for_each(Waker::wake_by_ref);
            }
        }
        settle.map(|settle| settle());
    }

    async fn patient(self: Arc<Self>) {
        while let Some(taken) = self.shared.get(0, &*self.time).await {
            self.work(taken).await;
        }
    }

    /// Gives up waiting after a few polls, some of them spurious.
    async fn impatient(self: Arc<Self>) {
        for polls in [1, 2, 3] {
            if let Some(Some(taken)) = give_up_after(polls, self.shared.get(0, &*self.time)).await {
                self.work(taken).await;
            }
        }
    }

    async fn all_seen(&self) {
        poll_fn(|context| {
            let mut tally = self.tally.lock();
            tally.waker = Some(context.waker().clone());
            if tally.seen == tally.wanted { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

async fn give_up_after<F: Future>(polls: u32, future: F) -> Option<F::Output> {
    let (mut future, mut polled) = (pin!(future), 0);
    poll_fn(|context: &mut Context<'_>| {
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polled == polls => Poll::Ready(None),
            Poll::Pending => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    })
    .await
}

/// Producers, workers and cancelled `get`s on two keys: each key has at most one worker, every add is followed by a
/// run, and all end.
fn crowd(fault: Fault) {
    let crowd = Crowd::new(fault);
    let clock = future::spawn(crowd.time.clone().run());
    let workers: Vec<_> = (0..2).map(|_| future::spawn(crowd.clone().patient())).collect();
    let quitter = future::spawn(crowd.clone().impatient());
    let producers: Vec<_> = (0..2)
        .map(|_| {
            let crowd = crowd.clone();
            future::spawn(async move { crowd.produce() })
        })
        .collect();
    future::block_on(async {
        for producer in producers {
            producer.await.unwrap();
        }
        crowd.all_seen().await;
        crowd.shared.shut_down(crowd.time.now(), true);
        crowd.shared.drained().await;
        for task in workers.into_iter().chain([quitter]) {
            task.await.unwrap();
        }
        crowd.time.stop();
        clock.await.unwrap();
    });
}

/// Two waiters for a drain, or one and a plain shutdown that releases it.
fn drains(fault: Fault) {
    let crowd = Crowd::new(fault);
    let now = tick(0);
    let taken: Vec<_> = (0..KEYS)
        .filter_map(|key| {
            crowd.shared.with(now, |state| {
                state.keys.add(key, Priority::Normal, now);
                state.keys.get(0, now)
            })
        })
        .collect();
    let busy = Arc::new(AtomicU32::new(KEYS as u32));
    let forced = shuttle::rand::thread_rng().gen_bool(0.5);
    let drains: Vec<_> = (0..2)
        .map(|number| {
            let (crowd, busy) = (crowd.clone(), busy.clone());
            future::spawn(async move {
                if forced && number == 1 {
                    return crowd.shared.shut_down(now, false);
                }
                crowd.shared.shut_down(now, true);
                crowd.shared.drained().await;
                assert!(forced || busy.load(SeqCst) == 0, "a drain ended before the work");
            })
        })
        .collect();
    let workers: Vec<_> = taken
        .into_iter()
        .map(|taken| {
            let (crowd, busy) = (crowd.clone(), busy.clone());
            future::spawn(async move {
                yield_now().await;
                busy.fetch_sub(1, SeqCst);
                let (ticket, priority) = (taken.ticket, taken.priority);
                crowd.shared.with(now, |state| {
                    state.keys.settle(ticket, priority, Outcome::Success(None), Remarks::default(), now)
                });
            })
        })
        .collect();
    future::block_on(async {
        for task in drains.into_iter().chain(workers) {
            task.await.unwrap();
        }
    });
}

/// A worker that looks whether it can begin and parks its key otherwise, and one who unparks the key: no wake-up is
/// lost in between. The time stands still, so that nothing else wakes the worker.
fn unparks(fault: Fault) {
    let crowd = Crowd::new(fault);
    let (now, open) = (tick(0), Arc::new(AtomicU32::new(0)));
    let worker = future::spawn({
        let (crowd, open) = (crowd.clone(), open.clone());
        async move {
            crowd.shared.with(now, |state| state.keys.add(0, Priority::Normal, now));
            while let Some(Taken { ticket, priority, .. }) = crowd.shared.get(0, &*crowd.time).await {
                let can_begin = open.load(SeqCst) > 0;
                yield_now().await;
                if can_begin {
                    let end = Outcome::Success(None);
                    crowd
                        .shared
                        .with(now, |state| state.keys.settle(ticket, priority, end, Remarks::default(), now));
                    return;
                }
                crowd.shared.with(now, |state| state.keys.park(ticket, priority, tick(9), now));
            }
        }
    });
    let opener = future::spawn({
        let crowd = crowd.clone();
        async move {
            yield_now().await;
            open.store(1, SeqCst);
            crowd.shared.with(now, |state| {
                state.keys.unpark(&0, now);
                if fault == Fault::LostUnpark
                    && let Some(number) = state.keys.queue.slots.find(&0)
                {
                    state.keys.queue.slots[number].unparked = false;
                }
            });
        }
    });
    future::block_on(async {
        worker.await.unwrap();
        opener.await.unwrap();
    });
}

/// Returns the panic message that reveals a fault; empty if it is not found.
fn findings(scenario: fn(Fault), fault: Fault) -> String {
    let search = || explore(RandomScheduler::new_from_seed(3, 2_000), move || scenario(fault));
    let panic = catch_unwind(AssertUnwindSafe(search)).err();
    panic.and_then(|payload| payload.downcast::<String>().ok()).map_or(String::new(), |text| *text)
}

#[test]
fn in_random_orders_no_key_is_lost_or_held_twice_and_no_wake_up_is_missed() {
    sample_random(1_500, || crowd(Fault::None));
}

#[test]
fn in_orders_with_few_but_unlikely_switches_it_holds_as_well() {
    sample_preemptions(1_500, || crowd(Fault::None));
}

#[test]
fn every_drain_ends_when_the_work_does_and_not_before() {
    sample(2_000, || drains(Fault::None));
}

#[test]
fn no_unpark_is_lost_between_the_look_of_a_worker_and_its_park() {
    sample(2_000, || unparks(Fault::None));
}

#[test]
fn the_model_finds_out_what_is_broken_on_purpose() {
    for fault in [Fault::LostWakeUp, Fault::LostTimer, Fault::LostKey] {
        let found = findings(crowd, fault);
        assert!(found.contains("deadlock"), "fault {}: {found:?}", fault as u8);
    }
    let found = findings(crowd, Fault::LostOwner);
    assert!(found.contains("is with two workers"), "{found:?}");
    let found = findings(unparks, Fault::LostUnpark);
    assert!(found.contains("deadlock"), "{found:?}");
    let found = findings(drains, Fault::LostDrain);
    assert!(found.contains("deadlock"), "{found:?}");
}
