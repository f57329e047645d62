//! Responses: single texts, lists that share stored texts, and watch streams.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http_body::{Body, Frame, SizeHint};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::codec::encode;
use crate::failure::Failure;
use crate::http::negotiate::{Form, PROTOBUF};
use crate::http::watch::WatchBody;
use crate::kinds::kind::Kind;
use crate::state::store::Stored;
use crate::verbs::list::Page;

/// The body of a response. It is produced as it is polled, without a task or queue behind it.
#[derive(Debug)]
pub struct ReplyBody(Inner);

#[derive(Debug)]
enum Inner {
    Text(Option<Bytes>),
    Chunks { chunks: VecDeque<Bytes>, left: u64 },
    Watch(Box<WatchBody>),
}

impl ReplyBody {
    fn text(bytes: Bytes) -> Self {
        Self(Inner::Text((!bytes.is_empty()).then_some(bytes)))
    }

    pub(crate) fn watch(body: WatchBody) -> Self {
        Self(Inner::Watch(Box::new(body)))
    }

    fn chunks(chunks: VecDeque<Bytes>) -> Self {
        let left = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        Self(Inner::Chunks { chunks, left })
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Inner::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Inner::Chunks { chunks, left } => {
                let chunk = chunks.pop_front();
                *left -= chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
                Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk))))
            }
            Inner::Watch(watch) => {
                watch.poll_chunk(cx).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Text(text) => text.is_none(),
            Inner::Chunks { chunks, .. } => chunks.is_empty(),
            Inner::Watch(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Inner::Chunks { left, .. } => SizeHint::with_exact(*left),
            Inner::Watch(_) => SizeHint::default(),
        }
    }
}

/// A complete response.
pub(crate) type Reply = Response<ReplyBody>;

const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache, private");
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
const YAML: HeaderValue = HeaderValue::from_static("application/yaml");
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

pub(crate) fn with(code: u16, content_type: HeaderValue, body: ReplyBody) -> Reply {
    let mut response = Response::new(body);
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response.headers_mut().insert(CACHE_CONTROL, NO_CACHE);
    response
}

pub(crate) fn plain(code: u16, text: &'static str) -> Reply {
    with(code, PLAIN, ReplyBody::text(Bytes::from_static(text.as_bytes())))
}

pub(crate) fn text(code: u16, text: String) -> Reply {
    with(code, PLAIN, ReplyBody::text(text.into()))
}

/// Responds with an object in protobuf.
fn protobuf(code: u16, object: Vec<u8>) -> Reply {
    with(code, HeaderValue::from_static(PROTOBUF), ReplyBody::text(object.into()))
}

/// Responds with JSON that is encoded already.
pub(crate) fn json(code: u16, text: Bytes) -> Reply {
    with(code, JSON, ReplyBody::text(text))
}

pub(crate) fn page_not_found() -> Reply {
    plain(404, "404 page not found\n")
}

/// Serializes a value in the negotiated form.
pub(crate) fn value(code: u16, form: Form, value: &Value) -> Reply {
    if form == Form::Yaml
        && let Ok(text) = serde_saphyr::to_string(value)
    {
        return with(code, YAML, ReplyBody::text(text.into()));
    }
    if form == Form::Protobuf
        && let Some(object) = encode::object(value)
    {
        return protobuf(code, object);
    }
    let mut text = value.to_string();
    text.push('\n');
    with(code, JSON, ReplyBody::text(text.into()))
}

pub(crate) fn failure(failure: &Failure) -> Reply {
    failure_in(Form::Json, failure)
}

/// Responds with a failure in a negotiated form.
pub(crate) fn failure_in(form: Form, failure: &Failure) -> Reply {
    let mut reply = value(failure.code, form, &failure.to_value());
    let retry_after = failure.details.as_ref().map_or(0, |details| details.retry_after);
    if retry_after > 0 {
        reply.headers_mut().insert(RETRY_AFTER, retry_after.into());
    }
    reply
}

/// Responds with one stored object.
pub(crate) fn object(code: u16, form: Form, kind: &Kind, stored: &Stored, now: Timestamp) -> Reply {
    match form {
        Form::Json => {
            let (bytes, _) = stored.render(kind);
            let chunks = VecDeque::from([bytes, Bytes::from_static(b"\n")]);
            with(code, JSON, ReplyBody::chunks(chunks))
        }
        Form::Yaml | Form::Protobuf => value(code, form, &stored.value_in(kind)),
        Form::Metadata { beta, protobuf: true } => {
            let metadata = encode::partial(&stored.metadata());
            self::protobuf(code, encode::enveloped(metadata_version(beta), PARTIAL, metadata))
        }
        Form::Metadata { beta, .. } => value(code, Form::Json, &metadata_only(&stored.value(), beta)),
        Form::Table(rows) => {
            let metadata = json!({"resourceVersion": stored.revision.to_string()});
            value(code, Form::Json, &rows.table(kind, &metadata, &[stored], now, true))
        }
    }
}

/// The kind of an object that is reduced to its metadata.
pub(crate) const PARTIAL: &str = "PartialObjectMetadata";

/// Returns a `PartialObjectMetadata` of an object.
pub(crate) fn metadata_only(value: &Value, beta: bool) -> Value {
    json!({"kind": PARTIAL, "apiVersion": metadata_version(beta), "metadata": value["metadata"]})
}

/// Returns the API version of `PartialObjectMetadata` and `Table`.
pub(crate) fn metadata_version(beta: bool) -> &'static str {
    if beta { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" }
}

/// Smaller objects are copied into a common buffer: one large write is cheaper than two small ones.
const SHARE_FROM: usize = 4096;

/// A sequence of texts; small ones are copied together, large ones are shared.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    done: VecDeque<Bytes>,
    open: BytesMut,
}

impl Chunks {
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if bytes.len() < SHARE_FROM {
            self.open.put_slice(&bytes);
        } else {
            self.close();
            self.done.push_back(bytes);
        }
    }

    pub(crate) fn push_slice(&mut self, bytes: &[u8]) {
        self.open.put_slice(bytes);
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            self.done.push_back(self.open.split().freeze());
        }
    }

    pub(crate) fn finish(mut self) -> VecDeque<Bytes> {
        self.close();
        self.done
    }
}

/// Responds with one page of a list.
pub(crate) fn list(form: Form, kind: &Kind, page: &Page, now: Timestamp) -> Reply {
    // Objects that are not stored have no revision.
    let mut metadata = match page.revision {
        0 => json!({}),
        revision => json!({"resourceVersion": revision.to_string()}),
    };
    if let Some(proceed) = &page.proceed {
        metadata["continue"] = proceed.as_str().into();
    } else if kind.custom.is_some() {
        metadata["continue"] = "".into();
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    match form {
        Form::Json => {
            let chunks = list_chunks(kind, &metadata, &page.items);
            with(200, JSON, ReplyBody::chunks(chunks))
        }
        Form::Yaml => {
            let items: Vec<_> = page.items.iter().map(|item| item_value(kind, item)).collect();
            let list = json!({
                "kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata, "items": items,
            });
            value(200, form, &list)
        }
        Form::Protobuf => match kind.schema {
            Some(item) => {
                let items = page.items.iter().map(|item| item.value_in(kind));
                let named = (kind.api_version.as_str(), kind.list_kind.as_str());
                self::protobuf(200, encode::list(named, item, &metadata, items))
            }
            // This form is for kinds with a type.
            None => failure(&Failure::internal("a custom resource has no protobuf form")),
        },
        Form::Metadata { beta, protobuf: true } => {
            let items = page.items.iter().map(|item| encode::partial(&item.metadata()));
            let list = encode::partial_list(&metadata, items);
            let list = encode::enveloped(metadata_version(beta), "PartialObjectMetadataList", list);
            self::protobuf(200, list)
        }
        Form::Metadata { beta, .. } => {
            let items: Vec<_> = page.items.iter().map(|item| metadata_only(&item.value(), beta)).collect();
            let list = json!({
                "kind": "PartialObjectMetadataList", "apiVersion": metadata_version(beta), "metadata": metadata,
                "items": items,
            });
            value(200, Form::Json, &list)
        }
        Form::Table(rows) => {
            let items: Vec<_> = page.items.iter().map(|item| &**item).collect();
            if page.proceed.is_none() && metadata["continue"] == "" {
                metadata = json!({"resourceVersion": metadata["resourceVersion"]});
            }
            value(200, Form::Json, &rows.table(kind, &metadata, &items, now, true))
        }
    }
}

/// Returns an item of a list: without kind and apiVersion for built-in kinds.
fn item_value(kind: &Kind, item: &Stored) -> Value {
    let mut value = item.value_in(kind);
    if let (None, Value::Object(map)) = (&kind.custom, &mut value) {
        map.remove("kind");
        map.remove("apiVersion");
    }
    value
}

fn list_chunks(kind: &Kind, metadata: &Value, items: &[Arc<Stored>]) -> VecDeque<Bytes> {
    let mut chunks = Chunks::default();
    let quoted = |text: &str| Value::from(text).to_string();
    let (list_kind, api_version) = (quoted(&kind.list_kind), quoted(&kind.api_version));
    // The real server serializes lists of custom resources in key order, with the metadata last.
    let (before, after) = if kind.custom.is_some() {
        (
            format!("{{\"apiVersion\":{api_version},\"items\":["),
            format!("],\"kind\":{list_kind},\"metadata\":{metadata}}}\n"),
        )
    } else {
        (
            format!(
                "{{\"kind\":{list_kind},\"apiVersion\":{api_version},\"metadata\":{metadata},\"items\":["
            ),
            "]}\n".to_owned(),
        )
    };
    chunks.push_slice(before.as_bytes());
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            chunks.push_slice(b",");
        }
        let (bytes, head) = item.render(kind);
        if kind.custom.is_none() && head > 0 {
            chunks.push_slice(b"{");
            chunks.push(bytes.slice(head..));
        } else {
            chunks.push(bytes);
        }
    }
    chunks.push_slice(after.as_bytes());
    chunks.finish()
}
