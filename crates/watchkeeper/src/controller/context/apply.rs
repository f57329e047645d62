//! Server-side apply of the objects that the main object owns, skipped when nothing has changed.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use kube_core::params::Patch;
use serde::Serialize;

use super::Context;
use super::write::{Outgoing, WriteError};
use crate::controller::applied::{Answer, Cached, Child, Decision};
use crate::controller::caches::Part;
use crate::controller::canonical::{hash_of, hash_of_answer};
use crate::object::{JsonError, Kind, Object, ObjectName};

impl<K: Kind> Context<K> {
    /// Applies an object by server-side apply under the controller's field manager, and takes over fields that others manage. The
    /// object belongs to the main object: its namespace, unless it says another, and its owner reference are set.
    ///
    /// Nothing is sent if nothing has changed: `object` is what was applied last, and the cached object has not changed since, but
    /// for its status. Returns the object as the server or the cache has it.
    ///
    /// # Errors
    ///
    /// An object of that name exists that the main object does not control, somebody else changes the object back again and again,
    /// or the server refuses.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    /// # use watchkeeper::controller::{Context, Error};
    /// # async fn reconcile(pod: &Pod, cx: Context<Pod>) -> Result<(), Error> {
    /// let mut map = ConfigMap::default();
    /// map.metadata.name = pod.metadata.name.clone();
    /// let applied = cx.apply(&map).await?;
    /// # let _ = applied;
    /// # Ok(()) }
    /// ```
    pub async fn apply<W>(&self, object: &W) -> Result<Arc<W>, WriteError>
    where
        W: Kind<DynamicType: Default> + Serialize,
    {
        self.apply_of(&W::DynamicType::default(), object).await
    }

    /// As [`apply`](Self::apply), for a kind known at run time.
    pub async fn apply_of<W: Kind + Serialize>(
        &self,
        kind: &W::DynamicType,
        object: &W,
    ) -> Result<Arc<W>, WriteError> {
        let name = self.place_of::<W>(kind, object)?;
        let desired = self.desired_hash(kind, object)?;
        let caches = self.shared().caches.find::<W>(kind);
        let parts = caches.map(|caches| caches.covering(&name)).unwrap_or_default();
        let known = parts.iter().find_map(|part| self.cached(part, &name));
        let (group, kind_name) = (W::group(kind), W::kind(kind));
        let child = Child { group: &group, kind: &kind_name, name: &name };
        let (now, applied) = (self.env().clock.now(), &self.shared().applied);
        let hash = || known.as_ref().map_or(Ok(0), |known| hash_of_answer(known.json(), applied.hasher()));
        let cached = cached_child(&parts, known.as_ref(), &hash);
        match (applied.decide(now, self.key(), child, desired, cached), &known) {
            // As the last apply left it, so the owner is the same, too.
            (Decision::Skip, Some(known)) => return Ok(known.get()?),
            (Decision::Fighting { sends, .. }, _) => return Err(self.fighting::<W>(kind, name, sends).await),
            _ => {}
        }
        let uid = match &known {
            Some(known) => self.check_owner::<W>(kind, Some(known))?,
            // The cache may not have it, or not yet: an object of somebody else must not be taken over.
            None => {
                let live = self.read_live::<W>("apply", kind, &name).await?;
                self.check_owner::<W>(kind, live.as_ref())?
            }
        };
        let mut body = self.body(kind, object)?;
        if !uid.is_empty() {
            body["metadata"]["uid"] = uid.clone().into();
        }
        let requests = &self.shared().requests;
        let request = requests.api_of::<W>(kind.clone()).patch_request(&name, &Patch::Apply(&body), None);
        let outgoing = Outgoing { verb: "apply", kind: kind.clone(), name: name.clone(), uid, request };
        let answer: Object<W> = self.send(outgoing).await?;
        if let Ok(hash) = hash_of_answer(answer.json(), applied.hasher()) {
            let answer = Answer { uid: answer.uid(), version: answer.version(), hash };
            applied.sent(now, self.key(), child, desired, answer);
        }
        Ok(answer.get()?)
    }

    /// Forgets what was applied of an object that is deleted.
    pub(super) fn forget_applied<W: Kind>(&self, kind: &W::DynamicType, name: &ObjectName) {
        let child = Child { group: &W::group(kind), kind: &W::kind(kind), name };
        self.shared().applied.forget_child(self.key(), child);
    }

    /// The name of an object in the namespace that it will be in.
    fn place_of<W: Kind>(&self, kind: &W::DynamicType, object: &W) -> Result<ObjectName, WriteError> {
        let meta = object.meta();
        let name = meta.name.as_deref().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| WriteError::NoName { kind: W::kind(kind).into_owned() })?;
        Ok(match &meta.namespace {
            Some(namespace) => ObjectName::namespaced(namespace, name),
            None => self.beside::<W>(name),
        })
    }

    /// The hash of what is sent, which the object, its owner and the field manager make.
    fn desired_hash<W: Kind + Serialize>(
        &self,
        kind: &W::DynamicType,
        object: &W,
    ) -> Result<u64, WriteError> {
        let hasher = self.shared().applied.hasher();
        let object = hash_of(object, hasher)
            .map_err(|source| WriteError::Encode { kind: W::kind(kind).into_owned(), source })?;
        let mut whole = hasher.build_hasher();
        whole.write_u64(object);
        if self.0.owning
            && let Some(main) = self.main()
        {
            whole.write(main.uid().as_bytes());
        }
        Ok(whole.finish())
    }

    /// The error of an apply that somebody else reverts, with the managers of the object.
    async fn fighting<W: Kind>(&self, kind: &W::DynamicType, name: ObjectName, sends: usize) -> WriteError {
        let own = self.shared().requests.field_manager().unwrap_or_default();
        let managers = match self.shared().requests.api_of::<W>(kind.clone()).get_opt(&name).await {
            Ok(Some(object)) => other_managers(&object, own),
            _ => Vec::new(),
        };
        let managers = match &managers[..] {
            [] => "nobody else has left a trace in its managed fields".to_owned(),
            managers => format!("its other field managers are {}", managers.join(", ")),
        };
        WriteError::Fighting { kind: W::kind(kind).into_owned(), name, sends, managers }
    }
}

/// The field managers of an object but `own`, each once.
fn other_managers<W: Kind>(object: &W, own: &str) -> Vec<String> {
    let entries = object.meta().managed_fields.iter().flatten();
    let mut managers: Vec<_> =
        entries.filter_map(|entry| entry.manager.clone()).filter(|name| name != own).collect();
    managers.sort_unstable();
    managers.dedup();
    managers
}

/// A child as the caches that cover it have it.
fn cached_child<'a, W: Kind>(
    parts: &[Arc<Part<W>>],
    known: Option<&'a Object<W>>,
    hash: &'a dyn Fn() -> Result<u64, JsonError>,
) -> Cached<'a> {
    let Some(known) = known else {
        return if parts.is_empty() { Cached::NoCache } else { Cached::Absent };
    };
    let (uid, version, deleting) = (known.uid(), known.version(), known.is_deleting());
    if parts.iter().all(|part| part.metadata_only) {
        Cached::Metadata { uid, version, deleting }
    } else {
        Cached::Object { uid, version, deleting, hash }
    }
}
