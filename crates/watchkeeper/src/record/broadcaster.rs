//! Distribution of events: from recorders into a bounded queue for each sink, without waiting.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio_util::sync::CancellationToken;

use super::counts::{Counters, EventCounts};
use super::name::event_name;
use super::occurrence::Occurrence;
use super::recent::RecentEvents;
use super::recorder::EventRecorder;
use crate::env::Env;

/// The default capacity of each sink's queue.
const CAPACITY: usize = 1000;

/// Passes every event of its recorders to every sink. Clones share it.
///
/// A sink receives the events that are recorded after it has [subscribed](Self::subscribe), in order. If its queue is
/// full, it misses the event, which is counted; the first one missed is also reported, and the next one only after half of
/// the queue was free again. No other sink is affected, and recorders never wait.
///
/// When the last clone and the last recorder are dropped, the sinks receive the remaining events and end.
///
/// ```
/// # use tokio_util::sync::CancellationToken;
/// # use tracing::Level;
/// # use watchkeeper::record::{ApiSink, CorrelatorOptions, EventApi, EventBroadcaster, LogSink};
/// # async fn example(client: watchkeeper::Client, stop: CancellationToken) {
/// let events = EventBroadcaster::new(client.env());
/// let recorder = events.recorder("my-controller").host("node-7");
/// let to_server = ApiSink::new(client.requests(), client.env())
///     .api(EventApi::CoreV1)
///     .correlator(CorrelatorOptions::default().spam_filter(100, std::time::Duration::from_secs(60)));
/// tokio::join!(
///     to_server.run(events.subscribe(), stop.clone()),
///     LogSink::new(Level::DEBUG).run(events.subscribe(), stop),
/// );
/// # drop(recorder);
/// # }
/// ```
#[derive(Clone)]
pub struct EventBroadcaster(Arc<Hub>);

pub(super) struct Hub {
    pub(super) env: Env,
    capacity: usize,
    sinks: Mutex<Sinks>,
    pub(super) counters: Arc<Counters>,
    pub(super) recent: RecentEvents,
    /// The time in the last event's name, which is unique.
    stamp: AtomicU64,
}

#[derive(Default)]
struct Sinks {
    open: Vec<Sink>,
    shut_down: bool,
}

struct Sink {
    queue: mpsc::Sender<Arc<Occurrence>>,
    /// The number of events missed since it was last caught up: only the first of them is reported.
    missed: u64,
}

impl Sink {
    /// Whether it has missed events, and half of its queue is free again: in a burst, a slow sink makes room for one event after
    /// the other.
    fn has_caught_up(&self) -> bool {
        self.missed > 0 && 2 * self.queue.capacity() >= self.queue.max_capacity()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("a sink of events is full, and misses events until it has caught up: {0}")]
struct Full(String);

impl EventBroadcaster {
    /// Returns a broadcaster without sinks, whose queues hold 1000 events.
    pub fn new(env: &Env) -> Self {
        Self::with_capacity(env, CAPACITY)
    }

    /// Returns a broadcaster whose queues hold `capacity` events, and at least one.
    pub fn with_capacity(env: &Env, capacity: usize) -> Self {
        Self(Arc::new(Hub {
            env: env.clone(),
            capacity: capacity.max(1),
            sinks: Mutex::default(),
            counters: Arc::default(),
            recent: RecentEvents::default(),
            stamp: AtomicU64::new(0),
        }))
    }

    /// Returns a recorder for the component of that name.
    pub fn recorder(&self, component: &str) -> EventRecorder {
        EventRecorder::new(component, &self.0)
    }

    /// Returns a stream of all events recorded from now on. After [`Self::shut_down`] there are none.
    pub fn subscribe(&self) -> EventStream {
        let (sender, queue) = mpsc::channel(self.0.capacity);
        let mut sinks = self.0.sinks.lock();
        if !sinks.shut_down {
            sinks.open.push(Sink { queue: sender, missed: 0 });
        }
        EventStream { queue, counters: self.0.counters.clone() }
    }

    /// Stops accepting events: later ones are dropped and counted. Sinks receive the earlier ones, and end. May be
    /// called again.
    pub fn shut_down(&self) {
        *self.0.sinks.lock() = Sinks { open: Vec::new(), shut_down: true };
    }

    /// Returns the counts of all events so far.
    pub fn counts(&self) -> EventCounts {
        self.0.counters.now()
    }
}

impl Hub {
    /// Returns a name for an event on `object` that no other event of this broadcaster has.
    pub(super) fn name(&self, object: &str, nanoseconds: i128) -> String {
        let now = u64::try_from(nanoseconds).unwrap_or_default();
        let next = |last: u64| now.max(last + 1);
        let last = self.stamp.fetch_update(Relaxed, Relaxed, |last| Some(next(last)));
        event_name(object, next(last.unwrap_or_default()), &self.env.generator)
    }

    /// Passes `event` to every sink whose queue has room.
    pub(super) fn send(&self, event: Occurrence) {
        let event = Arc::new(event);
        self.recent.push(event.clone());
        let (mut dropped, mut first_missed, mut caught_up) = (0, false, Vec::new());
        {
            let mut sinks = self.sinks.lock();
            if sinks.open.is_empty() {
                dropped = 1;
            }
            sinks.open.retain_mut(|sink| {
                if sink.has_caught_up() {
                    caught_up.push(std::mem::take(&mut sink.missed));
                }
                let sent = sink.queue.try_send(event.clone());
                dropped += u64::from(sent.is_err());
                if matches!(sent, Err(TrySendError::Full(_))) {
                    first_missed |= sink.missed == 0;
                    sink.missed += 1;
                }
                !matches!(sent, Err(TrySendError::Closed(_)))
            });
        }
        self.counters.recorded.fetch_add(1, Relaxed);
        self.counters.dropped.fetch_add(dropped, Relaxed);
        for missed in caught_up {
            tracing::info!(missed, "a sink of events has caught up");
        }
        if first_missed {
            // Outside the lock: a report hook may record an event.
            self.env.reporter.error("events", &event.object().to_string(), &Full(event.to_string()));
        }
    }
}

impl fmt::Debug for EventBroadcaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBroadcaster").field("counts", &self.counters.now()).finish_non_exhaustive()
    }
}

/// The events of a broadcaster, for one sink.
#[derive(Debug)]
pub struct EventStream {
    queue: mpsc::Receiver<Arc<Occurrence>>,
    pub(super) counters: Arc<Counters>,
}

impl EventStream {
    /// Returns the next event; none when no more will come. Cancel-safe.
    pub async fn recv(&mut self) -> Option<Arc<Occurrence>> {
        self.queue.recv().await
    }

    /// Returns the next event as [`Self::recv`] does, but none that is recorded after `stop`. Cancel-safe.
    pub async fn recv_until(&mut self, stop: &CancellationToken) -> Option<Arc<Occurrence>> {
        tokio::select! {
            biased;
            () = stop.cancelled() => self.close(),
            event = self.recv() => return event,
        }
        self.recv().await
    }

    /// Stops accepting events; queued ones can still be received.
    pub fn close(&mut self) {
        self.queue.close();
    }

    /// Returns the number of queued events.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }
}
