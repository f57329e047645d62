//! Checksums over stored rows, and panics of the database as errors.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use ring::digest::{Context, SHA256};

/// A checksum over parts. Each counts with its length, so that moving a boundary changes the result.
pub(crate) fn checksum(parts: &[&[u8]]) -> u64 {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    let digest = context.finish();
    digest.as_ref().iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// The sum of the checksums of a set of rows. It detects changed, missing and additional rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum(pub(crate) u64);

impl Sum {
    pub(crate) fn add(&mut self, check: u64) {
        self.0 = self.0.wrapping_add(check);
    }

    pub(crate) fn remove(&mut self, check: u64) {
        self.0 = self.0.wrapping_sub(check);
    }
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`. A panic becomes the error and is not printed.
pub(crate) fn quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                usual(info);
            }
        }));
    });
    IS_QUIET.set(true);
    let done = caught(work);
    IS_QUIET.set(false);
    done
}

/// Runs `work`. A panic is printed as usual and becomes the error.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| message(&*payload).to_owned())
}

/// Returns whether panics of this thread are not printed.
#[cfg(test)]
pub(crate) fn is_quiet() -> bool {
    IS_QUIET.get()
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason given")
}
