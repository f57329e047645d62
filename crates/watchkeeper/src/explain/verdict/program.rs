//! Causes in the program: no key of it is reconciled.

use super::{Cause, NOT_STARTED};
use crate::explain::facts::Facts;
use crate::explain::key_view::Level;
use crate::explain::view::ProgramPhase;

/// Returns why the program reconciles nothing, if that is so.
pub(super) fn program(facts: &Facts<'_>) -> Option<Cause> {
    let controller = facts.controller;
    match (facts.phase, facts.leader) {
        (ProgramPhase::Stopping, _) => Some(Cause::new(
            "shutDown",
            Level::Problem,
            format!("controller {controller} is shutting down and starts no reconciles"),
            "the next start of the program reconciles every object; start it if nothing else does",
        )),
        (ProgramPhase::Standby, Some(leader)) if leader.leader.is_empty() => Some(Cause::new(
            "noLeader",
            Level::Problem,
            "no replica leads yet, so none reconciles",
            format!("check the Lease {} and the permission of the replicas to update it", leader.lease),
        )),
        (ProgramPhase::Standby, Some(leader)) => Some(Cause::new(
            "notLeader",
            Level::Notice,
            format!("this replica does not lead: {} does, and reconciles", leader.leader),
            format!("ask {}", leader.leader),
        )),
        (ProgramPhase::Starting | ProgramPhase::Standby, _) => {
            let all = facts.watches.iter().chain(&facts.others);
            let unsynced: Vec<_> =
                all.filter(|watch| !watch.has_synced).map(|watch| watch.name.as_str()).collect();
            let why = match &unsynced[..] {
                [] => String::new(),
                names => format!(", as it waits for the caches of {}", names.join(", ")),
            };
            Some(Cause::new(
                NOT_STARTED,
                Level::Problem,
                format!("controller {controller} has not started{why}"),
                "see that the program runs, and what it logs",
            ))
        }
        (ProgramPhase::Running, _) => None,
    }
}
