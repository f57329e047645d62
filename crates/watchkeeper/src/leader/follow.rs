//! The watch by which a candidate learns at once that the lease was renewed, released or deleted.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::record::{LeaseObject, Seen};
use crate::informer::{Change, SharedInformer, on_change};
use crate::object::{Object, ObjectName};
use crate::source::{ApiSource, Client, Scope, Selection};

/// Watches one Lease until it is dropped.
#[derive(Debug)]
pub(super) struct Follower {
    informer: SharedInformer<Lease>,
    news: Arc<News>,
    _tasks: JoinSet<()>,
}

/// What the watch has shown and nobody has taken yet.
#[derive(Debug, Default)]
struct News {
    latest: Mutex<Option<Option<Seen>>>,
    changed: Notify,
}

impl News {
    fn put(&self, lease: Option<Seen>) {
        *self.latest.lock() = Some(lease);
        self.changed.notify_one();
    }
}

impl Follower {
    /// Starts to watch; must be called on a tokio runtime.
    pub(super) fn start(client: &Client, name: &ObjectName) -> Self {
        let scope = Scope::Namespace(name.namespace().unwrap_or_default().to_owned());
        let fields = format!("metadata.name={}", name.name());
        let selection = Selection { fields, ..Selection::default() };
        let source = ApiSource::new::<Lease>(client, &(), &scope).select(selection);
        let informer = SharedInformer::<Lease>::builder(source, client.env()).build();
        let news = Arc::<News>::default();
        let tell = news.clone();
        // An informer that has not been started takes handlers.
        let _added = informer.add_handler(on_change(move |change: Change<'_, Lease>| match change {
            Change::Added { object, .. } | Change::Updated { new: object, .. } => {
                if let Some(seen) = seen(object) {
                    tell.put(Some(seen));
                }
            }
            Change::Deleted(_) => tell.put(None),
        }));
        let (run, mut tasks) = (informer.clone(), JoinSet::new());
        tasks.spawn(async move { run.run(CancellationToken::new()).await });
        Self { informer, news, _tasks: tasks }
    }

    /// Returns whether the watch is up: otherwise the Lease must be read.
    pub(super) fn is_up(&self) -> bool {
        self.informer.has_synced() && self.informer.health().degraded.is_none()
    }

    /// Waits until the Lease has changed, and returns it as it is now; `None` if it was deleted. Cancel-safe.
    pub(super) async fn changed(&self) -> Option<Seen> {
        loop {
            if let Some(latest) = self.news.latest.lock().take() {
                return latest;
            }
            self.news.changed.notified().await;
        }
    }
}

/// What a cached Lease says. One that cannot be read is left to the next read, which tells why.
fn seen(object: &Object<Lease>) -> Option<Seen> {
    LeaseObject::read(object.json()).ok().map(|lease| lease.seen)
}
