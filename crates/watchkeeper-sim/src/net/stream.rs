//! The events of a watch, with the faults that happen to them.

use std::collections::VecDeque;
use std::io;

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
use crate::fault::{Fault, Planned, Reason};
use crate::script::Details;
use crate::site::Site;
use crate::trace::Event;

/// More than the 16 MiB that an object may have by default, in chunks.
const PADDING: usize = 17 << 20;
static CHUNK: [u8; 64 << 10] = [b' '; 64 << 10];

/// A watch on its way to the controller.
struct Watch {
    call: Box<Call>,
    lines: Lines,
    stale: Option<Stale>,
    /// Events so far.
    count: u32,
    /// The fault that leaves bookmarks out.
    without_bookmarks: Option<Planned>,
    /// The object whose next event is to be too large, by its path, and why.
    oversized: Option<(String, Planned)>,
    /// What is to be delivered next.
    ready: VecDeque<Piece>,
    end: Option<End>,
}

/// Bytes for the controller.
enum Piece {
    /// Recorded when it is delivered.
    Line(Bytes),
    /// Of a line that is recorded already.
    Part(Bytes),
    /// So many spaces.
    Padding(usize),
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
    pub(super) fn stream(
        self: Box<Self>,
        lines: Lines,
        planned: Option<Planned>,
        stale: Option<Stale>,
    ) -> AnswerBody {
        // On the heap: it is moved with every event.
        let mut watch = Box::new(Watch {
            call: self,
            lines,
            stale,
            count: 0,
            without_bookmarks: None,
            oversized: None,
            ready: VecDeque::new(),
            end: None,
        });
        if let Some(planned) = planned
            && let Fault::ExpireLater(reason) = planned.fault
        {
            watch.call.net.had_effect(&planned);
            watch.ready.push_back(Piece::Line(expired(reason)));
            watch.end = Some(End::Closed);
        }
        let frames = unfold(Some(watch), |watch| async move {
            let mut watch = watch?;
            let (life, connections) = (watch.call.life.clone(), watch.call.connections.clone());
            let next = tokio::select! {
                biased;
                () = life.cancelled() => None,
                () = connections.cancelled() => {
                    watch.call.net.is_broken();
                    Some(Err(broken()))
                }
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
            self.call.net.is_awake(self.call.replica, &self.call.pauses).await;
            match self.ready.pop_front() {
                Some(Piece::Line(line)) => {
                    self.saw(line.clone(), line.len());
                    return Some(Ok(line));
                }
                Some(Piece::Part(part)) => return Some(Ok(part)),
                Some(Piece::Padding(left)) => {
                    let chunk = &CHUNK[..left.min(CHUNK.len())];
                    if left > chunk.len() {
                        self.ready.push_front(Piece::Padding(left - chunk.len()));
                    }
                    return Some(Ok(Bytes::from_static(chunk)));
                }
                None => {}
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

    fn saw(&self, line: Bytes, length: usize) {
        let (replica, what) = (self.call.replica, self.call.what.clone());
        self.call.net.0.trace.add(Event::Saw { replica, what, line, length });
    }

    /// Waits while the events of this resource are held back, or the server is behind. The old state is not held back.
    async fn released(&mut self) {
        if let Some(stale) = &self.stale
            && self.count >= self.lines.initial
            && self.call.net.0.clock.now() < stale.until
        {
            self.call.net.had_effect(&stale.planned);
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
        if is_expired(&line) {
            self.call.net.has_expired();
        }
        let is_bookmark = is_bookmark(&line);
        if let Some(planned) = &self.without_bookmarks
            && is_bookmark
            && !ends_list(&line)
        {
            self.call.net.had_effect(planned);
            return;
        }
        if let Some(planned) = self.take_oversized(&line) {
            self.deliver_spoiled(&planned, line);
            return;
        }
        match self.fault(is_bookmark) {
            Some(planned) => self.strike(planned, line).await,
            None => self.ready.push_back(Piece::Line(line)),
        }
    }

    fn fault(&self, is_bookmark: bool) -> Option<Planned> {
        let call = &self.call;
        let (replica, what) = (call.replica, call.what.clone());
        let site = Site::Event { replica, what, nth: call.nth, event: self.count };
        let is_first = self.count == 1;
        let planned =
            call.net.with_script(|script| script.at(site, || Details::Event { is_bookmark, is_first }))?;
        call.net.0.trace.add(Event::Fault(planned.clone()));
        call.net.happens(&planned);
        Some(planned)
    }

    async fn strike(&mut self, planned: Planned, line: Bytes) {
        match planned.fault {
            Fault::Cut(millionths) => {
                let cut =
                    line.len() as u64 * u64::from(millionths.min(Fault::WHOLE)) / u64::from(Fault::WHOLE);
                let cut = cut as usize;
                if cut > 0 {
                    self.ready.push_back(Piece::Line(line.slice(..cut)));
                }
                self.end = Some(End::Broken);
            }
            Fault::Stall => {
                self.call.hang().await;
                self.end = Some(End::Broken);
            }
            Fault::Delay(time) => {
                self.call.net.0.clock.sleep(time).await;
                self.ready.push_back(Piece::Line(line));
            }
            Fault::Hide(time) => {
                self.call.net.0.clock.sleep(time).await;
                self.ready.push_back(Piece::Line(expired(Reason::Expired)));
                self.end = Some(End::Closed);
            }
            Fault::Duplicate => self.ready.extend([Piece::Line(line.clone()), Piece::Line(line)]),
            Fault::NoBookmarks => {
                self.without_bookmarks = Some(planned);
                self.ready.push_back(Piece::Line(line));
            }
            Fault::Undecodable => match self.path_of(&line) {
                Some(path) => {
                    self.deliver_spoiled(&planned, line);
                    self.call.net.mend_later(path);
                }
                None => self.ready.push_back(Piece::Line(line)),
            },
            Fault::Oversized => {
                if let Some(path) = self.path_of(&line)
                    && self.call.net.touch(&path).await
                {
                    self.call.net.mend_later(path.clone());
                    self.oversized = Some((path, planned));
                }
                self.ready.push_back(Piece::Line(line));
            }
            _ => self.ready.push_back(Piece::Line(line)),
        }
    }

    /// The fault that makes this event too large.
    fn take_oversized(&mut self, line: &Bytes) -> Option<Planned> {
        let (path, planned) =
            self.oversized.take_if(|_| line.windows(TOUCHED.len()).any(|it| it == TOUCHED.as_bytes()))?;
        if self.path_of(line).as_deref() == Some(&path) {
            return Some(planned);
        }
        self.oversized = Some((path, planned));
        None
    }

    /// Delivers an event in its spoiled form.
    fn deliver_spoiled(&mut self, planned: &Planned, line: Bytes) {
        if planned.fault == Fault::Oversized {
            self.saw(line.clone(), line.len() + PADDING);
            // Spaces within an object mean nothing. Behind its metadata, they leave its name readable.
            let at = end_of_object(&line);
            let pieces =
                [Piece::Part(line.slice(..at)), Piece::Padding(PADDING), Piece::Part(line.slice(at..))];
            self.ready.extend(pieces);
        } else if let Some(spoiled) = undecodable_event(&line) {
            self.ready.push_back(Piece::Line(spoiled));
        }
        self.call.net.had_effect(planned);
    }

    /// The path of the object of an event that can be mended later: no event would follow one that says that it is deleted.
    fn path_of(&self, line: &Bytes) -> Option<String> {
        #[derive(Deserialize)]
        struct Line {
            #[serde(rename = "type")]
            kind: String,
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
        let Line { kind, object: Object { metadata } } = serde_json::from_slice(line).ok()?;
        if !matches!(kind.as_str(), "ADDED" | "MODIFIED") {
            return None;
        }
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

/// Whether the server says that a version has expired.
fn is_expired(line: &[u8]) -> bool {
    line.ends_with(b"\"type\":\"ERROR\"}\n") && line.windows(10).any(|part| part == b"\"code\":410")
}

/// A position in the object of an event, near its end. The server writes the type of an event first or last.
fn end_of_object(line: &[u8]) -> usize {
    let end = b"},\"type\":";
    let before_type = line.windows(end.len()).rposition(|part| part == end);
    before_type.unwrap_or_else(|| line.len().saturating_sub(b"}}\n".len()))
}

/// The event with an object that cannot be decoded.
fn undecodable_event(line: &Bytes) -> Option<Bytes> {
    let mut event: Value = serde_json::from_slice(line).ok()?;
    spoil(event.get_mut("object")?)?;
    Some(format!("{event}\n").into())
}

/// A list whose first item cannot be decoded, and the namespace and name of that item.
pub(super) fn undecodable_list(list: &[u8]) -> Option<(Bytes, String, String)> {
    let mut list: Value = serde_json::from_slice(list).ok()?;
    let item = list.get_mut("items")?.get_mut(0)?;
    spoil(item)?;
    let meta = &item["metadata"];
    let namespace = meta["namespace"].as_str().unwrap_or_default().to_owned();
    let name = meta["name"].as_str()?.to_owned();
    Some((list.to_string().into(), namespace, name))
}

/// Gives every field but the metadata another type than it has.
fn spoil(object: &mut Value) -> Option<()> {
    let object = object.as_object_mut()?;
    for (field, value) in object.iter_mut() {
        if !matches!(field.as_str(), "apiVersion" | "kind" | "metadata") {
            *value = if value.is_number() { json!("spoiled") } else { json!(7) };
        }
    }
    object.entry("spec").or_insert(json!(7));
    Some(())
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ControllerRevision;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn a_spoiled_object_cannot_be_decoded_also_if_its_fields_are_numbers() {
        let metadata = json!({"name": "a"});
        let mut map = json!({"metadata": metadata, "data": {"key": "value"}});
        spoil(&mut map).unwrap();
        assert!(serde_json::from_value::<ConfigMap>(map).is_err());
        // Its data may be anything.
        let mut revision = json!({"metadata": metadata, "data": {"spec": {}}, "revision": 1});
        spoil(&mut revision).unwrap();
        assert!(serde_json::from_value::<ControllerRevision>(revision).is_err());
    }
}
