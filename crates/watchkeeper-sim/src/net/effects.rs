//! Which faults had an effect: something came of them that a controller could notice.

use super::Net;
use crate::fault::{Fault, Planned};

/// The faults that had an effect, and those that may have one later.
#[derive(Debug, Default)]
pub(super) struct Effects {
    had: Vec<Planned>,
    /// The server has forgotten its history: the next 410 shows it.
    forgot: Vec<Planned>,
    /// What has broken connections last.
    broke: Option<Planned>,
}

impl Effects {
    pub(super) fn had(&mut self, planned: &Planned) {
        if !self.had.contains(planned) {
            self.had.push(planned.clone());
        }
    }

    /// A fault is about to break connections.
    pub(super) fn breaks(&mut self, planned: Option<&Planned>) {
        self.broke = planned.cloned();
    }

    /// A fault made the server forget its history.
    pub(super) fn forgets(&mut self, planned: &Planned) {
        self.forgot.push(planned.clone());
    }
}

impl Fault {
    /// Whether it depends on what follows if it has an effect: others have one where they happen.
    fn is_latent(&self) -> bool {
        matches!(
            self,
            Self::CrashStale(_)
                | Self::ExpireLater(_)
                | Self::Foreign
                | Self::NoBookmarks
                | Self::Undecodable
                | Self::Oversized
                | Self::Restart
                | Self::Compact
                | Self::Unreachable(_)
                | Self::SetBack
                | Self::Forbid(_)
                | Self::Unserve(_)
                | Self::Kill(_)
                | Self::Pause(..)
                | Self::ClockRate(..)
                | Self::ClockOffset(..)
        )
    }
}

impl Net {
    /// The faults that had an effect.
    pub(crate) fn effects(&self) -> Vec<Planned> {
        self.0.state.lock().effects.had.clone()
    }

    /// A fault happens: it has an effect, unless that depends on what follows.
    pub(super) fn happens(&self, planned: &Planned) {
        if !planned.fault.is_latent() {
            self.had_effect(planned);
        }
    }

    pub(super) fn had_effect(&self, planned: &Planned) {
        self.note_effect(|effects| effects.had(planned));
    }

    /// A connection was broken.
    pub(super) fn is_broken(&self) {
        self.note_effect(|effects| {
            if let Some(planned) = effects.broke.clone() {
                effects.had(&planned);
            }
        });
    }

    /// The server said that a version has expired.
    pub(super) fn has_expired(&self) {
        self.note_effect(|effects| {
            for planned in std::mem::take(&mut effects.forgot) {
                effects.had(&planned);
            }
        });
    }

    /// In front of a server that listens, faults have no end and are not kept.
    pub(super) fn note_effect(&self, note: impl FnOnce(&mut Effects)) {
        if self.0.longest_stall.is_none() {
            note(&mut self.0.state.lock().effects);
        }
    }
}

#[cfg(test)]
mod tests;
