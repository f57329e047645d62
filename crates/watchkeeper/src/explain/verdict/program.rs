//! Causes in the program: no key of it is reconciled.

use super::{Cause, NOT_STARTED};
use crate::explain::facts::{Facts, WatchFacts};
use crate::explain::key_view::Level;
use crate::explain::view::ProgramPhase;
use crate::reflector::Phase;

/// Returns why the program reconciles nothing, if that is so.
pub(super) fn program(facts: &Facts<'_>) -> Option<Cause> {
    let controller = facts.controller;
    match (facts.phase, facts.leader) {
        (ProgramPhase::Stopping, _) => Some(Cause::new(
            "shutDown",
            Level::Problem,
            format!("controller {controller} is shutting down and starts no more reconciles"),
            "the program reconciles every object when it starts again; start it if nothing else does",
        )),
        // An election may begin only when all caches have synced: see `not_started`.
        (ProgramPhase::Standby, Some(leader)) if leader.leader.is_empty() && unsynced(facts).is_empty() => {
            Some(Cause::new(
                "noLeader",
                Level::Problem,
                "no replica is the leader yet, so none reconciles",
                format!("check the Lease {}, and that the replicas may update it", leader.lease),
            ))
        }
        (ProgramPhase::Standby, Some(leader)) if !leader.leader.is_empty() => Some(Cause::new(
            "notLeader",
            Level::Notice,
            format!("this replica is on standby: {} is the leader and reconciles", leader.leader),
            format!("run `watchkeeper explain` against replica {}", leader.leader),
        )),
        (ProgramPhase::Starting | ProgramPhase::Standby, _) => Some(not_started(facts)),
        (ProgramPhase::Running, _) => None,
    }
}

/// The names of the controller's own watches that have not synced.
fn unsynced<'a>(facts: &'a Facts<'_>) -> Vec<&'a str> {
    names(facts.watches.iter().chain(&facts.others).filter(|watch| !watch.has_synced))
}

fn names<'a>(watches: impl Iterator<Item = &'a WatchFacts>) -> Vec<&'a str> {
    let mut names: Vec<_> = watches.map(|watch| watch.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn not_started(facts: &Facts<'_>) -> Cause {
    let caches = |names: &[&str]| match names {
        [one] => format!("the cache of {one}"),
        all => format!("the caches of {}", all.join(", ")),
    };
    let has_not = format!("controller {} has not started", facts.controller);
    let cause =
        |level, why: String, advice: &str| Cause::new(NOT_STARTED, level, format!("{has_not}{why}"), advice);
    let watches = || facts.watches.iter().chain(&facts.others);
    if watches().next().is_some() && watches().all(|watch| watch.phase == Phase::Idle) {
        return cause(
            Level::Problem,
            ": its informers were not started".to_owned(),
            "run the manager (Manager::run); a program without one starts its informers \
             (SharedInformerFactory::start)",
        );
    }
    let (own, of_others) = (unsynced(facts), names(facts.blockers.iter()));
    let why = match (&own[..], &of_others[..]) {
        ([], []) => String::new(),
        ([], others) => {
            format!(": the program also waits for {}, for another controller", caches(others))
        }
        (own, _) => format!(" because it waits for {}", caches(own)),
    };
    let awaited = || watches().filter(|watch| !watch.has_synced).chain(facts.blockers);
    if awaited().next().is_some() && awaited().all(is_listing) {
        return cause(Level::Pending, why, "wait for the initial list");
    }
    cause(Level::Problem, why, "check that the program runs, and read its logs")
}

/// Returns whether the initial list of a watch is on its way.
fn is_listing(watch: &WatchFacts) -> bool {
    watch.phase == Phase::Listing && watch.degraded.is_none()
}
