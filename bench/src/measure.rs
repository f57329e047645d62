//! Wall time, CPU time and memory of a phase of this process.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use watchkeeper::clock::{Clock, Instant};

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The file cannot be read: not Linux, or no /proc.
    #[error("cannot read the status of a process: {0}; measuring memory needs Linux with /proc mounted")]
    Status(#[source] io::Error),
    /// A line that every Linux has is missing.
    #[error("the status of a process has no line {0}")]
    Line(&'static str),
    /// The peak cannot be reset, so it would be that of an earlier phase.
    #[error("cannot reset the peak by way of /proc/self/clear_refs: {0}")]
    ResetPeak(#[source] io::Error),
}

/// The memory of this process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Resident now.
    pub resident: u64,
    /// The peak since the start, or since [`reset_peak`].
    pub peak: u64,
}

/// The memory of this process now.
pub fn memory() -> Result<Memory, MeasureError> {
    parse_status(&fs::read_to_string("/proc/self/status").map_err(MeasureError::Status)?)
}

/// The memory of another process now.
pub(crate) fn memory_of(process: u32) -> Result<Memory, MeasureError> {
    parse_status(&fs::read_to_string(format!("/proc/{process}/status")).map_err(MeasureError::Status)?)
}

/// The CPU time of all live threads of another process.
pub(crate) fn cpu_time_of(process: u32) -> Result<Duration, MeasureError> {
    let mut nanoseconds = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task")).map_err(MeasureError::Status)? {
        let file = thread.map_err(MeasureError::Status)?.path().join("schedstat");
        let text = fs::read_to_string(file).map_err(MeasureError::Status)?;
        let on_cpu: u64 = text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        nanoseconds += on_cpu;
    }
    Ok(Duration::from_nanos(nanoseconds))
}

fn parse_status(status: &str) -> Result<Memory, MeasureError> {
    let bytes = |name: &'static str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.map(|kib| kib * 1024).ok_or(MeasureError::Line(name))
    };
    Ok(Memory { resident: bytes("VmRSS:")?, peak: bytes("VmHWM:")? })
}

/// Resets the peak to the resident size, so that the next phase has its own peak.
pub fn reset_peak() -> Result<(), MeasureError> {
    fs::write("/proc/self/clear_refs", "5").map_err(MeasureError::ResetPeak)
}

/// The CPU time of all threads of this process so far, user and kernel.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// A phase being measured.
#[derive(Debug)]
pub struct Phase {
    clock: Clock,
    started: Instant,
    cpu: Duration,
}

/// What a phase cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Wall time.
    pub wall: Duration,
    /// CPU time.
    pub cpu: Duration,
    /// The memory at its end, and the peak during it.
    pub memory: Memory,
}

impl Phase {
    /// Starts a phase, with its own peak.
    pub fn start(clock: &Clock) -> Result<Self, MeasureError> {
        reset_peak()?;
        Ok(Self { clock: clock.clone(), started: clock.now(), cpu: cpu_time() })
    }

    /// The cost so far.
    pub fn cost(&self) -> Result<Cost, MeasureError> {
        // The clocks first: reading memory costs time itself.
        let (wall, cpu) = (self.clock.now() - self.started, cpu_time().saturating_sub(self.cpu));
        Ok(Cost { wall, cpu, memory: memory()? })
    }
}

/// One line of a benchmark's output, as JSON. A megabyte is 1,000,000 bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "phase", rename_all = "lowercase")]
pub enum Line {
    /// The first list, until everything is in the cache.
    Sync {
        /// Objects in the cache.
        objects: usize,
        /// Wall time in seconds.
        wall_s: f64,
        /// CPU time in seconds.
        cpu_s: f64,
        /// Resident at the end, in megabytes.
        rss_mb: f64,
        /// Peak, in megabytes.
        peak_mb: f64,
    },
    /// The events, until the last is applied to the cache.
    Watch {
        /// Events applied.
        events: u64,
        /// Events per second.
        applied_per_s: f64,
        /// CPU time per event, in microseconds.
        cpu_us_per_event: f64,
        /// Resident at the end, in megabytes.
        rss_mb: f64,
        /// Peak, in megabytes.
        peak_mb: f64,
    },
}

impl Line {
    /// The line of a sync that brought `objects` objects.
    pub fn sync(objects: usize, cost: &Cost) -> Self {
        Self::Sync {
            objects,
            wall_s: rounded(cost.wall.as_secs_f64(), 5),
            cpu_s: rounded(cost.cpu.as_secs_f64(), 5),
            rss_mb: megabytes(cost.memory.resident),
            peak_mb: megabytes(cost.memory.peak),
        }
    }

    /// The line of a watch that applied `events` events.
    pub fn watch(events: u64, cost: &Cost) -> Self {
        let per = |whole: f64, parts: f64| if parts > 0.0 { whole / parts } else { 0.0 };
        Self::Watch {
            events,
            applied_per_s: rounded(per(events as f64, cost.wall.as_secs_f64()), 0),
            cpu_us_per_event: rounded(per(cost.cpu.as_secs_f64() * 1e6, events as f64), 2),
            rss_mb: megabytes(cost.memory.resident),
            peak_mb: megabytes(cost.memory.peak),
        }
    }

    /// Prints it to standard output.
    pub fn print(&self) -> Result<(), serde_json::Error> {
        print(self)
    }
}

/// Prints a line of JSON to standard output.
pub(crate) fn print(line: &impl Serialize) -> Result<(), serde_json::Error> {
    println!("{}", serde_json::to_string(line)?);
    Ok(())
}

pub(crate) fn megabytes(bytes: u64) -> f64 {
    rounded(bytes as f64 / 1e6, 1)
}

pub(crate) fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Cost = Cost {
        wall: Duration::from_millis(2500),
        cpu: Duration::from_millis(500),
        memory: Memory { resident: 253_960_192, peak: 300_000_000 },
    };

    #[test]
    fn the_system_tells_memory_in_units_of_1024_bytes() {
        let status = "Name:\tbench\nVmHWM:\t     200 kB\nVmRSS:\t     100 kB\n";
        assert_eq!(parse_status(status).unwrap(), Memory { resident: 102_400, peak: 204_800 });
        assert!(matches!(parse_status("Name:\tbench\n"), Err(MeasureError::Line("VmRSS:"))));
    }

    // One test: the peak is the whole process's, and tests run side by side.
    #[test]
    fn a_phase_sees_its_own_burst_and_not_an_earlier_one() {
        let phase = || Phase::start(&Clock::system()).unwrap();
        let first = phase();
        drop(std::hint::black_box(vec![1_u8; 256 << 20]));
        let first = first.cost().unwrap();
        assert!(first.cpu > Duration::ZERO && first.wall > Duration::ZERO);
        assert!(first.memory.peak >= 256 << 20);
        assert!(phase().cost().unwrap().memory.peak < first.memory.peak);
    }

    #[test]
    fn lines_are_json_with_the_phase_first() {
        let sync = serde_json::to_string(&Line::sync(50_000, &COST)).unwrap();
        assert_eq!(
            sync,
            r#"{"phase":"sync","objects":50000,"wall_s":2.5,"cpu_s":0.5,"rss_mb":254.0,"peak_mb":300.0}"#
        );
        let watch = serde_json::to_string(&Line::watch(50_000, &COST)).unwrap();
        assert_eq!(
            watch,
            r#"{"phase":"watch","events":50000,"applied_per_s":20000.0,"cpu_us_per_event":10.0,"rss_mb":254.0,"peak_mb":300.0}"#
        );
    }
}
