//! The output of the controller.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;

/// Writes whole lines from the handler and all workers. Clones share it.
#[derive(Clone)]
pub struct Output(Arc<Mutex<dyn Write + Send>>);

impl Output {
    /// Lines to `writer`.
    pub fn to(writer: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(writer)))
    }

    /// Lines to standard output.
    pub fn stdout() -> Self {
        Self::to(io::stdout())
    }

    /// Writes one line. A line that cannot be written, for example to a closed pipe, is dropped and logged.
    pub(crate) fn line(&self, line: fmt::Arguments<'_>) {
        let mut writer = self.0.lock();
        if let Err(error) = writeln!(writer, "{line}").and_then(|()| writer.flush()) {
            tracing::debug!(%error, "cannot write output");
        }
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}
