//! The reflector passes the tests of client-go's reflector, except as stated in `docs/upstream-tests.md`. On both
//! queues, in process, on the paused clock.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "../common/mod.rs"]
mod common;
mod failures;
mod lists;
mod stops;
mod streamed_lists;
mod watches;

use std::time::Duration;

use common::{ScriptedInformer, raw, soon};
use serde_json::json;
use watchkeeper::queue::QueueKind;
use watchkeeper::reflector::ListReason;
use watchkeeper::source::{Asked, ScriptedSource};
use watchkeeper::wire::{ApiError, Class};

fn bookmark(version: u64, ends_list: bool) -> String {
    let annotations = if ends_list { json!({"k8s.io/initial-events-end": "true"}) } else { json!({}) };
    raw(
        "BOOKMARK",
        &json!({"metadata": {"resourceVersion": version.to_string(), "annotations": annotations}}),
    )
}

fn error(class: Class) -> ApiError {
    ApiError::new(class, "scripted")
}

impl ScriptedInformer {
    fn started(queue: QueueKind, source: ScriptedSource) -> Self {
        let scripted = Self::on(queue, source, |builder| builder);
        scripted.start();
        scripted
    }

    /// Waits until the cache holds these.
    async fn until_cached(&self, items: &[&str]) {
        let cached = async {
            while self.cached() != items {
                self.env.clock.sleep(Duration::from_millis(100)).await;
            }
        };
        soon(&self.env, cached).await;
    }

    /// How many errors and panics were reported.
    fn reports(&self) -> u64 {
        self.env.reporter.errors() + self.env.reporter.panics()
    }

    /// Seconds of virtual time since the start.
    fn elapsed(&self) -> f64 {
        (self.env.clock.now() - self.began).as_secs_f64()
    }

    /// What was asked: `list limit`, `page limit token`, `watch version`, `stream`.
    fn asked(&self) -> Vec<String> {
        let line = |asked: &Asked| match asked {
            Asked::List(options) => {
                assert!(options.version.is_unset(), "every list is a consistent read");
                let token = &options.continue_token;
                if token.is_empty() {
                    format!("list {}", options.limit)
                } else {
                    format!("page {} {token}", options.limit)
                }
            }
            Asked::Watch(options) if options.initial_events => format!("stream{}", options.version),
            Asked::Watch(options) => format!("watch {}", options.version),
            other => panic!("{other:?}"),
        };
        self.source.asked().iter().map(line).collect()
    }

    fn reasons(&self) -> Vec<(ListReason, u64)> {
        self.informer.health().lists_by_reason.into_iter().collect()
    }
}
