//! Kinds that need not be served: their informers start when the kind appears, and stop when it goes.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::Request;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::env::Env;
use crate::informer::{SharedInformer, SharedInformerFactory};
use crate::object::{Kind, Object};
use crate::source::Requests;
use crate::wire::ApiError;

/// How often it is looked whether the kind is served.
const PERIOD: Duration = Duration::from_secs(10);

/// An informer that is there while its kind is served.
pub(super) struct OptionalKind<W: Kind> {
    pub(super) kind: W::DynamicType,
    /// In the scope and with the selection of the watch.
    pub(super) factory: SharedInformerFactory,
    pub(super) requests: Requests,
    pub(super) env: Env,
    pub(super) slot: Arc<ArcSwapOption<SharedInformer<W>>>,
    /// Adds the handlers to an informer that is about to start.
    pub(super) prepare: Hook<SharedInformer<W>>,
    /// Called with each object that was cached when the kind went.
    pub(super) gone: Hook<Object<W>>,
}

type Hook<T> = Box<dyn Fn(&T) + Send + Sync>;

#[derive(Deserialize)]
struct Resources {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
}

impl<W: Kind> OptionalKind<W> {
    /// Runs until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            if self.is_served().await.unwrap_or(false) {
                self.follow(&stop).await;
            }
            stop.run_until_cancelled(self.env.clock.sleep(self.env.generator.jitter(PERIOD, 0.1))).await;
        }
    }

    /// Runs an informer until `stop`, or until the kind is not served any more.
    async fn follow(&self, stop: &CancellationToken) {
        let kind = W::kind(&self.kind);
        tracing::info!(%kind, "an optional kind is served: watching it");
        let informer = self.factory.builder_of::<W>(self.kind.clone()).build();
        (self.prepare)(&informer);
        self.slot.store(Some(Arc::new(informer.clone())));
        let end = stop.child_token();
        let watch_kind = async {
            loop {
                let pause = self.env.clock.sleep(self.env.generator.jitter(PERIOD, 0.1));
                if end.run_until_cancelled(pause).await.is_none() {
                    return;
                }
                // A server that does not answer has not dropped the kind.
                if let Ok(false) = self.is_served().await {
                    tracing::info!(%kind, "an optional kind is not served any more");
                    return end.cancel();
                }
            }
        };
        tokio::join!(informer.run(end.clone()), watch_kind);
        self.slot.store(None);
        if !stop.is_cancelled() {
            informer.indexer().snapshot().iter().for_each(|object| (self.gone)(object));
        }
    }

    /// Asks the server whether it has the kind.
    async fn is_served(&self) -> Result<bool, ApiError> {
        let (group, version) = (W::group(&self.kind), W::version(&self.kind));
        let path =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let request = Request::get(path).body(Vec::new());
        let request = request
            .map_err(|error| ApiError::new(crate::wire::Class::Invalid, format!("no such path: {error}")))?;
        match self.requests.send(request).await {
            Ok(body) => {
                let found: Resources = serde_json::from_slice(&body).map_err(ApiError::undecodable)?;
                let plural = W::plural(&self.kind);
                Ok(found.resources.iter().any(|resource| resource.name == plural))
            }
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
