//! What can be set about a reflector?

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::backoff::Backoff;
use super::metrics::{InformerMetrics, NoMetrics};
use crate::wire::ApiError;

/// How the first state, and each state after a gap, is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    pub(crate) on_error: Option<ErrorHook>,
    pub(crate) metrics: Arc<dyn InformerMetrics>,
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
            on_error: None,
            metrics: Arc::new(NoMetrics),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Options");
        f.field("list", &self.list).field("page_size", &self.page_size).finish_non_exhaustive()
    }
}

/// The settings of a reflector, for every builder that has `reflector: Options`.
macro_rules! reflector_settings {
    () => {
        /// Tells `metrics` what happens on the way into the cache; nobody by default.
        #[must_use]
        pub fn metrics(mut self, metrics: std::sync::Arc<dyn $crate::reflector::InformerMetrics>) -> Self {
            self.reflector.metrics = metrics;
            self
        }

        /// Reads whole states in that way.
        #[must_use]
        pub fn list_mode(mut self, mode: $crate::reflector::ListMode) -> Self {
            self.reflector.list = mode;
            self
        }

        /// Asks for pages of so many items; 500 by default, 0 for all at once.
        #[must_use]
        pub fn page_size(mut self, items: u32) -> Self {
            self.reflector.page_size = items;
            self
        }

        /// Asks for watches of `timeout` up to twice as long, at least five minutes.
        #[must_use]
        pub fn min_watch_timeout(mut self, timeout: std::time::Duration) -> Self {
            self.reflector.watch_timeout = timeout.max(self.reflector.watch_timeout);
            self
        }

        /// Calls `hook` with every error of a list or watch, on the informer's task; it must not block.
        #[must_use]
        pub fn on_watch_error(
            mut self,
            hook: impl Fn(&$crate::wire::ApiError) + Send + Sync + 'static,
        ) -> Self {
            self.reflector.on_error = Some(std::sync::Arc::new(hook));
            self
        }
    };
}

pub(crate) use reflector_settings;
