//! Watch streams: a cursor into the log of changes, advanced as the response body is polled.
//!
//! A watch has no task and no queue. The client's reading provides backpressure; a watch that falls behind the history
//! ends with 410.

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

use crate::codec::encode;
use crate::failure::Failure;
use crate::http::negotiate::Form;
use crate::http::reply::{Chunks, PARTIAL, metadata_version};
use crate::http::shared::Shared;
use crate::kinds::kind::Kind;
use crate::state::selector::Selector;
use crate::state::store::{Change, Followed, Forgotten, Store, Stored, Text, View};

/// The amount taken from the log at a time. It bounds the memory of a watch and the time under the lock.
const CHUNK: usize = 64 * 1024;

/// The time before the timeout at which a watch gets a final bookmark, from which the next one can resume.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// About three years: longer than any watch, and safe from overflow of the clock.
pub(crate) const LONGEST_WATCH: Duration = Duration::from_secs(100_000_000);

/// The parameters of a watch.
#[derive(Debug)]
pub(crate) struct WatchRequest {
    pub(crate) kind: Arc<Kind>,
    pub(crate) namespace: Option<String>,
    pub(crate) selector: Selector,
    pub(crate) form: Form,
    pub(crate) start: Start,
    pub(crate) bookmarks: bool,
    pub(crate) bookmark_period: Duration,
    pub(crate) timeout: Duration,
    /// Cancelled with the listener that serves the watch.
    pub(crate) stop: Option<CancellationToken>,
}

/// The start of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The current state as ADDED events, then changes.
    Initial,
    /// Changes after this revision.
    After(u64),
    /// Changes from now on.
    Now,
}

/// The result of reading the log.
enum Next {
    Changes(Vec<Change>),
    Nothing,
    /// The watch is over.
    End,
    Forgotten(Forgotten),
}

/// The body of a watch response.
pub(crate) struct WatchBody {
    shared: Arc<Shared>,
    clock: Clock,
    followed: Followed,
    kind: Arc<Kind>,
    namespace: Option<String>,
    selector: Selector,
    form: Form,
    /// All changes up to this revision have been sent or do not match.
    cursor: u64,
    /// Objects of the initial state that are not sent yet.
    initial: VecDeque<Arc<Stored>>,
    /// The bookmark that ends the initial state is not sent yet.
    announce: bool,
    /// An error to end with.
    failed: Option<Box<Failure>>,
    epoch: u64,
    bookmark_period: Duration,
    /// When the next bookmark is due.
    bookmarks: Option<Instant>,
    last_bookmark: Option<Instant>,
    ends: Instant,
    alarm: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    alarm_at: Option<Instant>,
    stop: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    ready: VecDeque<Bytes>,
    /// The column definitions of a table have been sent.
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
    /// Opens a watch. A start that is too old is reported as an ERROR event, not as a failed request.
    pub(crate) fn open(shared: &Arc<Shared>, store: &mut Store, request: WatchRequest) -> Self {
        let WatchRequest {
            kind,
            namespace,
            selector,
            form,
            start,
            bookmarks,
            bookmark_period,
            timeout,
            stop,
        } = request;
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
        let timeout = timeout.min(LONGEST_WATCH);
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
            bookmark_period,
            bookmarks: bookmarks.then(|| now + bookmark_period),
            last_bookmark: (bookmarks && timeout > bookmark_period)
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

    /// Returns the next chunk of the stream, or `None` at its end. Polled by the connection at the client's pace.
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
            // Checked here, as a busy watch never waits for the alarm.
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
            // Idle: wait for a change (the waker is registered) or for the next timer.
            if self.poll_alarm(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Takes events up to a bound; registers the waker if there are none.
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

    /// Takes changes from the log, to be matched after the lock is released. If there are none and the watch is `idle`,
    /// registers the waker.
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
        // No change up to here matches, so a bookmark may advance the client.
        self.cursor = self.cursor.max(core.store.safe_revision());
        drop(core);
        drop(replaced);
        Next::Nothing
    }

    /// Advances the cursor over changes and collects matching events, up to a bound.
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

    /// Returns the event of a change for this watch, if any. An object that no longer matches is DELETED.
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
            // The previous state, which matched, with the revision of the change.
            (Some(before), false) => {
                let left = change.left.get_or_init(|| Arc::new(before.left_at(change.revision)));
                Some(("DELETED", left.clone()))
            }
        }
    }

    /// Writes an event. The encoding of a `fresh` change is shared between watches of the same view. Encodings of the
    /// initial state are not cached, as that would double the memory of all objects.
    fn write(&mut self, chunks: &mut Chunks, kind: &str, stored: &Stored, fresh: bool) -> usize {
        if let Form::Metadata { beta, protobuf: true } = self.form {
            let metadata = encode::partial(&stored.metadata());
            let object = encode::enveloped(metadata_version(beta), PARTIAL, metadata);
            chunks.push(encode::watch_event(kind, &object).into());
            return object.len();
        }
        if self.form == Form::Protobuf {
            return self.write_protobuf(chunks, kind, stored, fresh);
        }
        let share = |view: View, make: &dyn Fn() -> Text| match fresh {
            true => stored.view(&view, make).0,
            false => make().0,
        };
        let bytes = match self.form {
            Form::Metadata { beta, .. } => {
                share(View::Metadata { beta }, &|| (stored.metadata_text(metadata_version(beta)), 0))
            }
            Form::Table(rows) => {
                let metadata = json!({"resourceVersion": stored.revision.to_string()});
                // Only the first event carries the column definitions.
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

    /// Writes an event with the whole object in protobuf.
    fn write_protobuf(&self, chunks: &mut Chunks, kind: &str, stored: &Stored, fresh: bool) -> usize {
        let make = || {
            let object = encode::object(&stored.value_in(&self.kind));
            (Bytes::from(object.unwrap_or_default()), 0)
        };
        let (object, _) = match fresh {
            true => stored.view(&View::Protobuf(self.kind.api_version.clone()), make),
            false => make(),
        };
        chunks.push(encode::watch_event(kind, &object).into());
        object.len()
    }

    fn write_bookmark(&mut self, chunks: &mut Chunks, end_of_initial: bool) {
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if end_of_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        if let Form::Table(rows) = self.form {
            let first = !std::mem::replace(&mut self.headed, true);
            let table = rows.bookmark(&self.kind, &metadata, self.clock.wall(), first);
            return write_event(chunks, "BOOKMARK", &table);
        }
        if let Form::Metadata { beta, protobuf: true } = self.form {
            let bookmark = encode::enveloped(metadata_version(beta), PARTIAL, encode::partial(&metadata));
            return chunks.push(encode::watch_event("BOOKMARK", &bookmark).into());
        }
        let (kind, api_version) = match self.form {
            Form::Metadata { beta, .. } => (PARTIAL, metadata_version(beta)),
            _ => (self.kind.kind.as_str(), self.kind.api_version.as_str()),
        };
        let object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        let encoded = (self.form == Form::Protobuf).then(|| encode::object(&object)).flatten();
        match encoded {
            Some(object) => chunks.push(encode::watch_event("BOOKMARK", &object).into()),
            None => write_event(chunks, "BOOKMARK", &object),
        }
    }

    fn fail(&mut self, chunks: &mut Chunks, failure: &Failure) {
        let status = failure.to_value();
        match self.form {
            Form::Protobuf | Form::Metadata { protobuf: true, .. } => {
                chunks.push(encode::watch_event("ERROR", &encode::status(&status)).into());
            }
            _ => write_event(chunks, "ERROR", &status),
        }
        self.ended = true;
    }

    /// Schedules the bookmark that is due.
    fn check_time(&mut self) {
        let now = self.clock.now();
        let mut due = false;
        if self.bookmarks.is_some_and(|at| now >= at) {
            self.bookmarks = Some(now + self.bookmark_period);
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
    // Fields are in the order of their names, and the type is a word.
    chunks.push_slice(format!("{{\"object\":{object},\"type\":\"{kind}\"}}\n").as_bytes());
}
