//! Which of the keys that wait goes first? Those of the higher class, but a lower one is not passed over for ever.

use crate::informer::Change;

/// How urgent a run of a key is.
///
/// A higher priority is handed out first; keys of one priority come out in the order in which they became ready. A key that waits and is
/// added with a higher priority goes to the end of that one; a lower one never takes it back. Priorities age: after ten keys that
/// overtook it, a lower priority has its turn, so however many urgent keys come, one run in eleven is left for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Nothing is known to have changed: the first list, a resync.
    Low,
    /// Something changed.
    #[default]
    Normal,
    /// Before everything else.
    High,
}

impl Priority {
    /// All of them, the lowest first: the order of [`QueueFigures::depth`](super::QueueFigures::depth).
    pub const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];

    /// Low for what a first list or a resync tells, normal for what changed.
    ///
    /// So a controller that starts among thousands of objects still answers to changes at once.
    pub fn of<K>(change: &Change<'_, K>) -> Self {
        match change {
            Change::Added { in_initial_list: true, .. } => Self::Low,
            change if change.is_resync() => Self::Low,
            _ => Self::Normal,
        }
    }

    /// A word for labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}
