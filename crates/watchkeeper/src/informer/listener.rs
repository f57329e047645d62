//! Delivery of notifications to one handler, independently of the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::fast::FixedState;
use parking_lot::{Mutex, MutexGuard};

use super::handler::{Handler, Notification};
use super::handover::Handover;
use super::metrics::HandlerStats;
use super::ring::Ring;
use crate::env::Env;
use crate::latch::Latch;
use crate::object::ObjectName;

/// The pending notifications of one handler.
#[derive(Debug)]
pub(super) struct Mailbox<K> {
    name: String,
    state: Handover<State<K>>,
    synced: Latch,
    /// Set when nothing more is delivered and no callback runs.
    ended: Latch,
    panics: AtomicU64,
    slow: AtomicU64,
}

#[derive(Debug)]
struct State<K> {
    ring: Ring<K>,
    closed: bool,
    /// Whether the informer has added all objects of its initial list.
    upstream_synced: bool,
    /// Whether the handler is being notified of an object of the initial list, or directly of all of them.
    initial_in_hand: bool,
}

impl<K> State<K> {
    fn has_synced(&self) -> bool {
        self.upstream_synced && self.ring.initial() == 0 && !self.initial_in_hand
    }
}

impl<K> Mailbox<K> {
    /// Returns the mailbox of the handler called `name`, which coalesces more than `bound` changes.
    pub(super) fn new(name: String, bound: usize, hasher: FixedState) -> Self {
        let ring = Ring::new(bound, hasher);
        let state = State { ring, closed: false, upstream_synced: false, initial_in_hand: false };
        Self {
            name,
            state: Handover::new(state),
            synced: Latch::default(),
            ended: Latch::default(),
            panics: AtomicU64::new(0),
            slow: AtomicU64::new(0),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn put(&self, notifications: impl Iterator<Item = Notification<K>>) {
        self.change(|state| {
            if !state.closed {
                notifications.for_each(|notification| state.ring.push(notification));
            }
        });
    }

    /// Marks the initial list as complete.
    pub(super) fn upstream_synced(&self) {
        self.change(|state| state.upstream_synced = true);
    }

    fn is_closed(&self) -> bool {
        self.state.look(|state| state.closed)
    }

    /// Stops the delivery; a running callback finishes.
    pub(super) fn close(&self) {
        let dropped = self.state.change(|state| {
            state.closed = true;
            // Dropped objects of the initial list were not delivered.
            state.upstream_synced &= state.ring.initial() == 0;
            state.ring.clear()
        });
        // Outside the lock, as this may take time.
        drop(dropped);
    }

    /// Marks the end of delivery: the handler is never called again.
    pub(super) fn end(&self) {
        self.ended.set();
    }

    pub(super) fn stats(&self) -> HandlerStats {
        let (pending, coalesced) = self.state.look(|state| (state.ring.len(), state.ring.coalesced()));
        let [panics, slow] = [&self.panics, &self.slow].map(|count| count.load(Ordering::Relaxed));
        HandlerStats { name: self.name.clone(), pending, coalesced, panics, slow }
    }

    /// Applies a change after which the handler may have synced: the last of the initial list can also be coalesced
    /// away.
    fn change(&self, change: impl FnOnce(&mut State<K>)) {
        let has_synced = self.state.change(|state| {
            change(state);
            state.has_synced()
        });
        if has_synced && !self.synced.is_set() {
            self.synced.set();
        }
    }

    /// Returns the next notification; `None` once the mailbox is closed.
    async fn next(&self) -> Option<Notification<K>> {
        self.state
            .wait(|state| {
                if state.closed {
                    return Some(None);
                }
                let next = state.ring.pop()?;
                state.initial_in_hand = next.is_initial_add();
                Some(Some(next))
            })
            .await
    }
}

impl<K: 'static> Mailbox<K> {
    /// Calls the handler, and counts panics and slow calls.
    fn call(&self, notification: &Notification<K>, handler: &mut dyn Handler<K>, env: &Env) {
        let called = call(notification, handler, &self.name, env);
        for (count, happened) in [(&self.panics, called.panicked), (&self.slow, called.was_slow)] {
            if happened {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A handler that sees every state: called where changes are distributed, and not from its mailbox, which stays empty.
pub(super) struct Direct<K> {
    pub(super) mailbox: Arc<Mailbox<K>>,
    /// Locked while it is called: changes wait until a handler that was added late knows all objects.
    handler: Mutex<Box<dyn Handler<K>>>,
}

/// The right to call a [`Direct`] handler.
pub(super) type Turn<'a, K> = MutexGuard<'a, Box<dyn Handler<K>>>;

impl<K: 'static> Direct<K> {
    pub(super) fn new(mailbox: &Arc<Mailbox<K>>, handler: Box<dyn Handler<K>>) -> Self {
        Self { mailbox: mailbox.clone(), handler: Mutex::new(handler) }
    }

    pub(super) fn turn(&self) -> Turn<'_, K> {
        self.handler.lock()
    }

    /// Takes the turn to deliver all existing objects. The handler has synced only after
    /// [`call_initial`](Self::call_initial).
    pub(super) fn initial_turn(&self) -> Turn<'_, K> {
        self.mailbox.state.look(|state| state.initial_in_hand = true);
        self.turn()
    }

    pub(super) fn call_initial(
        &self,
        turn: Turn<'_, K>,
        adds: impl Iterator<Item = Notification<K>>,
        env: &Env,
    ) {
        if self.call_each(turn, adds, env) {
            self.mailbox.change(|state| state.initial_in_hand = false);
        }
    }

    /// Delivers notifications in order, unless the handler is removed meanwhile; returns whether all were delivered. A
    /// panic loses that one notification.
    ///
    /// The caller holds no locks: the handler's code may use the informer, and so may report hooks.
    pub(super) fn call_each<N: std::borrow::Borrow<Notification<K>>>(
        &self,
        mut turn: Turn<'_, K>,
        mut notifications: impl Iterator<Item = N>,
        env: &Env,
    ) -> bool {
        let told_all = notifications.all(|notification| {
            let is_open = !self.mailbox.is_closed();
            if is_open {
                self.mailbox.call(notification.borrow(), &mut **turn, env);
            }
            is_open
        });
        drop(turn);
        // A close during this turn leaves the end to this caller.
        if self.mailbox.is_closed() {
            self.mailbox.end();
        }
        told_all
    }

    /// Stops the delivery; a running callback finishes.
    pub(super) fn close(&self) {
        self.mailbox.close();
        if self.handler.try_lock().is_some() {
            self.mailbox.end();
        }
    }
}

/// Delivers the contents of the mailbox in order until it is closed. A panic of the handler loses that one
/// notification.
pub(super) async fn deliver<K: 'static>(
    mailbox: Arc<Mailbox<K>>,
    mut handler: Box<dyn Handler<K>>,
    env: Env,
) {
    let _ending = Ending(&mailbox);
    while let Some(notification) = mailbox.next().await {
        mailbox.call(&notification, &mut *handler, &env);
        if notification.is_initial_add() {
            mailbox.change(|state| state.initial_in_hand = false);
        }
        // A busy handler yields to other tasks in between.
        crate::fair::give_way().await;
    }
}

/// A callback that takes longer is reported: it blocks its thread, and with it other tasks of the runtime.
const SLOW: Duration = Duration::from_millis(100);

/// The outcome of a callback.
pub(super) struct Called {
    panicked: bool,
    was_slow: bool,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the callback for {key} blocked its thread for {took:?}: leave the slow part to a worker, or to tokio::task::spawn_blocking"
)]
struct Blocked {
    key: ObjectName,
    took: Duration,
}

/// Calls `handler`; reports a panic or a slow call under its name.
pub(super) fn call<K: 'static>(
    notification: &Notification<K>,
    handler: &mut dyn Handler<K>,
    name: &str,
    env: &Env,
) -> Called {
    let began = env.clock.now();
    let panicked = env.reporter.guard("handler", name, || notification.deliver_to(handler)).is_none();
    let took = env.clock.now().saturating_duration_since(began);
    if took > SLOW {
        env.reporter.error("handler", name, &Blocked { key: notification.key(), took });
    }
    Called { panicked, was_slow: took > SLOW }
}

/// Marks the end, also if the task is aborted.
struct Ending<'a, K>(&'a Mailbox<K>);

impl<K> Drop for Ending<'_, K> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A handler's registration at its informer. Clones refer to the same handler.
#[derive(Debug)]
pub struct Registration<K> {
    pub(super) mailbox: Arc<Mailbox<K>>,
}

impl<K> Registration<K> {
    /// Returns the handler's name in reports.
    pub fn name(&self) -> &str {
        &self.mailbox.name
    }

    /// Returns whether the handler has been notified of every object that existed when it was added. Objects that were
    /// deleted before their turn count as delivered, as does a notification on which the handler panicked.
    pub fn has_synced(&self) -> bool {
        self.mailbox.synced.is_set()
    }

    /// Waits until [`Registration::has_synced`], possibly forever; see [`Registration::synced_or_ended`]. Cancel-safe.
    pub async fn wait_until_synced(&self) {
        self.mailbox.synced.wait().await;
    }

    /// Waits until the handler has synced or [ended](Registration::ended), and returns whether it has synced.
    /// Cancel-safe.
    pub async fn synced_or_ended(&self) -> bool {
        tokio::select! {
            biased;
            () = self.wait_until_synced() => true,
            () = self.ended() => false,
        }
    }

    /// Waits until the handler was removed, or its informer has stopped, and its last callback has finished.
    /// Cancel-safe.
    ///
    /// A callback of the same handler must not wait for this, as it would wait for itself.
    pub async fn ended(&self) {
        self.mailbox.ended.wait().await;
    }

    /// Returns whether the handler is so far behind that it receives only the newest state of each object, until it has
    /// caught up.
    pub fn is_coalescing(&self) -> bool {
        self.mailbox.state.look(|state| state.ring.is_coalescing())
    }

    /// Returns the backlog of the handler.
    pub fn stats(&self) -> HandlerStats {
        self.mailbox.stats()
    }
}

impl<K> Clone for Registration<K> {
    fn clone(&self) -> Self {
        Self { mailbox: self.mailbox.clone() }
    }
}
