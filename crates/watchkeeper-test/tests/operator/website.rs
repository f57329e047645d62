//! An operator to test the runtime with: a Website owns a Deployment, a Service and a ConfigMap, and reads a Secret.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use parking_lot::Mutex;
use watchkeeper::controller::{
    Action, Conditions, Context, Controller, Error, IndexKey, Manager, SetupError, Watch, generation_changed,
};
use watchkeeper::record::EventType;

pub(crate) use crate::kind::{Website, WebsiteSpec};
use crate::kind::{config_map, deployment, service};

impl Website {
    pub(crate) fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.conditions.is_true("Ready"))
    }
}

/// What is outside the cluster, and what the operator did.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    pub(crate) buckets: Mutex<BTreeMap<String, usize>>,
    pub(crate) reconciles: AtomicUsize,
    /// What led to each reconcile.
    pub(crate) triggers: Mutex<Vec<Vec<String>>>,
}

const SECRET: IndexKey<Website> = IndexKey::field("secret", "spec.secret");

pub(crate) fn register(manager: &mut Manager, outside: &Arc<Outside>) -> Result<(), SetupError> {
    manager.crd::<Website>();
    let (ensure, remove) = (outside.clone(), outside.clone());
    Controller::<Website>::new(manager)
        .owns(Watch::<Deployment>::new())
        .owns(Watch::<Service>::new())
        .owns(Watch::<ConfigMap>::new().labels("app=site"))
        .index(&SECRET)
        .watches(Watch::<Secret>::new(), |secret, sites| {
            sites.keys_in(&SECRET, secret.namespace(), secret.name())
        })
        .when(generation_changed())
        .finalizer("example.dev/bucket", move |site, _| {
            let outside = remove.clone();
            async move {
                outside.buckets.lock().remove(site.metadata.uid.as_deref().unwrap_or_default());
                Ok(Action::done())
            }
        })
        .workers(4)
        .timeout(Duration::from_secs(60))
        .reconcile(move |site, cx| reconcile(site, cx, ensure.clone()))
}

async fn reconcile(site: Arc<Website>, cx: Context<Website>, outside: Arc<Outside>) -> Result<Action, Error> {
    outside.reconciles.fetch_add(1, Relaxed);
    outside.triggers.lock().push(cx.triggers().iter().map(ToString::to_string).collect());
    if !site.spec.secret.is_empty() && cx.get::<Secret>(&site.spec.secret)?.is_none() {
        let message = format!("secret {} does not exist", site.spec.secret);
        return Err(Error::terminal("MissingSecret", message));
    }
    *outside.buckets.lock().entry(site.metadata.uid.clone().unwrap_or_default()).or_default() += 1;
    cx.apply(&config_map(&site)).await?;
    let deployment = cx.apply(&deployment(&site)).await?;
    cx.apply(&service(&site)).await?;
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    cx.status(|status| {
        status.ready_replicas = ready;
        status.conditions.set(cx.condition("Ready", true, "Applied"));
    })
    .await?;
    cx.event(EventType::Normal, "Synced", "website is up to date");
    Ok(Action::done())
}

pub(crate) fn manifest(name: &str, replicas: i32) -> String {
    format!(
        "{{apiVersion: example.dev/v1, kind: Website, metadata: {{name: {name}}}, spec: {{image: nginx, replicas: {replicas}}}}}"
    )
}
