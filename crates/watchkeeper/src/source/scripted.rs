//! A source for tests that plays a script and records its requests.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use super::{ByteStream, ListOptions, ListerWatcher, WatchOptions};
use crate::wire::ApiError;

/// A source that answers from a script, each answer once, and records every request. Clones share the script.
///
/// A request for which the script has no answer waits until one is added.
///
/// ```
/// use futures::StreamExt;
/// use watchkeeper::source::{Asked, ListOptions, ListerWatcher, Reply, ScriptedSource};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), watchkeeper::wire::ApiError> {
/// let source = ScriptedSource::new();
/// source.on_list(Reply::body(r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#));
/// let mut page = source.list(&ListOptions::default()).await?;
/// assert!(page.next().await.is_some_and(|chunk| chunk.is_ok()));
/// assert!(matches!(source.asked()[..], [Asked::List(_)]));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ScriptedSource(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    script: Mutex<Script>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Script {
    lists: VecDeque<Reply>,
    watches: VecDeque<Reply>,
    asked: Vec<Asked>,
    streams: bool,
    is_absent: bool,
}

/// A request that a [`ScriptedSource`] has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Asked {
    /// A page of a list.
    List(ListOptions),
    /// A watch.
    Watch(WatchOptions),
    /// Whether the kind is served.
    Discovery,
}

/// One answer of a script.
#[derive(Debug)]
pub struct Reply(Kind);

#[derive(Debug)]
enum Kind {
    Refuse(ApiError),
    Body { chunks: Vec<Bytes>, end: End },
    Live(mpsc::UnboundedReceiver<Result<Bytes, ApiError>>),
}

#[derive(Debug)]
enum End {
    Clean,
    Hang,
    Fail(ApiError),
}

/// The sending side of [`Reply::live`]. Dropping it ends the answer cleanly.
#[derive(Debug)]
pub struct Feed(mpsc::UnboundedSender<Result<Bytes, ApiError>>);

impl Feed {
    /// Sends a chunk; returns false if the answer is not read any more.
    pub fn send(&self, chunk: impl Into<Bytes>) -> bool {
        self.0.send(Ok(chunk.into())).is_ok()
    }

    /// Breaks off the answer with `error`.
    pub fn fail(self, error: ApiError) {
        let _nobody_reads = self.0.send(Err(error));
    }
}

impl Reply {
    /// Returns a reply that fails the request.
    pub fn refuse(error: ApiError) -> Self {
        Self(Kind::Refuse(error))
    }

    /// Returns an answer of one chunk, which then ends.
    pub fn body(body: impl Into<Bytes>) -> Self {
        Self::chunks([body.into()])
    }

    /// Returns an answer of these chunks, which then ends.
    pub fn chunks(chunks: impl IntoIterator<Item = Bytes>) -> Self {
        Self(Kind::Body { chunks: chunks.into_iter().collect(), end: End::Clean })
    }

    /// Keeps the answer open and silent at its end.
    #[must_use]
    pub fn then_hang(self) -> Self {
        self.ending(End::Hang)
    }

    /// Breaks off the answer with `error` at its end.
    #[must_use]
    pub fn then_fail(self, error: ApiError) -> Self {
        self.ending(End::Fail(error))
    }

    /// Breaks off the answer with `error` after `bytes` bytes.
    #[must_use]
    pub fn cut_at(self, bytes: usize, error: ApiError) -> Self {
        self.first(bytes).then_fail(error)
    }

    /// Keeps the answer open and silent after `bytes` bytes.
    #[must_use]
    pub fn stall_at(self, bytes: usize) -> Self {
        self.first(bytes).then_hang()
    }

    /// Cuts the answer into chunks of `bytes` bytes.
    #[must_use]
    pub fn in_pieces(self, bytes: usize) -> Self {
        self.edit(|whole| {
            let mut pieces = Vec::new();
            while !whole.is_empty() {
                pieces.push(whole.split_to(bytes.clamp(1, whole.len())));
            }
            pieces
        })
    }

    fn first(self, bytes: usize) -> Self {
        self.edit(|whole| vec![whole.split_to(bytes.min(whole.len()))])
    }

    /// Returns the same answer with other chunks.
    fn edit(self, edit: impl FnOnce(&mut Bytes) -> Vec<Bytes>) -> Self {
        match self.0 {
            Kind::Body { chunks, end } => {
                let mut whole = Bytes::from(chunks.concat());
                Self(Kind::Body { chunks: edit(&mut whole), end })
            }
            other => Self(other),
        }
    }

    /// Returns an answer, and a feed that sends its chunks while it is read.
    pub fn live() -> (Self, Feed) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(Kind::Live(receiver)), Feed(sender))
    }

    fn ending(self, end: End) -> Self {
        match self.0 {
            Kind::Body { chunks, .. } => Self(Kind::Body { chunks, end }),
            other => Self(other),
        }
    }

    fn play(self) -> Result<ByteStream, ApiError> {
        match self.0 {
            Kind::Refuse(error) => Err(error),
            Kind::Body { chunks, end } => {
                let chunks = futures::stream::iter(chunks.into_iter().map(Ok));
                Ok(match end {
                    End::Clean => Box::pin(chunks),
                    End::Hang => Box::pin(chunks.chain(futures::stream::pending())),
                    End::Fail(error) => Box::pin(chunks.chain(futures::stream::iter([Err(error)]))),
                })
            }
            Kind::Live(receiver) => Ok(Box::pin(futures::stream::unfold(receiver, async |mut receiver| {
                receiver.recv().await.map(|chunk| (chunk, receiver))
            }))),
        }
    }
}

impl ScriptedSource {
    /// Returns a source with an empty script.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the source support watches that begin with a list; by default it does not.
    #[must_use]
    pub fn streaming(self) -> Self {
        self.0.script.lock().streams = true;
        self
    }

    /// Adds the answer of one more list.
    pub fn on_list(&self, reply: Reply) -> &Self {
        self.0.script.lock().lists.push_back(reply);
        self.0.changed.notify_waiters();
        self
    }

    /// Adds the answer of one more watch.
    pub fn on_watch(&self, reply: Reply) -> &Self {
        self.0.script.lock().watches.push_back(reply);
        self.0.changed.notify_waiters();
        self
    }

    /// Sets whether the kind is served, as it is by default.
    pub fn serve(&self, is_served: bool) -> &Self {
        self.0.script.lock().is_absent = !is_served;
        self
    }

    /// Returns all requests so far, in order.
    pub fn asked(&self) -> Vec<Asked> {
        self.0.script.lock().asked.clone()
    }

    /// Waits until there have been `count` requests.
    pub async fn until_asked(&self, count: usize) {
        loop {
            let changed = self.0.changed.notified();
            if self.0.script.lock().asked.len() >= count {
                return;
            }
            changed.await;
        }
    }

    async fn answer(
        &self,
        asked: Asked,
        next: impl Fn(&mut Script) -> Option<Reply> + Send,
    ) -> Result<ByteStream, ApiError> {
        self.0.script.lock().asked.push(asked);
        self.0.changed.notify_waiters();
        loop {
            let changed = self.0.changed.notified();
            let reply = next(&mut self.0.script.lock());
            match reply {
                Some(reply) => return reply.play(),
                None => changed.await,
            }
        }
    }
}

impl ListerWatcher for ScriptedSource {
    async fn list(&self, options: &ListOptions) -> Result<ByteStream, ApiError> {
        self.answer(Asked::List(options.clone()), |script| script.lists.pop_front()).await
    }

    async fn watch(&self, options: &WatchOptions) -> Result<ByteStream, ApiError> {
        self.answer(Asked::Watch(options.clone()), |script| script.watches.pop_front()).await
    }

    async fn is_served(&self) -> Result<bool, ApiError> {
        let mut script = self.0.script.lock();
        script.asked.push(Asked::Discovery);
        self.0.changed.notify_waiters();
        Ok(!script.is_absent)
    }

    fn streams_lists(&self) -> bool {
        self.0.script.lock().streams
    }
}
