//! Reads of a context: from caches, with the controller's own writes on top, or from the server.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::Arc;

use kube_core::{ClusterResourceScope, DynamicResourceScope, Selector, SelectorExt};

use super::Context;
use crate::controller::caches::{CONTROLLER_INDEX, KindCaches, Part};
use crate::object::{DecodeError, Kind, Listing, Object, ObjectName};
use crate::source::{Requests, Scope, Selection};
use crate::store::Snapshot;
use crate::wire::ApiError;

/// Why a context cannot read an object from its caches.
///
/// All but [`ReadError::Undecodable`] are mistakes of the program: they end the reconcile without a retry and make the program
/// not ready.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No controller of the manager watches the kind.
    #[error("{kind} is not cached: register it with owns or watches, or read it with cx.live()")]
    NotRegistered {
        /// The kind.
        kind: String,
    },
    /// The kind is watched, but not where the object is.
    #[error("{kind} {name} is not cached: its namespace is not watched")]
    NotWatched {
        /// The kind.
        kind: String,
        /// The object.
        name: ObjectName,
    },
    /// Only the metadata of the kind is cached.
    #[error("only the metadata of {kind} is cached: read it with cx.metadata(), or drop metadata_only")]
    MetadataOnly {
        /// The kind.
        kind: String,
    },
    /// The object is there, but does not fit its type.
    #[error(transparent)]
    Undecodable(#[from] DecodeError),
}

impl ReadError {
    /// Whether the program is wrong, and not the object.
    pub(in crate::controller) fn is_mistake(&self) -> bool {
        !matches!(self, Self::Undecodable(_))
    }
}

impl<K: Kind> Context<K> {
    /// Reads the object called `name` from the cache: in the namespace of the main object, or without one if its kind has none.
    /// `None` if there is no such object.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # use watchkeeper::controller::{Context, Error};
    /// # fn read(cx: Context<ConfigMap>) -> Result<(), Error> {
    /// let Some(secret) = cx.get::<Secret>("credentials")? else {
    ///     return Err(Error::terminal("MissingSecret", "secret credentials does not exist"));
    /// };
    /// # let _ = secret;
    /// # Ok(()) }
    /// ```
    pub fn get<W: Kind<DynamicType: Default>>(&self, name: &str) -> Result<Option<Arc<W>>, ReadError> {
        self.get_at(&self.beside::<W>(name))
    }

    /// As [`get`](Self::get), for an object in any namespace.
    pub fn get_at<W: Kind<DynamicType: Default>>(
        &self,
        name: &ObjectName,
    ) -> Result<Option<Arc<W>>, ReadError> {
        self.get_of(&W::DynamicType::default(), name)
    }

    /// As [`get_at`](Self::get_at), for a kind known at run time.
    pub fn get_of<W: Kind>(
        &self,
        kind: &W::DynamicType,
        name: &ObjectName,
    ) -> Result<Option<Arc<W>>, ReadError> {
        let caches = self.caches_of::<W>(kind)?;
        let parts = self.covering(&caches, name)?;
        if parts.iter().all(|part| part.metadata_only) {
            let kind = W::kind(kind).into_owned();
            return Err(self.mistake(ReadError::MetadataOnly { kind }));
        }
        let mut whole = parts.iter().filter(|part| !part.metadata_only);
        Ok(whole.find_map(|part| self.cached(part, name)).map(|object| object.get()).transpose()?)
    }

    /// Reads the metadata of the object called `name` beside the main object, where the kind is watched with
    /// [`Watch::metadata_only`](crate::controller::Watch::metadata_only) or in whole.
    pub fn metadata<W: Kind<DynamicType: Default>>(
        &self,
        name: &str,
    ) -> Result<Option<Object<W>>, ReadError> {
        let name = self.beside::<W>(name);
        let caches = self.caches_of::<W>(&W::DynamicType::default())?;
        Ok(self.covering(&caches, &name)?.iter().find_map(|part| self.cached(part, &name)))
    }

    /// Lists the cached objects of a namespace, or of all with `None`, that `selector` matches, in the order of their keys.
    pub fn list<W: Kind<DynamicType: Default>>(
        &self,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Result<Listing<Arc<W>>, ReadError> {
        self.list_of(&W::DynamicType::default(), namespace, selector)
    }

    /// As [`list`](Self::list), for a kind known at run time.
    pub fn list_of<W: Kind>(
        &self,
        kind: &W::DynamicType,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Result<Listing<Arc<W>>, ReadError> {
        let keep = |object: &Object<W>| {
            namespace.is_none_or(|name| object.namespace() == Some(name))
                && (selector.selects_all() || selector.matches(&object.labels().to_map()))
        };
        let all = |snapshot: &Snapshot<W>| snapshot.iter().cloned().collect();
        Ok(self.collect(&*self.caches_of::<W>(kind)?, all, keep))
    }

    /// Lists the cached objects that the main object controls, in the order of their keys.
    pub fn owned<W: Kind<DynamicType: Default>>(&self) -> Result<Listing<Arc<W>>, ReadError> {
        let caches = self.caches_of::<W>(&W::DynamicType::default())?;
        let uid = self.main().map(|main| main.uid().to_owned()).unwrap_or_default();
        let indexed = |snapshot: &Snapshot<W>| match snapshot.by_index(CONTROLLER_INDEX, &uid) {
            Ok(objects) => objects.cloned().collect(),
            Err(_) => snapshot.iter().cloned().collect(),
        };
        Ok(self.collect(&caches, indexed, |object| object.controller().is_some_and(|owner| owner.uid == uid)))
    }

    /// What `select` finds in each cache and `keep` keeps, with the context's own writes on top.
    fn collect<W: Kind>(
        &self,
        caches: &KindCaches<W>,
        select: impl Fn(&Snapshot<W>) -> Vec<Object<W>>,
        keep: impl Fn(&Object<W>) -> bool,
    ) -> Listing<Arc<W>> {
        let mut found = BTreeMap::new();
        for part in caches.parts().iter().filter(|part| !part.metadata_only) {
            let store = part.store();
            found.extend(select(&store.snapshot()).into_iter().map(|object| (object.key(), object)));
            for (name, own) in self.shared().writes.unseen(self.key(), store) {
                match own {
                    Some(object) => found.insert(name, object),
                    None => found.remove(&name),
                };
            }
        }
        found.values().filter(|object| keep(object)).map(Object::get).collect()
    }

    /// Reads from the server instead of the caches.
    pub fn live(&self) -> Live<'_> {
        Live { requests: &self.shared().requests }
    }

    /// The key of an object called `name` beside the main object.
    pub(super) fn beside<W: Kind>(&self, name: &str) -> ObjectName {
        let namespace = if is_cluster_scoped::<W>() { None } else { self.key().namespace() };
        namespace
            .map_or_else(|| ObjectName::cluster(name), |namespace| ObjectName::namespaced(namespace, name))
    }

    /// An object as this context should see it: as its own writes left it, else as it is cached.
    pub(super) fn cached<W: Kind>(&self, part: &Part<W>, name: &ObjectName) -> Option<Object<W>> {
        self.shared().writes.get(self.key(), part.store(), name)
    }

    pub(super) fn caches_of<W: Kind>(&self, kind: &W::DynamicType) -> Result<Arc<KindCaches<W>>, ReadError> {
        let caches = self.shared().caches.find::<W>(kind);
        caches.ok_or_else(|| self.mistake(ReadError::NotRegistered { kind: W::kind(kind).into_owned() }))
    }

    fn covering<W: Kind>(
        &self,
        caches: &KindCaches<W>,
        name: &ObjectName,
    ) -> Result<Vec<Arc<Part<W>>>, ReadError> {
        let parts = caches.covering(name);
        if parts.is_empty() {
            let kind = W::kind(&caches.kind).into_owned();
            return Err(self.mistake(ReadError::NotWatched { kind, name: name.clone() }));
        }
        Ok(parts)
    }

    /// Notes a mistake of the program, which makes it not ready.
    fn mistake(&self, error: ReadError) -> ReadError {
        self.shared().caches.note_mistake(&format!("controller {}: {error}", self.shared().name));
        error
    }
}

/// Whether the objects of a kind have no namespace, as far as its type says.
pub(in crate::controller) fn is_cluster_scoped<W: Kind>() -> bool {
    TypeId::of::<W::Scope>() == TypeId::of::<ClusterResourceScope>()
}

/// Whether only the server knows if the objects of a kind have a namespace.
pub(in crate::controller) fn is_scope_unknown<W: Kind>() -> bool {
    TypeId::of::<W::Scope>() == TypeId::of::<DynamicResourceScope>()
}

/// Reads from the server, each within the deadline of a request; see [`Context::live`].
#[derive(Debug)]
pub struct Live<'a> {
    requests: &'a Requests,
}

impl Live<'_> {
    /// Reads one object; `None` if there is none of that name.
    pub async fn get<W: Kind<DynamicType: Default>>(&self, name: &ObjectName) -> Result<Option<W>, ApiError> {
        self.requests.api::<W>().get_opt(name).await
    }

    /// As [`get`](Self::get), for a kind known at run time.
    pub async fn get_of<W: Kind>(
        &self,
        kind: &W::DynamicType,
        name: &ObjectName,
    ) -> Result<Option<W>, ApiError> {
        self.requests.api_of::<W>(kind.clone()).get_opt(name).await
    }

    /// Lists the objects of a scope and selection.
    pub async fn list<W: Kind<DynamicType: Default>>(
        &self,
        scope: &Scope,
        selection: &Selection,
    ) -> Result<Listing<W>, ApiError> {
        self.requests.api::<W>().list(scope, selection).await
    }
}
