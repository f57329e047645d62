//! What can be set about the way from the source into the queue? The same for every informer and controller.

use std::sync::Arc;

use super::guarded::Guarded;
use super::intake::DEFAULT_BOUND;
use crate::object::{Decoded, Keep, Kind, Maker, Transform};
use crate::reflector::{InformerMetrics, Options};
use crate::report::Reporter;

/// Settings of how objects are read, made, and kept waiting.
#[derive(Debug)]
pub(super) struct Ingest {
    pub(super) keep: Keep,
    pub(super) keep_managed_fields: bool,
    pub(super) transform: Option<Transform>,
    pub(super) reflector: Options,
    /// Bytes that may wait in the queue before the source has to.
    pub(super) bound: usize,
}

impl Default for Ingest {
    fn default() -> Self {
        Self {
            keep: Keep::default(),
            keep_managed_fields: false,
            transform: None,
            reflector: Options::default(),
            bound: DEFAULT_BOUND,
        }
    }
}

impl Ingest {
    /// What makes the objects, and what keeps their decoded values.
    pub(super) fn maker<K: Kind>(&mut self, kind: &K::DynamicType) -> (Maker<K>, Arc<Decoded<K>>) {
        let expected = (K::api_version(kind).into_owned(), K::kind(kind).into_owned());
        let decoded = Decoded::new(self.keep);
        // Objects that come without their body come under another kind, too.
        let maker = Maker::new(decoded.clone(), (!K::metadata_api()).then_some(expected))
            .keep_managed_fields(self.keep_managed_fields)
            .transform(self.transform.take());
        (maker, decoded)
    }

    /// The hooks, for others to tell too; none of them brings the informer called `name` down.
    pub(super) fn guarded_metrics(&mut self, name: &str, reporter: &Reporter) -> Arc<dyn InformerMetrics> {
        let hooks = &mut self.reflector.metrics;
        let (metrics, name, reporter) = (hooks.clone(), name.to_owned(), reporter.clone());
        *hooks = Arc::new(Guarded { metrics, name, reporter });
        hooks.clone()
    }
}

/// The methods of a builder that has `ingest: Ingest`.
macro_rules! ingest_settings {
    () => {
        /// Keeps so many decoded values.
        #[must_use]
        pub fn keep_decoded(mut self, keep: $crate::object::Keep) -> Self {
            self.ingest.keep = keep;
            self
        }

        /// Keeps `metadata.managedFields`, which are cut by default.
        #[must_use]
        pub fn keep_managed_fields(mut self) -> Self {
            self.ingest.keep_managed_fields = true;
            self
        }

        /// Changes every object once, before it is cached and before anybody sees it; a second call replaces the first.
        #[must_use]
        pub fn transform(mut self, transform: $crate::object::Transform) -> Self {
            self.ingest.transform = Some(transform);
            self
        }

        /// Lets the source wait while more than `bytes` wait in the queue; 64 MiB by default.
        #[must_use]
        pub fn queue_bound(mut self, bytes: usize) -> Self {
            self.ingest.bound = bytes;
            self
        }

        /// Tells `metrics` what happens on the way into the cache; nobody by default.
        #[must_use]
        pub fn metrics(mut self, metrics: std::sync::Arc<dyn $crate::reflector::InformerMetrics>) -> Self {
            self.ingest.reflector.metrics = metrics;
            self
        }

        /// Reads whole states in that way.
        #[must_use]
        pub fn list_mode(mut self, mode: $crate::reflector::ListMode) -> Self {
            self.ingest.reflector.list = mode;
            self
        }

        /// Asks for pages of so many items; 500 by default, 0 for all at once.
        #[must_use]
        pub fn page_size(mut self, items: u32) -> Self {
            self.ingest.reflector.page_size = items;
            self
        }

        /// Asks for watches of `timeout` up to twice as long, at least five minutes.
        #[must_use]
        pub fn min_watch_timeout(mut self, timeout: std::time::Duration) -> Self {
            let shortest = &mut self.ingest.reflector.watch_timeout;
            *shortest = timeout.clamp(*shortest, $crate::clock::FAR);
            self
        }

        /// Waits in that way before it tries again.
        #[must_use]
        pub fn backoff(mut self, backoff: $crate::reflector::Backoff) -> Self {
            self.ingest.reflector.backoff = backoff;
            self
        }

        /// Answers internal errors of the server that end a watch with another watch from the same version, after a wait, for up to
        /// `duration`; zero, the default, leads to a list at once. An error that comes more than a minute after the one before begins
        /// the time anew. Client-go's `MaxInternalErrorRetryDuration`.
        #[must_use]
        pub fn retry_internal_errors(mut self, duration: std::time::Duration) -> Self {
            self.ingest.reflector.retry_internal_errors = duration;
            self
        }

        /// Steps over objects of more than `bytes`, which are reported by name and keep their old state in the cache; 16 MiB by
        /// default, at least 64 KiB. No more than that is buffered of one object.
        #[must_use]
        pub fn max_object_size(mut self, bytes: usize) -> Self {
            self.ingest.reflector.object_cap = bytes.max(64 << 10);
            self
        }

        /// Calls `hook` with every error of a list or watch, on the informer's task; it must not block.
        #[must_use]
        pub fn on_watch_error(
            mut self,
            hook: impl Fn(&$crate::wire::ApiError) + Send + Sync + 'static,
        ) -> Self {
            self.ingest.reflector.on_error = Some(std::sync::Arc::new(hook));
            self
        }
    };
}

pub(super) use ingest_settings;
