//! What a plugin of the chain may do.

use std::fmt;

use serde_json::Value;

use crate::admission::attempt::Attempt;
use crate::failure::Result;
use crate::state::core::Core;

/// A plugin of the chain. It is called without the lock, possibly several times for one request, so it has no effects
/// but those on the object, and its [charges](Charge).
pub(crate) trait Plugin: fmt::Debug + Send + Sync {
    /// Changes or refuses an object that is decoded and has its defaults. On a create, it has no uid yet, and no
    /// generated name. Fields that are added have no field manager. Called for deletes as well, with a copy of the old object; changes to it are lost.
    fn mutate(&self, _attempt: &Attempt<'_>, _object: &mut Value) -> Result<()> {
        Ok(())
    }

    /// Refuses an object that is complete and valid; `None` for a delete.
    fn validate(&self, _attempt: &Attempt<'_>, _object: Option<&Value>) -> Result<()> {
        Ok(())
    }
}

/// A condition and an effect of a write that are atomic with its commit, such as the use of a quota. They run under the
/// lock, and must be cheap.
pub(crate) trait Charge: fmt::Debug + Send + Sync {
    /// Refuses the write. [`Failure::outdated`](crate::failure::Failure::outdated) lets the request start over, for a
    /// charge that was computed from what has changed since.
    fn check(&self, core: &Core) -> Result<()>;

    /// Stores the effect, right before the object. Not called in a dry run.
    fn book(&self, core: &mut Core);
}
