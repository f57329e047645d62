//! What is handed in everywhere? Time, chance, and the place to report to, in one cheap handle.

use jiff::Timestamp;

use crate::clock::{Clock, Generator};
use crate::report::Reporter;

/// Time, chance and the reporter: what every part of the machine is given by whoever builds it.
#[derive(Clone, Debug)]
pub struct Env {
    /// The clock to wait on and to read.
    pub clock: Clock,
    /// The source of jitter, names and seeds.
    pub generator: Generator,
    /// Where handled errors and caught panics go.
    pub reporter: Reporter,
}

impl Env {
    /// Real time and the system's entropy.
    pub fn system() -> Self {
        Self::new(Clock::system(), Generator::system())
    }

    /// An environment that depends on `seed` alone, at 2026-01-01 on tokio's clock: pause the runtime and every run is the same.
    pub fn simulated(seed: u64) -> Self {
        let new_year = Timestamp::constant(1_767_225_600, 0);
        Self::new(Clock::virtual_at(new_year), Generator::seeded(seed))
    }

    /// From a clock and a generator, with a fresh reporter.
    pub fn new(clock: Clock, generator: Generator) -> Self {
        let reporter = Reporter::new(&clock);
        Self { clock, generator, reporter }
    }

    /// The same clock and reporter, with an independent generator for the part named `label`.
    pub fn fork(&self, label: &str) -> Self {
        Self { generator: self.generator.fork(label), ..self.clone() }
    }
}
