//! The work queue agrees with a plain form of its rules, over a million random steps: no key is lost, none doubled.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;
use watchkeeper::Env;
use watchkeeper::workqueue::limiter::ItemExponential;
use watchkeeper::workqueue::{Priority, RateLimitingQueue, WorkItem};

const HISTORIES: u64 = 250;
const STEPS: u64 = 4_000;
const KEYS: usize = 6;
/// Idle keys that the queue remembers: fewer than there are.
const KEPT: usize = 3;
const MS: Duration = Duration::from_millis(1);

/// Everything about one key. Times are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
struct Key {
    /// Needs a run: since when, how urgently.
    added: Option<u64>,
    priority: Priority,
    /// Its place among those that are ready; none while a worker has it.
    place: Option<u64>,
    working: Option<u64>,
    /// When it will be added, which of equal times it is, how urgently.
    due: Option<(u64, u64)>,
    due_priority: Priority,
    failures: u32,
    backing_off: bool,
    success: Option<u64>,
    error: Option<u64>,
    /// When its parking ends, which of equal times it is, how urgently it is needed.
    parked: Option<(u64, u64)>,
    parked_priority: Priority,
    /// When it was parked first since its last run.
    parked_since: Option<u64>,
    /// Unparked while a worker has it.
    unparked: bool,
}

impl Key {
    fn is_needed(&self) -> bool {
        let times = [self.added, self.working, self.due.map(|due| due.0), self.parked.map(|until| until.0)];
        times.iter().any(Option::is_some)
    }

    fn forgive(&mut self) {
        (self.failures, self.backing_off) = (0, false);
    }
}

/// The rules, without any cleverness.
#[derive(Default)]
struct Model {
    now: u64,
    keys: [Key; KEYS],
    /// The idle keys that are remembered, the oldest first.
    idle: Vec<usize>,
    /// How often each priority was passed over.
    passed_over: [u32; 3],
    counter: u64,
    adds: u64,
    retries: u64,
    shut: bool,
}

impl Model {
    fn count(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn add(&mut self, number: usize, priority: Priority, since: u64) {
        if self.shut {
            return;
        }
        self.idle.retain(|idle| *idle != number);
        let place = self.count();
        let key = &mut self.keys[number];
        if key.parked.take().is_some() {
            (key.added, key.place) = (Some(since), Some(place));
            key.priority = priority.max(key.parked_priority);
        } else if key.added.is_none() {
            self.adds += 1;
            (key.added, key.priority) = (Some(since), priority);
            key.place = key.working.is_none().then_some(place);
        } else if priority > key.priority {
            key.priority = priority;
            key.place = key.place.map(|_| place);
        }
    }

    fn add_after(&mut self, number: usize, delay: u64, priority: Priority) {
        if self.shut {
            return;
        }
        self.retries += 1;
        if delay == 0 {
            return self.add(number, priority, self.now);
        }
        self.idle.retain(|idle| *idle != number);
        let (due, order) = (self.now + delay, self.count());
        let key = &mut self.keys[number];
        key.due_priority = if key.due.is_some() { key.due_priority.max(priority) } else { priority };
        if key.due.is_none_or(|(old, _)| due < old) {
            key.due = Some((due, order));
        }
    }

    fn add_rate_limited(&mut self, number: usize, priority: Priority) {
        if self.shut {
            return;
        }
        let key = &mut self.keys[number];
        let delay = (1 << key.failures.min(3)).min(8);
        key.failures += 1;
        key.backing_off = true;
        self.add_after(number, delay, priority);
    }

    fn advance(&mut self, by: u64) {
        self.now += by;
        while let Some((due, _, number, is_parking)) = (0..KEYS)
            .flat_map(|number| {
                [(self.keys[number].due, number, false), (self.keys[number].parked, number, true)]
            })
            .filter_map(|(time, number, is_parking)| {
                time.map(|(due, order)| (due, order, number, is_parking))
            })
            .min()
            .filter(|(due, ..)| *due <= self.now)
        {
            let key = &mut self.keys[number];
            if is_parking {
                self.add(number, Priority::Low, due);
                continue;
            }
            (key.due, key.backing_off) = (None, false);
            let priority = key.due_priority;
            self.add(number, priority, due);
        }
    }

    fn ready(&self, priority: Priority) -> Option<usize> {
        let waiting = (0..KEYS).filter(|number| self.keys[*number].priority == priority);
        waiting.filter_map(|number| Some((self.keys[number].place?, number))).min().map(|(_, number)| number)
    }

    fn len(&self) -> usize {
        self.keys.iter().filter(|key| key.place.is_some()).count()
    }

    fn get(&mut self) -> Option<usize> {
        let mut highest_first = Priority::ALL.into_iter().rev().filter(|p| self.ready(*p).is_some());
        let aged = highest_first.clone().find(|priority| self.passed_over[*priority as usize] >= 10);
        let turn = aged.or_else(|| highest_first.next())?;
        for lower in Priority::ALL.into_iter().filter(|lower| *lower < turn) {
            let passed = self.passed_over[lower as usize];
            self.passed_over[lower as usize] = if self.ready(lower).is_some() { passed + 1 } else { 0 };
        }
        self.passed_over[turn as usize] = 0;
        let number = self.ready(turn)?;
        let key = &mut self.keys[number];
        assert!(key.working.is_none());
        (key.added, key.place, key.working) = (None, None, Some(self.now));
        key.unparked = false;
        Some(number)
    }

    /// A worker could not begin.
    fn park(&mut self, number: usize, priority: Priority, time: u64) {
        let place = self.count();
        let key = &mut self.keys[number];
        key.working = None;
        if self.shut {
            key.parked_since = None;
            key.place = key.added.map(|_| place);
            return self.rest(number);
        }
        key.parked_since.get_or_insert(self.now);
        if let Some(since) = key.added {
            (key.added, key.place, key.priority) = (Some(since), Some(place), priority.max(key.priority));
        } else if key.unparked || time == 0 {
            (key.added, key.place, key.priority) = (Some(self.now), Some(place), priority);
        } else {
            (key.parked, key.parked_priority) = (Some((self.now + time, place)), priority);
        }
    }

    fn unpark(&mut self, number: usize) {
        self.keys[number].unparked = true;
        if self.keys[number].parked.is_some() {
            self.add(number, Priority::Low, self.now);
        }
    }

    /// A worker is done; `again` is what it wants to happen then.
    fn settle(&mut self, number: usize, priority: Priority, end: End) {
        let key = &mut self.keys[number];
        match end {
            End::Forget | End::RetryAfter(_) => key.success = Some(self.now),
            End::GiveUp | End::Retry | End::Drop => key.error = Some(self.now),
            End::Park(time) => return self.park(number, priority, time),
        }
        key.parked_since = None;
        if !matches!(end, End::Retry | End::Drop) {
            key.forgive();
        }
        match end {
            End::RetryAfter(delay) => self.add_after(number, delay, priority),
            End::Retry | End::Drop if key.backing_off => self.retries += u64::from(!self.shut),
            End::Retry | End::Drop => self.add_rate_limited(number, priority),
            End::Forget | End::GiveUp | End::Park(_) => {}
        }
        let place = self.count();
        let key = &mut self.keys[number];
        key.working = None;
        key.place = key.added.map(|_| place);
        self.rest(number);
    }

    fn rest(&mut self, number: usize) {
        let key = &self.keys[number];
        if !key.is_needed() {
            if key.success.is_none() && key.error.is_none() {
                self.keys[number] = Key::default();
                return;
            }
            self.idle.push(number);
            if self.idle.len() > KEPT {
                let oldest = self.idle.remove(0);
                self.keys[oldest] = Key::default();
            }
        }
    }

    fn shut_down(&mut self) {
        self.shut = true;
        let times = (0..KEYS).flat_map(|number| {
            let key = &self.keys[number];
            [key.due.map(|time| (time, number, false)), key.parked.map(|time| (time, number, true))]
        });
        let mut delayed: Vec<_> = times.flatten().collect();
        delayed.sort_unstable();
        for (_, number, is_parking) in delayed {
            let key = &mut self.keys[number];
            if is_parking {
                (key.parked, key.parked_since) = (None, None);
            } else {
                key.due = None;
            }
            self.rest(number);
        }
    }
}

#[derive(Clone, Copy)]
enum End {
    Forget,
    Retry,
    RetryAfter(u64),
    GiveUp,
    Drop,
    Park(u64),
}

/// Numbers that follow from a seed (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

fn ready(queue: &RateLimitingQueue<usize>) -> Option<WorkItem<usize>> {
    match pin!(queue.get()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(item) => item,
        Poll::Pending => None,
    }
}

/// One queue, its model, and the items that are out.
struct History {
    queue: RateLimitingQueue<usize>,
    model: Model,
    out: Vec<WorkItem<usize>>,
    start: Instant,
    chance: Chance,
}

impl History {
    fn new(seed: u64) -> Self {
        let env = Env::simulated(seed);
        let queue = RateLimitingQueue::remembering(KEPT, "test", ItemExponential::new(MS, 8 * MS), &env);
        let start = env.clock.now();
        Self { queue, model: Model::default(), out: Vec::new(), start, chance: Chance(seed) }
    }

    async fn step(&mut self) {
        let (queue, model, chance) = (&self.queue, &mut self.model, &mut self.chance);
        let number = chance.below(KEYS as u64) as usize;
        let delay = chance.below(20);
        match chance.below(100) {
            0..15 => {
                queue.add(number);
                model.add(number, Priority::Normal, model.now);
            }
            15..30 => {
                let priority = Priority::ALL[chance.below(3) as usize];
                queue.add_with(number, priority);
                model.add(number, priority, model.now);
            }
            30..40 => {
                queue.add_after(number, MS * delay as u32);
                model.add_after(number, delay, Priority::Normal);
            }
            40..44 => {
                queue.add_rate_limited(number);
                model.add_rate_limited(number, Priority::Normal);
            }
            44..49 => {
                queue.unpark(&number);
                model.unpark(number);
            }
            49..51 => {
                queue.forget(&number);
                model.keys[number].forgive();
            }
            51..72 => {
                self.take();
            }
            72..92 => self.settle(delay),
            _ => {
                let by = chance.below(6);
                tokio::time::advance(MS * by as u32).await;
                model.advance(by);
            }
        }
        assert_eq!(self.queue.len(), self.model.len());
    }

    fn take(&mut self) -> bool {
        let item = ready(&self.queue);
        assert_eq!(item.as_ref().map(|item| *item.key()), self.model.get());
        let Some(item) = item else { return false };
        assert!(self.out.iter().all(|other| other.key() != item.key()), "handed out twice");
        let key = &self.model.keys[*item.key()];
        assert_eq!((item.attempts(), item.priority()), (key.failures, key.priority));
        let since = item.parked_since().map(|time| (time - self.start).as_millis() as u64);
        assert_eq!(since, key.parked_since);
        self.out.push(item);
        true
    }

    fn settle(&mut self, delay: u64) {
        if self.out.is_empty() {
            return;
        }
        let item = self.out.swap_remove(self.chance.below(self.out.len() as u64) as usize);
        let (number, priority) = (*item.key(), item.priority());
        let end = match self.chance.below(12) {
            0 => End::Retry,
            1 => End::Drop,
            2 => End::RetryAfter(delay),
            3 => End::GiveUp,
            4..7 => End::Park(delay),
            _ => End::Forget,
        };
        match end {
            End::Forget => item.forget(),
            End::Retry => item.retry("no luck"),
            End::RetryAfter(delay) => item.retry_after(MS * delay as u32),
            End::GiveUp => item.give_up("hopeless"),
            End::Drop => drop(item),
            End::Park(time) => item.park(self.start + MS * (self.model.now + time) as u32),
        }
        self.model.settle(number, priority, end);
    }

    /// What the queue knows of its keys, and counts, is what the model does.
    fn compare(&self) {
        let at = |time: Instant| (time - self.start).as_millis() as u64;
        let mut records = [const { None }; KEYS];
        for record in self.queue.records() {
            let number = record.key;
            assert!(records[number].replace(record).is_none(), "two records of one key");
        }
        for (number, key) in self.model.keys.iter().enumerate() {
            let record = self.queue.explain(&number);
            // Only the answer about one key says what all keys, or all runs, are needed for.
            let known = record.clone().map(|mut record| {
                (record.behind, record.own_backoff) = (None, None);
                record.runs.clear();
                record
            });
            assert_eq!(known, records[number]);
            assert_eq!(
                record.is_some(),
                key.is_needed() || self.model.idle.contains(&number),
                "key {number}"
            );
            let Some(record) = record else { continue };
            assert_eq!(record.waiting_since.map(at), key.added);
            assert_eq!(record.delayed_until.map(at), key.due.map(|(due, _)| due));
            assert_eq!(record.worked_on_since.map(at), key.working);
            assert_eq!(record.parked_until.map(at), key.parked.map(|(until, _)| until));
            assert_eq!(record.parked_since.map(at), key.parked_since);
            assert_eq!(record.last_success.map(at), key.success);
            assert_eq!(record.last_error.map(|error| at(error.at)), key.error);
            assert_eq!((record.retries, record.priority), (key.failures, key.priority));
        }
        let figures = self.queue.metrics().upgrade().unwrap().figures();
        assert_eq!((figures.adds, figures.retries), (self.model.adds, self.model.retries));
        let due = self.model.keys.iter().filter(|key| key.due.is_some()).count();
        let parked = self.model.keys.iter().filter(|key| key.parked.is_some()).count();
        assert_eq!((figures.running.count, figures.delayed, figures.parked), (self.out.len(), due, parked));
        let depth = |priority| {
            self.model.keys.iter().filter(|key| key.added.is_some() && key.priority == priority).count()
        };
        assert_eq!(figures.depth, Priority::ALL.map(depth));
    }

    /// Shuts down: what waits is still handed out, and then nothing.
    fn finish(mut self) {
        self.queue.shut_down();
        self.model.shut_down();
        self.compare();
        while self.take() || !self.out.is_empty() {
            self.settle(3);
        }
        self.compare();
        assert_eq!((self.queue.len(), self.model.len()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_million_random_steps_agree_with_the_plain_rules() {
    for seed in 0..HISTORIES {
        let mut history = History::new(seed);
        for step in 0..STEPS {
            history.step().await;
            if step % 16 == 0 {
                history.compare();
            }
        }
        history.finish();
    }
}
