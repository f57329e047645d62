//! When may workers start? When the caches that they read have filled.

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use tokio_util::sync::CancellationToken;

use crate::informer::Informer;
use crate::informer::{NotSynced, Registration, SharedInformer, Unsynced};
use crate::object::Kind;

/// Something that fills once, such as an informer's cache or what a handler has been told.
pub trait Synced: Sync {
    /// Waits until it has filled; false when it never will. Cancel-safe.
    fn synced(&self) -> BoxFuture<'_, bool>;

    /// What went wrong last, if anything did.
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

/// Waits until all of the named `caches` have synced; the error names those that had not when `stop` came, or that never will. Cancel-safe.
///
/// ```
/// # use k8s_openapi::api::core::v1::{Node, Pod};
/// # use tokio_util::sync::CancellationToken;
/// # use watchkeeper::informer::NotSynced;
/// # use watchkeeper::{SharedInformer, process};
/// # async fn example(pods: SharedInformer<Pod>, nodes: SharedInformer<Node>, stop: CancellationToken) -> Result<(), NotSynced> {
/// process::wait_for_sync(&[("pods", &pods), ("nodes", &nodes)], &stop).await?;
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
