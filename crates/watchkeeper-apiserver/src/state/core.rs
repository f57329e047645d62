//! What is the state of the server? Objects, kinds, time and chance, behind one lock; everything here is synchronous and without IO.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;
use serde_json::{Value, json};
use watchkeeper::Env;
use watchkeeper::clock::{Clock, Generator};

use crate::failure::{Cause, Failure, Result};
use crate::kinds::convert;
use crate::kinds::meta;
use crate::kinds::registry::{Kind, Registry, ResourceId};
use crate::persist::disk::{Kept, State, Version};
use crate::state::store::{Key, Store, Stored, Window};
use crate::verbs::write::Write;

pub(crate) const DEFAULT_NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// The whole state of one server.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) store: Store,
    /// Shared with those who look at it for longer than they hold the core.
    pub(crate) registry: Arc<Registry>,
    pub(crate) clock: Clock,
    pub(crate) generator: Generator,
}

/// Versions start at the time of day in microseconds: a server that starts anew under the same address never
/// hands out versions that clients have already seen from its predecessor. On a clock before 1970 they start at 1, as 0 means something else.
fn first_revision(env: &Env) -> u64 {
    u64::try_from(env.clock.wall().as_microsecond()).unwrap_or(0).max(1)
}

/// A version that was kept and is not what was written.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("version {revision} of {resource} is not an object")]
pub(crate) struct NotRestored {
    resource: String,
    revision: u64,
}

/// The service under which pods would find this server.
fn own_service() -> Value {
    json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": "10.0.0.1", "ipFamilyPolicy": "SingleStack", "type": "ClusterIP", "sessionAffinity": "None",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}],
        },
        "status": {"loadBalancer": {}},
    })
}

/// Runs a change on a core, and then wakes the watches that it concerns.
pub(crate) fn change<T>(core: &Mutex<Core>, change: impl FnOnce(&mut Core) -> T) -> T {
    let (result, wakers) = {
        let mut core = core.lock();
        (change(&mut core), core.store.take_wakers())
    };
    wakers.into_iter().for_each(Waker::wake);
    result
}

impl Core {
    /// A fresh server with its default namespaces.
    pub(crate) fn new(env: &Env, window: usize) -> Self {
        let mut core = Self::empty(env, Store::new(first_revision(env), Window::of(window)), "apiserver");
        core.create_defaults();
        core
    }

    /// The server that was kept, or a fresh one in a folder that is still empty.
    pub(crate) fn restore(env: &Env, window: usize, kept: Kept) -> Result<Self, NotRestored> {
        let Kept { state, dropped, versions } = kept;
        let Some(State { revision, floor }) = state else {
            let revision = first_revision(env);
            let mut core =
                Self::empty(env, Store::kept(revision, revision, Window::of(window), []), "apiserver");
            core.create_defaults();
            return Ok(core);
        };
        let dropped = dropped.into_iter().map(|(id, revision)| (ResourceId::from(id.as_str()), revision));
        let store = Store::kept(revision, floor, Window::of(window), dropped);
        // Another stream for each start, so that also a seeded generator never gives a UID twice.
        let mut core = Self::empty(env, store, &format!("apiserver after {revision}"));
        core.restore_definitions(&versions);
        let kinds = core.registry.storages();
        for version in versions {
            let id = ResourceId::from(version.resource.as_str());
            let kind = kinds.get(&id).map(|kind| &**kind);
            let stored = Stored::restore(kind, version.revision, (version.text, version.head))
                .filter(|_| version.revision <= revision)
                .ok_or(NotRestored { resource: version.resource, revision: version.revision })?;
            core.store.restore(&id, stored, version.removed);
        }
        core.store.close_others(|id| kinds.contains_key(id));
        for definition in core.registry.definitions() {
            core.renew_objects(&definition, &[]);
        }
        Ok(core)
    }

    /// Serves the kinds of the definitions that are among these versions.
    fn restore_definitions(&mut self, versions: &[Version]) {
        let Some(kind) = self.registry.builtin("apiextensions.k8s.io", "CustomResourceDefinition") else {
            return;
        };
        let mut newest = BTreeMap::new();
        for version in versions.iter().filter(|version| version.resource == kind.storage.as_str()) {
            let value: Value = serde_json::from_slice(&version.text).unwrap_or_default();
            let name = meta::text(&value, "name").to_owned();
            newest.insert(name, (!version.removed).then_some(value));
        }
        for value in newest.into_values().flatten() {
            self.restore_definition(&value);
        }
        Arc::make_mut(&mut self.registry).reindex();
    }

    fn empty(env: &Env, store: Store, label: &str) -> Self {
        Self {
            store,
            registry: Arc::new(Registry::new()),
            clock: env.clock.clone(),
            generator: env.generator.fork(label),
        }
    }

    fn create_defaults(&mut self) {
        if let Some(kind) = self.registry.builtin("", "Namespace") {
            for name in DEFAULT_NAMESPACES {
                let mut namespace = kind.blank().clone();
                meta::set(&mut namespace, "name", name);
                let created = self.create(&kind, "", namespace, &Write::own());
                debug_assert!(created.is_ok(), "a default namespace is valid");
            }
        }
        if let Some(kind) = self.registry.builtin("", "Service") {
            let created = self.create(&kind, "default", own_service(), &Write::own());
            debug_assert!(created.is_ok(), "the server's own service is valid");
        }
    }

    pub(crate) fn now(&self) -> String {
        meta::timestamp(self.clock.wall())
    }

    pub(crate) fn get(&self, kind: &Kind, key: &Key) -> Result<Arc<Stored>> {
        let found = self.store.get(&kind.storage, key).cloned();
        found.ok_or_else(|| Failure::not_found(kind, &key.name))
    }

    /// Stores `value`, which is in its stored form, as the next revision.
    pub(crate) fn commit(&mut self, kind: &Kind, key: &Key, mut value: Value) -> Arc<Stored> {
        let revision = self.store.next_revision();
        meta::set(&mut value, "resourceVersion", &revision.to_string());
        let stored = Stored::encode(kind, key.clone(), revision, &value);
        self.store.put(&kind.storage, stored)
    }

    /// What `commit` would give, without storing it: the version stays as it is.
    pub(crate) fn pretend(&self, kind: &Kind, key: &Key, value: &Value) -> Arc<Stored> {
        Arc::new(Stored::encode(kind, key.clone(), self.store.revision(), value))
    }

    /// Removes an object for good. Watchers see its last content with a new version.
    pub(crate) fn erase(&mut self, kind: &Kind, last: &Stored) -> Arc<Stored> {
        let revision = self.store.next_revision();
        let mut value = last.value();
        meta::set(&mut value, "resourceVersion", &revision.to_string());
        let stored = Stored::encode(kind, last.key.clone(), revision, &value);
        let gone = self.store.remove(&kind.storage, stored);
        if kind.is("apiextensions.k8s.io", "CustomResourceDefinition") {
            self.withdraw_definition(&value);
        }
        if let Some(custom) = &kind.custom {
            self.finish_definition(&custom.definition);
        }
        // Only the last one of its kind can be the last one of its namespace.
        let namespace = &last.key.namespace;
        if kind.namespaced && self.store.range(&kind.storage, Some(namespace), None).next().is_none() {
            self.finish_namespace(namespace);
        }
        gone
    }

    /// Refuses new objects in a namespace that is absent or on its way out.
    pub(crate) fn check_namespace(&self, kind: &Kind, namespace: &str, name: &str) -> Result<()> {
        let Some(namespaces) = self.registry.builtin("", "Namespace") else { return Ok(()) };
        let found = self.get(&namespaces, &Key::new("", namespace))?;
        if !found.terminating {
            return Ok(());
        }
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut failure = Failure::forbidden(kind, name, &why);
        if let Some(details) = &mut failure.details {
            details.causes.push(Cause {
                reason: "NamespaceTerminating",
                message: format!("namespace {namespace} is being terminated"),
                field: "metadata.namespace".to_owned(),
            });
        }
        Err(failure)
    }

    /// Removes a terminating namespace once nothing is left in it and nobody else holds it.
    pub(crate) fn finish_namespace(&mut self, name: &str) {
        let Some(kind) = self.registry.builtin("", "Namespace") else { return };
        let Ok(stored) = self.get(&kind, &Key::new("", name)) else { return };
        if !stored.terminating || self.namespace_has_content(name) {
            return;
        }
        let value = stored.value();
        let holders = value["spec"]["finalizers"].as_array().into_iter().flatten();
        if holders.filter(|holder| *holder != "kubernetes").count() == 0
            && meta::finalizers(&value).is_empty()
        {
            self.erase(&kind, &stored);
        }
    }

    fn namespace_has_content(&self, name: &str) -> bool {
        let kinds = self.registry.namespaced_storages();
        kinds.iter().any(|kind| self.store.range(&kind.storage, Some(name), None).next().is_some())
    }

    /// The object of `stored` in the version of `kind`.
    pub(crate) fn view(kind: &Kind, stored: &Stored) -> Value {
        convert::from_storage(kind, stored.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_of_a_kind_that_is_gone_is_let_go() {
        let text = |revision: u64| {
            format!(r#"{{"metadata": {{"name": "a", "resourceVersion": "{revision}"}}}}"#).into()
        };
        let resource = "example.com/bars";
        let version = |revision: u64, removed: bool| Version {
            revision,
            resource: resource.to_owned(),
            removed,
            head: 0,
            text: text(revision),
        };
        let kept = Kept {
            state: Some(State { revision: 9, floor: 1 }),
            dropped: BTreeMap::from([(resource.to_owned(), 6)]),
            versions: vec![version(7, false), version(8, true)],
        };
        let mut core = Core::restore(&Env::simulated(1), 10, kept).unwrap();
        let batch = core.store.take_batch().unwrap();
        assert_eq!((&batch.forgotten[..], batch.revision), (&[7, 8][..], 9));
        assert_eq!(batch.resources[&ResourceId::from(resource)], crate::state::store::Reach::Gone);
    }
}
