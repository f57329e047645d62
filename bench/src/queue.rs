//! Cost of a work queue: rounds of add, get and done, uncontended and contended, and a million delayed keys.

use std::io;
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};
use watchkeeper::workqueue::limiter::{self, ItemExponential};
use watchkeeper::workqueue::{Priority, RateLimitingQueue, Reason, Trigger};
use watchkeeper::{Env, ObjectName};

use crate::measure::{Phase, megabytes, rounded};

/// Measure the time and memory of a work queue.
#[derive(Debug, Args)]
pub struct QueueArgs {
    /// Number of rounds of add, get and done
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    rounds: u64,
    /// Number of distinct keys
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Number of delayed keys, and of rate-limited keys
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pending: u64,
    /// Run only this phase; memory is most accurate with one phase per process
    #[arg(long, value_enum)]
    phase: Vec<PhaseName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PhaseName {
    Alone,
    Because,
    Crowd,
    Delayed,
    Limited,
}

/// Rounds per timed batch.
const BATCH: u64 = 1_000;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// One line of output.
#[derive(Debug, Serialize)]
#[serde(tag = "phase", rename_all = "lowercase")]
enum Line {
    /// One task adds a key, gets it and finishes it: the median and the best of batches short enough not to be preempted. Metrics are always
    /// on.
    Alone(Rounds),
    /// The same with adds that say why: the object of the key changed.
    Because(Rounds),
    /// Producers and workers, each on its own thread, until every key was processed after its last add.
    Crowd {
        producers: u64,
        workers: u64,
        adds: u64,
        runs: u64,
        ns_per_add: f64,
        ns_per_run: f64,
        cpu_ns_per_run: f64,
    },
    /// Keys added with random delays of up to ten minutes.
    Delayed(Pending),
    /// Keys that failed once.
    Limited(Pending),
}

#[derive(Debug, Serialize)]
struct Rounds {
    rounds: u64,
    keys: u64,
    ns_per_round: f64,
    best_ns_per_round: f64,
}

#[derive(Debug, Serialize)]
struct Pending {
    keys: u64,
    ns_per_add: f64,
    cpu_ns_per_add: f64,
    /// Their memory, including the keys' text.
    held_mb: f64,
    rss_mb: f64,
    peak_mb: f64,
}

impl Line {
    fn print(&self) -> Result<(), serde_json::Error> {
        println!("{}", serde_json::to_string(self)?);
        Ok(())
    }
}

/// Runs the phases; prints a line after each.
pub fn run(args: &QueueArgs) -> Result<(), Failure> {
    let env = Env::system();
    for phase in PhaseName::value_variants() {
        if args.phase.is_empty() || args.phase.contains(phase) {
            match phase {
                PhaseName::Alone => Line::Alone(alone(args, &env, |queue, key, _| {
                    queue.add_with(key, Priority::Normal);
                })?),
                PhaseName::Because => Line::Because(alone(args, &env, |queue, key, round| {
                    let trigger = Trigger::itself(Reason::Changed, &round.into());
                    queue.add_because(key, Priority::Normal, trigger);
                })?),
                PhaseName::Crowd => crowd(args, &env)?,
                PhaseName::Delayed => Line::Delayed(delayed(args.pending, &env)?),
                PhaseName::Limited => Line::Limited(limited(args.pending, &env)?),
            }
            .print()?;
        }
    }
    Ok(())
}

fn key(number: u64) -> ObjectName {
    ObjectName::namespaced(&format!("team-{:03}", number % 100), &format!("service-{number:07}"))
}

fn queue(env: &Env) -> RateLimitingQueue<ObjectName> {
    RateLimitingQueue::new("bench", limiter::default_controller(), env)
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_time().build()
}

fn per(whole: Duration, parts: u64) -> f64 {
    rounded(whole.as_secs_f64() * 1e9 / parts.max(1) as f64, 1)
}

fn alone(
    args: &QueueArgs,
    env: &Env,
    add: impl Fn(&RateLimitingQueue<ObjectName>, ObjectName, u64),
) -> Result<Rounds, Failure> {
    let (queue, keys) = (queue(env), (0..args.keys).map(key).collect::<Vec<_>>());
    let mut round = 0;
    let mut batches = Vec::new();
    runtime()?.block_on(async {
        let mut next = keys.iter().cycle();
        for _ in 0..args.rounds / BATCH {
            let batch: Vec<_> = next.by_ref().take(BATCH as usize).cloned().collect();
            let start = env.clock.now();
            for key in batch {
                round += 1;
                add(&queue, key, round);
                if let Some(item) = queue.get().await {
                    item.forget();
                }
            }
            batches.push(env.clock.now() - start);
        }
    });
    batches.sort_unstable();
    let (best, median) = (batches.first().copied(), batches.get(batches.len() / 2).copied());
    Ok(Rounds {
        rounds: args.rounds / BATCH * BATCH,
        keys: args.keys,
        ns_per_round: per(median.unwrap_or_default(), BATCH),
        best_ns_per_round: per(best.unwrap_or_default(), BATCH),
    })
}

fn crowd(args: &QueueArgs, env: &Env) -> Result<Line, Failure> {
    const PRODUCERS: u64 = 2;
    const WORKERS: u64 = 2;
    // So many that a key seldom waits when it is added again: an add that collapses is cheap.
    const KEYS: u64 = 100_000;
    let (queue, share) = (queue(env), args.rounds / PRODUCERS);
    let sets: Vec<Vec<_>> =
        (0..PRODUCERS).map(|set| (set * KEYS..(set + 1) * KEYS).map(key).collect()).collect();
    let phase = Phase::start(&env.clock)?;
    let producers: Vec<_> = sets
        .into_iter()
        .map(|keys| {
            let queue = queue.clone();
            thread::spawn(move || {
                keys.iter().cycle().take(share as usize).for_each(|key| queue.add(key.clone()));
            })
        })
        .collect();
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let queue = queue.clone();
            thread::spawn(move || -> io::Result<u64> {
                let mut runs = 0;
                runtime()?.block_on(async {
                    while let Some(item) = queue.get().await {
                        runs += 1;
                        item.forget();
                    }
                });
                Ok(runs)
            })
        })
        .collect();
    for producer in producers {
        producer.join().map_err(|_| "a producer panicked")?;
    }
    queue.shut_down();
    let mut runs = 0;
    for worker in workers {
        runs += worker.join().map_err(|_| "a worker panicked")??;
    }
    let adds = share * PRODUCERS;
    let cost = phase.cost()?;
    Ok(Line::Crowd {
        producers: PRODUCERS,
        workers: WORKERS,
        adds,
        runs,
        ns_per_add: per(cost.wall, adds),
        ns_per_run: per(cost.wall, runs),
        cpu_ns_per_run: per(cost.cpu, runs),
    })
}

fn delayed(count: u64, env: &Env) -> Result<Pending, Failure> {
    let (queue, chance) = (queue(env), env.generator.fork("delays"));
    pending(count, env, |key| {
        let delay = Duration::from_millis(60_000 + chance.below(540_000));
        queue.add_after(key, delay);
    })
}

fn limited(count: u64, env: &Env) -> Result<Pending, Failure> {
    let minute = Duration::from_secs(60);
    let queue = RateLimitingQueue::new("bench", ItemExponential::new(minute, 10 * minute), env);
    pending(count, env, |key| queue.add_rate_limited(key))
}

fn pending(count: u64, env: &Env, mut add: impl FnMut(ObjectName)) -> Result<Pending, Failure> {
    let before = crate::measure::memory()?.resident;
    let phase = Phase::start(&env.clock)?;
    (0..count).for_each(|number| add(key(number)));
    let cost = phase.cost()?;
    Ok(Pending {
        keys: count,
        ns_per_add: per(cost.wall, count),
        cpu_ns_per_add: per(cost.cpu, count),
        held_mb: megabytes(cost.memory.resident.saturating_sub(before)),
        rss_mb: megabytes(cost.memory.resident),
        peak_mb: megabytes(cost.memory.peak),
    })
}
