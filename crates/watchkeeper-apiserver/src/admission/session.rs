//! The admission of one request, which may start over.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use watchkeeper::clock::{Clock, Generator, Instant};

use crate::access::user::User;
use crate::admission::chain::Chain;
use crate::admission::plugin::Charge;
use crate::admission::reinvocation::Reinvocation;
use crate::admission::webhooks::calls::Calls;
use crate::state::core::Core;

/// How long a request waits for what controllers make, in all.
const PATIENCE: Duration = Duration::from_millis(1500);

/// The admission of one request. The request has one time and one seed, so that each of its attempts makes the same
/// object.
pub(crate) struct Session {
    chain: Arc<Chain>,
    core: Arc<Mutex<Core>>,
    user: Arc<User>,
    now: Timestamp,
    clock: Clock,
    seed: u64,
    warnings: Mutex<Vec<String>>,
    charges: Mutex<Vec<Box<dyn Charge>>>,
    /// The options of the request, without their kind.
    options: Mutex<Value>,
    calls: Calls,
    reinvocation: Mutex<Reinvocation>,
    wait: Mutex<Wait>,
}

/// A wait for what controllers make.
#[derive(Debug, Default)]
struct Wait {
    deadline: Option<Instant>,
    /// The revision that the last attempt has seen, if it waits for a later one.
    after: Option<u64>,
}

impl Session {
    pub(crate) fn new(
        chain: Arc<Chain>,
        core: Arc<Mutex<Core>>,
        user: Arc<User>,
        clock: &Clock,
        seed: u64,
    ) -> Self {
        Self {
            chain,
            core,
            user,
            now: clock.wall(),
            clock: clock.clone(),
            seed,
            warnings: Mutex::default(),
            charges: Mutex::default(),
            options: Mutex::new(json!({})),
            calls: Calls::default(),
            reinvocation: Mutex::default(),
            wait: Mutex::default(),
        }
    }

    /// Forgets what an earlier attempt left behind.
    pub(crate) fn begin(&self) {
        self.warnings.lock().clear();
        self.charges.lock().clear();
    }

    /// Sets the options of the request.
    pub(crate) fn set_options(&self, options: Value) {
        *self.options.lock() = options;
    }

    /// Makes the calls that the last attempt lacked. Returns whether there were any.
    pub(crate) async fn make_calls(&self) -> bool {
        self.calls.make(&self.core, &self.clock).await
    }

    /// Lets the request start over after the next change since `revision`. Returns false when it has waited long enough.
    pub(super) fn wait_after(&self, revision: u64) -> bool {
        let (mut wait, now) = (self.wait.lock(), self.clock.now());
        let deadline = *wait.deadline.get_or_insert(now + PATIENCE);
        wait.after = (now < deadline).then_some(revision);
        wait.after.is_some()
    }

    /// Takes the revision after which the last attempt wants to start over, and how long it waits.
    pub(crate) fn take_wait(&self) -> Option<(u64, Duration)> {
        let mut wait = self.wait.lock();
        Some((wait.after.take()?, wait.deadline?.saturating_duration_since(self.clock.now())))
    }

    pub(super) fn options(&self) -> Value {
        self.options.lock().clone()
    }

    pub(super) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// The state of the mutating plugins.
    pub(super) fn reinvocation(&self) -> MutexGuard<'_, Reinvocation> {
        self.reinvocation.lock()
    }

    /// Returns the uid of the calls of a webhook, the same in each attempt.
    pub(super) fn uid(&self, hook: &str) -> String {
        self.generator().fork(hook).uuid()
    }

    /// The time of the request.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns a generator that gives the same values in each attempt.
    pub(crate) fn generator(&self) -> Generator {
        Generator::seeded(self.seed)
    }

    pub(super) fn chain(&self) -> &Chain {
        &self.chain
    }

    pub(super) fn core(&self) -> &Mutex<Core> {
        &self.core
    }

    pub(super) fn user(&self) -> &User {
        &self.user
    }

    pub(super) fn warn(&self, warning: String) {
        self.warnings.lock().push(warning);
    }

    /// Takes the warnings for the response.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock())
    }

    pub(super) fn charge(&self, charge: Box<dyn Charge>) {
        self.charges.lock().push(charge);
    }

    /// Takes the charges for the commit.
    pub(crate) fn take_charges(&self) -> Vec<Box<dyn Charge>> {
        std::mem::take(&mut *self.charges.lock())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}
