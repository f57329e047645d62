//! Reconciles a Website, and cleans up after it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use watchkeeper::prelude::*;

use crate::buckets::Buckets;
use crate::children::{config_map, deployment, service};
use crate::types::Website;

/// Brings the children, the bucket and the status of a Website in line with its spec.
pub(crate) async fn reconcile(
    site: Arc<Website>,
    cx: Context<Website>,
    buckets: Arc<impl Buckets>,
) -> Result<Action, Error> {
    let Some(secret) = cx.get::<Secret>(&site.spec.secret)? else {
        cx.status(|status| status.conditions.set(cx.condition("Ready", false, "MissingSecret"))).await?;
        let message = format!("secret {} does not exist", site.spec.secret);
        // A retry would not help. The Website is reconciled again when the Secret appears.
        return Err(Error::terminal("MissingSecret", message));
    };
    buckets.ensure(cx.key()).await?;
    cx.apply(&config_map(&site)).await?;
    cx.apply(&service(&site)).await?;
    let deployment = cx.apply(&deployment(&site, &secret)).await?;
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    let is_ready = ready == site.spec.replicas;
    cx.status(|status| {
        status.ready_replicas = ready;
        let reason = if is_ready { "Available" } else { "RollingOut" };
        status.conditions.set(cx.condition("Ready", is_ready, reason));
    })
    .await?;
    if is_ready && !site.is_ready() {
        cx.event(EventType::Normal, "Ready", &format!("{ready} replicas are ready"));
    }
    // No watch sees a bucket that somebody removes.
    Ok(Action::requeue_after(Duration::from_secs(300)))
}

/// Removes what the garbage collector does not: the bucket.
pub(crate) async fn clean_up(cx: Context<Website>, buckets: Arc<impl Buckets>) -> Result<Action, Error> {
    buckets.remove(cx.key()).await?;
    Ok(Action::done())
}
