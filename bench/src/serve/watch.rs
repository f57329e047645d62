//! Watches, as lines that are produced on demand, so that a slow client delays only itself.

use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use watchkeeper::clock::{Clock, Instant};

use super::list::FRAME;
use super::options::Options;
use super::world::{Stage, World};

/// The API server's own pace of bookmarks.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// Marks the bookmark after the initial events.
const INITIAL_EVENTS_END: &str = r#""annotations":{"k8s.io/initial-events-end":"true"},"#;

/// The rate of events, and the observer of each.
#[derive(Clone, Debug)]
pub struct Pace {
    /// The time between two events.
    pub every: Duration,
    /// Called with each event just before it is written.
    pub sent: mpsc::Sender<Sent>,
}

/// An event that is written.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Its number, counted from 1: its version is so much above [`World::BEFORE`].
    pub number: u64,
    /// When it was to be written.
    pub due: Instant,
    /// The time just before it was.
    pub at: Instant,
}

impl Pace {
    /// When event `number` is due, if the first was at `start`.
    fn due(&self, number: u64, start: Instant) -> Instant {
        let nanos = self.every.as_nanos().saturating_mul(u128::from(number.saturating_sub(1)));
        start + Duration::from_nanos(nanos.try_into().unwrap_or(u64::MAX))
    }

    /// How many events were due at `now`, if the first was at `start`.
    fn passed(&self, now: Instant, start: Instant) -> u64 {
        let passed = now.saturating_duration_since(start).as_nanos();
        (passed / self.every.as_nanos().max(1)) as u64 + 1
    }
}

/// One client's watch.
pub(super) struct Watch {
    world: Arc<World>,
    clock: Clock,
    stages: watch::Receiver<Stage>,
    // The stage at which it began.
    stage: Stage,
    // Pods to show first, to a watch that asks for them.
    initial: Range<usize>,
    // The version of that state, as long as the bookmark behind the Pods is to be sent.
    initial_end: Option<u64>,
    next: Next,
    pace: Option<Pace>,
    bookmark: Option<Instant>,
    deadline: Option<Instant>,
}

enum Next {
    /// The number of the next event, counted from 1.
    Event(u64),
    /// Whether the requested version is older than the first list.
    Expired(u64),
    End,
}

impl Watch {
    pub(super) fn new(
        world: Arc<World>,
        clock: Clock,
        stages: watch::Receiver<Stage>,
        pace: Option<Pace>,
        options: &Options,
    ) -> Self {
        let stage = *stages.borrow();
        let now = clock.now();
        let version = world.list_version(&stage);
        let (passed, oldest) =
            (version - World::BEFORE, if stage.forgotten == 0 { World::BEFORE } else { version });
        let (initial, next) = match (options.initial_events, options.resource_version) {
            (Some(true), _) | (None, 0) => (0..world.len(), Next::Event(passed + 1)),
            (Some(false), _) => (0..0, Next::Event(passed + 1)),
            (None, version) if version < oldest => (0..0, Next::Expired(version)),
            (None, version) => (0..0, Next::Event(version - World::BEFORE + 1)),
        };
        let tells_end = options.bookmarks && options.initial_events == Some(true);
        Self {
            world,
            stages,
            stage,
            initial,
            initial_end: tells_end.then_some(version),
            next,
            pace,
            bookmark: options.bookmarks.then(|| now + BOOKMARK_EVERY),
            // More than a week counts as forever, and is safe to add.
            deadline: options.timeout_seconds.map(|seconds| now + Duration::from_secs(seconds.min(604_800))),
            clock,
        }
    }

    /// Returns the next lines; `None` when the watch is over. Waits while there are none.
    pub(super) async fn frame(&mut self) -> Option<Bytes> {
        loop {
            if self.deadline.is_some_and(|deadline| deadline <= self.clock.now()) {
                return None;
            }
            let stage = *self.stages.borrow_and_update();
            if let Next::Event(next) = self.next
                && stage.forgotten > self.stage.forgotten
            {
                self.next = Next::Expired(World::BEFORE + next - 1);
                (self.initial, self.initial_end) = (0..0, None);
            }
            if !self.initial.is_empty() || self.initial_end.is_some() {
                return Some(self.initial_lines());
            }
            let next = match self.next {
                Next::Event(next) => next,
                Next::Expired(version) => {
                    self.next = Next::End;
                    return Some(expired(version, self.world.list_version(&stage)).into());
                }
                Next::End => return None,
            };
            let last = if stage.started.is_some() { u64::from(self.world.events()) } else { 0 };
            let (now, paced) = (self.clock.now(), self.pace.as_ref().zip(stage.started));
            let passed = paced.map_or(last, |(pace, start)| pace.passed(now, start).min(last));
            if next <= passed {
                return Some(self.lines(next, passed, stage.started));
            }
            let due = paced.filter(|_| next <= last).map(|(pace, start)| pace.due(next, start));
            let (clock, bookmark) = (self.clock.clone(), self.bookmark);
            tokio::select! {
                biased;
                change = self.stages.changed() => if change.is_err() {
                    // The service is dropped, and no more events will come.
                    return None;
                },
                () = until(&clock, self.deadline) => return None,
                () = until(&clock, due) => {}
                () = until(&clock, bookmark) => {
                    self.bookmark = Some(clock.now() + BOOKMARK_EVERY);
                    return Some(bookmark_line(World::BEFORE + passed.max(next - 1), "").into());
                }
            }
        }
    }

    fn initial_lines(&mut self) -> Bytes {
        let mut out = Vec::with_capacity(FRAME + FRAME / 4);
        while out.len() < FRAME {
            let Some(index) = self.initial.next() else {
                if let Some(version) = self.initial_end.take() {
                    out.extend_from_slice(bookmark_line(version, INITIAL_EVENTS_END).as_bytes());
                }
                break;
            };
            self.world.write_initial(&mut out, index, &self.stage);
        }
        out.into()
    }

    fn lines(&mut self, first: u64, last: u64, start: Option<Instant>) -> Bytes {
        let mut next = first;
        let mut out = Vec::with_capacity(FRAME + FRAME / 4);
        while out.len() < FRAME && next <= last {
            // `last` is the number of events, which is a u32.
            self.world.write_event(&mut out, next as u32);
            next += 1;
        }
        self.next = Next::Event(next);
        if let (Some(pace), Some(start)) = (&self.pace, start) {
            let at = self.clock.now();
            for number in first..next {
                // There may be no listener.
                let _ = pace.sent.send(Sent { number, due: pace.due(number, start), at });
            }
        }
        out.into()
    }
}

/// Waits until `deadline`; forever without one. Cancel-safe.
async fn until(clock: &Clock, deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => clock.sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// A bookmark, with more members of its metadata, each with a comma behind it.
fn bookmark_line(version: u64, more: &str) -> String {
    let object = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"resourceVersion":"{version}",{more}"creationTimestamp":null}},"spec":{{"containers":null}},"status":{{}}}}"#
    );
    format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n")
}

fn expired(version: u64, oldest: u64) -> String {
    let message = format!("too old resource version: {version} ({oldest})");
    let object = super::service::status(410, "Expired", &message);
    format!("{{\"type\":\"ERROR\",\"object\":{object}}}\n")
}
