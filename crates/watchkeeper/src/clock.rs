//! Time and randomness: the only place in the project that reads either from the system.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the one place that knows real time"
)]

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::{BuildHasher, Hasher};
use std::ops::Add;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng, TryRng};
pub use tokio::time::Instant;

/// A monotonic and a wall clock, passed to everything that waits or writes timestamps.
///
/// Clones share the same clock. [`Clock::system`] is real time. [`Clock::virtual_at`] follows tokio's clock, which a
/// test can pause, and starts at a fixed wall time. With a `rate` other than 1 it runs fast or slow, so that two parts
/// of a simulation can disagree about the time.
///
/// ```
/// # use watchkeeper::clock::Clock;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let clock = Clock::virtual_at("2026-01-01T00:00:00Z".parse().unwrap());
/// clock.sleep(Duration::from_secs(90)).await; // returns at once: the runtime is paused
/// assert_eq!(clock.wall().to_string(), "2026-01-01T00:01:30Z");
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Clock {
    face: Face,
    pauses: Option<Pauses>,
}

#[derive(Clone, Debug)]
enum Face {
    System,
    Virtual {
        start: Instant,
        anchor: Timestamp,
        rate: f64,
        /// Nanoseconds for which the machine was suspended: the monotonic time lacks them.
        suspended: Arc<AtomicU64>,
    },
}

/// The longest sleep of [`Clock::sleep_until_boot`]: a timer does not notice that the machine was suspended.
const SLICE: Duration = Duration::from_millis(500);

/// A moment by the time since the machine was booted, which goes on while it is suspended; see [`Clock::boot`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(Duration);

impl BootTime {
    /// Returns the moment `elapsed` after the machine was booted, for tests of what is given the time.
    pub const fn after_boot(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// Returns the time since `earlier`; zero if that is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

/// When the programs that use a clock are suspended, as by SIGSTOP: see [`Clock::pausable`]. Clones share it.
///
/// ```
/// # use watchkeeper::clock::{Clock, Instant, Pauses};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let (clock, pauses) = (Clock::system(), Pauses::default());
/// let begun = clock.now();
/// pauses.pause_until(begun + Duration::from_secs(60));
/// clock.pausable(&pauses).sleep(Duration::from_secs(1)).await; // wakes when the program goes on
/// assert!(clock.now() - begun >= Duration::from_secs(60));
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Pauses(Arc<Mutex<Option<Instant>>>);

impl Pauses {
    /// Suspends the programs until tokio's clock shows `until`.
    pub fn pause_until(&self, until: Instant) {
        *self.0.lock() = Some(until);
    }

    /// Waits while the programs are suspended. Cancel-safe.
    pub async fn over(&self) {
        loop {
            let until = *self.0.lock();
            match until {
                Some(until) if Instant::now() < until => tokio::time::sleep_until(until).await,
                _ => return,
            }
        }
    }
}

/// About thirty years. Timers and `Instant`s overflow on longer times, so settings are clamped to it.
pub(crate) const FAR: Duration = Duration::from_secs(1_000_000_000);

/// The error of [`Clock::timeout`]: the time is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the time is up")]
pub struct Elapsed;

impl Clock {
    /// Returns the system's clock.
    pub fn system() -> Self {
        Self { face: Face::System, pauses: None }
    }

    /// Returns a clock that shows `anchor` now and moves with tokio's clock, so that a paused runtime controls it.
    pub fn virtual_at(anchor: Timestamp) -> Self {
        Self::virtual_with_rate(anchor, 1.0)
    }

    /// Returns a clock as [`Clock::virtual_at`] does, on which `rate` seconds pass for each second of tokio's clock.
    pub fn virtual_with_rate(anchor: Timestamp, rate: f64) -> Self {
        assert!(rate > 0.0 && rate.is_finite(), "a clock needs a positive rate, not {rate}");
        Self {
            face: Face::Virtual { start: Instant::now(), anchor, rate, suspended: Arc::default() },
            pauses: None,
        }
    }

    /// Returns this clock for a program that is suspended at times. Time goes on in a pause, but no timer wakes the
    /// program: those that expire meanwhile do so at the end of the pause.
    #[must_use]
    pub fn pausable(&self, pauses: &Pauses) -> Self {
        Self { face: self.face.clone(), pauses: Some(pauses.clone()) }
    }

    /// Returns the monotonic time.
    #[inline]
    pub fn now(&self) -> Instant {
        match &self.face {
            Face::System => Instant::now(),
            Face::Virtual { start, suspended, .. } => {
                *start
                    + self.elapsed().saturating_sub(Duration::from_nanos(suspended.load(Ordering::Acquire)))
            }
        }
    }

    /// Returns the time since the machine was booted, which also counts the time for which it was suspended.
    ///
    /// The monotonic time of [`Clock::now`] does not on Linux: a process that wakes from a suspend of a minute sees the same time as
    /// before. So what expires on other machines is measured by this one.
    pub fn boot(&self) -> BootTime {
        match &self.face {
            Face::System => BootTime(since_boot()),
            Face::Virtual { .. } => BootTime(self.elapsed()),
        }
    }

    /// Makes a virtual clock show that the machine was suspended for `duration` until now: the monotonic time falls behind by it,
    /// and timers fire that much later. Does nothing to the system's clock.
    pub fn suspend(&self, duration: Duration) {
        if let Face::Virtual { suspended, .. } = &self.face {
            let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
            suspended.fetch_add(nanoseconds, Ordering::AcqRel);
        }
    }

    /// Returns the time on a virtual clock since it was made, suspends included.
    fn elapsed(&self) -> Duration {
        match &self.face {
            Face::System => Duration::ZERO,
            Face::Virtual { start, rate, .. } => {
                let elapsed = Instant::now().saturating_duration_since(*start);
                if *rate == 1.0 { elapsed } else { elapsed.mul_f64(*rate) }
            }
        }
    }

    /// Returns the wall time, for Events, Leases and timestamps.
    pub fn wall(&self) -> Timestamp {
        match &self.face {
            Face::System => Timestamp::now(),
            Face::Virtual { anchor, .. } => {
                let elapsed = SignedDuration::try_from(self.elapsed()).unwrap_or(SignedDuration::MAX);
                anchor.checked_add(elapsed).unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// Sleeps until the monotonic time is `deadline`. Cancel-safe.
    pub async fn sleep_until(&self, deadline: Instant) {
        loop {
            let fires = match &self.face {
                Face::Virtual { start, rate, suspended, .. } => {
                    let lost = Duration::from_nanos(suspended.load(Ordering::Acquire));
                    let elapsed = deadline.saturating_duration_since(*start) + lost;
                    *start + if *rate == 1.0 { elapsed } else { elapsed.div_f64(*rate) }
                }
                Face::System => deadline,
            };
            tokio::time::sleep_until(fires).await;
            if let Some(pauses) = &self.pauses {
                pauses.over().await;
            }
            // After a suspend, the timer has fired too early. Otherwise the two differ by rounding at most.
            if deadline.saturating_duration_since(self.now()) < Duration::from_millis(1) {
                return;
            }
        }
    }

    /// Sleeps until the time since the machine was booted is `deadline`, or, if the machine was suspended meanwhile, for up to
    /// half a second longer. Cancel-safe.
    pub async fn sleep_until_boot(&self, deadline: BootTime) {
        loop {
            let left = deadline.since(self.boot());
            if left.is_zero() {
                return;
            }
            // A timer that fires early by rounding must not make this loop spin.
            self.sleep(left.clamp(Duration::from_millis(1), SLICE)).await;
        }
    }

    /// Sleeps for `duration`. Cancel-safe.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.now() + duration.min(FAR)).await;
    }

    /// Returns the output of `future`, or [`Elapsed`] if `duration` passes first. Cancel-safe if `future` is.
    pub async fn timeout<F: Future>(&self, duration: Duration, future: F) -> Result<F::Output, Elapsed> {
        tokio::select! {
            biased;
            output = future => Ok(output),
            () = self.sleep(duration) => Err(Elapsed),
        }
    }
}

/// Returns the time since the machine was booted, suspends included.
#[cfg(unix)]
fn since_boot() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = rustix::time::ClockId::Boottime;
    // That of macOS goes on during a sleep, unlike the clock behind `Instant`.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(clock);
    // Neither is negative.
    Duration::new(time.tv_sec.try_into().unwrap_or_default(), time.tv_nsec.try_into().unwrap_or_default())
}

/// Returns the time since the first call, which goes on during a suspend on Windows.
#[cfg(not(unix))]
fn since_boot() -> Duration {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(std::time::Instant::now).elapsed()
}

/// A source of randomness, passed to everything that needs jitter, names, identifiers or hash seeds.
///
/// Clones draw from the same stream. [`Generator::fork`] returns an independent stream that depends only on the seed,
/// the label and the number of earlier forks with that label, not on how much was drawn. So parts that start in another
/// order still see the same numbers, and two parts with the same label see different ones.
///
/// ```
/// # use watchkeeper::clock::Generator;
/// let (a, b) = (Generator::seeded(7), Generator::seeded(7));
/// b.next_u64();
/// assert_eq!(a.fork("queue").uuid(), b.fork("queue").uuid());
/// assert_ne!(a.fork("queue").uuid(), a.fork("queue").uuid());
/// ```
#[derive(Clone, Debug)]
pub struct Generator(Arc<Stream>);

#[derive(Debug)]
struct Stream {
    seed: [u8; 32],
    rng: Mutex<StdRng>,
    forks: Mutex<BTreeMap<String, u64>>,
}

impl Generator {
    /// Returns a generator seeded by the operating system, fit for secrets.
    pub fn system() -> Self {
        let mut seed = [0; 32];
        // Without entropy no token would be secret, so stopping is safer than going on.
        SysRng.try_fill_bytes(&mut seed).expect("the operating system gives no random bytes");
        Self::from_seed(seed)
    }

    /// Returns a generator whose whole stream follows from `seed`.
    pub fn seeded(seed: u64) -> Self {
        let mut bytes = [0; 32];
        StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
        Self::from_seed(bytes)
    }

    fn from_seed(seed: [u8; 32]) -> Self {
        Self(Arc::new(Stream { seed, rng: Mutex::new(StdRng::from_seed(seed)), forks: Mutex::default() }))
    }

    /// Returns an independent generator for the part named `label`.
    pub fn fork(&self, label: &str) -> Self {
        let occurrence = {
            let mut forks = self.0.forks.lock();
            let count = forks.entry(label.to_owned()).or_default();
            *count += 1;
            *count
        };
        let mut seed = self.0.seed;
        for (index, chunk) in seed.chunks_exact_mut(8).enumerate() {
            let mut hasher = foldhash::quality::FixedState::with_seed(index as u64).build_hasher();
            hasher.write(&self.0.seed);
            hasher.write(label.as_bytes());
            hasher.write_u64(occurrence);
            chunk.copy_from_slice(&hasher.finish().to_le_bytes());
        }
        Self::from_seed(seed)
    }

    /// Returns 64 random bits.
    pub fn next_u64(&self) -> u64 {
        self.0.rng.lock().next_u64()
    }

    /// Fills `bytes` with random bits.
    pub fn fill(&self, bytes: &mut [u8]) {
        self.0.rng.lock().fill_bytes(bytes);
    }

    /// Returns a number in `[0, 1)`.
    pub fn unit(&self) -> f64 {
        // An f64 holds 53 bits.
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub fn below(&self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns `duration` plus a random part of up to `factor` of it.
    pub fn jitter(&self, duration: Duration, factor: f64) -> Duration {
        duration + duration.mul_f64(self.unit() * factor)
    }

    /// Returns a random (version 4) UUID in its usual text form.
    pub fn uuid(&self) -> String {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        let number = u128::from_be_bytes(bytes) & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{number:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// Returns a seeded hasher for maps whose keys come from outside.
    pub(crate) fn hasher(&self) -> foldhash::fast::FixedState {
        foldhash::fast::FixedState::with_seed(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_virtual_clock_moves_with_the_paused_runtime() {
        let clock = Clock::virtual_at(Timestamp::UNIX_EPOCH);
        clock.sleep(Duration::from_secs(90)).await;
        assert_eq!(clock.wall(), Timestamp::from_second(90).unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_fast_clock_wakes_early_and_shows_a_later_time() {
        let (fast, true_time) = (Clock::virtual_with_rate(Timestamp::UNIX_EPOCH, 2.0), Clock::system());
        let before = true_time.now();
        fast.sleep(Duration::from_secs(10)).await;
        assert_eq!((true_time.now() - before).as_secs_f64().round(), 5.0);
        assert_eq!(fast.wall().as_second(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspend_is_missing_from_the_monotonic_time_but_not_from_that_since_boot() {
        let clock = Clock::virtual_at(Timestamp::UNIX_EPOCH);
        let (before, booted) = (clock.now(), clock.boot());
        let sleeper = clock.sleep(Duration::from_secs(10));
        let suspend = async {
            // The machine is suspended from the fourth to the ninth second.
            Clock::system().sleep(Duration::from_secs(9)).await;
            clock.suspend(Duration::from_secs(5));
            assert_eq!(clock.now() - before, Duration::from_secs(4));
            assert_eq!(clock.boot().since(booted), Duration::from_secs(9));
        };
        tokio::join!(sleeper, suspend);
        assert_eq!(clock.boot().since(booted).as_secs_f64().round(), 15.0, "the timer stood still meanwhile");
        assert_eq!(clock.wall().as_second(), 15);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleep_by_the_time_since_boot_ends_soon_after_a_suspend() {
        let clock = Clock::virtual_with_rate(Timestamp::UNIX_EPOCH, 1.25);
        let start = clock.boot();
        clock.sleep_until_boot(start + Duration::from_secs(3)).await;
        let late = clock.boot().since(start) - Duration::from_secs(3);
        assert!(late < Duration::from_millis(5), "{late:?}");
        // Monotonic time has passed for a second only when the machine has been suspended for a minute.
        let (start, mut sleep) =
            (clock.boot(), Box::pin(clock.sleep_until_boot(clock.boot() + Duration::from_secs(60))));
        let is_over = |woken: Result<(), Elapsed>| woken.is_ok();
        assert!(!is_over(Clock::system().timeout(Duration::from_secs(1), &mut sleep).await));
        tokio::time::advance(Duration::from_secs(60)).await;
        clock.suspend(Duration::from_secs(75));
        assert!(is_over(Clock::system().timeout(Duration::from_secs(1), &mut sleep).await));
        assert!(clock.boot().since(start) < Duration::from_secs(78));
    }

    #[test]
    fn the_system_has_a_time_since_boot_that_goes_on() {
        let clock = Clock::system();
        let before = clock.boot();
        while clock.boot() == before {}
        assert!(clock.boot() > before);
    }

    #[tokio::test(start_paused = true)]
    async fn timers_that_expire_in_a_pause_do_so_at_its_end() {
        let (true_time, pauses) = (Clock::system(), Pauses::default());
        let clock = true_time.pausable(&pauses);
        let begun = true_time.now();
        let passed = || (true_time.now() - begun).as_secs();
        pauses.pause_until(begun + Duration::from_secs(60));
        clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(passed(), 60);
        assert_eq!((clock.now() - begun).as_secs(), 60);
        clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(passed(), 61);
        let late = clock.timeout(Duration::from_secs(5), clock.sleep(Duration::from_secs(10)));
        pauses.pause_until(begun + Duration::from_secs(100));
        assert_eq!(late.await, Ok(()));
        assert_eq!(passed(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_returns_whichever_comes_first() {
        let clock = Clock::system();
        let late = clock.sleep(Duration::from_secs(2));
        assert_eq!(clock.timeout(Duration::from_secs(1), late).await, Err(Elapsed));
        assert_eq!(clock.timeout(Duration::from_secs(1), async { 7 }).await, Ok(7));
    }

    #[test]
    fn a_fork_depends_on_seed_label_and_earlier_forks_of_it_only() {
        let (a, b) = (Generator::seeded(1), Generator::seeded(1));
        b.next_u64();
        assert_eq!(a.fork("x").next_u64(), b.fork("x").next_u64());
        assert_eq!(a.fork("x").next_u64(), b.fork("x").next_u64());
        let twins = Generator::seeded(1);
        assert_ne!(twins.fork("x").next_u64(), twins.fork("x").next_u64());
        assert_ne!(twins.fork("x").next_u64(), twins.fork("y").next_u64());
        assert_ne!(a.fork("x").next_u64(), Generator::seeded(2).fork("x").next_u64());
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let generator = Generator::seeded(3);
        for _ in 0..1000 {
            assert!((0.0..1.0).contains(&generator.unit()));
            assert!(generator.below(7) < 7);
            let jittered = generator.jitter(Duration::from_secs(1), 1.0);
            assert!(jittered >= Duration::from_secs(1) && jittered < Duration::from_secs(2));
        }
        assert_eq!(generator.below(0), 0);
    }

    #[test]
    fn a_uuid_has_the_form_of_version_4() {
        let uuid = Generator::seeded(4).uuid();
        let parts: Vec<_> = uuid.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert!(uuid[14..].starts_with('4') && "89ab".contains(&uuid[19..20]));
    }
}
