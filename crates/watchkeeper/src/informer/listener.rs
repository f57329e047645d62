//! How does one handler get its notifications, whatever the others do?

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::handler::{Handler, Notification};
use super::latch::Latch;
use crate::report::Reporter;

/// The notifications that wait for one handler.
#[derive(Debug)]
pub(super) struct Mailbox<K> {
    state: Mutex<State<K>>,
    wake: Notify,
    synced: Latch,
}

#[derive(Debug)]
struct State<K> {
    pending: VecDeque<Notification<K>>,
    closed: bool,
    /// Objects of the initial list that were put in and not yet handled.
    initial_left: usize,
    /// The informer has put in all objects of its initial list.
    upstream_synced: bool,
}

impl<K> Default for Mailbox<K> {
    fn default() -> Self {
        let state =
            State { pending: VecDeque::new(), closed: false, initial_left: 0, upstream_synced: false };
        Self { state: Mutex::new(state), wake: Notify::new(), synced: Latch::default() }
    }
}

impl<K> Mailbox<K> {
    pub(super) fn put(&self, notification: Notification<K>) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        state.initial_left += usize::from(notification.is_initial_add());
        state.pending.push_back(notification);
        drop(state);
        self.wake.notify_one();
    }

    /// Everything of the initial list has been put in.
    pub(super) fn upstream_synced(&self) {
        let mut state = self.state.lock();
        state.upstream_synced = true;
        self.check_synced(&state);
    }

    /// Nothing more is delivered; a callback that runs comes to its end.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let pending = std::mem::take(&mut state.pending);
        drop(state);
        drop(pending);
        self.wake.notify_one();
    }

    fn handled_initial(&self) {
        let mut state = self.state.lock();
        state.initial_left -= 1;
        self.check_synced(&state);
    }

    fn check_synced(&self, state: &State<K>) {
        if state.upstream_synced && state.initial_left == 0 {
            self.synced.set();
        }
    }

    async fn next(&self) -> Option<Notification<K>> {
        loop {
            {
                let mut state = self.state.lock();
                if state.closed {
                    return None;
                }
                if let Some(notification) = state.pending.pop_front() {
                    return Some(notification);
                }
            }
            self.wake.notified().await;
        }
    }
}

/// Delivers what is in the mailbox, one after the other, until it is closed. A panic of the handler costs it that one notification.
pub(super) async fn deliver<K: 'static>(
    mailbox: Arc<Mailbox<K>>,
    mut handler: Box<dyn Handler<K>>,
    name: String,
    reporter: Reporter,
) {
    while let Some(notification) = mailbox.next().await {
        reporter.guard("handler", &name, || notification.tell(&mut *handler));
        if notification.is_initial_add() {
            mailbox.handled_initial();
        }
        // A handler with much to do lets other tasks run in between.
        tokio::task::consume_budget().await;
    }
}

/// A handler's place at its informer.
#[derive(Debug)]
pub struct Registration<K> {
    pub(super) mailbox: Arc<Mailbox<K>>,
}

impl<K> Registration<K> {
    /// Whether the handler has been told of every object that was there when it began.
    pub fn has_synced(&self) -> bool {
        self.mailbox.synced.is_set()
    }

    /// Waits until [`Registration::has_synced`]. Cancel-safe.
    pub async fn wait_until_synced(&self) {
        self.mailbox.synced.wait().await;
    }

    /// How many notifications wait for the handler.
    pub fn pending(&self) -> usize {
        self.mailbox.state.lock().pending.len()
    }
}
