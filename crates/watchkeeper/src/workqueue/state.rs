//! The state of a key, as one word.

use serde::{Deserialize, Serialize};

use super::known::RunResult;
use super::slots::{Place, Slot};

/// The state of a key. A key in two states, such as one that was added again during its run, has the first of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum KeyState {
    /// A worker has it.
    Running,
    /// It waits for a worker.
    Waiting,
    /// It waits until the caches have seen its own writes.
    Parked,
    /// It failed, and is retried after a backoff.
    Retrying,
    /// It is due later, as its reconcile asked for, or by a retry that was scheduled before its last success.
    Delayed,
    /// Its last run failed and is not retried until something changes.
    Failed,
    /// Nothing is to be done; its last run is remembered.
    Idle,
    /// It is in the cache, and no run of it is remembered. A queue does not know such keys.
    Cached,
    /// Nothing is known of it.
    #[default]
    Unknown,
}

impl KeyState {
    /// All states, in the order in which they win over one another.
    pub const ALL: [Self; 9] = [
        Self::Running,
        Self::Waiting,
        Self::Parked,
        Self::Retrying,
        Self::Delayed,
        Self::Failed,
        Self::Idle,
        Self::Cached,
        Self::Unknown,
    ];

    /// The states that a queue can tell: the first of [`ALL`](Self::ALL).
    pub(crate) const QUEUED: usize = 7;

    /// Returns the state as it is in JSON, in URLs and in labels of metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Parked => "parked",
            Self::Retrying => "retrying",
            Self::Delayed => "delayed",
            Self::Failed => "failed",
            Self::Idle => "idle",
            Self::Cached => "cached",
            Self::Unknown => "unknown",
        }
    }
}

impl<T> Slot<T> {
    /// Returns the state of the key; [`KeyState::Unknown`] for a free slot.
    pub(super) fn state(&self) -> KeyState {
        match self.place {
            _ if self.key.is_none() => KeyState::Unknown,
            Place::Working => KeyState::Running,
            Place::Ready => KeyState::Waiting,
            Place::Parked => KeyState::Parked,
            Place::Nowhere | Place::Idle if self.is_backing_off() => KeyState::Retrying,
            Place::Nowhere | Place::Idle if self.due.is_some() => KeyState::Delayed,
            Place::Nowhere | Place::Idle if self.is_given_up() => KeyState::Failed,
            Place::Nowhere | Place::Idle => KeyState::Idle,
        }
    }

    /// Returns whether its due time is the end of a backoff. A success leaves the time, which then is no backoff any more.
    pub(super) fn is_backing_off(&self) -> bool {
        self.due.is_some() && self.due_by_retry && self.backing_off
    }

    fn is_given_up(&self) -> bool {
        let last_run = self.extra.as_ref().and_then(|extra| extra.last_run.as_ref());
        last_run.is_some_and(|run| run.result == RunResult::Terminal)
    }
}
