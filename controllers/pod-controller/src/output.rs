//! Where do the lines go that the controller is there to print?

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;

/// Takes whole lines from the handler and from all workers. Clones share it.
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

    /// Writes one line; one that cannot be written, as when nobody reads any more, is left out and logged.
    pub(crate) fn line(&self, line: fmt::Arguments<'_>) {
        let mut writer = self.0.lock();
        if let Err(error) = writeln!(writer, "{line}").and_then(|()| writer.flush()) {
            tracing::debug!(%error, "cannot print");
        }
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}
