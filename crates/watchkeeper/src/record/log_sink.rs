//! A sink that logs events: one structured line each, at a configurable level.

use tokio_util::sync::CancellationToken;
use tracing::Level;

use super::broadcaster::EventStream;
use super::occurrence::Occurrence;

/// Logs events.
///
/// ```
/// # use watchkeeper::record::{EventBroadcaster, LogSink};
/// # use tokio_util::sync::CancellationToken;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let events = EventBroadcaster::new(&watchkeeper::Env::system());
/// let sink = LogSink::new(tracing::Level::INFO).run(events.subscribe(), CancellationToken::new());
/// events.shut_down();
/// sink.await;
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LogSink {
    level: Level,
}

impl LogSink {
    /// Returns a sink that logs at `level`.
    pub fn new(level: Level) -> Self {
        Self { level }
    }

    /// Logs `events` until there are no more, or until `stop` and then those recorded before it. Dropping the future
    /// loses the queued events.
    pub async fn run(self, mut events: EventStream, stop: CancellationToken) {
        while let Some(event) = events.recv_until(&stop).await {
            self.log(&event);
        }
    }

    fn log(self, event: &Occurrence) {
        // The level of a log line is a constant, so there is one macro call for each.
        macro_rules! line {
            ($level:expr) => {
                tracing::event!(
                    $level,
                    object = %event.object(),
                    fieldPath = event.regarding.field_path,
                    kind = event.regarding.kind,
                    apiVersion = event.regarding.api_version,
                    r#type = event.event_type.as_str(),
                    reason = event.reason,
                    note = event.message,
                    "event occurred"
                )
            };
        }
        match self.level {
            Level::ERROR => line!(Level::ERROR),
            Level::WARN => line!(Level::WARN),
            Level::INFO => line!(Level::INFO),
            Level::DEBUG => line!(Level::DEBUG),
            Level::TRACE => line!(Level::TRACE),
        }
    }
}
