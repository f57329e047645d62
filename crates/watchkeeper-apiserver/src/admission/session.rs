//! The admission of one request, which may start over.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use watchkeeper::clock::Generator;

use crate::access::user::User;
use crate::admission::chain::Chain;
use crate::admission::plugin::Charge;
use crate::state::core::Core;

/// The admission of one request. The request has one time and one seed, so that each of its attempts makes the same
/// object.
#[allow(dead_code, reason = "not every plugin needs everything")]
pub(crate) struct Session {
    chain: Arc<Chain>,
    core: Arc<Mutex<Core>>,
    user: Arc<User>,
    now: Timestamp,
    seed: u64,
    warnings: Mutex<Vec<String>>,
    charges: Mutex<Vec<Box<dyn Charge>>>,
}

#[allow(dead_code, reason = "not every plugin needs everything")]
impl Session {
    pub(crate) fn new(
        chain: Arc<Chain>,
        core: Arc<Mutex<Core>>,
        user: Arc<User>,
        now: Timestamp,
        seed: u64,
    ) -> Self {
        let (warnings, charges) = (Mutex::default(), Mutex::default());
        Self { chain, core, user, now, seed, warnings, charges }
    }

    /// Forgets what an earlier attempt left behind.
    pub(crate) fn begin(&self) {
        self.warnings.lock().clear();
        self.charges.lock().clear();
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
