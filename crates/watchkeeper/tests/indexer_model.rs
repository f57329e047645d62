//! Is a state published right in every order in which threads can run? A model checker runs the code of `publish.rs` in all of them.
//!
//! Threads change places wherever one of the primitives below is used. What is not modelled is their inside.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::Arc;

use shuttle::future::block_on;
use shuttle::scheduler::DfsScheduler;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::{Config, Runner, thread};

use self::object::ResourceVersion;
use self::publish::{Published, Versioned};

#[path = "../src/store/publish.rs"]
mod publish;

mod object {
    pub(super) use watchkeeper::ResourceVersion;
}

mod sync {
    use std::sync::Arc;

    use shuttle::sync::{Mutex, MutexGuard};
    use shuttle::thread::yield_now;
    use tokio::sync::Notify;
    use tokio::sync::futures::Notified;

    pub(super) struct Lock<T>(Mutex<T>);

    impl<T> Lock<T> {
        pub(super) fn new(value: T) -> Self {
            Self(Mutex::new(value))
        }

        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    pub(super) struct Place<T>(Mutex<Arc<T>>);

    impl<T> Place<T> {
        pub(super) fn from_pointee(value: T) -> Self {
            Self(Mutex::new(Arc::new(value)))
        }

        pub(super) fn load(&self) -> MutexGuard<'_, Arc<T>> {
            self.0.lock().unwrap()
        }

        pub(super) fn load_full(&self) -> Arc<T> {
            self.0.lock().unwrap().clone()
        }

        pub(super) fn swap(&self, value: Arc<T>) -> Arc<T> {
            std::mem::replace(&mut self.0.lock().unwrap(), value)
        }
    }

    pub(super) struct Signal(Notify);

    impl Signal {
        pub(super) fn new() -> Self {
            Self(Notify::new())
        }

        pub(super) fn notify_waiters(&self) {
            yield_now();
            self.0.notify_waiters();
        }

        pub(super) fn notified(&self) -> Notified<'_> {
            yield_now();
            self.0.notified()
        }
    }
}

/// The names of all writes so far; their number is the version.
#[derive(Clone)]
struct Log {
    writes: Vec<&'static str>,
    version: ResourceVersion,
}

impl Versioned for Log {
    fn version(&self) -> &ResourceVersion {
        &self.version
    }
}

type Store = Arc<Published<Log>>;

fn store() -> Store {
    Arc::new(Published::new(Log { writes: Vec::new(), version: 0.into() }))
}

/// Two changes in one step.
fn write(store: &Store, name: &'static str) {
    store.write(|log| {
        log.writes.push(name);
        thread::yield_now();
        log.version = (log.writes.len() as u64).into();
    });
}

fn agrees(log: &Log) -> u64 {
    assert_eq!(log.version.as_number(), Some(log.writes.len() as u64), "a reader sees half of a write");
    log.writes.len() as u64
}

/// Runs `model` in every order of its threads, which must be more than a few.
fn in_every_order(model: fn()) {
    let orders = Runner::new(DfsScheduler::new(None, false), Config::default()).run(model);
    assert!(orders > 100, "{orders}");
}

fn writer(store: &Store, name: &'static str) -> thread::JoinHandle<()> {
    let store = store.clone();
    thread::spawn(move || write(&store, name))
}

#[test]
fn no_write_is_lost_and_no_reader_sees_half_of_one_or_goes_back() {
    in_every_order(|| {
        let store = store();
        let writer = writer(&store, "a");
        let before = agrees(&store.read());
        write(&store, "b");
        let after = agrees(&store.peek());
        assert!(before < after);
        writer.join().unwrap();
        assert_eq!(agrees(&store.read()), 2);
    });
}

#[test]
fn who_waits_for_a_version_wakes_and_finds_it() {
    in_every_order(|| {
        let store = store();
        let writer = writer(&store, "a");
        write(&store, "b");
        // Whichever is published last is seen, or this would wait for ever.
        block_on(store.wait(|version| *version >= 2.into()));
        assert_eq!(agrees(&store.read()), 2);
        writer.join().unwrap();
    });
}

#[test]
fn who_waits_for_an_end_wakes_when_it_comes_though_no_version_does() {
    in_every_order(|| {
        let (store, ended) = (store(), Arc::new(AtomicBool::new(false)));
        let (ending, flag) = (store.clone(), ended.clone());
        let ending = thread::spawn(move || {
            flag.store(true, Ordering::SeqCst);
            ending.wake();
        });
        write(&store, "a");
        block_on(store.wait(|_| ended.load(Ordering::SeqCst)));
        ending.join().unwrap();
    });
}
