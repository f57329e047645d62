//! A model of publication: it is correct in every order in which threads can run.

use shuttle::future::block_on;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;

use super::*;
use crate::sync::model::exhaust;

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

fn writer(store: &Store, name: &'static str) -> thread::JoinHandle<()> {
    let store = store.clone();
    thread::spawn(move || write(&store, name))
}

#[test]
fn no_write_is_lost_and_no_reader_sees_half_of_one_or_goes_back() {
    exhaust(|| {
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
fn a_waiter_for_a_version_wakes_and_finds_it() {
    exhaust(|| {
        let store = store();
        let writer = writer(&store, "a");
        write(&store, "b");
        // The last publication is seen, or this would wait forever.
        block_on(store.wait(|version| *version >= 2.into()));
        assert_eq!(agrees(&store.read()), 2);
        writer.join().unwrap();
    });
}

#[test]
fn a_waiter_for_the_end_wakes_without_a_new_version() {
    exhaust(|| {
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
