//! The trace of a run: every request, fault and crash, with its virtual time.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use watchkeeper::clock::{Clock, Instant};

/// The lines of a trace, each with its virtual time. Clones share them.
#[derive(Clone, Debug)]
pub struct Trace {
    lines: Arc<Mutex<Vec<String>>>,
    clock: Clock,
    begin: Instant,
}

impl Trace {
    /// Returns an empty trace that starts now.
    pub fn new(clock: &Clock) -> Self {
        Self { lines: Arc::default(), clock: clock.clone(), begin: clock.now() }
    }

    /// Adds a line.
    pub fn add(&self, line: impl std::fmt::Display) {
        let time = (self.clock.now() - self.begin).as_millis();
        self.lines.lock().push(format!("{time:>8} {line}"));
    }

    /// Returns all lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }

    /// Prints the last lines to standard error, with the path of a file that holds all of them.
    #[expect(clippy::print_stderr, reason = "a test that fails is to be read by a person")]
    pub(crate) fn print_end(&self) {
        let lines = self.lines();
        let end = &lines[lines.len().saturating_sub(LINES)..];
        eprintln!("the last {} of {} lines of the trace:\n{}", end.len(), lines.len(), end.join("\n"));
        match save(&lines) {
            Ok(path) => eprintln!("the whole trace is in {}", path.display()),
            Err(error) => eprintln!("the whole trace could not be written: {error}"),
        }
    }
}

/// Number of trace lines to print.
const LINES: usize = 40;

/// Writes a trace to a new file, one per failure of the process.
fn save(lines: &[String]) -> io::Result<PathBuf> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(format!("watchkeeper-sim-{process}-{number}.trace"));
    let mut file = File::create(&path)?;
    lines.iter().try_for_each(|line| writeln!(file, "{line}"))?;
    Ok(path)
}
