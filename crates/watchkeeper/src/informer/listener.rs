//! How does one handler get its notifications, whatever the others do?

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

/// Where one handler's notifications wait.
#[derive(Debug)]
pub(super) struct Mailbox<K> {
    name: String,
    state: Handover<State<K>>,
    synced: Latch,
    /// Nothing more is delivered, and no callback runs.
    ended: Latch,
    panics: AtomicU64,
    slow: AtomicU64,
}

#[derive(Debug)]
struct State<K> {
    ring: Ring<K>,
    closed: bool,
    /// The informer has put in all objects of its initial list.
    upstream_synced: bool,
    /// The handler is being told of an object of the initial list, or directly of all of them.
    initial_in_hand: bool,
}

impl<K> State<K> {
    fn has_synced(&self) -> bool {
        self.upstream_synced && self.ring.initial() == 0 && !self.initial_in_hand
    }
}

impl<K> Mailbox<K> {
    /// For the handler called `name`; more than `bound` changes are coalesced.
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

    /// Everything of the initial list has been put in.
    pub(super) fn upstream_synced(&self) {
        self.change(|state| state.upstream_synced = true);
    }

    fn is_closed(&self) -> bool {
        self.state.look(|state| state.closed)
    }

    /// Nothing more is delivered; a callback that runs comes to its end.
    pub(super) fn close(&self) {
        let dropped = self.state.change(|state| {
            state.closed = true;
            // What is dropped of the initial list was not told.
            state.upstream_synced &= state.ring.initial() == 0;
            state.ring.clear()
        });
        // Outside the lock, as this may be much.
        drop(dropped);
    }

    /// Tells that the handler will never be called.
    pub(super) fn end(&self) {
        self.ended.set();
    }

    pub(super) fn stats(&self) -> HandlerStats {
        let (pending, coalesced) = self.state.look(|state| (state.ring.len(), state.ring.coalesced()));
        let [panics, slow] = [&self.panics, &self.slow].map(|count| count.load(Ordering::Relaxed));
        HandlerStats { name: self.name.clone(), pending, coalesced, panics, slow }
    }

    /// A change after which the handler may have synced: the last of the initial list can also be coalesced away.
    fn change(&self, change: impl FnOnce(&mut State<K>)) {
        let has_synced = self.state.change(|state| {
            change(state);
            state.has_synced()
        });
        if has_synced && !self.synced.is_set() {
            self.synced.set();
        }
    }

    /// The next notification; `None` once the mailbox is closed.
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
    /// Calls the handler, and counts how that went.
    fn tell(&self, notification: &Notification<K>, handler: &mut dyn Handler<K>, env: &Env) {
        let told = tell(notification, handler, &self.name, env);
        for (count, happened) in [(&self.panics, told.panicked), (&self.slow, told.was_slow)] {
            if happened {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A handler that sees every state: called where changes are distributed, and not from its mailbox, which stays empty.
pub(super) struct Direct<K> {
    pub(super) mailbox: Arc<Mailbox<K>>,
    /// Locked while it is told: changes wait until a handler that joined late knows all objects.
    handler: Mutex<Box<dyn Handler<K>>>,
}

/// The right to tell a [`Direct`] handler.
pub(super) type Turn<'a, K> = MutexGuard<'a, Box<dyn Handler<K>>>;

impl<K: 'static> Direct<K> {
    pub(super) fn new(mailbox: &Arc<Mailbox<K>>, handler: Box<dyn Handler<K>>) -> Self {
        Self { mailbox: mailbox.clone(), handler: Mutex::new(handler) }
    }

    pub(super) fn turn(&self) -> Turn<'_, K> {
        self.handler.lock()
    }

    /// Takes the turn to tell all objects that are there. It has not synced before [`tell_initial`](Self::tell_initial) has.
    pub(super) fn initial_turn(&self) -> Turn<'_, K> {
        self.mailbox.state.look(|state| state.initial_in_hand = true);
        self.turn()
    }

    pub(super) fn tell_initial(
        &self,
        turn: Turn<'_, K>,
        adds: impl Iterator<Item = Notification<K>>,
        env: &Env,
    ) {
        if self.tell(turn, adds, env) {
            self.mailbox.change(|state| state.initial_in_hand = false);
        }
    }

    /// Tells one after the other, unless the handler is removed meanwhile: whether all were told. A panic costs it that one notification.
    ///
    /// The caller holds no locks: the handler's code may use the informer, and so may hooks that hear of its panics.
    pub(super) fn tell<N: std::borrow::Borrow<Notification<K>>>(
        &self,
        mut turn: Turn<'_, K>,
        mut notifications: impl Iterator<Item = N>,
        env: &Env,
    ) -> bool {
        let told_all = notifications.all(|notification| {
            let is_open = !self.mailbox.is_closed();
            if is_open {
                self.mailbox.tell(notification.borrow(), &mut **turn, env);
            }
            is_open
        });
        drop(turn);
        // Whoever closed it during this turn left its end to us.
        if self.mailbox.is_closed() {
            self.mailbox.end();
        }
        told_all
    }

    /// Nothing more is told; a callback that runs comes to its end.
    pub(super) fn close(&self) {
        self.mailbox.close();
        if self.handler.try_lock().is_some() {
            self.mailbox.end();
        }
    }
}

/// Delivers what is in the mailbox, one after the other, until it is closed. A panic of the handler costs it that one notification.
pub(super) async fn deliver<K: 'static>(
    mailbox: Arc<Mailbox<K>>,
    mut handler: Box<dyn Handler<K>>,
    env: Env,
) {
    let _ending = Ending(&mailbox);
    while let Some(notification) = mailbox.next().await {
        mailbox.tell(&notification, &mut *handler, &env);
        if notification.is_initial_add() {
            mailbox.change(|state| state.initial_in_hand = false);
        }
        // A handler with much to do lets other tasks run in between.
        crate::fair::give_way().await;
    }
}

/// A callback that takes longer is reported: it holds up its thread, and with it whatever else the runtime would run there.
const SLOW: Duration = Duration::from_millis(100);

/// How a callback went.
pub(super) struct Told {
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

/// Calls `handler`; a panic and a callback that took long are reported under its name.
pub(super) fn tell<K: 'static>(
    notification: &Notification<K>,
    handler: &mut dyn Handler<K>,
    name: &str,
    env: &Env,
) -> Told {
    let began = env.clock.now();
    let panicked = env.reporter.guard("handler", name, || notification.tell(handler)).is_none();
    let took = env.clock.now().saturating_duration_since(began);
    if took > SLOW {
        env.reporter.error("handler", name, &Blocked { key: notification.key(), took });
    }
    Told { panicked, was_slow: took > SLOW }
}

/// Tells of the end, also where the task is aborted.
struct Ending<'a, K>(&'a Mailbox<K>);

impl<K> Drop for Ending<'_, K> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A handler's place at its informer. Clones are the same place.
#[derive(Debug)]
pub struct Registration<K> {
    pub(super) mailbox: Arc<Mailbox<K>>,
}

impl<K> Registration<K> {
    /// What reports call the handler.
    pub fn name(&self) -> &str {
        &self.mailbox.name
    }

    /// Whether the handler has been told of every object that was there when it began. Objects that were gone before their turn count as
    /// told, and so does a notification on which the handler panicked.
    pub fn has_synced(&self) -> bool {
        self.mailbox.synced.is_set()
    }

    /// Waits until [`Registration::has_synced`]; for ever where that never comes, see [`Registration::synced_or_ended`]. Cancel-safe.
    pub async fn wait_until_synced(&self) {
        self.mailbox.synced.wait().await;
    }

    /// Waits until it has synced, or has [ended](Registration::ended) without: whether it has synced. Cancel-safe.
    pub async fn synced_or_ended(&self) -> bool {
        tokio::select! {
            biased;
            () = self.wait_until_synced() => true,
            () = self.ended() => false,
        }
    }

    /// Waits until the handler was removed, or its informer has stopped, and its last callback has come to its end. Cancel-safe.
    ///
    /// Not for use in a callback of the same handler, which would wait for itself.
    pub async fn ended(&self) {
        self.mailbox.ended.wait().await;
    }

    /// Whether the handler is so far behind that it is told the newest state of each object only, until it has caught up.
    pub fn is_coalescing(&self) -> bool {
        self.mailbox.state.look(|state| state.ring.is_coalescing())
    }

    /// How far behind the handler is.
    pub fn stats(&self) -> HandlerStats {
        self.mailbox.stats()
    }
}

impl<K> Clone for Registration<K> {
    fn clone(&self) -> Self {
        Self { mailbox: self.mailbox.clone() }
    }
}
