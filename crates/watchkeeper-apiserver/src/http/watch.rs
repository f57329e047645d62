//! How does a client follow changes? A cursor into the log of changes, which the body of the answer pulls forward.
//!
//! There is no task and no queue per watch: a reader that does not read costs nothing, and one that falls out of the history is told so.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use watchkeeper::clock::{Clock, Instant};

use crate::failure::Failure;
use crate::http::negotiate::Form;
use crate::http::reply::{Chunks, metadata_version};
use crate::http::shared::Shared;
use crate::kinds::kind::Kind;
use crate::state::selector::Selector;
use crate::state::store::{Change, Followed, Forgotten, Store, Stored, Text, View};

/// How much a body takes out of the log at a time: it bounds the memory of a watch and the time under the lock.
const CHUNK: usize = 64 * 1024;

/// Before a watch times out it gets a last bookmark, so that the next one can resume there.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// What a watch was asked for.
#[derive(Debug)]
pub(crate) struct WatchRequest {
    pub(crate) kind: Arc<Kind>,
    pub(crate) namespace: Option<String>,
    pub(crate) selector: Selector,
    pub(crate) form: Form,
    pub(crate) start: Start,
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Duration,
    /// Ends the watch with the listener that serves it.
    pub(crate) stop: Option<CancellationToken>,
}

/// From where a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// What is there now, as ADDED events; then changes.
    Initial,
    /// Changes after this version.
    After(u64),
    /// Changes from now on.
    Now,
}

/// What the log has for a watch.
enum Next {
    Changes(Vec<Change>),
    Nothing,
    /// There will be no more.
    End,
    Forgotten(Forgotten),
}

/// The body of a watch.
pub(crate) struct WatchBody {
    shared: Arc<Shared>,
    clock: Clock,
    followed: Followed,
    kind: Arc<Kind>,
    namespace: Option<String>,
    selector: Selector,
    form: Form,
    /// Everything up to this revision has been sent, or was none of this watch's business.
    cursor: u64,
    /// Objects of the first state that are still to be sent.
    initial: VecDeque<Arc<Stored>>,
    /// The end of the first state is still to be announced.
    announce: bool,
    /// An error to end with.
    failed: Option<Box<Failure>>,
    epoch: u64,
    bookmarks: Option<Instant>,
    last_bookmark: Option<Instant>,
    ends: Instant,
    alarm: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    alarm_at: Option<Instant>,
    stop: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    ready: VecDeque<Bytes>,
    /// The columns of a table have been sent.
    headed: bool,
    ended: bool,
}

impl fmt::Debug for WatchBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchBody")
            .field("kind", &self.kind.kind)
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

impl WatchBody {
    /// Opens a watch. A start that is too old is told by the stream, not refused.
    pub(crate) fn open(shared: &Arc<Shared>, store: &mut Store, request: WatchRequest) -> Self {
        let WatchRequest { kind, namespace, selector, form, start, bookmarks, timeout, stop } = request;
        let clock = shared.clock.clone();
        let now = clock.now();
        let (mut initial, mut failed) = (VecDeque::new(), None);
        let cursor = match start {
            Start::Initial => {
                initial.extend(store.range(&kind.storage, namespace.as_deref(), None).cloned());
                store.revision()
            }
            Start::Now => store.revision(),
            Start::After(version) => {
                let oldest = store.oldest(&kind.storage);
                if version < oldest {
                    failed = Some(Failure::expired(version, oldest));
                }
                version
            }
        };
        let epoch = store.watch_epoch();
        let followed = store.follow(&kind.storage, shared.next_watch());
        // Some three years: far beyond any watch, and no overflow of the clock.
        let timeout = timeout.min(Duration::from_secs(100_000_000));
        let ends = now + timeout;
        Self {
            shared: shared.clone(),
            clock,
            followed,
            kind,
            namespace,
            selector,
            form,
            cursor,
            initial,
            announce: start == Start::Initial && bookmarks,
            failed,
            epoch,
            bookmarks: bookmarks.then(|| now + shared.bookmark_period),
            last_bookmark: (bookmarks && timeout > shared.bookmark_period)
                .then(|| now + timeout.saturating_sub(LAST_BOOKMARK)),
            ends,
            alarm: None,
            alarm_at: None,
            stop: stop.map(|token| Box::pin(token.cancelled_owned())),
            ready: VecDeque::new(),
            headed: false,
            ended: false,
        }
    }

    /// The next piece of the stream; none when the watch is over. Pulled by the connection, at its own pace.
    pub(crate) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Poll::Ready(Some(chunk));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            if self.stop.as_mut().is_some_and(|stop| stop.as_mut().poll(cx).is_ready()) {
                self.ended = true;
                continue;
            }
            // Also for a watch that is never idle.
            if self.clock.now() >= self.ends {
                self.ended = true;
                continue;
            }
            let chunks = self.pull(cx);
            self.ready = chunks.finish();
            if !self.ready.is_empty() || self.ended {
                continue;
            }
            self.check_time();
            if !self.ready.is_empty() || self.ended {
                continue;
            }
            // Nothing to send: wait for a change (the waker is set) or for the time of the next duty.
            if self.poll_alarm(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Takes what there is out of the log, up to a bound; asks to be woken when there is nothing.
    fn pull(&mut self, cx: &Context<'_>) -> Chunks {
        let mut chunks = Chunks::default();
        let mut size = 0;
        if let Some(failure) = self.failed.take() {
            self.fail(&mut chunks, &failure);
            return chunks;
        }
        while size < CHUNK {
            let Some(stored) = self.initial.pop_front() else { break };
            if self.selector.matches(&stored) {
                size += self.write(&mut chunks, "ADDED", &stored, false);
            }
        }
        if size >= CHUNK {
            return chunks;
        }
        if self.announce {
            self.announce = false;
            self.write_bookmark(&mut chunks, true);
        }
        let mut news = Vec::new();
        while news.is_empty() {
            match self.follow(cx, size == 0) {
                Next::Changes(changes) => self.collect(&changes, size, &mut news),
                Next::Nothing => break,
                Next::End => {
                    self.ended = true;
                    break;
                }
                Next::Forgotten(Forgotten { oldest }) => {
                    self.fail(&mut chunks, &Failure::expired(self.cursor, oldest));
                    break;
                }
            }
        }
        for (kind, stored) in &news {
            self.write(&mut chunks, kind, stored, true);
        }
        chunks
    }

    /// Takes what there is of the log, which is looked at without the lock: a selector may be long. Asks to be woken when there is nothing and
    /// the watch is `idle`.
    fn follow(&mut self, cx: &Context<'_>, idle: bool) -> Next {
        let shared = self.shared.clone();
        let mut core = shared.core.lock();
        if core.store.watch_epoch() != self.epoch {
            return Next::End;
        }
        match core.store.next_changes(&self.followed, self.cursor, CHUNK) {
            Ok(changes) if changes.is_empty() => {}
            Ok(changes) => return Next::Changes(changes),
            Err(forgotten) => return Next::Forgotten(forgotten),
        }
        if core.store.is_over(&self.followed) {
            return Next::End;
        }
        let replaced = idle.then(|| core.store.wake_on_change(&self.followed, cx.waker()));
        // Nothing up to here concerns this watch: a bookmark may say so.
        self.cursor = self.cursor.max(core.store.safe_revision());
        drop(core);
        drop(replaced);
        Next::Nothing
    }

    /// Moves the cursor over changes and keeps those to be told, up to a bound.
    fn collect(&mut self, changes: &[Change], mut size: usize, news: &mut Vec<(&'static str, Arc<Stored>)>) {
        for change in changes {
            if size >= CHUNK {
                break;
            }
            self.cursor = change.revision;
            if let Some((kind, stored)) = self.concerns(change) {
                size += stored.bytes.len();
                news.push((kind, stored));
            }
        }
    }

    /// What a change means to this watch, if anything: an object that stops to match is gone for it.
    fn concerns(&self, change: &Change) -> Option<(&'static str, Arc<Stored>)> {
        if self.namespace.as_ref().is_some_and(|namespace| *namespace != change.after.key.namespace) {
            return None;
        }
        let before = change.before.as_ref().filter(|before| self.selector.matches(before));
        let now = !change.removed && self.selector.matches(&change.after);
        match (before, now) {
            (None, false) => None,
            (None, true) => Some(("ADDED", change.after.clone())),
            (Some(_), true) => Some(("MODIFIED", change.after.clone())),
            (Some(_), false) if change.removed => Some(("DELETED", change.after.clone())),
            // The state before, which matched, with the version of the change.
            (Some(before), false) => {
                let left = change.left.get_or_init(|| {
                    let mut value = before.value();
                    crate::kinds::meta::set(&mut value, "resourceVersion", &change.revision.to_string());
                    Arc::new(Stored::encode(&self.kind, before.key.clone(), change.revision, &value))
                });
                Some(("DELETED", left.clone()))
            }
        }
    }

    /// Writes an event. The text of a `fresh` change is shared with other watches that want the same view; that of the first state
    /// is not kept, which would hold every object twice.
    fn write(&mut self, chunks: &mut Chunks, kind: &str, stored: &Stored, fresh: bool) -> usize {
        let share = |view: View, make: &dyn Fn() -> Text| match fresh {
            true => stored.view(&view, make).0,
            false => make().0,
        };
        let bytes = match self.form {
            Form::Metadata { beta } => {
                share(View::Metadata { beta }, &|| (stored.metadata_text(metadata_version(beta)), 0))
            }
            Form::Table(rows) => {
                let metadata = json!({"resourceVersion": stored.revision.to_string()});
                // Only the first event has the columns.
                let first = !std::mem::replace(&mut self.headed, true);
                rows.table(&self.kind, &metadata, &[stored], self.clock.wall(), first).to_string().into()
            }
            _ if stored.api_version == self.kind.api_version => stored.bytes.clone(),
            _ => share(View::Version(self.kind.api_version.clone()), &|| stored.render(&self.kind)),
        };
        let size = bytes.len();
        chunks.push_slice(b"{\"type\":\"");
        chunks.push_slice(kind.as_bytes());
        chunks.push_slice(b"\",\"object\":");
        chunks.push(bytes);
        chunks.push_slice(b"}\n");
        size
    }

    fn write_bookmark(&self, chunks: &mut Chunks, end_of_initial: bool) {
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if end_of_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, api_version) = match self.form {
            Form::Metadata { beta } => ("PartialObjectMetadata", metadata_version(beta)),
            Form::Table(rows) => ("Table", metadata_version(rows.beta)),
            _ => (self.kind.kind.as_str(), self.kind.api_version.as_str()),
        };
        let object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        write_event(chunks, "BOOKMARK", &object);
    }

    fn fail(&mut self, chunks: &mut Chunks, failure: &Failure) {
        write_event(chunks, "ERROR", &failure.to_value());
        self.ended = true;
    }

    /// Writes the bookmark that is due by now.
    fn check_time(&mut self) {
        let now = self.clock.now();
        let mut due = false;
        if self.bookmarks.is_some_and(|at| now >= at) {
            self.bookmarks = Some(now + self.shared.bookmark_period);
            due = true;
        }
        if self.last_bookmark.is_some_and(|at| now >= at) {
            self.last_bookmark = None;
            due = true;
        }
        if due {
            let mut chunks = Chunks::default();
            self.write_bookmark(&mut chunks, false);
            self.ready = chunks.finish();
        }
    }

    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let duties = [self.bookmarks, self.last_bookmark];
        let next = duties.into_iter().flatten().fold(self.ends, Instant::min);
        if self.alarm_at != Some(next) {
            let clock = self.clock.clone();
            self.alarm = Some(Box::pin(async move { clock.sleep_until(next).await }));
            self.alarm_at = Some(next);
        }
        match &mut self.alarm {
            Some(alarm) => {
                let polled = alarm.as_mut().poll(cx);
                if polled.is_ready() {
                    self.alarm = None;
                    self.alarm_at = None;
                }
                polled
            }
            None => Poll::Ready(()),
        }
    }
}

impl Drop for WatchBody {
    fn drop(&mut self) {
        let left = self.shared.core.lock().store.leave(&self.followed);
        drop(left);
    }
}

fn write_event(chunks: &mut Chunks, kind: &str, object: &Value) {
    chunks.push_slice(json!({"type": kind, "object": object}).to_string().as_bytes());
    chunks.push_slice(b"\n");
}
