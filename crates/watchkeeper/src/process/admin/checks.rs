//! Health checks by name.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::StatusCode;
use parking_lot::RwLock;

use crate::informer::{CacheState, SharedInformerFactory};
use crate::leader::LeaderStatus;

/// The time for which a cache may be degraded before the program counts as not ready. An API server that restarts is
/// back by then, including the longest backoff between two tries.
const DEGRADED: Duration = Duration::from_secs(120);

/// Checks by name, of a program's health or readiness. Clones share them.
///
/// ```
/// # use watchkeeper::process::Checks;
/// let ready = Checks::default();
/// let caches = ready.gate("caches");
/// ready.add("queue", || Ok(()));
/// assert_eq!(ready.failing(), ["caches"]);
/// caches.open();
/// assert!(ready.failing().is_empty());
/// ```
#[derive(Clone, Default)]
pub struct Checks(Arc<RwLock<BTreeMap<String, Entry>>>);

#[derive(Clone)]
enum Entry {
    One(Check),
    /// Checks that are known only when they are asked for.
    Many(Group),
}

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;
type Group = Arc<dyn Fn() -> Vec<(String, Result<(), String>)> + Send + Sync>;

impl Checks {
    /// Adds a check, or replaces the one of that name. It is called for each request and must not block; a panic is a
    /// failure.
    pub fn add(&self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.0.write().insert(name.to_owned(), Entry::One(Arc::new(check)));
    }

    /// Adds a check that fails until its gate is opened.
    pub fn gate(&self, name: &str) -> Gate {
        let gate = Gate(Arc::default());
        let is_open = gate.clone();
        self.add(name, move || if is_open.is_open() { Ok(()) } else { Err("not yet".to_owned()) });
        gate
    }

    /// Adds a check that passes until its alarm is raised.
    pub fn alarm(&self, name: &str) -> Alarm {
        let alarm = Alarm(Arc::default());
        let reason = alarm.clone();
        self.add(name, move || reason.0.get().map_or(Ok(()), |reason| Err(reason.clone())));
        alarm
    }

    /// Adds checks of the caches of `factory`, for readiness.
    ///
    /// `caches` fails until all of them have synced, and once one has stopped. Each cache has a check of its own, such as
    /// `cache/pods` or `cache/deployments.apps`, which fails while it has been degraded for more than two minutes, except
    /// if it is polled. The reason says since when, and why: no permission, kind not served, server unreachable.
    pub fn caches(&self, factory: &SharedInformerFactory) {
        let (all, each) = (factory.caches(), factory.caches());
        self.add("caches", move || {
            let states = all.states().ok_or("the informers are gone")?;
            let absent =
                states.iter().filter_map(|state| Some(format!("{} {}", state.name, state.absence()?)));
            let absent: Vec<_> = absent.collect();
            if absent.is_empty() { Ok(()) } else { Err(absent.join("; ")) }
        });
        let group = move || {
            let states = each.states().unwrap_or_default();
            let check = |state: CacheState| {
                let is_unreliable = state.is_unreliable(DEGRADED);
                let problem = state.degraded.filter(|_| is_unreliable);
                (format!("cache/{}", state.id), problem.map_or(Ok(()), |problem| Err(problem.to_string())))
            };
            states.into_iter().map(check).collect()
        };
        self.0.write().insert("cache/".to_owned(), Entry::Many(Arc::new(group)));
    }

    /// Adds the check `informers`, for liveness: it fails once an informer of `factory` has been ended by a panic.
    pub fn informers(&self, factory: &SharedInformerFactory) {
        let caches = factory.caches();
        self.add("informers", move || caches.panicked().map_or(Ok(()), |panicked| Err(panicked.to_string())));
    }

    /// Adds the check `leaderElection`, for liveness: it fails while this process leads and has not renewed its lease for long: it hangs.
    pub fn election(&self, status: &LeaderStatus) {
        let status = status.clone();
        self.add("leaderElection", move || status.check());
    }

    /// Adds the check `leaderElection`, for readiness: it fails while this process does not lead and has not seen the Lease for long,
    /// so that it could not take over. The reason is the last error.
    pub fn standby(&self, status: &LeaderStatus) {
        let status = status.clone();
        self.add("leaderElection", move || status.check_standby());
    }

    /// Returns the names of the checks that fail now.
    pub fn failing(&self) -> Vec<String> {
        self.results().into_iter().filter(|(_, result)| result.is_err()).map(|(name, _)| name).collect()
    }

    /// Returns every check with its result; if there are none, `ping` passes.
    fn results(&self) -> Vec<(String, Result<(), String>)> {
        // Outside the lock: a check may add another.
        let checks = self.0.read().clone();
        if checks.is_empty() {
            return vec![("ping".to_owned(), Ok(()))];
        }
        let results = checks.into_iter().flat_map(|(name, entry)| match entry {
            Entry::One(check) => vec![(name, run(&check))],
            Entry::Many(group) => catch_unwind(AssertUnwindSafe(|| group()))
                .unwrap_or_else(|_| vec![(name, Err("the checks panicked".to_owned()))]),
        });
        results.collect()
    }

    /// Returns the answer to a request for all checks of the page `page`, or for the one called `only`.
    pub(super) fn answer(&self, page: &str, only: Option<&str>, query: &str) -> (StatusCode, String) {
        match only {
            Some(name) => self.one(name),
            None => self.all(page, query),
        }
    }

    fn one(&self, name: &str) -> (StatusCode, String) {
        match self.results().into_iter().find(|(found, _)| found == name) {
            Some((_, Ok(()))) => (StatusCode::OK, "ok".to_owned()),
            Some((_, Err(error))) => {
                (StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {error}\n"))
            }
            None => (StatusCode::NOT_FOUND, "there is no such check\n".to_owned()),
        }
    }

    /// Formats the checks as Kubernetes' own components do: one line each, without reasons, as the page is public.
    fn all(&self, page: &str, query: &str) -> (StatusCode, String) {
        let parameters: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let is_verbose = parameters.iter().any(|(key, _)| key == "verbose");
        let mut excluded: Vec<_> =
            parameters.iter().filter(|(key, _)| key == "exclude").map(|(_, name)| &**name).collect();
        let (mut lines, mut failed) = (String::new(), Vec::new());
        for (name, result) in self.results() {
            let is_excluded = excluded.contains(&&*name);
            excluded.retain(|excluded| *excluded != name);
            // Writing to a String does not fail.
            let _ok = match result {
                _ if is_excluded => writeln!(lines, "[+]{name} excluded: ok"),
                Ok(()) => writeln!(lines, "[+]{name} ok"),
                Err(reason) => {
                    failed.push(format!("{name}: {reason}"));
                    writeln!(lines, "[-]{name} failed: reason withheld")
                }
            };
        }
        if !excluded.is_empty() {
            let _ok = writeln!(lines, "warn: some checks cannot be excluded: no matches for {excluded:?}");
        }
        if failed.is_empty() {
            let text = if is_verbose { format!("{lines}{page} check passed\n") } else { "ok".to_owned() };
            return (StatusCode::OK, text);
        }
        tracing::info!(page, ?failed, "a check failed");
        (StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{page} check failed\n"))
    }
}

fn run(check: &Check) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| check())).unwrap_or_else(|_| Err("the check panicked".to_owned()))
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.read().keys()).finish()
    }
}

/// The handle of a check that fails until an event, such as the first sync of the caches. Clones share it.
#[derive(Clone, Debug)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    /// Makes the check pass from now on.
    pub fn open(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Makes the check fail from now on.
    pub fn close(&self) {
        self.0.store(false, Ordering::Release);
    }

    fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The handle of a check that passes until something has died for good. Clones share it.
#[derive(Clone, Debug)]
pub struct Alarm(Arc<OnceLock<String>>);

impl Alarm {
    /// Makes the check fail from now on, with the first reason that is given.
    pub fn raise(&self, reason: impl Into<String>) {
        self.0.get_or_init(|| reason.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks() -> Checks {
        let checks = Checks::default();
        checks.add("good", || Ok(()));
        checks.add("bad", || Err("why".to_owned()));
        checks
    }

    fn answer(checks: &Checks, only: Option<&str>, query: &str) -> (u16, String) {
        let (status, text) = checks.answer("readyz", only, query);
        (status.as_u16(), text)
    }

    #[test]
    fn without_checks_the_program_is_well() {
        let none = Checks::default();
        assert_eq!(answer(&none, None, ""), (200, "ok".to_owned()));
        assert_eq!(answer(&none, None, "verbose"), (200, "[+]ping ok\nreadyz check passed\n".to_owned()));
        assert_eq!(answer(&none, Some("ping"), ""), (200, "ok".to_owned()));
    }

    #[test]
    fn a_check_that_fails_is_named_without_the_reason() {
        let text = "[-]bad failed: reason withheld\n[+]good ok\nreadyz check failed\n".to_owned();
        assert_eq!(answer(&checks(), None, ""), (500, text));
        let excluded = "[+]bad excluded: ok\n[+]good ok\nreadyz check passed\n".to_owned();
        assert_eq!(answer(&checks(), None, "verbose&exclude=bad"), (200, excluded));
        assert_eq!(answer(&checks(), None, "exclude=bad"), (200, "ok".to_owned()));
        let (_, odd) = answer(&checks(), None, "exclude=x%20y&exclude=bad&verbose=1");
        assert!(odd.contains("warn: some checks cannot be excluded: no matches for [\"x y\"]\n"), "{odd}");
    }

    #[test]
    fn one_check_can_be_asked_for_and_tells_its_reason() {
        assert_eq!(answer(&checks(), Some("good"), ""), (200, "ok".to_owned()));
        assert_eq!(answer(&checks(), Some("bad"), ""), (500, "internal server error: why\n".to_owned()));
        assert_eq!(answer(&checks(), Some("x"), "").0, 404);
    }

    #[test]
    fn a_check_that_panics_has_failed_and_one_can_be_replaced() {
        let checks = checks();
        checks.add("bad", || panic!("oh"));
        assert_eq!(answer(&checks, Some("bad"), "").1, "internal server error: the check panicked\n");
        checks.add("bad", || Ok(()));
        assert_eq!(answer(&checks, None, ""), (200, "ok".to_owned()));
        assert_eq!(format!("{checks:?}"), r#"{"bad", "good"}"#);
    }

    #[test]
    fn checks_of_a_group_are_named_one_by_one() {
        let checks = Checks::default();
        let group = || vec![("cache/a".to_owned(), Ok(())), ("cache/b".to_owned(), Err("why".to_owned()))];
        checks.0.write().insert("cache/".to_owned(), Entry::Many(Arc::new(group)));
        assert_eq!(checks.failing(), ["cache/b"]);
        assert_eq!(answer(&checks, Some("cache/b"), ""), (500, "internal server error: why\n".to_owned()));
        let text = "[+]cache/a ok\n[-]cache/b failed: reason withheld\nreadyz check failed\n".to_owned();
        assert_eq!(answer(&checks, None, ""), (500, text));
        assert_eq!(answer(&checks, None, "exclude=cache/b"), (200, "ok".to_owned()));
    }

    #[test]
    fn an_alarm_is_raised_once() {
        let checks = Checks::default();
        let alarm = checks.alarm("parts");
        assert!(checks.failing().is_empty());
        alarm.raise("first");
        alarm.raise("second");
        assert_eq!(answer(&checks, Some("parts"), "").1, "internal server error: first\n");
    }

    #[test]
    fn a_gate_opens_and_closes() {
        let checks = Checks::default();
        let gate = checks.gate("caches");
        assert_eq!(answer(&checks, Some("caches"), "").1, "internal server error: not yet\n");
        gate.open();
        assert_eq!((answer(&checks, None, "").0, checks.failing().len()), (200, 0));
        gate.close();
        assert_eq!(checks.failing(), ["caches"]);
    }
}
