//! How do events get into the log? One structured line each, at a level of the program's choice.

use tokio_util::sync::CancellationToken;
use tracing::Level;

use super::broadcaster::EventStream;
use super::occurrence::Occurrence;

/// Logs events.
#[derive(Clone, Copy, Debug)]
pub struct LogSink {
    level: Level,
}

impl LogSink {
    /// A sink that logs at `level`.
    pub fn new(level: Level) -> Self {
        Self { level }
    }

    /// Logs `events` until there are no more, or until `stop` and then what was recorded before it. Dropping the future loses what waits.
    pub async fn run(self, mut events: EventStream, stop: CancellationToken) {
        while let Some(event) = events.recv_until(&stop).await {
            self.log(&event);
        }
    }

    fn log(self, event: &Occurrence) {
        // The level of a line is fixed where it is written: there is a line for each.
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
