//! Settings of a reflector.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::backoff::Backoff;
use super::metrics::{ReflectorMetrics, Uncounted};
use super::verify::VerifyRequests;
use crate::wire::{ApiError, OBJECT_CAP};

/// The way in which the initial state, and the state after each gap, is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListMode {
    /// As a streamed list if the server supports it, otherwise in pages.
    #[default]
    Stream,
    /// In pages.
    Paged,
}

/// A hook that receives errors, on the reflector's task; it must not block.
pub type ErrorHook = Arc<dyn Fn(&ApiError) + Send + Sync>;

/// Settings of a reflector.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) list: ListMode,
    /// The number of items in one page of a list; 0 requests all at once.
    pub(crate) page_size: u32,
    /// A watch ends by itself after this time, or up to twice as long.
    pub(crate) watch_timeout: Duration,
    /// A watch that delivers nothing for this time is checked.
    pub(crate) silence: Duration,
    pub(crate) backoff: Backoff,
    /// The time for which a watch that ends with an internal error of the server is retried; zero for no retries.
    pub(crate) retry_internal_errors: Duration,
    /// The size above which objects are skipped.
    pub(crate) object_cap: usize,
    /// Whether the kind may be absent. Shared with the informer, whose users may differ about it.
    pub(crate) optional: Arc<AtomicBool>,
    /// The longest time between two comparisons of the cache with the server; zero for none.
    pub(crate) verify_every: Duration,
    /// Requests to compare them.
    pub(crate) verify_requests: Arc<VerifyRequests>,
    pub(crate) on_error: Option<ErrorHook>,
    pub(crate) metrics: Arc<dyn ReflectorMetrics>,
}

/// The default of the page size.
pub(crate) const PAGE: u32 = 500;
pub(crate) const WATCH: Duration = Duration::from_secs(300);
/// A server that sends bookmarks sends one a minute: two and a half of them were missed.
const SILENCE: Duration = Duration::from_secs(150);

impl Default for Options {
    fn default() -> Self {
        Self {
            list: ListMode::default(),
            page_size: PAGE,
            watch_timeout: WATCH,
            silence: SILENCE,
            backoff: Backoff::default(),
            retry_internal_errors: Duration::ZERO,
            object_cap: OBJECT_CAP,
            optional: Arc::default(),
            verify_every: Duration::ZERO,
            verify_requests: Arc::default(),
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
