//! Priorities of keys, which age so that none is starved.

use crate::informer::Change;

/// The urgency of a run of a key.
///
/// Keys of a higher priority are handed out first; keys of one priority in FIFO order. A waiting key that is added with
/// a higher priority goes to the end of that one; a lower one never takes it back. Priorities age: after ten keys have
/// overtaken it, a lower priority has its turn, so with any number of urgent keys, one run in eleven is left for the
/// others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// No known change: the initial list, a resync.
    Low,
    /// A change.
    #[default]
    Normal,
    /// Before everything else.
    High,
}

impl Priority {
    /// All of them, the lowest first: the order of [`QueueFigures::depth`](super::QueueFigures::depth).
    pub const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];

    /// Returns low for the initial list and resyncs, and normal for changes.
    ///
    /// So a controller that starts with thousands of objects still reacts to changes at once.
    pub fn of<K>(change: &Change<'_, K>) -> Self {
        match change {
            Change::Added { in_initial_list: true, .. } => Self::Low,
            change if change.is_resync() => Self::Low,
            _ => Self::Normal,
        }
    }

    /// Returns the name for labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}
