//! The pure elector: what was seen of a Lease, and when, decides what to do next.
//!
//! It has no clock and does no IO. Its caller carries out each [`Step`], reports what came of it, and asks for the next.

use jiff::Timestamp;

use super::record::{LeaderRecord, Seen, to_microseconds};
use super::times::LeaseTimes;
use crate::clock::BootTime;

/// The moment at which a step is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// What decides.
    pub(super) boot: BootTime,
    /// What is written into the Lease, for people.
    pub(super) wall: Timestamp,
    /// A random number in `[0, 1)`.
    pub(super) chance: f64,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Wait until then, or until the Lease changes.
    Wait(BootTime),
    /// Read the Lease.
    Get,
    /// Create the Lease with this record.
    Create(LeaderRecord),
    /// Put this record into the Lease, if it still has the version that was read last.
    Update(LeaderRecord),
    /// Stop leading, at once and for good.
    Stop(Loss),
}

/// Why a leader does not lead any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// No renewal succeeded in time.
    #[error("the lease could not be renewed in time")]
    NotRenewed,
    /// Another candidate holds the lease.
    #[error("{0} holds the lease")]
    TakenBy(String),
}

/// A candidate for one Lease, from its first look at it to the end of its leadership.
#[derive(Debug)]
pub(super) struct Elector {
    identity: String,
    times: LeaseTimes,
    /// The Lease as it was last seen to exist, and when it was first seen so. Kept when it is deleted: its holder may not know yet.
    observed: Option<(Seen, BootTime)>,
    /// Whether the Lease did not exist when it was last looked at.
    is_missing: bool,
    /// Whether the last look was a read of this elector, and nothing has changed since: only then it writes.
    is_confirmed: bool,
    /// The acquire time of all writes of this candidacy, by which it knows its own records: another process may have the same
    /// identity.
    acquired: Option<Timestamp>,
    /// No request before this.
    due: BootTime,
    leading: Option<Leading>,
    slow_paths: u64,
}

#[derive(Clone, Copy, Debug)]
struct Leading {
    /// When the last renewal that succeeded was sent.
    renewed: BootTime,
    /// Whether this renewal has failed once, and goes on with a read.
    is_slow: bool,
}

impl Elector {
    pub(super) fn new(identity: &str, times: LeaseTimes) -> Self {
        Self {
            identity: identity.to_owned(),
            times,
            observed: None,
            is_missing: false,
            is_confirmed: false,
            acquired: None,
            due: BootTime::default(),
            leading: None,
            slow_paths: 0,
        }
    }

    /// Returns until when this candidate leads; `None` while it does not. Not past the moment at which another may lead, as long as no
    /// clock runs faster than another by the ratio of lease duration and renew deadline.
    pub(super) fn leads_until(&self) -> Option<BootTime> {
        self.leading.map(|leading| leading.renewed + self.times.renew_deadline)
    }

    /// Returns when the last renewal that succeeded was sent; `None` while this candidate does not lead.
    pub(super) fn renewed(&self) -> Option<BootTime> {
        self.leading.map(|leading| leading.renewed)
    }

    /// Returns whether this candidate holds the lease, as far as it knows: a write may have succeeded whose answer was lost.
    pub(super) fn may_hold(&self) -> bool {
        self.acquired.is_some()
    }

    /// Returns who holds the lease, as last seen; empty if nobody does.
    pub(super) fn holder(&self) -> &str {
        let observed = self.observed.as_ref().filter(|_| !self.is_missing);
        observed.map_or("", |(seen, _)| &seen.record.holder)
    }

    /// Returns how many renewals needed more than one write.
    pub(super) fn slow_paths(&self) -> u64 {
        self.slow_paths
    }

    /// Decides what to do now. `is_watched` says that changes of the Lease are reported without a read.
    pub(super) fn step(&mut self, now: Now, is_watched: bool) -> Step {
        match self.leading {
            Some(leading) => self.step_of_leader(leading, now),
            None => self.step_of_candidate(now, is_watched),
        }
    }

    fn step_of_leader(&mut self, leading: Leading, now: Now) -> Step {
        let until = leading.renewed + self.times.renew_deadline;
        if now.boot >= until {
            return Step::Stop(Loss::NotRenewed);
        }
        if self.is_confirmed && !self.is_missing && !self.is_own() && !self.holder().is_empty() {
            return Step::Stop(Loss::TakenBy(self.holder().to_owned()));
        }
        if now.boot < self.due {
            return Step::Wait(self.due.min(until));
        }
        if !self.is_confirmed { Step::Get } else { self.write(now) }
    }

    fn step_of_candidate(&mut self, now: Now, is_watched: bool) -> Step {
        let free = self.free_at(now.boot);
        if now.boot < free {
            // What is watched need not be read before it may be free.
            let due = if is_watched && self.observed.is_some() { free } else { self.due.min(free) };
            if now.boot < due {
                return Step::Wait(due);
            }
            return Step::Get;
        }
        if now.boot < self.due {
            return Step::Wait(self.due);
        }
        if !self.is_confirmed { Step::Get } else { self.write(now) }
    }

    /// Returns when the lease may be taken: `now` or earlier if it may be now.
    fn free_at(&self, now: BootTime) -> BootTime {
        match &self.observed {
            // Nothing was ever seen: a read comes first.
            None => now,
            // Whoever held it last, another may have taken it before it was deleted.
            Some((seen, at)) if self.is_missing => {
                *at + seen.record.duration().unwrap_or_default().max(self.times.whole_lease())
            }
            Some((seen, _)) if seen.record.holder.is_empty() || self.is_own() => now,
            // A record without a duration is trusted for as long as an own one.
            Some((seen, at)) => *at + seen.record.duration().unwrap_or_else(|| self.times.whole_lease()),
        }
    }

    /// Returns whether the record that was seen last was written by this elector, also where the answer was lost.
    fn is_own(&self) -> bool {
        self.observed.as_ref().is_some_and(|(seen, _)| self.wrote_this(&seen.record))
    }

    fn wrote_this(&self, record: &LeaderRecord) -> bool {
        record.holder == self.identity && record.acquired.is_some() && record.acquired == self.acquired
    }

    /// Returns the write that acquires or renews the lease as it was confirmed to be.
    fn write(&mut self, now: Now) -> Step {
        let wall = to_microseconds(now.wall);
        let is_own = self.is_own();
        let mut record = LeaderRecord {
            holder: self.identity.clone(),
            lease_seconds: i32::try_from(self.times.whole_lease().as_secs()).unwrap_or(i32::MAX),
            acquired: Some(*self.acquired.get_or_insert(wall)),
            renewed: Some(wall),
            ..LeaderRecord::default()
        };
        match &self.observed {
            // A leader whose Lease was deleted goes on as before.
            Some((seen, _)) if is_own => record.transitions = seen.record.transitions,
            Some((seen, _)) if !self.is_missing => {
                record.transitions = seen.record.transitions.saturating_add(1);
            }
            _ => {}
        }
        if self.is_missing { Step::Create(record) } else { Step::Update(record) }
    }

    /// Reports a read of the Lease, answered at `now`; `None` if there is none.
    pub(super) fn read(&mut self, lease: Option<Seen>, now: Now) {
        self.observe(lease, now.boot, false);
        self.is_confirmed = true;
        if self.leading.is_none() && now.boot < self.free_at(now.boot) {
            self.due = now.boot + self.times.pause(now.chance);
        }
    }

    /// Reports a read that failed.
    pub(super) fn read_failed(&mut self, now: Now) {
        self.pause(now);
    }

    /// Reports that a watch has shown the Lease, or that it was deleted. What is older than what is known is ignored.
    pub(super) fn watched(&mut self, lease: Option<Seen>, now: Now) {
        let is_news = match (&lease, &self.observed) {
            (Some(seen), Some((known, _))) => {
                let is_known = seen.uid == known.uid && seen.version <= known.version;
                !is_known || self.is_missing
            }
            (Some(_), None) => true,
            // Each deletion is news: the Lease may have been created again in between.
            (None, _) => true,
        };
        if is_news && self.leading.is_none() {
            self.observe(lease, now.boot, true);
            self.is_confirmed = false;
            // It may be free, without having been read yet.
            self.due = self.due.min(now.boot);
        }
    }

    /// Enters what was seen; `is_told` says that it is a change, even if it looks the same.
    fn observe(&mut self, lease: Option<Seen>, at: BootTime, is_told: bool) {
        let was_missing = std::mem::replace(&mut self.is_missing, lease.is_none());
        let Some(seen) = lease else {
            // The holder may have renewed between what was seen last and the deletion.
            if let (Some((_, since)), true) = (&mut self.observed, !was_missing || is_told) {
                *since = at;
            }
            return;
        };
        // Of a server that was set back, one version may have had several contents.
        if self.observed.as_ref().is_none_or(|(known, _)| *known != seen) {
            if !seen.record.holder.is_empty() && !self.wrote_this(&seen.record) && self.leading.is_none() {
                // What this candidate has sent so far was not accepted, or is over.
                self.acquired = None;
            }
            self.observed = Some((seen, at));
        }
    }

    /// Reports a write that succeeded: it was sent at `sent`, and the server answered with `lease`.
    pub(super) fn wrote(&mut self, lease: Seen, sent: BootTime, now: Now) {
        let is_in_time = now.boot < sent + self.times.renew_deadline;
        self.slow_paths += u64::from(self.leading.is_some_and(|leading| leading.is_slow));
        self.observe(Some(lease), now.boot, false);
        // The answer has the version for the next write.
        self.is_confirmed = true;
        self.due = now.boot + self.times.retry_period;
        if self.leading.is_some() || is_in_time {
            self.leading = Some(Leading { renewed: sent, is_slow: false });
        } else {
            // Acquired, but too late to begin with: renewed first.
            self.due = now.boot;
        }
    }

    /// Reports a write that failed.
    ///
    /// Whatever the reason, the server may have acted, and what is known of the Lease may be out of date: a read comes next.
    pub(super) fn write_failed(&mut self, now: Now) {
        self.is_confirmed = false;
        match &mut self.leading {
            // The first failure of a renewal is looked into at once.
            Some(leading) if !leading.is_slow => {
                leading.is_slow = true;
                self.due = now.boot;
            }
            // The server has trouble, or another candidate was faster.
            _ => self.pause(now),
        }
    }

    /// Puts off the next request; a leader has no jitter.
    fn pause(&mut self, now: Now) {
        self.is_confirmed = false;
        let chance = if self.leading.is_some() { 0.0 } else { now.chance };
        self.due = now.boot + self.times.pause(chance);
    }

    /// Returns the record that releases the lease as it was just read; `None` if this candidate does not hold it.
    pub(super) fn release(&self, lease: &Seen, wall: Timestamp) -> Option<LeaderRecord> {
        let wall = to_microseconds(wall);
        // Without a holder.
        self.wrote_this(&lease.record).then(|| LeaderRecord {
            lease_seconds: 1,
            acquired: Some(wall),
            renewed: Some(wall),
            transitions: lease.record.transitions,
            ..LeaderRecord::default()
        })
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
