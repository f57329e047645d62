//! What happened in a run, in which order and when?

use std::sync::Arc;

use parking_lot::Mutex;
use watchkeeper::clock::{Clock, Instant};

/// The lines of a run, each with its virtual time. Clones share them.
#[derive(Clone, Debug)]
pub struct Trace {
    lines: Arc<Mutex<Vec<String>>>,
    clock: Clock,
    begin: Instant,
}

impl Trace {
    /// An empty trace that begins now.
    pub fn new(clock: &Clock) -> Self {
        Self { lines: Arc::default(), clock: clock.clone(), begin: clock.now() }
    }

    /// Adds a line.
    pub fn add(&self, line: impl std::fmt::Display) {
        let time = (self.clock.now() - self.begin).as_millis();
        self.lines.lock().push(format!("{time:>8} {line}"));
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }
}
