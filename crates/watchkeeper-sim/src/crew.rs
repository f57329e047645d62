//! The threads of a check, watched by one that notices when a schedule does not end, or when its thread panics.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use watchkeeper::clock::{Clock, Instant};

use crate::violation::panic_message;

/// The threads that are at work, and since when each is at its present schedule.
pub(crate) struct Crew {
    state: Mutex<CrewState>,
    changed: Condvar,
    clock: Clock,
    patience: Duration,
}

struct CrewState {
    at_work: usize,
    slots: Vec<Option<(String, Instant)>>,
    panicked: Option<Trouble>,
}

/// Why a crew does not end its work.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// This schedule does not end.
    Stuck { schedule: String },
    /// Something other than the controller and the story panicked in this schedule.
    Panicked { schedule: String, what: String },
}

impl Crew {
    pub(crate) fn new(threads: usize, patience: Duration) -> Arc<Self> {
        let slots = (0..threads).map(|_| None).collect();
        let state = Mutex::new(CrewState { at_work: threads, slots, panicked: None });
        Arc::new(Self { state, changed: Condvar::new(), clock: Clock::system(), patience })
    }

    /// Starts a thread of the crew. It leaves when its work is done, also by a panic.
    pub(crate) fn spawn(self: &Arc<Self>, thread: usize, work: impl FnOnce() + Send + 'static) {
        let crew = self.clone();
        // Threads of a check are small in number, and their code may need deep stacks.
        let started = std::thread::Builder::new().stack_size(16 << 20).spawn(move || {
            let _leaves = Leaves { crew: crew.clone(), thread };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
                crew.panicked(thread, panic.as_ref());
            }
        });
        // Without threads there is nothing to check with.
        drop(started.expect("cannot start a thread"));
    }

    pub(crate) fn begin(&self, thread: usize, schedule: String) {
        self.state.lock().slots[thread] = Some((schedule, self.clock.now()));
    }

    /// The time by which the crew is watched.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    fn panicked(&self, thread: usize, panic: &(dyn Any + Send)) {
        let what = match panic.downcast_ref::<PanicOf>() {
            Some(PanicOf { code, message }) => format!("{code} panicked: {message}"),
            None => format!("the simulator panicked: {}", panic_message(panic)),
        };
        let mut state = self.state.lock();
        let schedule = state.slots[thread].take().map_or_else(String::new, |(schedule, _)| schedule);
        state.panicked.get_or_insert(Trouble::Panicked { schedule, what });
    }

    /// Waits until all threads have left, or one has panicked or does not end.
    pub(crate) fn wait(&self) -> Result<(), Trouble> {
        let mut state = self.state.lock();
        loop {
            if let Some(panicked) = state.panicked.take() {
                return Err(panicked);
            }
            if state.at_work == 0 {
                return Ok(());
            }
            let now = self.clock.now();
            let mut slots = state.slots.iter().flatten();
            if let Some((schedule, _)) = slots.find(|(_, since)| now - *since > self.patience) {
                return Err(Trouble::Stuck { schedule: schedule.clone() });
            }
            self.changed.wait_for(&mut state, Duration::from_secs(1));
        }
    }
}

/// Leaves the crew when it is dropped.
struct Leaves {
    crew: Arc<Crew>,
    thread: usize,
}

impl Drop for Leaves {
    fn drop(&mut self) {
        let mut state = self.crew.state.lock();
        state.at_work -= 1;
        state.slots[self.thread] = None;
        self.crew.changed.notify_all();
    }
}

/// A panic of code that the author of a check gave.
struct PanicOf {
    code: String,
    message: String,
}

/// Calls code of the author's that is neither the controller nor the story. Its panic ends the check, and names it.
pub(crate) fn call<T>(name: impl FnOnce() -> String, code: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(code)).unwrap_or_else(|panic| {
        let message = panic_message(panic.as_ref()).to_owned();
        resume_unwind(Box::new(PanicOf { code: name(), message }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_left_is_not_the_one_that_does_not_end() {
        let crew = Crew::new(2, Duration::from_millis(50));
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (first, second) = (crew.clone(), crew.clone());
        crew.spawn(0, move || first.begin(0, "first".to_owned()));
        while crew.state.lock().at_work == 2 {
            std::thread::yield_now();
        }
        crew.spawn(1, move || {
            second.begin(1, "second".to_owned());
            let _released = released.recv();
        });
        assert_eq!(crew.wait(), Err(Trouble::Stuck { schedule: "second".to_owned() }));
        drop(release);
    }

    #[test]
    fn a_panic_is_told_with_its_schedule() {
        let crew = Crew::new(1, Duration::from_secs(60));
        let theirs = crew.clone();
        crew.spawn(0, move || {
            theirs.begin(0, "this".to_owned());
            call(|| "`known`".to_owned(), || panic!("what?"))
        });
        let what = "`known` panicked: what?".to_owned();
        assert_eq!(crew.wait(), Err(Trouble::Panicked { schedule: "this".to_owned(), what }));
    }
}
