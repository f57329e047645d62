//! Detects that the server's history was rewritten, for example by a restore from a backup.
//!
//! Versions then go back. The server accepts a watch from a version of the lost future and is silent until that version
//! comes again, so silence alone proves nothing: the smallest possible list, a probe, shows the server's version.

use std::fmt;
use std::time::Duration;

use super::REMEMBERED;
use crate::clock::{Generator, Instant};
use crate::object::ResourceVersion;

/// The last version seen of a server's history, and the times at which the server has to prove it.
#[derive(Debug)]
pub(crate) struct History {
    last: ResourceVersion,
    /// The longest time without an event or a bookmark.
    silence: Duration,
    /// Whether the connection was lost since the server last showed its version.
    is_doubted: bool,
    /// Whether the server sends bookmarks other than the one at the end of a list: then a watch is never silent for
    /// long.
    is_bookmarked: bool,
    watch: Option<Open>,
    /// The version before the one that went back, until a list has replaced the state.
    alarm: Option<ResourceVersion>,
    /// The alarms in a row that no list confirmed.
    false_alarms: u32,
    /// The time until which the order of versions is ignored.
    ignored_until: Option<Instant>,
}

/// The current watch.
#[derive(Debug)]
struct Open {
    /// The time of the last bytes, or of the opening.
    heard: Instant,
    has_received: bool,
    /// The time of the probe that follows a lost connection.
    doubt_ends: Option<Instant>,
    probe: Probe,
    is_ordered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    None,
    /// After a lost connection.
    OfDoubt,
    /// After a silence.
    OfSilence,
    /// After a silence, and the server's version is as expected.
    Passed,
}

/// What to do with a watch at a certain time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// To ask for the server's version.
    Probe,
    /// To open the watch again: its connection is dead.
    Reopen,
}

/// The result of a probe.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Probed {
    /// The server is where it should be, or could not be asked after a lost connection: the watch goes on.
    GoOn,
    /// A watch that was silent is fine: the server is where it should be, and sends no bookmarks.
    Quiet,
    /// A watch is silent, and the server's version is not known.
    Unknown,
    SetBack(SetBack),
}

/// A version below the last one seen: the history of the server was rewritten.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) struct SetBack {
    from: ResourceVersion,
    to: ResourceVersion,
}

impl fmt::Display for SetBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        write!(f, "the server's history was set back from {from} to {to}")
    }
}

/// The maximum delay of a probe after a lost connection, so that not all informers ask at once.
const SPREAD: Duration = Duration::from_secs(1);
/// The number of alarms in a row, each without a list that confirms it, after which the order of versions is ignored.
const FALSE_ALARMS: u32 = 3;

impl History {
    pub(super) fn new(silence: Duration) -> Self {
        Self {
            last: ResourceVersion::UNSET,
            silence,
            is_doubted: false,
            is_bookmarked: false,
            watch: None,
            alarm: None,
            false_alarms: 0,
            ignored_until: None,
        }
    }

    /// Returns the last version seen.
    pub(crate) fn last(&self) -> &ResourceVersion {
        &self.last
    }

    /// Records a whole state. Returns whether it is older than what was seen before, unless that is known already.
    pub(super) fn listed(&mut self, version: &ResourceVersion) -> Option<SetBack> {
        let alarm = self.alarm.take();
        let was = std::mem::replace(&mut self.last, version.clone());
        self.is_doubted = false;
        if let Some(open) = &mut self.watch {
            open.doubt_ends = None;
        }
        let is_confirmed = *version < *alarm.as_ref().unwrap_or(&was);
        match alarm {
            Some(_) if !is_confirmed => self.false_alarms += 1,
            _ if is_confirmed => self.false_alarms = 0,
            _ => {}
        }
        (is_confirmed && alarm.is_none()).then(|| SetBack { from: was, to: version.clone() })
    }

    /// Records the version of an event or a bookmark, unless it is below the last one seen.
    pub(super) fn saw(&mut self, version: &ResourceVersion) -> Result<(), SetBack> {
        let is_ordered = self.watch.as_ref().is_none_or(|open| open.is_ordered);
        if is_ordered && *version < self.last {
            return Err(self.alarm(version));
        }
        self.last.clone_from(version);
        Ok(())
    }

    /// Returns whether the last version seen follows the server's even if nothing changes.
    pub(crate) fn is_bookmarked(&self) -> bool {
        self.is_bookmarked
    }

    /// Records a bookmark other than the one at the end of a list.
    pub(crate) fn bookmarked(&mut self) {
        self.is_bookmarked = true;
    }

    /// Records that the connection to the server was lost or refused: another history may follow.
    pub(super) fn doubt(&mut self) {
        self.is_doubted = true;
    }

    /// Records that a watch was opened.
    pub(super) fn opened(&mut self, now: Instant, generator: &Generator) {
        // A server without an order of versions must not be listed over and over.
        if self.false_alarms >= FALSE_ALARMS {
            (self.false_alarms, self.ignored_until) = (0, Some(now + REMEMBERED));
        }
        let is_ordered = self.ignored_until.is_none_or(|until| now >= until);
        let doubt_ends = self.is_doubted.then(|| now + SPREAD.mul_f64(generator.unit()));
        self.watch = Some(Open {
            heard: now,
            has_received: false,
            doubt_ends: doubt_ends.filter(|_| is_ordered),
            probe: Probe::None,
            is_ordered,
        });
    }

    /// Records that a watch has ended.
    pub(super) fn ended(&mut self) {
        self.watch = None;
    }

    /// Records that the watch delivered bytes.
    pub(crate) fn heard(&mut self, now: Instant) {
        if let Some(open) = &mut self.watch {
            (open.heard, open.has_received) = (now, true);
        }
    }

    /// Returns what to do next with the current watch, and when, if nothing arrives before.
    pub(crate) fn due(&self) -> Option<(Instant, Due)> {
        let open = self.watch.as_ref()?;
        let silent = open.heard + self.silence;
        if self.is_bookmarked && open.has_received && open.doubt_ends.is_none_or(|at| silent < at) {
            return Some((silent, Due::Reopen));
        }
        match (open.probe, open.doubt_ends) {
            (Probe::None, Some(at)) => Some((at.min(silent), Due::Probe)),
            (Probe::None, None) if open.is_ordered || self.is_bookmarked => Some((silent, Due::Probe)),
            _ => None,
        }
    }

    /// Records that a probe is sent.
    pub(crate) fn probe(&mut self) {
        if let Some(open) = &mut self.watch {
            let is_doubt = open.doubt_ends.take().is_some();
            open.probe = if is_doubt { Probe::OfDoubt } else { Probe::OfSilence };
        }
    }

    /// Records the server's version, if the probe had an answer.
    pub(crate) fn probed(&mut self, version: Option<&ResourceVersion>) -> Probed {
        let Some(open) = &mut self.watch else { return Probed::GoOn };
        let probe = std::mem::replace(&mut open.probe, Probe::None);
        let is_ordered = open.is_ordered;
        match (probe, version) {
            (_, Some(version)) if is_ordered && *version < self.last => Probed::SetBack(self.alarm(version)),
            (Probe::OfDoubt, Some(_)) => {
                self.is_doubted = false;
                Probed::GoOn
            }
            // The silence ends with the next probe, at the latest.
            (Probe::OfDoubt, None) => Probed::GoOn,
            // The server has stopped sending bookmarks, as it may, or never sent any.
            (_, Some(_)) => {
                open.probe = Probe::Passed;
                (self.is_doubted, self.is_bookmarked) = (false, false);
                Probed::Quiet
            }
            (_, None) => Probed::Unknown,
        }
    }

    fn alarm(&mut self, to: &ResourceVersion) -> SetBack {
        self.alarm = Some(self.last.clone());
        SetBack { from: self.last.clone(), to: to.clone() }
    }
}

#[cfg(test)]
mod tests;
