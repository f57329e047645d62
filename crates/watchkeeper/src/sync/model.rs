//! Primitives with the interface of the real ones, on the schedules of a model checker while a model runs.
//!
//! The threads and tasks of a model can switch at every use of a primitive. The inside of a primitive is not modelled.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};
use tokio::sync::futures::Notified;

thread_local! {
    /// The checker runs all threads of a model on the thread that started it.
    static IN_MODEL: Cell<bool> = const { Cell::new(false) };
}

fn in_model() -> bool {
    IN_MODEL.get()
}

/// Runs `model` in every schedule of `scheduler`, and returns their number.
///
/// A panic in any of them propagates, including the one for a deadlock, which usually is a lost wake-up.
pub(crate) fn explore(
    scheduler: impl Scheduler + 'static,
    model: impl Fn() + Send + Sync + 'static,
) -> usize {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            IN_MODEL.set(false);
        }
    }
    IN_MODEL.set(true);
    let _leave = Leave;
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(100_000);
    Runner::new(scheduler, config).run(model)
}

/// Runs `model` in `schedules` random schedules, and in as many with few preemptions.
pub(crate) fn sample(schedules: usize, model: impl Fn() + Send + Sync + Clone + 'static) {
    sample_random(schedules, model.clone());
    sample_preemptions(schedules, model);
}

/// Runs `model` in `schedules` random schedules.
pub(crate) fn sample_random(schedules: usize, model: impl Fn() + Send + Sync + 'static) {
    explore(RandomScheduler::new_from_seed(1, wanted(schedules)), model);
}

/// Runs `model` in `schedules` schedules with three preemptions, at unlikely moments.
pub(crate) fn sample_preemptions(schedules: usize, model: impl Fn() + Send + Sync + 'static) {
    explore(PctScheduler::new_from_seed(2, 3, wanted(schedules)), model);
}

/// Returns `SCHEDULES` of the environment if it is set.
fn wanted(schedules: usize) -> usize {
    std::env::var("SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(schedules)
}

/// Runs `model` in every possible schedule, of which there must be more than a few.
pub(crate) fn exhaust(model: impl Fn() + Send + Sync + 'static) {
    let schedules = explore(DfsScheduler::new(None, false), model);
    assert!(schedules > 100, "{schedules} schedules");
}

/// A lock as in `parking_lot`.
#[derive(Debug)]
pub(crate) enum Mutex<T> {
    Real(parking_lot::Mutex<T>),
    Checked(shuttle::sync::Mutex<T>),
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        if in_model() {
            Self::Checked(shuttle::sync::Mutex::new(value))
        } else {
            Self::Real(parking_lot::Mutex::new(value))
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        match self {
            Self::Real(mutex) => MutexGuard::Real(mutex.lock()),
            // A panic ends the model.
            Self::Checked(mutex) => MutexGuard::Checked(mutex.lock().unwrap()),
        }
    }
}

pub(crate) enum MutexGuard<'a, T> {
    Real(parking_lot::MutexGuard<'a, T>),
    Checked(shuttle::sync::MutexGuard<'a, T>),
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Real(guard) => guard,
            Self::Checked(guard) => guard,
        }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match self {
            Self::Real(guard) => guard,
            Self::Checked(guard) => guard,
        }
    }
}

/// A shared pointer as in `arc_swap`. It is a lock, as only the order of its uses matters.
pub(crate) struct ArcSwap<T>(Mutex<Arc<T>>);

impl<T> ArcSwap<T> {
    pub(crate) fn from_pointee(value: T) -> Self {
        Self(Mutex::new(Arc::new(value)))
    }

    /// Like a guard of the real one, the result does not block others.
    pub(crate) fn load(&self) -> Loaded<T> {
        Loaded(self.load_full())
    }

    pub(crate) fn load_full(&self) -> Arc<T> {
        self.0.lock().clone()
    }

    pub(crate) fn swap(&self, value: Arc<T>) -> Arc<T> {
        std::mem::replace(&mut self.0.lock(), value)
    }
}

pub(crate) struct Loaded<T>(Arc<T>);

impl<T> Deref for Loaded<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

/// A signal as in `tokio`; other threads may run before each use.
#[derive(Debug, Default)]
pub(crate) struct Notify(tokio::sync::Notify);

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notify_waiters(&self) {
        let_others_run();
        self.0.notify_waiters();
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        let_others_run();
        self.0.notified()
    }
}

fn let_others_run() {
    if in_model() {
        shuttle::thread::yield_now();
    }
}
