//! Clock, generator and reporter in one cheap handle.

use jiff::Timestamp;

use crate::clock::{Clock, Generator};
use crate::report::Reporter;

/// The clock, the generator and the reporter that a program passes to all parts of the toolkit.
///
/// ```
/// use watchkeeper::Env;
///
/// let env = Env::system(); // in a program
/// let simulated = Env::simulated(7); // in a test: the same in every run
/// assert_eq!(simulated.generator.uuid(), Env::simulated(7).generator.uuid());
/// ```
#[derive(Clone, Debug)]
pub struct Env {
    /// The clock to wait on and to read.
    pub clock: Clock,
    /// The source of jitter, names and seeds.
    pub generator: Generator,
    /// The destination of handled errors and caught panics.
    pub reporter: Reporter,
}

impl Env {
    /// Returns real time and the system's entropy.
    pub fn system() -> Self {
        Self::new(Clock::system(), Generator::system())
    }

    /// Returns an environment that depends on `seed` alone and starts at 2026-01-01 on tokio's clock. On a paused
    /// runtime, every run is the same.
    pub fn simulated(seed: u64) -> Self {
        let new_year = Timestamp::constant(1_767_225_600, 0);
        Self::new(Clock::virtual_at(new_year), Generator::seeded(seed))
    }

    /// Returns an environment of a clock and a generator, with a new reporter.
    pub fn new(clock: Clock, generator: Generator) -> Self {
        let reporter = Reporter::new(&clock);
        Self { clock, generator, reporter }
    }

    /// Returns the same clock and reporter with an independent generator for the part named `label`.
    pub fn fork(&self, label: &str) -> Self {
        Self { generator: self.generator.fork(label), ..self.clone() }
    }
}
