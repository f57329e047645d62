//! The queue under real threads: no key with two workers, none lost, whatever happens to the workers.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use tokio::task::JoinSet;

use super::*;

const KEYS: usize = 40;
const PRODUCERS: usize = 50;
const ADDS: usize = 300;
const WORKERS: usize = 10;

/// The work that producers want for each key, and the work that was done.
#[derive(Default)]
struct Entry {
    wanted: AtomicU32,
    seen: AtomicU32,
    held: AtomicBool,
}

struct Ledger {
    entries: Vec<Entry>,
    held_twice: AtomicU32,
    panics: AtomicU32,
    aborts: AtomicU32,
}

/// Marks a key as held for as long as it lives.
struct Held<'a>(&'a AtomicBool);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

/// Works on one key; panics halfway one time in ten. Returns `false` once the queue is shut down.
async fn work(queue: RateLimitingQueue<usize>, ledger: Arc<Ledger>, env: Env) -> bool {
    let Some(item) = queue.get().await else { return false };
    let entry = &ledger.entries[*item.key()];
    if entry.held.swap(true, SeqCst) {
        ledger.held_twice.fetch_add(1, SeqCst);
    }
    // Declared after the item, so dropped before it: the mark is gone when the key goes back.
    let held = Held(&entry.held);
    let wanted = entry.wanted.load(SeqCst);
    for _ in 0..env.generator.below(4) {
        tokio::task::yield_now().await;
    }
    match env.generator.below(10) {
        // Bypasses the panic hook, which would print.
        0 => std::panic::resume_unwind(Box::new("halfway")),
        1 => drop((held, item)),
        fate => {
            entry.seen.fetch_max(wanted, SeqCst);
            drop(held);
            match fate {
                2 => item.retry_after(Duration::from_micros(300)),
                3 => item.retry("again"),
                _ => item.forget(),
            }
        }
    }
    true
}

/// Works until the queue is shut down; aborts some of its own runs, whether they wait or work.
async fn worker(queue: RateLimitingQueue<usize>, ledger: Arc<Ledger>, env: Env) {
    loop {
        let mut run = tokio::spawn(work(queue.clone(), ledger.clone(), env.clone()));
        if env.generator.below(8) == 0 {
            let patience = Duration::from_micros(env.generator.below(2000));
            if env.clock.timeout(patience, &mut run).await.is_err() {
                run.abort();
                ledger.aborts.fetch_add(1, SeqCst);
            } else {
                continue;
            }
        }
        match run.await {
            Ok(false) => return,
            Err(error) if error.is_panic() => _ = ledger.panics.fetch_add(1, SeqCst),
            Ok(true) | Err(_) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_key_is_held_by_two_or_lost_though_workers_panic_and_are_cancelled() {
    let env = Env::new(Clock::system(), crate::clock::Generator::seeded(7));
    let backoff = ItemExponential::new(Duration::from_micros(100), 3 * MS);
    let queue = RateLimitingQueue::<usize>::new("crowd", backoff, &env);
    let ledger = Arc::new(Ledger {
        entries: (0..KEYS).map(|_| Entry::default()).collect(),
        held_twice: AtomicU32::new(0),
        panics: AtomicU32::new(0),
        aborts: AtomicU32::new(0),
    });
    let (mut producers, mut workers) = (JoinSet::new(), JoinSet::new());
    for _ in 0..WORKERS {
        workers.spawn(worker(queue.clone(), ledger.clone(), env.clone()));
    }
    for _ in 0..PRODUCERS {
        let (queue, ledger, env) = (queue.clone(), ledger.clone(), env.clone());
        producers.spawn(async move {
            for _ in 0..ADDS {
                let key = env.generator.below(KEYS as u64) as usize;
                ledger.entries[key].wanted.fetch_add(1, SeqCst);
                match env.generator.below(3) {
                    0 => queue.add_after(key, Duration::from_micros(env.generator.below(3000))),
                    _ => queue.add(key),
                }
                tokio::task::yield_now().await;
            }
        });
    }
    producers.join_all().await;
    let caught_up =
        || ledger.entries.iter().all(|entry| entry.wanted.load(SeqCst) == entry.seen.load(SeqCst));
    let all_seen = async {
        while !caught_up() {
            env.clock.sleep(MS).await;
        }
    };
    within(&env, all_seen).await;
    within(&env, queue.shut_down_with_drain()).await;
    within(&env, workers.join_all()).await;
    assert_eq!(ledger.held_twice.load(SeqCst), 0, "a key was with two workers at once");
    // Their number depends on the machine, but without any the test would prove nothing.
    assert!(ledger.panics.load(SeqCst) + ledger.aborts.load(SeqCst) > 0, "nothing went wrong on the way");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_up_is_lost_between_few_keys_and_many_cancelled_gets() {
    let env = Env::new(Clock::system(), crate::clock::Generator::seeded(8));
    let queue = RateLimitingQueue::<usize>::new("gets", limiter::default_controller(), &env);
    let (mut impatient, mut patient) = (JoinSet::new(), JoinSet::new());
    for _ in 0..WORKERS {
        let (queue, env) = (queue.clone(), env.clone());
        impatient.spawn(async move {
            while !queue.is_shutting_down() {
                let patience = Duration::from_micros(env.generator.below(1500));
                if let Ok(Some(item)) = env.clock.timeout(patience, queue.get()).await {
                    item.forget();
                }
            }
        });
    }
    patient.spawn({
        let queue = queue.clone();
        async move {
            while let Some(item) = queue.get().await {
                item.forget();
            }
        }
    });
    // One key at a time, so that nothing makes up for a lost wake-up.
    for round in 0..400 {
        match round % 2 {
            0 => queue.add(round),
            _ => queue.add_after(round, Duration::from_micros(500)),
        }
        let gone = async {
            loop {
                let figures = queue.0.figures();
                let idle = figures.depth == [0; 3] && figures.running.count + figures.delayed == 0;
                if idle {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        assert!(
            env.clock.timeout(120 * SECOND, gone).await.is_ok(),
            "round {round}: nobody came for the key"
        );
    }
    queue.shut_down();
    within(&env, patient.join_all()).await;
    within(&env, impatient.join_all()).await;
}
