//! Bugs planted in the toolkit itself: one configuration of the simulator finds every one of them and names its class, and finds
//! nothing without them.
//!
//! `RUSTC_WORKSPACE_WRAPPER=.ci/planted-rustc cargo test -p watchkeeper-sim --test planted -- --nocapture` shows how each is found, and
//! `PLANTED_ONLY` is part of the name of those to look at. Other builds have no bugs: there, only the operator itself is checked.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod operator;

use parking_lot::Mutex;
use watchkeeper_sim::{Check, Failure, FaultKind, Report};

/// One at a time, as a bug is planted in the whole process.
static TURN: Mutex<()> = Mutex::new(());

/// In a build with bugs, the same seeds with and without one. Other builds have nothing to compare with.
const SEEDS: u64 = if cfg!(watchkeeper_planted) { 1_000 } else { 30 };

/// The check of all bugs, and of none.
fn check(name: &str, without: impl IntoIterator<Item = FaultKind>) -> Result<Report, Failure> {
    let check = Check::builder().name(&format!("planted-{name}")).definition(operator::definition());
    check.without(without).pairs(50).seeds(SEEDS).run(Clone::clone, operator::register, operator::users)
}

#[test]
fn without_a_bug_nothing_is_found() {
    let _turn = TURN.lock();
    // A restored backup may have lost a site whose bucket is there.
    let report = check("none", FaultKind::ALL.into_iter().filter(|kind| kind.name() == "set-back")).unwrap();
    println!("{report}");
}

#[cfg(watchkeeper_planted)]
mod bugs {
    use watchkeeper::{Bug, plant};
    use watchkeeper_sim::Class;

    use super::{TURN, check};

    /// The most schedules to find a bug in.
    const MOST: u64 = 2_000;

    /// What the simulator must say about a bug.
    fn class(bug: Bug) -> Class {
        match bug {
            // They show without faults.
            Bug::DroppedEvent | Bug::BlindSkip => Class::WithoutFaults,
            Bug::StaleFirstList => Class::StaleRead,
            Bug::DeafToExpiry | Bug::SkippedVersion => Class::UnobservedState,
            Bug::ForgottenTombstone
            | Bug::StaleIndex
            | Bug::LostAdd
            | Bug::ParkedForever
            // The key is not woken when the cache has seen its write.
            | Bug::SeenTooEarly
            | Bug::UnmappedDelete => Class::LostWakeUp,
            Bug::EarlyRelease => Class::CrashBetweenWrites,
            Bug::NoRetry | Bug::FailedApplyCounts => Class::ErrorHandling,
        }
    }

    #[test]
    fn every_planted_bug_is_found_and_named_as_it_should_be() {
        let _turn = TURN.lock();
        let only = std::env::var("PLANTED_ONLY").unwrap_or_default();
        let mut wrong = Vec::new();
        for bug in Bug::ALL.into_iter().filter(|bug| format!("{bug:?}").contains(&only)) {
            plant(Some(bug));
            match check(&format!("{bug:?}"), []) {
                Ok(report) => wrong.push(format!("{bug:?} is not found in {} schedules", report.schedules())),
                Err(failure) => {
                    let (found, schedules) = (failure.class(), failure.schedules().unwrap_or_default());
                    let replay = failure.replay().unwrap_or_default();
                    let name = found.map(|class| format!("{class:?}")).unwrap_or_default();
                    println!("{:<20} {name:<18} {schedules:>5}  SIM_REPLAY='{replay}'", format!("{bug:?}"));
                    if found != Some(class(bug)) || schedules > MOST {
                        wrong.push(format!("{bug:?} is not found as {:?}:\n{failure}", class(bug)));
                    }
                }
            }
        }
        plant(None);
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    }
}
