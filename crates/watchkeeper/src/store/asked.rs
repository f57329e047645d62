//! The server's version as questions to it have shown it, in the order in which they began.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::object::ResourceVersion;

/// Numbers the questions of an informer to the server, and keeps the answer to the last one.
///
/// The server answers a question with its newest state. So a write that was answered before the question began is in that
/// state, or the server has lost it.
#[derive(Debug, Default)]
pub(super) struct Asked {
    begun: AtomicU64,
    shown: Mutex<Option<Shown>>,
}

/// The server's version, as the answer to a question showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The number of the question.
    pub(crate) question: u64,
    pub(crate) version: ResourceVersion,
}

impl Asked {
    /// Returns the number of the question that begins now.
    pub(super) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns how many questions have begun. Those with a higher number begin later.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// Records the answer to a question, unless a later one is answered already.
    pub(super) fn answered(&self, question: u64, version: &ResourceVersion) {
        let mut shown = self.shown.lock();
        if shown.as_ref().is_none_or(|earlier| earlier.question < question) {
            *shown = Some(Shown { question, version: version.clone() });
        }
    }

    pub(super) fn shown(&self) -> Option<Shown> {
        self.shown.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_the_last_question_counts() {
        let asked = Asked::default();
        assert_eq!((asked.begun(), asked.shown()), (0, None));
        let (first, second) = (asked.begin(), asked.begin());
        asked.answered(second, &7.into());
        asked.answered(first, &9.into());
        assert_eq!(asked.begun(), 2);
        assert_eq!(asked.shown(), Some(Shown { question: second, version: 7.into() }));
    }
}
