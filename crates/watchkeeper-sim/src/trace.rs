//! The trace of a run: what the story, the controller, the server and the faults did, in order.
//!
//! A trace keeps structured entries and shares the bytes of requests and answers. Text is made of it only when a person is to read it.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use watchkeeper::clock::{Clock, Instant};

use crate::fault::Planned;

/// What happened in a run. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    inner: Arc<Mutex<Inner>>,
    clock: Clock,
    begin: Instant,
    /// Is told of faults; then nothing is kept.
    listener: Option<Listener>,
}

/// A function that is told of faults.
#[derive(Clone)]
pub(crate) struct Listener(pub(crate) Arc<dyn Fn(&Planned) + Send + Sync>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

#[derive(Debug, Default)]
struct Inner {
    entries: Vec<Entry>,
    digest: u64,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The virtual time since the start of the run.
    pub(crate) at: Duration,
    pub(crate) event: Event,
}

/// What happened.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The story wrote something.
    Step { number: u32, what: Arc<str>, status: u16, body: Bytes },
    /// A replica sent a request.
    Sent { replica: usize, what: Arc<str>, nth: u32, body: Bytes },
    /// The server answered; `changed` is the revision after the request, if it has changed anything.
    Acted { replica: usize, what: Arc<str>, nth: u32, status: u16, body: Bytes, changed: Option<u64> },
    /// A replica got another answer than the server's, or got it late.
    Got { replica: usize, what: Arc<str>, nth: u32, status: u16 },
    /// A request failed without an answer.
    Failed { replica: usize, what: Arc<str>, nth: u32, error: &'static str },
    /// An event of a watch reached a replica.
    /// It may be padded to this length.
    Saw { replica: usize, what: Arc<str>, line: Bytes, length: usize },
    /// A fault happened.
    Fault(Planned),
    /// The cluster was restored from a backup of this revision.
    Restored { revision: u64 },
    /// A replica was started; its lives count from 1.
    Begins { replica: usize, life: u32 },
    /// A replica ended, with the reason.
    Ends { replica: usize, life: u32, why: Arc<str> },
    /// A built-in controller of the cluster changed something.
    BuiltIn { what: Arc<str>, status: u16 },
    /// The outside world was called, or changed.
    Outside { what: Arc<str>, now: Option<Bytes> },
    /// A replica reported an error: its log would have it.
    Reported { replica: usize, what: Arc<str> },
    /// A remark of the simulator.
    Note(Arc<str>),
}

impl Trace {
    pub(crate) fn new(clock: &Clock) -> Self {
        Self { inner: Arc::default(), clock: clock.clone(), begin: clock.now(), listener: None }
    }

    /// A trace that keeps nothing, for runs without an end.
    pub(crate) fn told_to(listener: Listener, clock: &Clock) -> Self {
        Self { listener: Some(listener), ..Self::new(clock) }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn add(&self, event: Event) {
        if let Some(Listener(listener)) = &self.listener {
            if let Event::Fault(planned) = &event {
                listener(planned);
            }
            return;
        }
        let at = self.clock.now() - self.begin;
        let mut inner = self.inner.lock();
        if let Some(hash) = hash(at, &event) {
            inner.digest = inner.digest.rotate_left(5) ^ hash;
        }
        inner.entries.push(Entry { at, event });
    }

    pub(crate) fn note(&self, text: &str) {
        self.add(Event::Note(text.into()));
    }

    /// The virtual time since the start of the run.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.now() - self.begin
    }

    /// Identifies what happened, apart from the faults themselves: a fault without an effect leaves it as it is.
    pub(crate) fn digest(&self) -> u64 {
        self.inner.lock().digest
    }

    pub(crate) fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut self.inner.lock().entries)
    }

    /// Looks at the entries from a position on.
    pub(crate) fn since<T>(&self, from: usize, look: impl FnOnce(&[Entry]) -> T) -> T {
        let inner = self.inner.lock();
        look(&inner.entries[from.min(inner.entries.len())..])
    }
}

/// `None` for what does not count.
pub(crate) fn hash(at: Duration, event: &Event) -> Option<u64> {
    let mut hasher = foldhash::fast::FixedState::with_seed(7).build_hasher();
    at.hash(&mut hasher);
    std::mem::discriminant(event).hash(&mut hasher);
    match event {
        Event::Fault(_) | Event::Restored { .. } | Event::Reported { .. } | Event::Note(_) => return None,
        Event::Step { number, what, status, body } => (number, what, status, body).hash(&mut hasher),
        Event::Sent { replica, what, nth, body } => (replica, what, nth, body).hash(&mut hasher),
        Event::Acted { replica, what, nth, status, body, changed } => {
            (replica, what, nth, status, body, changed).hash(&mut hasher);
        }
        Event::Got { replica, what, nth, status } => (replica, what, nth, status).hash(&mut hasher),
        Event::Failed { replica, what, nth, error } => (replica, what, nth, error).hash(&mut hasher),
        Event::Saw { replica, what, line, length } => (replica, what, line, length).hash(&mut hasher),
        Event::Begins { replica, life } => (replica, life).hash(&mut hasher),
        Event::Ends { replica, life, why } => (replica, life, why).hash(&mut hasher),
        Event::BuiltIn { what, status } => (what, status).hash(&mut hasher),
        Event::Outside { what, now } => (what, now).hash(&mut hasher),
    }
    Some(hasher.finish())
}
