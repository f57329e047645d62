//! Time of reads and writes of the store, with and without concurrent readers, compared with alternative implementations.

mod candidates;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::runtime::Runtime;
use watchkeeper::clock::{Clock, Generator};
use watchkeeper::store::{Indexer, namespace_index};
use watchkeeper::{Env, Object, ObjectName};

use self::candidates::Candidate;
use crate::serve::World;

/// Read and write stores of Pods.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// Number of Pods
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    objects: u32,
    /// Samples per operation
    #[arg(long, value_name = "M", default_value_t = 3_000)]
    operations: u32,
    /// Threads that list everything in a loop during the last measurement
    #[arg(long, value_name = "R", default_value_t = 4)]
    readers: usize,
    /// Seed of the Pods
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// One line of output, as JSON.
#[derive(Debug, Serialize)]
struct Line {
    store: &'static str,
    operation: &'static str,
    count: usize,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Gets are too short to be timed one by one.
const GETS: usize = 100;
/// The pause between two updates: a steady stream of events, not a race for the CPU.
const PAUSE: Duration = Duration::from_millis(1);
/// Number of lists, and of replacements.
const LISTS: usize = 100;
const REPLACES: usize = 5;

/// Runs the benchmark and prints a line for each store and operation.
pub fn run(args: &StoreArgs) -> Result<(), Failure> {
    let env = Env::system();
    let Pods { before, updates } = Pods::draw(args, &Generator::seeded(args.seed))?;
    let mut timer = Timer::new(env.clock.clone())?;
    for (name, store) in candidates::all(&env) {
        store.fill(&before);
        timer.store = name;
        reads(&mut timer, &*store, &before, args)?;
        timer.updates(&*store, &updates);
        timer.print("update")?;
        while_listing(&*store, args.readers, || timer.updates(&*store, &updates));
        timer.print("update_while_listing")?;
    }
    replaces(&mut timer, &env, before)
}

fn reads(
    timer: &mut Timer,
    store: &dyn Candidate,
    pods: &[Object<Pod>],
    args: &StoreArgs,
) -> Result<(), Failure> {
    let generator = Generator::seeded(args.seed);
    let keys: Vec<ObjectName> = pods.iter().map(Object::key).collect();
    let any_key = || &keys[generator.below(keys.len() as u64) as usize];
    for _ in 0..args.operations {
        let wanted: [_; GETS] = std::array::from_fn(|_| any_key());
        timer.time(|| wanted.iter().filter(|key| store.get(key).is_some()).count());
    }
    timer.samples.iter_mut().for_each(|sample| *sample /= GETS as u32);
    timer.print("get")?;
    for _ in 0..args.operations {
        let namespace = any_key().namespace().unwrap_or_default();
        timer.time(|| store.by_namespace(namespace));
    }
    timer.print("by_index")?;
    for _ in 0..LISTS {
        timer.time(|| store.list());
    }
    timer.print("list")
}

/// Runs `measure` while threads list everything in a loop.
fn while_listing(store: &dyn Candidate, readers: usize, measure: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::black_box(store.list());
                }
            });
        }
        measure();
        stop.store(true, Ordering::Relaxed);
    });
}

/// Replaces all Pods by copies, then by new versions, and frees the old ones.
fn replaces(timer: &mut Timer, env: &Env, pods: Vec<Object<Pod>>) -> Result<(), Failure> {
    let store = Indexer::<Pod>::new(env, [namespace_index()]);
    timer.store = "indexer";
    store.replace(pods, 1.into());
    for _ in 0..REPLACES {
        let same = remade(&store, |json| json)?;
        // Kept, so that freeing them is not measured as well.
        let kept = same.clone();
        timer.time(|| store.replace(same, 2.into()));
        drop(kept);
    }
    timer.print("replace_same")?;
    let mut left = Vec::new();
    for _ in 0..REPLACES {
        let other =
            remade(&store, |json| json.replacen(r#""resourceVersion":""#, r#""resourceVersion":"9"#, 1))?;
        left.push(timer.time(|| store.replace(other, 3.into())));
    }
    timer.print("replace_changed")?;
    left.into_iter().for_each(|before| timer.time(|| drop(before)));
    timer.print("free_changed")
}

struct Pods {
    before: Vec<Object<Pod>>,
    updates: Vec<Object<Pod>>,
}

impl Pods {
    fn draw(args: &StoreArgs, generator: &Generator) -> Result<Self, Failure> {
        #[derive(Deserialize)]
        struct Event<'a> {
            r#type: &'a str,
            #[serde(borrow)]
            object: &'a RawValue,
        }
        let world = World::synthetic(args.objects, args.operations * 2, generator);
        let (mut text, mut pods) = (Vec::new(), Self { before: Vec::new(), updates: Vec::new() });
        for index in 0..world.len() {
            text.clear();
            world.write_first(&mut text, index);
            pods.before.push(Object::from_json(&text)?);
        }
        for number in 1..=world.events() {
            text.clear();
            world.write_event(&mut text, number);
            let event: Event<'_> = serde_json::from_slice(&text)?;
            if event.r#type == "MODIFIED" {
                pods.updates.push(Object::from_json(event.object.get().as_bytes())?);
            }
        }
        pods.updates.truncate(args.operations as usize);
        Ok(pods)
    }
}

/// New objects from the JSON of those in the store.
fn remade(store: &Indexer<Pod>, change: impl Fn(String) -> String) -> Result<Vec<Object<Pod>>, Failure> {
    let now = store.snapshot();
    let texts = now.iter().map(|pod| change(String::from_utf8_lossy(pod.json()).into_owned()));
    texts.map(|text| Ok(Object::from_json(text.as_bytes())?)).collect()
}

/// Times operations and prints the result.
struct Timer {
    clock: Clock,
    runtime: Runtime,
    store: &'static str,
    samples: Vec<Duration>,
}

impl Timer {
    fn new(clock: Clock) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        Ok(Self { clock, runtime, store: "", samples: Vec::new() })
    }

    fn time<R>(&mut self, operation: impl FnOnce() -> R) -> R {
        let began = self.clock.now();
        let result = std::hint::black_box(operation());
        self.samples.push(self.clock.now() - began);
        result
    }

    fn updates(&mut self, store: &dyn Candidate, pods: &[Object<Pod>]) {
        for pod in pods {
            self.runtime.block_on(self.clock.sleep(PAUSE));
            self.time(|| store.put(pod));
        }
    }

    /// Prints a line about all samples since the previous one.
    fn print(&mut self, operation: &'static str) -> Result<(), Failure> {
        let mut samples = std::mem::take(&mut self.samples);
        samples.sort_unstable();
        let at = |share: f64| {
            let index = ((samples.len() as f64 * share) as usize).min(samples.len().saturating_sub(1));
            let sample = samples.get(index).copied().unwrap_or_default();
            (sample.as_secs_f64() * 1e9).round() / 1e3
        };
        let (p50_us, p99_us, max_us) = (at(0.5), at(0.99), at(1.0));
        let line = Line { store: self.store, operation, count: samples.len(), p50_us, p99_us, max_us };
        println!("{}", serde_json::to_string(&line)?);
        Ok(())
    }
}
