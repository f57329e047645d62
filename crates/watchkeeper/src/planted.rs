//! Bugs planted on purpose, for the fault simulator to find; only in builds with `--cfg watchkeeper_planted`.
//!
//! `planted!(LostAdd)` stands where that bug would be. It is true while a test has planted the bug; in every other build it
//! is the constant `false`. `docs/testing.md` says how the bugs are looked for.

/// Whether this bug is planted.
#[cfg(not(watchkeeper_planted))]
macro_rules! planted {
    ($bug:ident) => {
        false
    };
}

/// Whether this bug is planted.
#[cfg(watchkeeper_planted)]
macro_rules! planted {
    ($bug:ident) => {
        $crate::planted::is_on($crate::planted::Bug::$bug)
    };
}

#[cfg(watchkeeper_planted)]
pub(crate) use bugs::is_on;
#[cfg(watchkeeper_planted)]
pub use bugs::{Bug, plant};

#[cfg(watchkeeper_planted)]
mod bugs {
    use std::sync::atomic::{AtomicU8, Ordering};

    /// A bug that can be planted in the toolkit.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum Bug {
        /// The reflector drops one event in sixteen.
        DroppedEvent = 1,
        /// The reflector takes its first list from any replica of the server, however old.
        StaleFirstList,
        /// The reflector tries a watch from an expired version again, and does not list.
        DeafToExpiry,
        /// The reflector resumes a watch from one version too late.
        SkippedVersion,
        /// The informer notifies nobody of objects that a list no longer has.
        ForgottenTombstone,
        /// The store does not update its indexes when a list replaces an object.
        StaleIndex,
        /// The work queue loses an add of a key that a worker has.
        LostAdd,
        /// The work queue wakes a parked key neither when it is unparked nor at its deadline.
        ParkedForever,
        /// The deletion of an owned object does not enqueue its owner.
        UnmappedDelete,
        /// A failed reconcile is not retried.
        NoRetry,
        /// The finalizer is taken off before the cleanup.
        EarlyRelease,
        /// A write counts as seen before the cache has it.
        SeenTooEarly,
        /// An apply is skipped without a look at the object.
        BlindSkip,
        /// An apply that failed counts as sent.
        FailedApplyCounts,
    }

    impl Bug {
        /// All of them.
        pub const ALL: [Self; 14] = [
            Self::DroppedEvent,
            Self::StaleFirstList,
            Self::DeafToExpiry,
            Self::SkippedVersion,
            Self::ForgottenTombstone,
            Self::StaleIndex,
            Self::LostAdd,
            Self::ParkedForever,
            Self::UnmappedDelete,
            Self::NoRetry,
            Self::EarlyRelease,
            Self::SeenTooEarly,
            Self::BlindSkip,
            Self::FailedApplyCounts,
        ];
    }

    /// The bug that is planted in this process; 0 for none.
    static PLANTED: AtomicU8 = AtomicU8::new(0);

    /// Plants a bug in this process instead of the last one, or none.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.store(bug.map_or(0, |bug| bug as u8), Ordering::SeqCst);
    }

    /// Returns whether a bug is planted.
    pub(crate) fn is_on(bug: Bug) -> bool {
        PLANTED.load(Ordering::Relaxed) == bug as u8
    }
}
