//! A source for tests that plays a script and records what it was asked.

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
/// A request that comes when the script has no answer for it waits until one is added.
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
}

/// A request that a [`ScriptedSource`] has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A page of a list.
    List(ListOptions),
    /// A watch.
    Watch(WatchOptions),
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

/// The sending side of [`Reply::live`]: dropping it ends the answer cleanly.
#[derive(Debug)]
pub struct Feed(mpsc::UnboundedSender<Result<Bytes, ApiError>>);

impl Feed {
    /// Sends a chunk; false when nobody reads any more.
    pub fn send(&self, chunk: impl Into<Bytes>) -> bool {
        self.0.send(Ok(chunk.into())).is_ok()
    }

    /// Breaks the answer off with `error`.
    pub fn fail(self, error: ApiError) {
        let _nobody_reads = self.0.send(Err(error));
    }
}

impl Reply {
    /// The request fails.
    pub fn refuse(error: ApiError) -> Self {
        Self(Kind::Refuse(error))
    }

    /// The answer is `body`, in one chunk, and ends.
    pub fn body(body: impl Into<Bytes>) -> Self {
        Self::chunks([body.into()])
    }

    /// The answer comes in these chunks, and ends.
    pub fn chunks(chunks: impl IntoIterator<Item = Bytes>) -> Self {
        Self(Kind::Body { chunks: chunks.into_iter().collect(), end: End::Clean })
    }

    /// The answer stays open and silent at its end.
    #[must_use]
    pub fn then_hang(self) -> Self {
        self.ending(End::Hang)
    }

    /// The answer breaks off with `error` at its end.
    #[must_use]
    pub fn then_fail(self, error: ApiError) -> Self {
        self.ending(End::Fail(error))
    }

    /// The answer breaks off with `error` after `bytes` bytes.
    #[must_use]
    pub fn cut_at(self, bytes: usize, error: ApiError) -> Self {
        self.first(bytes).then_fail(error)
    }

    /// The answer stays open and silent after `bytes` bytes.
    #[must_use]
    pub fn stall_at(self, bytes: usize) -> Self {
        self.first(bytes).then_hang()
    }

    /// The answer comes in pieces of `bytes` bytes.
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

    /// The same answer with other chunks.
    fn edit(self, edit: impl FnOnce(&mut Bytes) -> Vec<Bytes>) -> Self {
        match self.0 {
            Kind::Body { chunks, end } => {
                let mut whole = Bytes::from(chunks.concat());
                Self(Kind::Body { chunks: edit(&mut whole), end })
            }
            other => Self(other),
        }
    }

    /// An answer whose chunks are sent while it is read.
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
    /// A source with an empty script.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says that a watch may begin with a list; unless told so, a script is listed.
    #[must_use]
    pub fn streaming(self) -> Self {
        self.0.script.lock().streams = true;
        self
    }

    /// Answers one more list with `reply`.
    pub fn on_list(&self, reply: Reply) -> &Self {
        self.0.script.lock().lists.push_back(reply);
        self.0.changed.notify_waiters();
        self
    }

    /// Answers one more watch with `reply`.
    pub fn on_watch(&self, reply: Reply) -> &Self {
        self.0.script.lock().watches.push_back(reply);
        self.0.changed.notify_waiters();
        self
    }

    /// All requests so far, in their order.
    pub fn asked(&self) -> Vec<Asked> {
        self.0.script.lock().asked.clone()
    }

    /// Waits until `count` requests have come.
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

    fn streams_lists(&self) -> bool {
        self.0.script.lock().streams
    }
}
