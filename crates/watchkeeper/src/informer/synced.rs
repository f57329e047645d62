//! Waiting for caches to sync.

use std::fmt;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use tokio_util::sync::CancellationToken;

use super::delta_controller::DeltaController;
use super::listener::Registration;
use super::shared::SharedInformer;
use super::unshared::Informer;
use crate::object::Kind;

/// Anything that syncs once, such as an informer's cache, or a handler that has been notified of the initial list.
pub trait Synced: Sync {
    /// Waits until it has synced; returns false once it never will. Cancel-safe.
    fn synced(&self) -> BoxFuture<'_, bool>;

    /// Returns the last problem, if there was any.
    fn trouble(&self) -> Option<String> {
        None
    }
}

impl<K: Kind> Synced for SharedInformer<K> {
    fn synced(&self) -> BoxFuture<'_, bool> {
        self.synced_or_stopped().boxed()
    }

    fn trouble(&self) -> Option<String> {
        self.health().degraded.map(|(_, why)| why)
    }
}

impl<K: Kind> Synced for Informer<K> {
    fn synced(&self) -> BoxFuture<'_, bool> {
        self.synced_or_stopped().boxed()
    }

    fn trouble(&self) -> Option<String> {
        self.health().degraded.map(|(_, why)| why)
    }
}

impl<K: Kind> Synced for Registration<K> {
    fn synced(&self) -> BoxFuture<'_, bool> {
        self.synced_or_ended().boxed()
    }
}

impl<K: Kind> Synced for DeltaController<K> {
    fn synced(&self) -> BoxFuture<'_, bool> {
        self.synced_or_stopped().boxed()
    }

    fn trouble(&self) -> Option<String> {
        self.health().degraded.map(|(_, why)| why)
    }
}

/// Waits until all of the named `caches` have synced. The error names those that had not when `stop` was cancelled, or
/// that never will. Cancel-safe.
///
/// ```
/// # use k8s_openapi::api::core::v1::{Node, Pod};
/// # use tokio_util::sync::CancellationToken;
/// # use watchkeeper::informer::{NotSynced, SharedInformer, wait_for_sync};
/// # async fn example(pods: SharedInformer<Pod>, nodes: SharedInformer<Node>, stop: CancellationToken) -> Result<(), NotSynced> {
/// wait_for_sync(&[("pods", &pods), ("nodes", &nodes)], &stop).await?;
/// # Ok(())
/// # }
/// ```
pub async fn wait_for_sync(
    caches: &[(&str, &dyn Synced)],
    stop: &CancellationToken,
) -> Result<(), NotSynced> {
    let outcomes = join_all(caches.iter().map(|(name, cache)| async move {
        tokio::select! {
            biased;
            synced = cache.synced() => (name, cache, synced),
            () = stop.cancelled() => (name, cache, false),
        }
    }));
    let (mut unsynced, mut synced) = (Vec::new(), Vec::new());
    for (name, cache, has_synced) in outcomes.await {
        match has_synced {
            true => synced.push((*name).to_owned()),
            false => unsynced.push(Unsynced { name: (*name).to_owned(), why: cache.trouble() }),
        }
    }
    if unsynced.is_empty() { Ok(()) } else { Err(NotSynced { unsynced, synced }) }
}

/// The error of caches that did not sync before the stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to sync all caches: {}", unsynced.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
pub struct NotSynced {
    /// The caches that did not sync, by name.
    pub unsynced: Vec<Unsynced>,
    /// The names of those that did.
    pub synced: Vec<String>,
}

/// A cache that did not sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsynced {
    /// The plural name of the kind, with its scope and selection if they are narrowed.
    pub name: String,
    /// The last problem, if there was any.
    pub why: Option<String>,
}

impl fmt::Display for Unsynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.why.as_ref().map_or(Ok(()), |why| write!(f, " ({why})"))
    }
}
