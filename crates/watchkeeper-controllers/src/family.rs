//! Objects and the objects that control them: lookup by controller, adoption of orphans, and release.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube_core::params::Patch;
use kube_core::{Selector, SelectorExt};
use serde_json::{Value, json};
use watchkeeper::controller::{Context, Error, IndexKey, Manager, View, WriteError};
use watchkeeper::store::Index;
use watchkeeper::wire::Class;
use watchkeeper::{Kind, Object, ObjectName, SharedInformer};

/// The index of objects by the uid of their controller, and of those without one by their namespace.
const INDEX: &str = "family";

/// The cached objects of kind `W`, by the objects that control them.
pub(crate) struct Family<W: Kind>(SharedInformer<W>);

impl<W: Kind<DynamicType: Default>> Family<W> {
    /// The family of the manager's cached objects. Some controller must watch the kind.
    pub(crate) fn of(manager: &Manager) -> Self {
        let informer = manager.factory().informer::<W>();
        let index = Index::new(INDEX, |object: &Object<W>| {
            Some(match object.controller() {
                Some(controller) => controller.uid,
                None => orphans_of(object.namespace().unwrap_or_default()),
            })
        });
        // Another controller may have added it.
        let _added = informer.indexer().add_indexes([index]);
        Self(informer)
    }

    /// The objects in `namespace` that nothing controls.
    pub(crate) fn orphans(&self, namespace: &str) -> Vec<Arc<W>> {
        self.with(&orphans_of(namespace))
    }

    /// The objects that the object with this uid controls.
    pub(crate) fn children(&self, uid: &str) -> Vec<Arc<W>> {
        self.with(uid)
    }

    fn with(&self, value: &str) -> Vec<Arc<W>> {
        let snapshot = self.0.indexer().snapshot();
        let mut found: Vec<_> = match snapshot.by_index(INDEX, value) {
            Ok(objects) => objects.cloned().collect(),
            Err(_) => Vec::new(),
        };
        found.sort_unstable_by_key(Object::key);
        found.iter().filter_map(|object| object.get().ok()).collect()
    }
}

impl<W: Kind> Clone for Family<W> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<W: Kind> fmt::Debug for Family<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Family").field(&self.0.name()).finish()
    }
}

fn orphans_of(namespace: &str) -> String {
    format!("orphans in {namespace}")
}

/// What an object with a selector does with another object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It controls the object already, and goes on.
    Keep,
    Adopt,
    Release,
    Ignore,
}

/// Decides whether the object with the uid `owner` claims an object with this metadata.
pub(crate) fn claim(owner: &str, is_deleting: bool, selector: &Selector, object: &ObjectMeta) -> Claim {
    let is_selected = || selector.matches(object.labels.as_ref().unwrap_or(&Default::default()));
    match controller(object) {
        Some(controller) if controller.uid != owner => Claim::Ignore,
        Some(_) if is_selected() => Claim::Keep,
        Some(_) if is_deleting => Claim::Ignore,
        Some(_) => Claim::Release,
        None if is_deleting || object.deletion_timestamp.is_some() || !is_selected() => Claim::Ignore,
        None => Claim::Adopt,
    }
}

/// The reference to the controller of an object.
pub(crate) fn controller(object: &ObjectMeta) -> Option<&OwnerReference> {
    object.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// The selector of a workload; none if it is empty or cannot be understood, and selects nothing.
pub(crate) fn selector(of: &LabelSelector) -> Option<Selector> {
    let selector = Selector::try_from(of.clone()).ok()?;
    (!selector.selects_all()).then_some(selector)
}

/// A workload that selects the objects that it controls by their labels.
pub(crate) trait Selecting: Kind<DynamicType: Default> {
    /// Its selector; none if it selects nothing.
    fn selector(&self) -> Option<Selector>;
}

/// The index of workloads by namespace, which [`adopters`] looks at.
pub(crate) const fn in_namespace<K: 'static>() -> IndexKey<K> {
    IndexKey::field("in-namespace", "metadata.namespace")
}

/// The workloads that may adopt an object that nothing controls.
pub(crate) fn adopters<K: Selecting, W: Kind>(object: &Object<W>, of: &View<'_, K>) -> Vec<ObjectName> {
    if object.controller().is_some() {
        return Vec::new();
    }
    let Some(namespace) = object.namespace() else { return Vec::new() };
    let labels = object.labels().to_map();
    let selects = |key: &ObjectName| {
        let workload = of.get(key).and_then(|workload| workload.get().ok());
        let selector = workload.and_then(|workload| workload.selector());
        selector.is_some_and(|selector| selector.matches(&labels))
    };
    let mut keys = of.keys_in(&in_namespace(), Some(namespace), namespace);
    keys.retain(selects);
    keys
}

/// Returns the objects that the main object of `cx` controls from now on: those of its own that its selector matches, and
/// orphans, which it adopts. Releases those that the selector does not match any more.
pub(crate) async fn claim_all<K, W>(
    cx: &Context<K>,
    main: &ObjectMeta,
    selector: &Selector,
    family: &Family<W>,
) -> Result<Vec<Arc<W>>, Error>
where
    K: Kind<DynamicType: Default>,
    W: Kind<DynamicType: Default>,
{
    claim_all_with(cx, main, selector, family, None).await
}

/// As [`claim_all`]; what is adopted gets a finalizer, and what is released loses it.
pub(crate) async fn claim_all_with<K, W>(
    cx: &Context<K>,
    main: &ObjectMeta,
    selector: &Selector,
    family: &Family<W>,
    finalizer: Option<&str>,
) -> Result<Vec<Arc<W>>, Error>
where
    K: Kind<DynamicType: Default>,
    W: Kind<DynamicType: Default>,
{
    let uid = main.uid.as_deref().unwrap_or_default();
    let is_deleting = main.deletion_timestamp.is_some();
    let mut claimed = Vec::new();
    let mut may_adopt = None;
    let orphans = family.orphans(cx.key().namespace().unwrap_or_default());
    // One that cannot be read is there all the same: without it, another would be made in its place.
    for object in cx.owned::<W>()?.complete()?.into_iter().chain(orphans) {
        let name = object.meta().name.as_deref().unwrap_or_default();
        match claim(uid, is_deleting, selector, object.meta()) {
            Claim::Keep => claimed.push(object),
            Claim::Ignore => {}
            Claim::Release => {
                let mut change = json!({"ownerReferences": [{"$patch": "delete", "uid": uid}]});
                if let Some(finalizer) = finalizer {
                    change["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
                }
                drop(own::<K, W>(cx, name, object.meta(), change).await?);
            }
            Claim::Adopt => {
                // The cache may not know yet that the main object is going.
                let may = match may_adopt {
                    Some(may) => may,
                    None => *may_adopt.insert(is_alive(cx, uid).await?),
                };
                if may {
                    let mut change = json!({"ownerReferences": [reference::<K>(main)]});
                    if let Some(finalizer) = finalizer {
                        change["finalizers"] = json!([finalizer]);
                    }
                    claimed.extend(own::<K, W>(cx, name, object.meta(), change).await?);
                }
            }
        }
    }
    claimed.sort_by(|one, other| one.meta().name.cmp(&other.meta().name));
    claimed.dedup_by(|one, other| one.meta().uid == other.meta().uid);
    Ok(claimed)
}

/// Whether the main object is still there, and not being deleted.
async fn is_alive<K: Kind<DynamicType: Default>>(cx: &Context<K>, uid: &str) -> Result<bool, Error> {
    let live = cx.live().get::<K>(cx.key()).await?;
    Ok(live.is_some_and(|live| {
        live.meta().uid.as_deref() == Some(uid) && live.meta().deletion_timestamp.is_none()
    }))
}

/// Changes the metadata of an object; none if it is gone, or another one by now.
pub(crate) async fn own<K, W>(
    cx: &Context<K>,
    name: &str,
    object: &ObjectMeta,
    mut change: Value,
) -> Result<Option<Arc<W>>, Error>
where
    K: Kind,
    W: Kind<DynamicType: Default>,
{
    change["uid"] = json!(object.uid);
    match cx.unowned().patch::<W, _>(name, &Patch::Strategic(json!({ "metadata": change }))).await {
        Ok(object) => Ok(Some(object)),
        Err(WriteError::Api { source, .. })
            if source.is_missing_object() || source.class() == Class::Invalid =>
        {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// A reference to `main` as a controller.
fn reference<K: Kind<DynamicType: Default>>(main: &ObjectMeta) -> OwnerReference {
    let kind = K::DynamicType::default();
    OwnerReference {
        api_version: K::api_version(&kind).into_owned(),
        kind: K::kind(&kind).into_owned(),
        name: main.name.clone().unwrap_or_default(),
        uid: main.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(label: &str, controller: Value) -> ObjectMeta {
        serde_json::from_value(json!({"labels": {"app": label}, "ownerReferences": controller})).unwrap()
    }

    fn owned_by(uid: &str) -> Value {
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": uid, "controller": true}])
    }

    #[test]
    fn orphans_are_adopted_and_what_is_not_selected_is_released() {
        let selector: Selector = [("app", "web")].into_iter().collect();
        let decide = |is_deleting, object: &ObjectMeta| claim("u1", is_deleting, &selector, object);
        assert_eq!(decide(false, &object("web", owned_by("u1"))), Claim::Keep);
        assert_eq!(decide(false, &object("db", owned_by("u1"))), Claim::Release);
        assert_eq!(decide(true, &object("db", owned_by("u1"))), Claim::Ignore);
        assert_eq!(decide(false, &object("web", owned_by("u2"))), Claim::Ignore);
        assert_eq!(decide(false, &object("web", json!([]))), Claim::Adopt);
        assert_eq!(decide(true, &object("web", json!([]))), Claim::Ignore);
        assert_eq!(decide(false, &object("db", json!([]))), Claim::Ignore);
        let mut going = object("web", json!([]));
        going.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(decide(false, &going), Claim::Ignore);
    }

    #[test]
    fn an_empty_selector_selects_nothing() {
        assert!(selector(&LabelSelector::default()).is_none());
    }
}
