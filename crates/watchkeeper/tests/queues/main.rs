//! Both queues behave as client-go's, except as stated in `docs/differences.md`. Pure, through the public API.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod both;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/deltas.rs"]
mod deltas;
mod gathering;
mod ordered;

use common::Log;
use deltas::{deleted, delta_fifo, obj};
use watchkeeper::informer::{on_change, process_deltas};
use watchkeeper::queue::{Deleted, Delta, OrderedFifo, Popped, Queue};
use watchkeeper::store::Indexer;
use watchkeeper::{Env, Object};

type Obj = Object<()>;

fn both() -> [Box<dyn Queue<()>>; 2] {
    [Box::new(OrderedFifo::new()), Box::new(delta_fifo())]
}

fn store_of(objects: impl IntoIterator<Item = Obj>) -> Indexer<()> {
    let store = Indexer::new(&Env::simulated(1), []);
    objects.into_iter().for_each(|object| store.add(object));
    store
}

fn show(delta: &Delta<()>) -> String {
    let of = |object: &Obj| format!("{}@{}", object.name(), object.version());
    match delta {
        Delta::Added(o) => format!("added {}", of(o)),
        Delta::Updated(o) => format!("updated {}", of(o)),
        Delta::Deleted(Deleted::Final(o)) => format!("deleted {}", of(o)),
        Delta::Deleted(Deleted::Unknown { last_known, .. }) => {
            format!("gone {}", last_known.as_ref().map_or("?".into(), of))
        }
        Delta::Replaced(o) => format!("replaced {}", of(o)),
        Delta::Sync(o) => format!("sync {}", of(o)),
        Delta::ReplacedAll { items, version } => {
            format!("all [{}] at {version}", items.iter().map(of).collect::<Vec<_>>().join(" "))
        }
        Delta::SyncAll => "sync all".into(),
        Delta::Bookmark(version) => format!("bookmark {version}"),
        other => format!("{:?}", other.key()),
    }
}

fn line(popped: &Popped<()>) -> String {
    popped.deltas.iter().map(show).collect::<Vec<_>>().join(", ")
}

/// One line for each pop until the queue is empty; all are processed.
fn drain(queue: &mut dyn Queue<()>) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(popped) = queue.pop() {
        lines.push(line(&popped));
        queue.processed();
    }
    lines.retain(|line| !line.is_empty());
    assert_eq!((queue.len(), queue.bytes()), (0, 0));
    lines
}

/// Returns the notifications of a handler when the rest of the queue is applied to `store`.
fn notifications(queue: &mut dyn Queue<()>, store: &Indexer<()>) -> Vec<String> {
    let log = Log::default();
    let mut handler = on_change(log.handler());
    while let Some(popped) = queue.pop() {
        process_deltas(store, &popped, &mut handler);
        queue.processed();
    }
    log.take()
}
