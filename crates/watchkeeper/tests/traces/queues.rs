//! Traces of the two queues between reflector and store, side by side.
//!
//! | step | does |
//! |---|---|
//! | `known a@1 b@2` | the consumer holds these objects from now on |
//! | `added a@1`, `updated a@2`, `deleted a@3` | a watch event |
//! | `gone a` | a delete that was missed: a tombstone |
//! | `bookmark 7` | a bookmark |
//! | `list 7: a@1 b@2` | a list of that version |
//! | `resync` | delivers all known objects again |
//! | `pop` | hands out the next deltas |
//! | `done` | says that they were applied |
//! | `give back` | says that they were not |
//! | `close` | ends the queue |
//!
//! Results are those of both queues where they agree, else of each. A change of how many entries wait, and the sync,
//! are shown.

use watchkeeper::clock::Generator;
use watchkeeper::queue::{Deleted, Delta, DeltaFifo, KnownObjects, OrderedFifo, Popped, Queue};
use watchkeeper::{Object, ObjectName};

use crate::trace::{Step, check};

type Obj = Object<()>;

fn object(item: &str) -> Obj {
    let (name, version) = item.split_once('@').unwrap();
    let json = format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#);
    Object::from_json(json.as_bytes()).unwrap()
}

/// A delta in the words of the steps.
pub(crate) fn show<K>(delta: &Delta<K>) -> String {
    let of = |object: &Object<K>| format!("{}@{}", object.name(), object.version());
    match delta {
        Delta::Added(object) => format!("added {}", of(object)),
        Delta::Updated(object) => format!("updated {}", of(object)),
        Delta::Deleted(Deleted::Final(object)) => format!("deleted {}", of(object)),
        Delta::Deleted(Deleted::Unknown { key, last_known: Some(last) }) => {
            format!("gone {}, last seen {}", key.name(), of(last))
        }
        Delta::Deleted(Deleted::Unknown { key, last_known: None }) => format!("gone {}", key.name()),
        Delta::Replaced(object) => format!("replaced {}", of(object)),
        Delta::Sync(object) => format!("sync {}", of(object)),
        Delta::ReplacedAll { items, version } => {
            let items: String = items.iter().map(|object| format!(" {}", of(object))).collect();
            format!("replaced all at {version}:{items}")
        }
        Delta::SyncAll => "sync all".to_owned(),
        Delta::Bookmark(version) => format!("bookmark {version}"),
        other => format!("{:?}", other.key()),
    }
}

struct Known(Vec<Obj>);

impl KnownObjects<()> for Known {
    fn known(&self, key: &ObjectName) -> Option<Obj> {
        self.0.iter().find(|object| object.key() == *key).cloned()
    }

    fn each_known(&self, each: &mut dyn FnMut(&Obj)) {
        self.0.iter().for_each(each);
    }
}

struct Run {
    queue: Box<dyn Queue<()>>,
    known: Known,
    popped: Option<Popped<()>>,
    waiting: usize,
    synced: bool,
}

impl Run {
    fn new(queue: Box<dyn Queue<()>>) -> Self {
        Self { queue, known: Known(Vec::new()), popped: None, waiting: 0, synced: false }
    }

    fn step(&mut self, step: &Step) -> Vec<String> {
        let mut results = self.act(step);
        let (waiting, synced) = (self.queue.len(), self.queue.has_synced());
        if std::mem::replace(&mut self.waiting, waiting) != waiting {
            results.push(format!("waiting {waiting}"));
        }
        if synced && !std::mem::replace(&mut self.synced, true) {
            results.push("synced".to_owned());
        }
        results
    }

    fn act(&mut self, step: &Step) -> Vec<String> {
        let Self { queue, known, popped, .. } = self;
        match step.words() {
            ("known", items) => known.0 = items.into_iter().map(object).collect(),
            ("added", items) => queue.push(Delta::Added(object(items[0])), known),
            ("updated", items) => queue.push(Delta::Updated(object(items[0])), known),
            ("deleted", items) => queue.push(Delta::Deleted(Deleted::Final(object(items[0]))), known),
            ("gone", names) => {
                let key = ObjectName::cluster(names[0]);
                let last_known = known.known(&key);
                queue.push(Delta::Deleted(Deleted::Unknown { key, last_known }), known);
            }
            ("bookmark", versions) => queue.push(Delta::Bookmark(versions[0].into()), known),
            ("list", words) => {
                let items = words[1..].iter().map(|item| object(item)).collect();
                queue.replace(items, words[0].trim_end_matches(':').into(), known);
            }
            ("resync", _) => queue.resync(known),
            ("pop", _) => {
                *popped = queue.pop();
                return popped.as_ref().map_or_else(|| vec!["nothing".to_owned()], lines);
            }
            ("done", _) => queue.processed(),
            ("give", _) => match popped.take() {
                Some(popped) => queue.add_if_not_present(popped),
                None => step.refuse("nothing was popped"),
            },
            ("close", _) => queue.close(),
            _ => step.refuse("no such step"),
        }
        Vec::new()
    }
}

fn lines(popped: &Popped<()>) -> Vec<String> {
    let mut lines: Vec<_> = popped.deltas.iter().map(show).collect();
    if popped.in_initial_list {
        lines.push("(of the first list)".to_owned());
    }
    lines.extend(popped.version.iter().map(|version| format!("(the store is then at {version})")));
    lines
}

fn run(steps: &[Step]) -> Vec<Vec<String>> {
    let mut ordered = Run::new(Box::new(OrderedFifo::new()));
    let mut delta = Run::new(Box::new(DeltaFifo::new(&Generator::seeded(1))));
    let both = steps.iter().map(|step| {
        let [of_ordered, of_delta] = [&mut ordered, &mut delta].map(|run| run.step(step));
        if of_ordered == of_delta {
            return of_ordered;
        }
        let labelled = |label: &'static str, lines: Vec<String>| {
            let lines = if lines.is_empty() { vec!["-".to_owned()] } else { lines };
            lines.into_iter().map(move |line| format!("{label} | {line}"))
        };
        labelled("ordered", of_ordered).chain(labelled("delta  ", of_delta)).collect()
    });
    both.collect()
}

#[test]
fn both_queues_do_what_their_traces_say() {
    check("queues", run);
}
