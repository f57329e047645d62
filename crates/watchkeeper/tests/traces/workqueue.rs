//! Traces of the work queue: what workers get, and when.
//!
//! | step | does |
//! |---|---|
//! | `add a`, `add a low`, `add a high` | adds a key |
//! | `add a after 3s` | adds it later |
//! | `change a 7`, `change a 7 Pod/p` | adds it because its object, or another one, changed to version 7 |
//! | `get` | one more worker asks for a key, and waits where there is none |
//! | `done a` | its worker succeeded |
//! | `again a after 3s` | its worker succeeded, and wants it back later |
//! | `retry a REASON`, `retry quietly a REASON` | its worker failed |
//! | `give up a REASON` | its worker failed for good |
//! | `park a for 5s` | its worker cannot begin, and gives it back |
//! | `unpark a` | what it was parked for has happened |
//! | `drop a` | its worker decided nothing |
//! | `explain a` | says why a key is not worked on |
//! | `why a` | says what led to the run of its worker, the newest first |
//! | `triggers a` | says what led to its last runs, the newest first |
//! | `wait 5ms`, `wait 3s` | lets time pass |
//! | `shut down`, `drain` | refuses new keys; the same, and waits for the workers |
//!
//! The backoff is 10 ms, doubling. Results are what workers get, what is reported, and how many keys wait when that changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use watchkeeper::workqueue::limiter::ItemExponential;
use watchkeeper::workqueue::{
    KeyRecord, ObjectRef, Priority, RateLimitingQueue, Reason, Relation, Trigger, TriggerRecord, WorkItem,
};
use watchkeeper::{Env, ObjectName};

use crate::trace::{Step, check, replay};

type Items = Arc<Mutex<BTreeMap<String, WorkItem<String>>>>;

struct Run {
    env: Env,
    queue: RateLimitingQueue<String>,
    workers: usize,
    /// With the workers.
    items: Items,
    happened: Arc<Mutex<Vec<String>>>,
    waiting: usize,
}

/// A length of time such as `5ms` or `3s`.
fn duration(step: &Step, text: &str) -> Duration {
    let millis = text.strip_suffix("ms").map(|number| (number, 1));
    let Some((number, factor)) = millis.or(text.strip_suffix('s').map(|number| (number, 1000))) else {
        step.refuse("expected a time such as 5ms or 3s")
    };
    Duration::from_millis(number.parse::<u64>().unwrap() * factor)
}

impl Run {
    fn new() -> Self {
        let (env, happened) = (Env::simulated(1), Arc::new(Mutex::new(Vec::new())));
        let reports = happened.clone();
        env.reporter.add_hook(move |report| reports.lock().push(format!("! {}", report.incident)));
        let limiter = ItemExponential::new(Duration::from_millis(10), Duration::from_secs(1000));
        let queue = RateLimitingQueue::new("trace", limiter, &env);
        Self { env, queue, workers: 0, items: Items::default(), happened, waiting: 0 }
    }

    async fn step(&mut self, step: &Step) -> Vec<String> {
        let mut pause = Duration::ZERO;
        match step.words() {
            ("add", words) => self.add(step, &words),
            ("change", words) => self.change(step, &words),
            ("get", _) => self.get(),
            ("done", keys) => self.take(step, keys[0]).forget(),
            ("again", words) => self.take(step, words[0]).retry_after(duration(step, words[2])),
            ("retry", words) if words[0] == "quietly" => {
                self.take(step, words[1]).retry_quietly(words[2..].join(" "));
            }
            ("retry", words) => self.take(step, words[0]).retry(words[1..].join(" ")),
            ("give", words) => self.take(step, words[1]).give_up(words[2..].join(" ")),
            ("park", words) => {
                let until = self.env.clock.now() + duration(step, words[2]);
                self.take(step, words[0]).park(until);
            }
            ("unpark", keys) => self.queue.unpark(&keys[0].to_owned()),
            ("drop", keys) => drop(self.take(step, keys[0])),
            ("explain", keys) => {
                let line = self.explain(keys[0]);
                self.happened.lock().push(line);
            }
            ("why", keys) => {
                let triggers = self.items.lock().get(keys[0]).map(WorkItem::triggers);
                self.tell(&triggers.unwrap_or_else(|| step.refuse("no worker has that key")));
            }
            ("triggers", keys) => {
                let record = self.queue.explain(&keys[0].to_owned());
                self.tell(&record.map(|record| record.triggers).unwrap_or_default());
            }
            ("wait", words) => pause = duration(step, words[0]),
            ("shut", _) => self.queue.shut_down(),
            ("drain", _) => {
                let (queue, happened) = (self.queue.clone(), self.happened.clone());
                tokio::spawn(async move {
                    queue.shut_down_with_drain().await;
                    happened.lock().push("drained".to_owned());
                });
            }
            _ => step.refuse("no such step"),
        }
        if !pause.is_zero() {
            self.env.clock.sleep(pause).await;
        }
        // Everything that is ready happens, without time passing.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let mut results = std::mem::take(&mut *self.happened.lock());
        let waiting = self.queue.len();
        if std::mem::replace(&mut self.waiting, waiting) != waiting {
            results.push(format!("waiting {waiting}"));
        }
        results
    }

    fn add(&self, step: &Step, words: &[&str]) {
        match words {
            [key] => self.queue.add((*key).to_owned()),
            [key, "low"] => self.queue.add_with((*key).to_owned(), Priority::Low),
            [key, "high"] => self.queue.add_with((*key).to_owned(), Priority::High),
            [key, "after", delay] => self.queue.add_after((*key).to_owned(), duration(step, delay)),
            _ => step.refuse("no such add"),
        }
    }

    fn change(&self, step: &Step, words: &[&str]) {
        let (key, trigger) = match words {
            [key, version] => (key, Trigger::itself(Reason::Changed, &(*version).into())),
            [key, version, object] => {
                let Some((kind, name)) = object.split_once('/') else { step.refuse("expected Kind/name") };
                let object = ObjectRef::new(kind, ObjectName::cluster(name));
                (key, Trigger::related(Relation::Owner, object, Reason::Changed, &(*version).into()))
            }
            _ => step.refuse("no such change"),
        };
        self.queue.add_because((*key).to_owned(), Priority::Normal, trigger);
    }

    fn tell(&self, triggers: &[TriggerRecord]) {
        self.happened.lock().extend(triggers.iter().map(ToString::to_string));
    }

    fn get(&mut self) {
        self.workers += 1;
        let (worker, queue) = (self.workers, self.queue.clone());
        let (items, happened) = (self.items.clone(), self.happened.clone());
        tokio::spawn(async move {
            let Some(item) = queue.get().await else {
                return happened.lock().push(format!("worker {worker} ends"));
            };
            let attempts = match item.attempts() {
                0 => String::new(),
                retries => format!(", retry {retries}"),
            };
            happened.lock().push(format!("worker {worker} has {}{attempts}", item.key()));
            items.lock().insert(item.key().clone(), item);
        });
    }

    fn take(&self, step: &Step, key: &str) -> WorkItem<String> {
        let item = self.items.lock().remove(key);
        item.unwrap_or_else(|| step.refuse("no worker has that key"))
    }

    fn explain(&self, key: &str) -> String {
        let Some(record) = self.queue.explain(&key.to_owned()) else { return "unknown".to_owned() };
        let KeyRecord { waiting_since, delayed_until, parked_until, worked_on_since, retries, .. } = record;
        let now = self.env.clock.now();
        let mut parts = Vec::new();
        parts.extend(worked_on_since.map(|since| format!("worked on for {:?}", now - since)));
        parts.extend(waiting_since.map(|since| format!("waiting for {:?}", now - since)));
        parts.extend(delayed_until.map(|until| format!("due in {:?}", until - now)));
        parts.extend(parked_until.map(|until| format!("parked for {:?} more", until - now)));
        parts.push(format!("{retries} retries"));
        parts.extend(record.last_error.map(|error| format!("last error: {}", error.message)));
        parts.join(", ")
    }
}

#[test]
fn the_work_queue_does_what_its_traces_say() {
    check("workqueue", |steps| replay(steps, Run::new, Run::step));
}
