//! Settings of the path from the source into the queue, the same for every informer and controller.

use std::sync::Arc;
use std::time::Duration;

use super::guarded::Guarded;
use super::metrics::{InformerMetrics, NoMetrics};
use crate::object::{Decoded, Keep, Kind, Maker, Transform};
use crate::queue::{DEFAULT_BOUND, QueueKind};
use crate::reflector::Options;
use crate::report::Reporter;

/// Settings for reading, making and queueing objects.
pub(super) struct Pipeline {
    /// The name in reports, if it is not the plural name of the kind.
    pub(super) name: Option<String>,
    pub(super) queue: QueueKind,
    /// Zero for never.
    pub(super) resync: Duration,
    pub(super) keep: Keep,
    pub(super) keep_managed_fields: bool,
    /// Whether objects come without their bodies.
    pub(super) metadata_only: bool,
    pub(super) transform: Option<Transform>,
    pub(super) reflector: Options,
    /// The number of queued bytes above which the source has to wait.
    pub(super) bound: usize,
    pub(super) metrics: Arc<dyn InformerMetrics>,
}

impl Default for Pipeline {
    fn default() -> Self {
        Self {
            name: None,
            queue: QueueKind::default(),
            resync: Duration::ZERO,
            keep: Keep::default(),
            keep_managed_fields: false,
            metadata_only: false,
            transform: None,
            reflector: Options::default(),
            bound: DEFAULT_BOUND,
            metrics: Arc::new(NoMetrics),
        }
    }
}

impl Pipeline {
    /// Returns the name in reports.
    pub(super) fn name<K: Kind>(&self, kind: &K::DynamicType) -> String {
        self.name.clone().unwrap_or_else(|| K::plural(kind).into_owned())
    }

    /// Returns the factory of objects, and the cache of their decoded values.
    pub(super) fn maker<K: Kind>(&mut self, kind: &K::DynamicType) -> (Maker<K>, Arc<Decoded<K>>) {
        let expected = (K::api_version(kind).into_owned(), K::kind(kind).into_owned());
        let decoded = Decoded::new(self.keep);
        // Objects that come without their body come under another kind, too.
        let is_whole = !K::metadata_api() && !self.metadata_only;
        let maker = Maker::new(decoded.clone(), is_whole.then_some(expected))
            .keep_managed_fields(self.keep_managed_fields)
            .transform(self.transform.take());
        (maker, decoded)
    }

    /// Returns the hooks, shared and guarded: a panic of a hook does not bring down the informer called `name`.
    pub(super) fn guarded_metrics(&mut self, name: &str, reporter: &Reporter) -> Arc<dyn InformerMetrics> {
        let (metrics, name, reporter) = (self.metrics.clone(), name.to_owned(), reporter.clone());
        let guarded = Arc::new(Guarded { metrics, name, reporter });
        self.reflector.metrics = guarded.clone();
        guarded
    }
}

/// Generates the methods of a builder that has `pipeline: Pipeline`.
macro_rules! pipeline_settings {
    () => {
        /// Sets the name in reports and logs; the plural name of the kind by default.
        #[must_use]
        pub fn name(mut self, name: &str) -> Self {
            self.pipeline.name = Some(name.to_owned());
            self
        }

        /// Sets the queue between reflector and store.
        #[must_use]
        pub fn queue(mut self, queue: $crate::queue::QueueKind) -> Self {
            self.pipeline.queue = queue;
            self
        }

        /// Delivers every object again after each `period`; zero, the default, is never.
        #[must_use]
        pub fn resync(mut self, period: std::time::Duration) -> Self {
            self.pipeline.resync = period;
            self
        }

        /// Sets the number of decoded values that are kept.
        #[must_use]
        pub fn keep_decoded(mut self, keep: $crate::object::Keep) -> Self {
            self.pipeline.keep = keep;
            self
        }

        /// Keeps `metadata.managedFields`, which are removed by default.
        #[must_use]
        pub fn keep_managed_fields(mut self) -> Self {
            self.pipeline.keep_managed_fields = true;
            self
        }

        /// Transforms every object once, before it is cached and before handlers see it; a second call replaces the
        /// first.
        #[must_use]
        pub fn transform(mut self, transform: $crate::object::Transform) -> Self {
            self.pipeline.transform = Some(transform);
            self
        }

        /// Makes the source wait while more than `bytes` are queued; 64 MiB by default.
        #[must_use]
        pub fn queue_bound(mut self, bytes: usize) -> Self {
            self.pipeline.bound = bytes;
            self
        }

        /// Sets the hooks on the path into the cache; none by default.
        #[must_use]
        pub fn metrics(mut self, metrics: std::sync::Arc<dyn $crate::informer::InformerMetrics>) -> Self {
            self.pipeline.metrics = metrics;
            self
        }

        /// Sets the way in which whole states are read.
        #[must_use]
        pub fn list_mode(mut self, mode: $crate::reflector::ListMode) -> Self {
            self.pipeline.reflector.list = mode;
            self
        }

        /// Sets the number of items in a page; 500 by default, 0 for all at once.
        #[must_use]
        pub fn page_size(mut self, items: u32) -> Self {
            self.pipeline.reflector.page_size = items;
            self
        }

        /// Sets the timeout of watches, which is randomized up to twice as long, and at least five minutes.
        #[must_use]
        pub fn min_watch_timeout(mut self, timeout: std::time::Duration) -> Self {
            let shortest = &mut self.pipeline.reflector.watch_timeout;
            *shortest = timeout.clamp(*shortest, $crate::clock::FAR);
            self
        }

        /// Sets the time without an event or a bookmark after which a watch is checked; two and a half minutes by
        /// default, at least one second. A server that sends bookmarks sends one a minute.
        ///
        /// If the server has sent bookmarks, the watch is opened again, as its connection is dead. If the watch has
        /// delivered nothing at all, a list of one object shows the server's version: one that is below the cache's,
        /// for example after a restore from a backup, leads to a relist.
        #[must_use]
        pub fn max_watch_silence(mut self, silence: std::time::Duration) -> Self {
            self.pipeline.reflector.silence =
                silence.clamp(std::time::Duration::from_secs(1), $crate::clock::FAR);
            self
        }

        /// Sets the delays before retries.
        #[must_use]
        pub fn backoff(mut self, backoff: $crate::reflector::Backoff) -> Self {
            self.pipeline.reflector.backoff = backoff;
            self
        }

        /// Retries a watch that ends with an internal error of the server from the same version, with backoff, for up
        /// to `duration`; with zero, the default, it is followed by a relist at once. An error more than a minute after
        /// the previous one restarts the time. This is client-go's `MaxInternalErrorRetryDuration`.
        #[must_use]
        pub fn retry_internal_errors(mut self, duration: std::time::Duration) -> Self {
            self.pipeline.reflector.retry_internal_errors = duration;
            self
        }

        /// Skips objects of more than `bytes`, which are reported by name and keep their old state in the cache; 16 MiB
        /// by default, at least 64 KiB. No more than that is buffered of one object.
        #[must_use]
        pub fn max_object_size(mut self, bytes: usize) -> Self {
            self.pipeline.reflector.object_cap = bytes.max(64 << 10);
            self
        }

        /// Lets the kind be absent. While it is not served, the informer counts as synced and healthy, and its cache is
        /// empty; by default such an informer has not synced, or is degraded. Either way it waits for the kind, and
        /// lists it when it is served.
        #[must_use]
        pub fn optional(self) -> Self {
            self.pipeline.reflector.optional.store(true, std::sync::atomic::Ordering::Relaxed);
            self
        }

        /// Calls `hook` with every error of a list or watch, on the informer's task; it must not block.
        #[must_use]
        pub fn on_watch_error(
            mut self,
            hook: impl Fn(&$crate::wire::ApiError) + Send + Sync + 'static,
        ) -> Self {
            self.pipeline.reflector.on_error = Some(std::sync::Arc::new(hook));
            self
        }
    };
}

pub(super) use pipeline_settings;
