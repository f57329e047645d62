//! Does the queue hold its promises in every order of its tasks? Shuttle runs thousands of orders; the lock is the one place where they meet.
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
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::Mutex;
use shuttle::{Config, MaxSteps, Runner};

use super::*;
use crate::clock::Clock;
use crate::workqueue::keys::Outcome;
use crate::workqueue::limiter::ItemExponential;
use crate::workqueue::priority::Priority;
use crate::workqueue::queue::Queue;

const KEYS: usize = 2;
const NANO: Duration = Duration::from_nanos(1);

/// A lock that may tamper with what it guards, to see whether that is found out.
struct Tampering {
    state: Mutex<State<usize>>,
    fault: Fault,
    uses: AtomicU32,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// A `get` in the line is forgotten.
    LostWakeUp,
    /// A due time is taken for attended, but is not.
    LostTimer,
    /// A key that waits is forgotten.
    LostKey,
    /// A key that is worked on is forgotten, and so handed out to another.
    LostOwner,
    /// Those who wait for a drain are forgotten.
    LostDrain,
}

impl Lock<State<usize>> for Tampering {
    fn with<R>(&self, operation: impl FnOnce(&mut State<usize>) -> R) -> R {
        let mut state = self.state.lock().unwrap();
        let result = operation(&mut state);
        if self.uses.fetch_add(1, SeqCst) == 5 {
            match self.fault {
                Fault::None => {}
                Fault::LostWakeUp => state.on_their_way += 1,
                Fault::LostTimer => state.armed = Some(state.unattended().or(state.armed).unwrap_or(tick(0))),
                Fault::LostKey => _ = state.keys.queue.get(tick(0)),
                Fault::LostDrain => state.drains = Waiters::default(),
                Fault::LostOwner => {
                    let busy = (0..KEYS).filter_map(|key| state.keys.queue.slots.find(&key));
                    let busy: Vec<_> =
                        busy.filter(|&number| state.keys.queue.slots[number].started.is_some()).collect();
                    busy.into_iter().for_each(|number| state.keys.queue.slots.remove(number));
                }
            }
        }
        result
    }
}

/// The `nanos`th nanosecond of the model's time.
fn tick(nanos: u64) -> Tick {
    let epoch = Clock::system().now();
    Tick::at(epoch, epoch).after(Duration::from_nanos(nanos))
}

/// A clock that jumps to the next timer at any moment.
#[derive(Default)]
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
        operation(&mut self.0.lock().unwrap())
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

/// What is wanted of each key, what was done, and who waits for both to be the same.
#[derive(Default)]
struct Ledger {
    wanted: [u32; KEYS],
    seen: [u32; KEYS],
    held: [bool; KEYS],
    waker: Option<Waker>,
}

struct World {
    shared: Shared<usize, Tampering>,
    time: Arc<ModelTime>,
    ledger: Mutex<Ledger>,
}

impl World {
    fn new(fault: Fault) -> Arc<Self> {
        let queue = Queue::new(1, FixedState::default());
        let limiter = Box::new(ItemExponential::new(NANO, 4 * NANO));
        let state = Mutex::new(State::new(Keys::new(queue, limiter, Clock::system().now())));
        let shared = Shared::new(Tampering { state, fault, uses: AtomicU32::new(0) });
        Arc::new(Self { shared, time: Arc::default(), ledger: Mutex::default() })
    }

    fn produce(&self) {
        for _ in 0..2 {
            let mut chance = shuttle::rand::thread_rng();
            let (key, delay) = (chance.gen_range(0..KEYS), chance.gen_range(0..4));
            self.ledger.lock().unwrap().wanted[key] += 1;
            let now = self.time.now();
            self.shared.with(now, |state| match delay {
                0 => state.keys.add(key, Priority::Low, now),
                1 => state.keys.add(key, Priority::Normal, now),
                delay => state.keys.add_after(key, delay * NANO, now),
            });
        }
    }

    /// Works on a key; one time in four without success.
    async fn work(&self, taken: Taken<usize>) {
        let key = taken.key;
        let wanted = {
            let mut ledger = self.ledger.lock().unwrap();
            assert!(!std::mem::replace(&mut ledger.held[key], true), "key {key} is with two workers");
            ledger.wanted[key]
        };
        yield_now().await;
        let failed = shuttle::rand::thread_rng().gen_bool(0.25);
        {
            let mut ledger = self.ledger.lock().unwrap();
            ledger.held[key] = false;
            if !failed {
                ledger.seen[key] = wanted;
                ledger.waker.iter().for_each(Waker::wake_by_ref);
            }
        }
        let outcome = if failed { Outcome::Failure("no luck".into()) } else { Outcome::Success(None) };
        let now = self.time.now();
        self.shared.with(now, |state| state.keys.settle(taken.ticket, taken.priority, outcome, now));
    }

    async fn patient(self: Arc<Self>) {
        while let Some(taken) = self.shared.get(&*self.time).await {
            self.work(taken).await;
        }
    }

    /// Gives up waiting after a few polls, some of which nobody woke it for.
    async fn impatient(self: Arc<Self>) {
        for polls in [1, 2, 3] {
            if let Some(Some(taken)) = give_up_after(polls, self.shared.get(&*self.time)).await {
                self.work(taken).await;
            }
        }
    }

    async fn all_seen(&self) {
        poll_fn(|context| {
            let mut ledger = self.ledger.lock().unwrap();
            ledger.waker = Some(context.waker().clone());
            if ledger.seen == ledger.wanted { Poll::Ready(()) } else { Poll::Pending }
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

/// Producers, workers and quitters on two keys: each key is with one worker at most, every add is followed by a run, and all end.
fn crowd(fault: Fault) {
    let world = World::new(fault);
    let clock = future::spawn(world.time.clone().run());
    let workers: Vec<_> = (0..2).map(|_| future::spawn(world.clone().patient())).collect();
    let quitter = future::spawn(world.clone().impatient());
    let producers: Vec<_> = (0..2)
        .map(|_| {
            let world = world.clone();
            future::spawn(async move { world.produce() })
        })
        .collect();
    future::block_on(async {
        for producer in producers {
            producer.await.unwrap();
        }
        world.all_seen().await;
        world.shared.shut_down(world.time.now(), true);
        world.shared.drained().await;
        for task in workers.into_iter().chain([quitter]) {
            task.await.unwrap();
        }
        world.time.stop();
        clock.await.unwrap();
    });
}

/// Two who wait for a drain, or one and a plain shutdown that does not let it wait.
fn drains(fault: Fault) {
    let world = World::new(fault);
    let now = tick(0);
    let taken: Vec<_> = (0..KEYS)
        .filter_map(|key| {
            world.shared.with(now, |state| {
                state.keys.add(key, Priority::Normal, now);
                state.keys.get(now)
            })
        })
        .collect();
    let busy = Arc::new(AtomicU32::new(KEYS as u32));
    let forced = shuttle::rand::thread_rng().gen_bool(0.5);
    let drains: Vec<_> = (0..2)
        .map(|number| {
            let (world, busy) = (world.clone(), busy.clone());
            future::spawn(async move {
                if forced && number == 1 {
                    return world.shared.shut_down(now, false);
                }
                world.shared.shut_down(now, true);
                world.shared.drained().await;
                assert!(forced || busy.load(SeqCst) == 0, "a drain ended before the work");
            })
        })
        .collect();
    let workers: Vec<_> = taken
        .into_iter()
        .map(|taken| {
            let (world, busy) = (world.clone(), busy.clone());
            future::spawn(async move {
                yield_now().await;
                busy.fetch_sub(1, SeqCst);
                let (ticket, priority) = (taken.ticket, taken.priority);
                world
                    .shared
                    .with(now, |state| state.keys.settle(ticket, priority, Outcome::Success(None), now));
            })
        })
        .collect();
    future::block_on(async {
        for task in drains.into_iter().chain(workers) {
            task.await.unwrap();
        }
    });
}

fn schedules(default: usize) -> usize {
    std::env::var("SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn explore(scheduler: impl Scheduler + 'static, scenario: fn(Fault), fault: Fault) -> usize {
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(100_000);
    Runner::new(scheduler, config).run(move || scenario(fault))
}

/// What is found out about a fault, in the words of the panic; nothing if it is not.
fn findings(scenario: fn(Fault), fault: Fault) -> String {
    let search = || explore(RandomScheduler::new_from_seed(3, 2_000), scenario, fault);
    let panic = catch_unwind(AssertUnwindSafe(search)).err();
    panic.and_then(|payload| payload.downcast::<String>().ok()).map_or(String::new(), |text| *text)
}

#[test]
fn in_random_orders_no_key_is_lost_or_held_twice_and_no_wake_up_is_missed() {
    explore(RandomScheduler::new_from_seed(1, schedules(1_500)), crowd, Fault::None);
}

#[test]
fn in_orders_with_few_but_unlikely_switches_it_holds_as_well() {
    explore(PctScheduler::new_from_seed(2, 3, schedules(1_500)), crowd, Fault::None);
}

#[test]
fn every_drain_ends_when_the_work_does_and_not_before() {
    explore(RandomScheduler::new_from_seed(1, schedules(2_000)), drains, Fault::None);
    explore(PctScheduler::new_from_seed(2, 3, schedules(2_000)), drains, Fault::None);
}

#[test]
fn the_model_finds_out_what_is_broken_on_purpose() {
    for fault in [Fault::LostWakeUp, Fault::LostTimer, Fault::LostKey] {
        let found = findings(crowd, fault);
        assert!(found.contains("deadlock"), "fault {}: {found:?}", fault as u8);
    }
    let found = findings(crowd, Fault::LostOwner);
    assert!(found.contains("is with two workers"), "{found:?}");
    let found = findings(drains, Fault::LostDrain);
    assert!(found.contains("deadlock"), "{found:?}");
}
