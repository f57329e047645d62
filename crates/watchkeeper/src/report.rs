//! Handled errors and caught panics: counted, rate limited, logged, and given to hooks.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Instant};

/// One error that was handled, or one panic that was caught.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The part that reports, such as `reflector` or `workqueue`.
    pub part: &'static str,
    /// The subject at hand: a kind, a key, a handler's name.
    pub subject: &'a str,
    /// The error or panic.
    pub incident: Incident<'a>,
}

/// The error or panic of a [`Report`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Incident<'a> {
    /// An error that was handled; work goes on.
    Error(&'a (dyn Error + 'static)),
    /// A panic of user code that was caught; work goes on.
    Panic(&'a str),
}

impl fmt::Display for Incident<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => WithCauses(*error).fmt(f),
            Self::Panic(message) => write!(f, "panicked: {message}"),
        }
    }
}

/// Displays an error with all its causes.
///
/// ```
/// # use watchkeeper::report::WithCauses;
/// let error = std::io::Error::other("the disk is full");
/// assert_eq!(WithCauses(&error).to_string(), "the disk is full");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WithCauses<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for WithCauses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let causes = std::iter::successors(self.0.source(), |&cause| cause.source());
        for cause in causes.map(ToString::to_string) {
            // Many errors end with the text of their cause.
            if !text.ends_with(&cause) {
                text = format!("{text}: {cause}");
            }
        }
        f.write_str(&text)
    }
}

/// The destination of all handled errors and caught panics.
///
/// Clones share counters and hooks. Each report is counted and passed to every hook. At most 100 lines a second are
/// logged; the number of omitted ones is logged with the next line.
///
/// ```
/// # use watchkeeper::Env;
/// let reporter = Env::system().reporter;
/// reporter.add_hook(|report| println!("{}: {}", report.subject, report.incident));
/// assert_eq!(reporter.guard("my-controller", "default/web", || panic!("boom")), None::<()>);
/// assert_eq!(reporter.panics(), 1);
/// ```
#[derive(Clone)]
pub struct Reporter(Arc<Shared>);

type Hook = Box<dyn Fn(&Report<'_>) + Send + Sync>;

struct Shared {
    clock: Clock,
    hooks: Mutex<Vec<Arc<Hook>>>,
    errors: AtomicU64,
    panics: AtomicU64,
    brake: Mutex<Brake>,
}

struct Brake {
    second: Instant,
    logged: u32,
    left_out: u64,
}

const LINES_PER_SECOND: u32 = 100;

impl Reporter {
    /// Returns a reporter that logs through `tracing`.
    pub fn new(clock: &Clock) -> Self {
        let brake = Brake { second: clock.now(), logged: 0, left_out: 0 };
        Self(Arc::new(Shared {
            clock: clock.clone(),
            hooks: Mutex::default(),
            errors: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            brake: Mutex::new(brake),
        }))
    }

    /// Calls `hook` with every report from now on, on the reporting task; it must not block. A hook that panics is
    /// ignored.
    pub fn add_hook(&self, hook: impl Fn(&Report<'_>) + Send + Sync + 'static) {
        self.0.hooks.lock().push(Arc::new(Box::new(hook)));
    }

    /// Reports an error that was handled.
    pub fn error(&self, part: &'static str, subject: &str, error: &(dyn Error + 'static)) {
        let report = Report { part, subject, incident: Incident::Error(error) };
        self.log(&report);
        self.tell_error(&report);
    }

    /// Reports an error that was handled, and that another line of the log has.
    pub(crate) fn logged_error(&self, part: &'static str, subject: &str, error: &(dyn Error + 'static)) {
        self.tell_error(&Report { part, subject, incident: Incident::Error(error) });
    }

    fn tell_error(&self, report: &Report<'_>) {
        self.0.errors.fetch_add(1, Ordering::Relaxed);
        self.tell(report);
    }

    /// Runs `code` and returns its result; if it panics, reports the panic and returns `None`.
    pub fn guard<T>(&self, part: &'static str, subject: &str, code: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(code)) {
            Ok(value) => Some(value),
            Err(payload) => {
                self.panic(part, subject, payload.as_ref());
                None
            }
        }
    }

    /// Reports a caught panic by its payload.
    pub fn panic(&self, part: &'static str, subject: &str, payload: &(dyn Any + Send)) {
        self.0.panics.fetch_add(1, Ordering::Relaxed);
        let report = Report { part, subject, incident: Incident::Panic(panic_message(payload)) };
        self.log(&report);
        self.tell(&report);
    }

    /// Returns the number of reported errors.
    pub fn errors(&self) -> u64 {
        self.0.errors.load(Ordering::Relaxed)
    }

    /// Returns the number of reported panics.
    pub fn panics(&self) -> u64 {
        self.0.panics.load(Ordering::Relaxed)
    }

    fn log(&self, report: &Report<'_>) {
        if let Some(left_out) = self.may_log() {
            if left_out > 0 {
                tracing::warn!(left_out, "reports came too fast, and some were not logged");
            }
            let Report { part, subject, incident } = report;
            match incident {
                Incident::Error(_) => tracing::warn!(part, subject, "{incident}"),
                Incident::Panic(_) => tracing::error!(part, subject, "{incident}"),
            }
        }
    }

    fn tell(&self, report: &Report<'_>) {
        // The lock is not held while hooks run: a hook may report, or add a hook.
        let hooks = self.0.hooks.lock().clone();
        for hook in hooks {
            let _ignored = catch_unwind(AssertUnwindSafe(|| hook(report)));
        }
    }

    fn may_log(&self) -> Option<u64> {
        let now = self.0.clock.now();
        let mut brake = self.0.brake.lock();
        if now.saturating_duration_since(brake.second) >= Duration::from_secs(1) {
            brake.second = now;
            brake.logged = 0;
        }
        if brake.logged >= LINES_PER_SECOND {
            brake.left_out += 1;
            return None;
        }
        brake.logged += 1;
        Some(std::mem::take(&mut brake.left_out))
    }
}

/// Returns the message of a panic from its payload.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("(no message)")
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").field("errors", &self.errors()).field("panics", &self.panics()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reporter() -> (Reporter, Arc<Mutex<Vec<String>>>) {
        let (reporter, seen) = (Reporter::new(&Clock::system()), Arc::new(Mutex::new(Vec::new())));
        let into = seen.clone();
        reporter.add_hook(move |r| into.lock().push(format!("{} {} {}", r.part, r.subject, r.incident)));
        (reporter, seen)
    }

    #[test]
    fn an_error_is_counted_and_reported_with_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] std::fmt::Error);
        let (reporter, seen) = reporter();
        reporter.error("test", "a/b", &Outer(std::fmt::Error));
        assert_eq!(reporter.errors(), 1);
        assert!(seen.lock()[0].starts_with("test a/b outer: "));
    }

    #[test]
    fn a_cause_in_the_text_of_its_error_is_not_repeated() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer: {0}")]
        struct Outer(#[source] Inner);
        #[derive(Debug, thiserror::Error)]
        #[error("inner")]
        struct Inner(#[source] std::io::Error);
        let cause = std::io::Error::other("cause");
        assert_eq!(WithCauses(&Outer(Inner(cause))).to_string(), "outer: inner: cause");
    }

    #[test]
    fn a_panic_is_caught_counted_and_reported() {
        let (reporter, seen) = reporter();
        assert_eq!(reporter.guard("test", "x", || 1), Some(1));
        assert_eq!(reporter.guard("test", "x", || panic!("boom {}", 2)), None::<()>);
        assert_eq!(reporter.panics(), 1);
        assert_eq!(seen.lock()[0], "test x panicked: boom 2");
    }

    #[test]
    fn a_panicking_hook_does_not_stop_the_others() {
        let reporter = Reporter::new(&Clock::system());
        let reported = Arc::new(AtomicU64::new(0));
        reporter.add_hook(|_| panic!("bad hook"));
        let count = reported.clone();
        reporter.add_hook(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        reporter.error("test", "x", &std::fmt::Error);
        assert_eq!(reported.load(Ordering::Relaxed), 1);
    }

    /// Collects the log lines.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    // client-go: TestHandleCrashLog, TestHandleCrashContextual, TestHandleError
    #[test]
    fn errors_and_panics_are_logged_with_part_and_subject() {
        let log = Log::default();
        let into = log.clone();
        let subscriber = tracing_subscriber::fmt().json().without_time().with_writer(move || into.clone());
        tracing::subscriber::with_default(subscriber.finish(), || {
            let reporter = Reporter::new(&Clock::system());
            reporter.error("informer", "pods", &std::io::Error::other("no route"));
            reporter.guard("handler", "mine", || panic!("boom"));
        });
        let lines = String::from_utf8(log.0.lock().clone()).unwrap();
        let lines: Vec<serde_json::Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let fields = |level: &str, part: &str, subject: &str, message: &str| {
            (level.into(), serde_json::json!({"message": message, "part": part, "subject": subject}))
        };
        let expected = [
            fields("WARN", "informer", "pods", "no route"),
            fields("ERROR", "handler", "mine", "panicked: boom"),
        ];
        assert!(
            lines.iter().map(|line| (line["level"].clone(), line["fields"].clone())).eq(expected),
            "{lines:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn logging_is_rate_limited_and_counts_what_it_omits() {
        let clock = Clock::system();
        let reporter = Reporter::new(&clock);
        let logged = (0..150).filter(|_| reporter.may_log().is_some()).count();
        assert_eq!(logged, 100);
        clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(reporter.may_log(), Some(50));
        assert_eq!(reporter.may_log(), Some(0));
    }
}
