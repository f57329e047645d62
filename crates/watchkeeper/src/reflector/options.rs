//! Settings of a reflector.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::backoff::Backoff;
use super::metrics::{ReflectorMetrics, Uncounted};
use crate::wire::{ApiError, OBJECT_CAP};

/// How the first state, and each state after a gap, is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListMode {
    /// As the beginning of a watch where the server can, else in pages.
    #[default]
    Stream,
    /// In pages.
    Paged,
}

/// Is told of an error, on the reflector's task; it must not block.
pub type ErrorHook = Arc<dyn Fn(&ApiError) + Send + Sync>;

/// Settings of a reflector.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) list: ListMode,
    /// Items in one page of a list; 0 asks for all at once.
    pub(crate) page_size: u32,
    /// A watch ends by itself after this time, or up to twice as long.
    pub(crate) watch_timeout: Duration,
    pub(crate) backoff: Backoff,
    /// For how long internal errors of the server that end a watch are answered with another watch; zero is never.
    pub(crate) retry_internal_errors: Duration,
    /// Larger objects are stepped over.
    pub(crate) object_cap: usize,
    pub(crate) on_error: Option<ErrorHook>,
    pub(crate) metrics: Arc<dyn ReflectorMetrics>,
}

/// Items of a page, and the shortest watch, unless set otherwise.
pub(crate) const PAGE: u32 = 500;
pub(crate) const WATCH: Duration = Duration::from_secs(300);

impl Default for Options {
    fn default() -> Self {
        Self {
            list: ListMode::default(),
            page_size: PAGE,
            watch_timeout: WATCH,
            backoff: Backoff::default(),
            retry_internal_errors: Duration::ZERO,
            object_cap: OBJECT_CAP,
            on_error: None,
            metrics: Arc::new(Uncounted),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Options");
        f.field("list", &self.list).field("page_size", &self.page_size).finish_non_exhaustive()
    }
}
