//! Distribution of notifications: changes to all handlers, resyncs to those that are due.

use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;

use super::handler::{Handler, Notification};
use super::listener::{Direct, Mailbox};
use super::metrics::HandlerStats;
use crate::clock::{FAR, Instant};
use crate::env::Env;

/// Settings of a handler.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HandlerOptions {
    /// The name in reports; the type's name by default.
    pub name: Option<String>,
    /// The period after which every object is delivered again: the informer's period by default, zero for never.
    pub resync: Option<Duration>,
    /// The number of changes that are kept one by one before they are coalesced; 4,096 by default. It does not apply to
    /// a handler that [sees every state](Handler::sees_every_state).
    pub bound: Option<usize>,
}

impl HandlerOptions {
    /// Sets the name in reports.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Delivers every object again after each `period`; zero for never.
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// Sets the number of changes that are kept one by one before they are coalesced.
    #[must_use]
    pub fn bound(mut self, changes: usize) -> Self {
        self.bound = Some(changes);
        self
    }
}

/// The handlers of one informer.
pub(super) struct Processor<K> {
    listeners: Vec<Listener<K>>,
    hasher: FixedState,
    /// The interval at which the informer checks which handlers are due; `None` for never. Fixed once it has started.
    check_period: Option<Duration>,
    started: bool,
}

pub(super) struct Listener<K> {
    pub(super) mailbox: Arc<Mailbox<K>>,
    /// The handler, until its task takes it; none if it is called directly.
    pub(super) handler: Option<Box<dyn Handler<K>>>,
    pub(super) direct: Option<Arc<Direct<K>>>,
    requested: Duration,
    next_resync: Instant,
    /// Whether it receives resyncs: all do until the first check.
    syncing: bool,
}

/// The minimum of resync periods.
const SHORTEST: Duration = Duration::from_secs(1);

/// The default of [`HandlerOptions::bound`].
const BOUND: usize = 4096;

impl<K: 'static> Processor<K> {
    /// Takes the informer's own resync period, and a hasher for keys from outside.
    pub(super) fn new(resync: Duration, hasher: FixedState) -> Self {
        let check_period = (!resync.is_zero()).then_some(resync.min(FAR));
        Self { listeners: Vec::new(), hasher, check_period, started: false }
    }

    /// Adds a handler; the caller starts its task.
    pub(super) fn add(
        &mut self,
        handler: Box<dyn Handler<K>>,
        name: String,
        requested: Duration,
        bound: Option<usize>,
        now: Instant,
    ) -> &mut Listener<K> {
        let name = self.own_name(name);
        let requested = self.granted(&name, requested);
        let mailbox = Arc::new(Mailbox::new(name, bound.unwrap_or(BOUND), self.hasher.clone()));
        let (handler, direct) = if handler.sees_every_state() {
            (None, Some(Arc::new(Direct::new(&mailbox, handler))))
        } else {
            (Some(handler), None)
        };
        self.listeners.push(Listener {
            mailbox,
            handler,
            direct,
            requested,
            next_resync: now + effective(requested, self.check_period),
            syncing: true,
        });
        let last = self.listeners.len() - 1;
        &mut self.listeners[last]
    }

    /// Returns a name that no other handler has, as reports and metrics identify handlers by name.
    fn own_name(&self, name: String) -> String {
        let is_taken = |name: &str| self.listeners.iter().any(|listener| listener.mailbox.name() == name);
        let numbered = (2..).map(|copy| format!("{name} {copy}"));
        std::iter::once(name.clone()).chain(numbered).find(|name| !is_taken(name)).unwrap_or(name)
    }

    /// Returns the period that a handler gets instead of the requested one; a short one may shorten the informer's.
    fn granted(&mut self, handler: &str, requested: Duration) -> Duration {
        if requested.is_zero() {
            return requested;
        }
        if requested < SHORTEST {
            tracing::warn!(handler, ?requested, shortest = ?SHORTEST, "resync period raised to the shortest");
        }
        let requested = requested.clamp(SHORTEST, FAR);
        match self.check_period {
            None => {
                tracing::warn!(handler, ?requested, "no resyncs for this handler: its informer has none");
                requested
            }
            Some(check) if requested < check && self.started => {
                tracing::warn!(
                    handler,
                    ?requested,
                    ?check,
                    "resync period raised: the informer runs already"
                );
                check
            }
            Some(check) => {
                self.check_period = Some(check.min(requested));
                requested
            }
        }
    }

    /// Removes a handler, for the caller to close after releasing its locks.
    #[must_use]
    pub(super) fn remove(&mut self, mailbox: &Arc<Mailbox<K>>) -> Option<Listener<K>> {
        let at = self.listeners.iter().position(|listener| Arc::ptr_eq(&listener.mailbox, mailbox))?;
        Some(self.listeners.remove(at))
    }

    pub(super) fn start(&mut self) -> &mut [Listener<K>] {
        self.started = true;
        &mut self.listeners
    }

    /// Removes all handlers, for the caller to close after releasing its locks.
    #[must_use]
    pub(super) fn stop(&mut self) -> Vec<Listener<K>> {
        std::mem::take(&mut self.listeners)
    }

    pub(super) fn check_period(&self) -> Option<Duration> {
        self.check_period
    }

    /// Puts notifications into all mailboxes, and resyncs only into those that are due. The caller delivers the result
    /// after releasing its locks.
    pub(super) fn distribute(&self, notifications: Vec<Notification<K>>) -> Undelivered<K> {
        let direct = |listener: &Listener<K>| Some((listener.direct.clone()?, listener.syncing));
        let handlers: Vec<_> = self.listeners.iter().filter_map(direct).collect();
        let mut others = self.listeners.iter().filter(|listener| listener.direct.is_none());
        // The last handler takes them without sharing.
        let last = if handlers.is_empty() { others.next_back() } else { None };
        for listener in others {
            let wanted = notifications.iter().filter(|notification| listener.wants(notification));
            listener.mailbox.put(wanted.cloned());
        }
        let Some(last) = last else { return Undelivered { notifications, handlers } };
        last.mailbox.put(notifications.into_iter().filter(|notification| last.wants(notification)));
        Undelivered { notifications: Vec::new(), handlers }
    }

    pub(super) fn upstream_synced(&self) {
        self.listeners.iter().for_each(|listener| listener.mailbox.upstream_synced());
    }

    pub(super) fn stats(&self) -> Vec<HandlerStats> {
        self.listeners.iter().map(|listener| listener.mailbox.stats()).collect()
    }

    /// Marks the handlers that are due for a resync; returns whether there are any.
    pub(super) fn mark_due(&mut self, now: Instant) -> bool {
        let check = self.check_period;
        for listener in &mut self.listeners {
            let period = effective(listener.requested, check);
            listener.syncing = !period.is_zero() && now >= listener.next_resync;
            if listener.syncing {
                listener.next_resync = now + period;
            }
        }
        self.listeners.iter().any(|listener| listener.syncing)
    }
}

/// Notifications that are still to be delivered to handlers that see every state.
#[must_use = "deliver it after releasing all locks"]
pub(super) struct Undelivered<K> {
    notifications: Vec<Notification<K>>,
    /// Each with whether it receives resyncs.
    handlers: Vec<(Arc<Direct<K>>, bool)>,
}

impl<K: 'static> Undelivered<K> {
    pub(super) fn deliver(self, env: &Env) {
        for (handler, syncing) in self.handlers {
            let wanted = self.notifications.iter().filter(|one| syncing || !one.is_resync());
            handler.call_each(handler.turn(), wanted, env);
        }
    }
}

impl<K: 'static> Listener<K> {
    fn wants(&self, notification: &Notification<K>) -> bool {
        match notification {
            Notification::Superseded(_) => false,
            other => self.syncing || !other.is_resync(),
        }
    }

    /// Drops the pending notifications, and the handler if no task owns it; its code may use the informer then.
    pub(super) fn close(self) {
        if let Some(direct) = self.direct {
            return direct.close();
        }
        self.mailbox.close();
        if self.handler.is_some() {
            // No task has taken it, and none will.
            self.mailbox.end();
        }
    }
}

/// Returns the period that a handler gets: none if the informer does not resync, otherwise at least the informer's.
fn effective(requested: Duration, check: Option<Duration>) -> Duration {
    match check {
        Some(check) if !requested.is_zero() => requested.max(check),
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    struct Nothing;
    impl Handler<()> for Nothing {}

    const SECOND: Duration = Duration::from_secs(1);

    fn add(processor: &mut Processor<()>, seconds: u64, now: Instant) {
        processor.add(Box::new(Nothing), "h".into(), SECOND * seconds as u32, None, now);
    }

    fn due(processor: &mut Processor<()>, now: Instant) -> Vec<usize> {
        processor.mark_due(now);
        (0..processor.listeners.len()).filter(|at| processor.listeners[*at].syncing).collect()
    }

    // client-go: TestResyncCheckPeriod
    #[test]
    fn a_shorter_request_lowers_the_check_period_before_the_start_only() {
        let now = Clock::system().now();
        let twelve_hours = SECOND * 12 * 60 * 60;
        let mut processor = Processor::new(twelve_hours, FixedState::default());
        for (requested, check) in [(0, twelve_hours), (60, SECOND * 60), (55, SECOND * 55), (5, SECOND * 5)] {
            add(&mut processor, requested, now);
            assert_eq!(processor.check_period(), Some(check));
        }
        processor.start();
        add(&mut processor, 2, now);
        assert_eq!(processor.check_period(), Some(SECOND * 5));
        // The requested periods are kept.
        let periods =
            processor.listeners.iter().map(|listener| effective(listener.requested, Some(SECOND * 5)));
        assert!(periods.eq([0, 60, 55, 5, 5].map(|seconds| SECOND * seconds)));
    }

    // client-go: TestListenerResyncPeriods
    #[test]
    fn each_handler_is_due_at_its_own_period() {
        let now = Clock::system().now();
        let mut processor = Processor::new(SECOND, FixedState::default());
        add(&mut processor, 0, now);
        add(&mut processor, 2, now);
        add(&mut processor, 3, now);
        let at = |seconds| now + SECOND * seconds;
        assert!(due(&mut processor, at(1)).is_empty());
        assert_eq!(due(&mut processor, at(2)), [1]);
        assert_eq!(due(&mut processor, at(3)), [2]);
        assert_eq!(due(&mut processor, at(4)), [1]);
        assert_eq!(due(&mut processor, at(6)), [1, 2]);
    }

    #[test]
    fn an_informer_without_resync_never_finds_anyone_due() {
        let now = Clock::system().now();
        let mut processor = Processor::new(Duration::ZERO, FixedState::default());
        add(&mut processor, 2, now);
        assert_eq!(processor.check_period(), None);
        assert!(!processor.mark_due(now + SECOND * 100));
    }
}
