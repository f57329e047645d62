//! The duties that the writes of one request left behind. Dropping the backlog completes them, so that a cancelled
//! request leaves nothing undone.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::task::yield_now;

use crate::http::handler::Call;
use crate::http::shared::Shared;
use crate::http::transaction::aside;
use crate::state::core::Core;
use crate::state::duty::Duty;
use crate::verbs::duties::{Access, step};

/// The duties of one request.
#[derive(Debug)]
pub(crate) struct Backlog {
    shared: Arc<Shared>,
    duties: VecDeque<Duty>,
}

impl Access for Backlog {
    fn with<T>(&mut self, look: impl FnOnce(&mut Core) -> T) -> T {
        let (result, duties) = self.shared.commit(look);
        self.duties.extend(duties);
        result
    }
}

impl Backlog {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: shared.clone(), duties: VecDeque::new() }
    }

    pub(crate) fn extend(&mut self, duties: VecDeque<Duty>) {
        self.duties.extend(duties);
    }

    /// Moves the duties into a backlog of their own.
    pub(crate) fn take(&mut self) -> Self {
        Self { shared: self.shared.clone(), duties: std::mem::take(&mut self.duties) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.duties.is_empty()
    }

    /// Does one slice, if any is left.
    pub(crate) fn advance(&mut self) {
        if let Some(duty) = self.duties.pop_front()
            && let Some(rest) = step(self, duty)
        {
            self.duties.push_front(rest);
        }
    }

    /// Completes all duties, yielding between slices.
    pub(crate) async fn finish(mut self, work: impl Fn(&mut Self)) {
        loop {
            work(&mut self);
            if self.is_empty() {
                return;
            }
            yield_now().await;
        }
    }
}

impl Call {
    /// Completes the duties of the writes. Over a socket they run on if the client disconnects.
    pub(super) async fn work_off(&self) {
        let backlog = self.backlog.lock().take();
        if backlog.is_empty() {
            return;
        }
        let socket = self.stop.is_some();
        let finish = backlog.finish(move |backlog| aside(socket, usize::MAX, || backlog.advance()));
        if socket {
            // A panic has been printed already.
            let _ended = tokio::spawn(finish).await;
        } else {
            finish.await;
        }
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        while !self.is_empty() {
            self.advance();
        }
    }
}
