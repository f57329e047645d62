//! What a test observes of a server through its own informers, beside the programs under test.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};
use watchkeeper::informer::{Change, on_change};
use watchkeeper::process::ClientArgs;
use watchkeeper::{Client, Env, Kind, ObjectName, SharedInformerFactory};

use crate::program::PATIENCE;

/// Informers that wake who waits, and a client.
pub(crate) struct Observer {
    pub(crate) client: Client,
    pub(crate) factory: SharedInformerFactory,
    changed: Arc<Notify>,
    stop: CancellationToken,
    _guard: DropGuard,
}

impl Observer {
    pub(crate) async fn connect(env: &Env, kubeconfig: &Path) -> Self {
        let args = ClientArgs { kubeconfig: Some(kubeconfig.to_owned()), ..ClientArgs::default() };
        Self::of(args.connect(env).await.unwrap())
    }

    pub(crate) fn of(client: Client) -> Self {
        let factory = SharedInformerFactory::builder(&client).build();
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        Self { client, factory, changed: Arc::default(), stop, _guard: guard }
    }

    pub(crate) async fn observe<K: Kind<DynamicType: Default>>(&self) {
        let changed = self.changed.clone();
        let handler = on_change(move |_: Change<'_, K>| changed.notify_waiters());
        self.factory.informer::<K>().add_handler(handler).unwrap();
        self.factory.start(&self.stop);
        self.factory.wait_for_sync(&self.stop).await.unwrap();
    }

    /// The object as it was last seen.
    pub(crate) fn seen<K: Kind<DynamicType: Default>>(&self, name: &str) -> Option<Arc<K>> {
        self.factory.lister::<K>().get(&ObjectName::namespaced("default", name)).ok()
    }

    /// Waits until what is seen is as `wanted`.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&Self) -> bool) {
        let seen = async {
            loop {
                let changed = self.changed.notified();
                if wanted(self) {
                    return;
                }
                changed.await;
            }
        };
        let in_time = self.client.env().clock.timeout(PATIENCE, seen).await;
        assert!(in_time.is_ok(), "not seen within {PATIENCE:?}: {what}");
    }
}
