//! A view that is sent again and again, as server-sent events.
//!
//! The body of the answer makes each event when the one before is sent and the time has come: there is no task, and a browser
//! that does not read costs nothing. The number of streams is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tokio_util::sync::CancellationToken;

use super::respond::{Body, answer as respond};
use super::{Page, View};

/// The maximum number of streams: half of the connections, so that the others are always answered.
pub(super) const STREAMS: usize = 32;
/// The time between two events of a stream.
const EVERY: Duration = Duration::from_secs(2);
/// All streams together use at most one part in this many of a processor.
const SHARE: u32 = 20;

/// The number of open streams.
#[derive(Debug, Default)]
pub(super) struct Streams(AtomicUsize);

/// An open stream, which is counted until it is dropped.
struct Stream<F> {
    page: Arc<Page>,
    view: View,
    last: String,
    pause: Duration,
    stop: CancellationToken,
    active: F,
}

/// Returns a stream of the view; a refusal if too many are open.
pub(super) fn answer(
    page: &Arc<Page>,
    view: View,
    stop: CancellationToken,
    active: impl Fn() + Send + 'static,
) -> Response<Body> {
    if page.streams.0.fetch_add(1, Relaxed) >= STREAMS {
        page.streams.0.fetch_sub(1, Relaxed);
        return refusal();
    }
    // The page was shown a moment ago.
    let stream = Stream { page: page.clone(), view, last: String::new(), pause: EVERY, stop, active };
    let events = stream::unfold(stream, |mut stream| async move {
        let event = stream.next().await?;
        Some((Ok(Frame::data(event)), stream))
    });
    respond(StatusCode::OK, "text/event-stream", "no-store", StreamBody::new(events).boxed_unsync())
}

fn refusal() -> Response<Body> {
    let text = format!(
        "{STREAMS} pages are open already, and this one is not kept current: close one, or reload this one\n"
    );
    let body = Full::from(text).boxed_unsync();
    let mut answer = respond(StatusCode::SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", "no-store", body);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("15"));
    answer
}

impl<F: Fn()> Stream<F> {
    /// Returns the next event: the view if it has changed, else a comment; none after the stop.
    async fn next(&mut self) -> Option<Bytes> {
        let clock = &self.page.env.clock;
        self.stop.run_until_cancelled(clock.sleep(self.pause)).await?;
        let began = clock.now();
        let shown = self.page.env.reporter.guard("admin", "live", || self.page.show(&self.view));
        let html = shown.map(|shown| shown.content.into_string()).unwrap_or_default();
        let streams = u32::try_from(self.page.streams.0.load(Relaxed)).unwrap_or(u32::MAX);
        self.pause = EVERY.max((clock.now() - began).saturating_mul(SHARE.saturating_mul(streams)));
        (self.active)();
        if html.is_empty() || html == self.last {
            return Some(Bytes::from_static(b":\n\n"));
        }
        let event = event(&html);
        self.last = html;
        Some(event.into())
    }
}

impl<F> Drop for Stream<F> {
    fn drop(&mut self) {
        self.page.streams.0.fetch_sub(1, Relaxed);
    }
}

/// Returns an event with `data`, which has a field for each of its lines.
fn event(data: &str) -> String {
    let mut event = String::with_capacity(data.len() + 16);
    for line in data.split(['\n', '\r']) {
        event.push_str("data:");
        event.push_str(line);
        event.push('\n');
    }
    event.push('\n');
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_an_event_is_data() {
        assert_eq!(event("a\nid: 1\r\n\nb"), "data:a\ndata:id: 1\ndata:\ndata:\ndata:b\n\n");
    }
}
