//! An operator that uses most of the toolkit, and a story in which each part matters.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_derive::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use watchkeeper::controller::{
    Action, Context, Controller, Error, IndexKey, Manager, SetupError, Watch, generation_changed,
};
use watchkeeper_sim::{Outside, User};

/// A site has a bucket outside, a token, and a page in a ConfigMap that shows the color of its settings.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize)]
#[kube(group = "planted.dev", version = "v1", kind = "Site", namespaced, status = "SiteStatus")]
#[kube(schema = "disabled")]
#[kube(crates(kube_core = "kube_core", k8s_openapi = "k8s_openapi"))]
#[serde(default)]
pub(crate) struct SiteSpec {
    page: String,
    /// The name of a Secret.
    settings: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct SiteStatus {
    page: String,
}

const SETTINGS: IndexKey<Site> = IndexKey::field("settings", "spec.settings");

pub(crate) fn definition() -> CustomResourceDefinition {
    let part = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": part, "status": part}});
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
    });
    let names = json!({"plural": "sites", "singular": "site", "kind": "Site"});
    let spec = json!({"group": "planted.dev", "scope": "Namespaced", "names": names, "versions": [version]});
    serde_json::from_value(json!({"metadata": {"name": "sites.planted.dev"}, "spec": spec})).unwrap()
}

pub(crate) fn register(manager: &mut Manager, outside: &Outside) -> Result<(), SetupError> {
    let (here, there) = (outside.clone(), outside.clone());
    Controller::<Site>::new(manager)
        .when(generation_changed())
        .index(&SETTINGS)
        .watches(Watch::<Secret>::new(), |secret, sites| {
            sites.keys_in(&SETTINGS, secret.namespace(), secret.name())
        })
        .owns(Watch::<ConfigMap>::new())
        .owns(Watch::<ServiceAccount>::new())
        .finalizer("planted.dev/bucket", move |_, cx| {
            let outside = there.clone();
            async move {
                outside.remove(&format!("bucket {}", cx.key())).await?;
                Ok(Action::done())
            }
        })
        .reconcile(move |site, cx| reconcile(here.clone(), site, cx))
}

async fn reconcile(outside: Outside, site: Arc<Site>, cx: Context<Site>) -> Result<Action, Error> {
    outside.put(&format!("bucket {}", cx.key()), "").await?;
    if cx.owned::<ServiceAccount>()?.complete()?.is_empty() {
        cx.create(&token(&outside, cx.key().name())).await?;
    }
    let settings = cx.get::<Secret>(&site.spec.settings)?;
    let color = settings.and_then(|secret| secret.data.as_ref()?.get("color").cloned()).unwrap_or_default();
    let color = String::from_utf8_lossy(&color.0).into_owned();
    let mut map = ConfigMap::default();
    map.metadata.name = site.metadata.name.clone();
    map.data = Some(BTreeMap::from([("page".into(), site.spec.page.clone()), ("color".into(), color)]));
    cx.apply(&map).await?;
    cx.status(|status| status.page = site.spec.page.clone()).await?;
    Ok(Action::done())
}

/// A token with a name of its own: one that is made twice is there twice.
fn token(outside: &Outside, site: &str) -> ServiceAccount {
    let prefix = format!("{site}-token-");
    let mut token = ServiceAccount::default();
    token.metadata.name = Some(format!("{prefix}{:05}", outside.env().generator.below(100_000)));
    token.metadata.generate_name = Some(prefix);
    token
}

fn secret(name: &str) -> Secret {
    let mut secret = Secret::default();
    (secret.metadata.name, secret.metadata.namespace) = (Some(name.into()), Some("default".into()));
    secret.data = Some(BTreeMap::from([("color".into(), ByteString(b"red".to_vec()))]));
    secret
}

fn site(page: &str, settings: &str) -> Site {
    let mut site = Site::new("a", SiteSpec { page: page.into(), settings: settings.into() });
    site.metadata.namespace = Some("default".into());
    site
}

/// Waits for the page of the site.
async fn shows(user: &User, page: &str, color: &str) {
    let is = |map: &ConfigMap, key: &str, value: &str| {
        map.data.as_ref().and_then(|data| data.get(key)).is_some_and(|found| found == value)
    };
    user.eventually::<ConfigMap>("default/a", |map| is(map, "page", page) && is(map, "color", color)).await;
}

async fn paint(user: &User, settings: &str, color: &str) {
    let data: Value = json!({"data": {"color": ByteString(color.as_bytes().to_vec())}});
    user.patch::<Secret>(&format!("default/{settings}"), data).await;
}

/// A user creates a site, changes it and its settings, edits and deletes its page, deletes it, and does so again.
pub(crate) async fn users(user: &User) {
    for name in ["one", "two"] {
        user.create(&secret(name)).await;
    }
    user.create(&site("home", "one")).await;
    shows(user, "home", "red").await;
    paint(user, "one", "blue").await;
    shows(user, "home", "blue").await;
    user.patch::<Site>("default/a", json!({"spec": {"page": "news", "settings": "two"}})).await;
    shows(user, "news", "red").await;
    paint(user, "two", "green").await;
    shows(user, "news", "green").await;
    user.patch::<ConfigMap>("default/a", json!({"data": {"page": "hacked"}})).await;
    shows(user, "news", "green").await;
    user.delete::<ConfigMap>("default/a").await;
    shows(user, "news", "green").await;
    user.delete::<Site>("default/a").await;
    user.eventually_gone::<Site>("default/a").await;
    user.create(&site("home", "one")).await;
    shows(user, "home", "blue").await;
    paint(user, "one", "black").await;
    shows(user, "home", "black").await;
    user.delete::<Site>("default/a").await;
    user.eventually_gone::<Site>("default/a").await;
}
