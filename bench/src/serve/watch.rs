//! How do events reach a client? As lines that are made when the connection asks for them: a slow client slows only itself.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use watchkeeper::clock::{Clock, Instant};

use super::list::FRAME;
use super::options::Options;
use super::world::World;

/// The API server's own pace of bookmarks.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// What tells the bookmark behind the initial events from others.
const INITIAL_EVENTS_END: &str = r#""annotations":{"k8s.io/initial-events-end":"true"},"#;

/// One client's watch.
pub(super) struct Watch {
    world: Arc<World>,
    clock: Clock,
    started: watch::Receiver<bool>,
    // Pods to show first, to a watch that asks for them, and the state they are in.
    initial: Range<usize>,
    after: bool,
    // The version of that state, as long as the bookmark behind the Pods is to be sent.
    initial_end: Option<u64>,
    next: Next,
    bookmark: Option<Instant>,
    deadline: Option<Instant>,
}

enum Next {
    /// The number of the next event, counted from 1.
    Event(u64),
    /// The version asked for is older than the first list.
    Expired(u64),
    End,
}

impl Watch {
    pub(super) fn new(
        world: Arc<World>,
        clock: Clock,
        started: watch::Receiver<bool>,
        options: &Options,
    ) -> Self {
        let after = *started.borrow();
        let now = clock.now();
        let passed = if after { u64::from(world.events()) } else { 0 };
        let (initial, next) = match (options.initial_events, options.resource_version) {
            (Some(true), _) | (None, 0) => (0..world.len(), Next::Event(passed + 1)),
            (Some(false), _) => (0..0, Next::Event(passed + 1)),
            (None, version) if version < World::BEFORE => (0..0, Next::Expired(version)),
            (None, version) => (0..0, Next::Event(version - World::BEFORE + 1)),
        };
        let tells_end = options.bookmarks && options.initial_events == Some(true);
        Self {
            world,
            started,
            initial,
            after,
            initial_end: tells_end.then_some(World::BEFORE + passed),
            next,
            bookmark: options.bookmarks.then(|| now + BOOKMARK_EVERY),
            // Longer than a week is as good as for ever, and safe to add.
            deadline: options.timeout_seconds.map(|seconds| now + Duration::from_secs(seconds.min(604_800))),
            clock,
        }
    }

    /// The next lines; `None` when the watch is over. Waits while there is nothing to tell.
    pub(super) async fn frame(&mut self) -> Option<Bytes> {
        loop {
            if self.deadline.is_some_and(|deadline| deadline <= self.clock.now()) {
                return None;
            }
            if !self.initial.is_empty() || self.initial_end.is_some() {
                return Some(self.initial_lines());
            }
            let next = match self.next {
                Next::Event(next) => next,
                Next::Expired(version) => {
                    self.next = Next::End;
                    return Some(expired(version).into());
                }
                Next::End => return None,
            };
            let last = if *self.started.borrow_and_update() { u64::from(self.world.events()) } else { 0 };
            if next <= last {
                return Some(self.lines(next, last));
            }
            let (clock, bookmark) = (self.clock.clone(), self.bookmark);
            tokio::select! {
                biased;
                change = self.started.changed() => if change.is_err() {
                    // The service is gone, and no event will come any more.
                    return None;
                },
                () = until(&clock, self.deadline) => return None,
                () = until(&clock, bookmark) => {
                    self.bookmark = Some(clock.now() + BOOKMARK_EVERY);
                    return Some(bookmark_line(World::BEFORE + last.max(next - 1), "").into());
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
            self.world.write_initial(&mut out, index, self.after);
        }
        out.into()
    }

    fn lines(&mut self, mut next: u64, last: u64) -> Bytes {
        let mut out = Vec::with_capacity(FRAME + FRAME / 4);
        while out.len() < FRAME && next <= last {
            // `last` is the number of events, which is a u32.
            self.world.write_event(&mut out, next as u32);
            next += 1;
        }
        self.next = Next::Event(next);
        out.into()
    }
}

/// Waits until `deadline`; for ever without one. Cancel-safe.
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

fn expired(version: u64) -> String {
    let message = format!("too old resource version: {version} ({})", World::BEFORE);
    let object = super::service::status(410, "Expired", &message);
    format!("{{\"type\":\"ERROR\",\"object\":{object}}}\n")
}
