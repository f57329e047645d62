//! The events of a watch, with the faults that happen to them.

use std::collections::VecDeque;
use std::io;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream::unfold;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde::Deserialize;
use serde_json::{Value, json};
use watchkeeper_apiserver::ReplyBody;

use super::carry::{Call, TOUCHED};
use super::windows::Stale;
use super::{AnswerBody, BoxError};
use crate::fault::{Fault, Reason};
use crate::script::Details;
use crate::site::Site;
use crate::trace::Event;

/// How long an object stays undecodable.
const MENDED_AFTER: Duration = Duration::from_secs(30);

/// More than the 16 MiB that an object may have by default.
static PADDING: LazyLock<Vec<u8>> = LazyLock::new(|| vec![b' '; 17 << 20]);

/// A watch on its way to the controller.
struct Watch {
    call: Call,
    lines: Lines,
    stale: Option<Stale>,
    /// Events so far.
    count: u32,
    without_bookmarks: bool,
    /// The object whose next event is to be spoiled, by its path, and how.
    spoils: Option<(String, Fault)>,
    /// What is to be delivered next.
    ready: VecDeque<Bytes>,
    end: Option<End>,
}

/// How a watch ends.
enum End {
    /// As if the server had closed it.
    Closed,
    /// By a broken connection.
    Broken,
}

impl Call {
    /// The body of a watch's answer.
    pub(super) fn stream(self, lines: Lines, fault: Option<Fault>, stale: Option<Stale>) -> AnswerBody {
        let mut watch = Watch {
            call: self,
            lines,
            stale,
            count: 0,
            without_bookmarks: false,
            spoils: None,
            ready: VecDeque::new(),
            end: None,
        };
        if let Some(Fault::ExpireLater(reason)) = fault {
            watch.ready.push_back(expired(reason));
            watch.end = Some(End::Closed);
        }
        let frames = unfold(Some(watch), |watch| async move {
            let mut watch = watch?;
            let (life, connections) = (watch.call.life.clone(), watch.call.connections.clone());
            let next = tokio::select! {
                biased;
                () = life.cancelled() => None,
                () = connections.cancelled() => Some(Err(broken())),
                next = watch.next() => next,
            };
            match next? {
                Ok(bytes) => Some((Ok(Frame::data(bytes)), Some(watch))),
                Err(error) => Some((Err(error), None)),
            }
        });
        StreamBody::new(frames).boxed_unsync()
    }
}

fn broken() -> BoxError {
    io::Error::from(io::ErrorKind::ConnectionReset).into()
}

impl Watch {
    /// The next bytes for the controller.
    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        loop {
            self.call.pauses.over().await;
            if let Some(bytes) = self.ready.pop_front() {
                let (replica, what, line) = (self.call.replica, self.call.what.clone(), bytes.clone());
                self.call.net.0.trace.add(Event::Saw { replica, what, line });
                return Some(Ok(bytes));
            }
            match self.end {
                Some(End::Closed) => return None,
                Some(End::Broken) => {
                    // What was sent before leaves the connection's buffer first.
                    tokio::task::yield_now().await;
                    return Some(Err(broken()));
                }
                None => {}
            }
            let line = self.lines.next().await?;
            self.released().await;
            self.take(line).await;
        }
    }

    /// Waits while the events of this resource are held back, or the server is behind. The old state is not held back.
    async fn released(&mut self) {
        if let Some(stale) = self.stale
            && self.count >= self.lines.initial
        {
            self.call.net.0.clock.sleep_until(stale.until).await;
        }
        let held = self.call.net.0.state.lock().held.clone();
        if let Some((resource, released)) = held
            && self.call.target.resource.split('.').next() == Some(&resource)
        {
            released.cancelled().await;
        }
    }

    /// Decides what becomes of an event.
    async fn take(&mut self, line: Bytes) {
        self.count += 1;
        let is_bookmark = is_bookmark(&line);
        if is_bookmark && self.without_bookmarks && !ends_list(&line) {
            return;
        }
        if let Some(spoiled) = self.spoiled(&line) {
            self.ready.push_back(spoiled);
            return;
        }
        match self.fault(is_bookmark) {
            Some(fault) => self.strike(fault, line).await,
            None => self.ready.push_back(line),
        }
    }

    fn fault(&self, is_bookmark: bool) -> Option<Fault> {
        let call = &self.call;
        let (replica, what) = (call.replica, call.what.clone());
        let site = Site::Event { replica, what, nth: call.nth, event: self.count };
        let is_first = self.count == 1;
        let planned =
            call.net.with_script(|script| script.at(site, || Details::Event { is_bookmark, is_first }))?;
        call.net.0.trace.add(Event::Fault(planned.clone()));
        Some(planned.fault)
    }

    async fn strike(&mut self, fault: Fault, line: Bytes) {
        match fault {
            Fault::Cut(percent) => {
                let cut = line.len() * usize::from(percent.min(100)) / 100;
                if cut > 0 {
                    self.ready.push_back(line.slice(..cut));
                }
                self.end = Some(End::Broken);
            }
            Fault::Stall => {
                self.call.hang().await;
                self.end = Some(End::Broken);
            }
            Fault::Delay(time) => {
                self.call.net.0.clock.sleep(time).await;
                self.ready.push_back(line);
            }
            Fault::Hide(time) => {
                self.call.net.0.clock.sleep(time).await;
                self.ready.push_back(expired(Reason::Expired));
                self.end = Some(End::Closed);
            }
            Fault::Duplicate => self.ready.extend([line.clone(), line]),
            Fault::NoBookmarks => {
                self.without_bookmarks = true;
                self.ready.push_back(line);
            }
            Fault::Undecodable | Fault::Oversized => {
                if let Some(path) = self.path_of(&line) {
                    self.spoil(path, fault).await;
                }
                self.ready.push_back(line);
            }
            _ => self.ready.push_back(line),
        }
    }

    /// Another writer changes the object, so that its next event can be spoiled, and changes it again later.
    async fn spoil(&mut self, path: String, fault: Fault) {
        let net = self.call.net.clone();
        if !net.touch(&path).await {
            return;
        }
        self.spoils = Some((path.clone(), fault));
        tokio::spawn(async move {
            net.0.clock.sleep(MENDED_AFTER).await;
            net.touch(&path).await;
        });
    }

    /// The event in its spoiled form, if it is the one to be spoiled.
    fn spoiled(&mut self, line: &Bytes) -> Option<Bytes> {
        let (path, fault) =
            self.spoils.take_if(|_| line.windows(TOUCHED.len()).any(|it| it == TOUCHED.as_bytes()))?;
        if self.path_of(line).as_deref() != Some(&path) {
            self.spoils = Some((path, fault));
            return None;
        }
        match fault {
            Fault::Oversized => {
                let mut padded = Vec::with_capacity(line.len() + PADDING.len());
                let (start, rest) = line.split_at(1);
                padded.extend_from_slice(start);
                padded.extend_from_slice(&PADDING);
                padded.extend_from_slice(rest);
                Some(padded.into())
            }
            _ => undecodable(line),
        }
    }

    /// The path of the object of an event.
    fn path_of(&self, line: &Bytes) -> Option<String> {
        #[derive(Deserialize)]
        struct Line {
            object: Object,
        }
        #[derive(Deserialize)]
        struct Object {
            metadata: Meta,
        }
        #[derive(Deserialize)]
        struct Meta {
            name: Option<String>,
            #[serde(default)]
            namespace: String,
        }
        let Line { object: Object { metadata } } = serde_json::from_slice(line).ok()?;
        self.call.path_of(&metadata.namespace, &metadata.name?)
    }
}

/// The server writes the type of a bookmark last.
fn is_bookmark(line: &[u8]) -> bool {
    line.ends_with(b"\"type\":\"BOOKMARK\"}\n")
}

/// Whether a bookmark ends a streamed list, of which it is a part: no server leaves it out.
fn ends_list(bookmark: &[u8]) -> bool {
    let end = b"k8s.io/initial-events-end";
    bookmark.windows(end.len()).any(|part| part == end)
}

/// The event with every field but the metadata of another type than any kind has.
fn undecodable(line: &Bytes) -> Option<Bytes> {
    let mut event: Value = serde_json::from_slice(line).ok()?;
    let object = event.get_mut("object")?.as_object_mut()?;
    for (field, value) in object.iter_mut() {
        if !matches!(field.as_str(), "apiVersion" | "kind" | "metadata") {
            *value = json!(7);
        }
    }
    object.entry("spec").or_insert(json!(7));
    Some(format!("{event}\n").into())
}

fn expired(reason: Reason) -> Bytes {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410,
        "reason": format!("{reason:?}"), "message": "too old resource version: 1 (2)",
    });
    format!("{}\n", json!({"type": "ERROR", "object": status})).into()
}

/// The lines of a body, after others.
pub(super) struct Lines {
    body: ReplyBody,
    rest: BytesMut,
    lines: VecDeque<Bytes>,
    /// How many lines are not of the body.
    initial: u32,
}

impl Lines {
    pub(super) fn new(initial: Vec<Bytes>, body: ReplyBody) -> Self {
        let count = initial.len() as u32;
        Self { body, rest: BytesMut::new(), lines: initial.into(), initial: count }
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            let Ok(frame) = self.body.frame().await?;
            if let Ok(data) = frame.into_data() {
                self.rest.extend_from_slice(&data);
            }
            while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                self.lines.push_back(self.rest.split_to(end + 1).freeze());
            }
        }
    }
}
