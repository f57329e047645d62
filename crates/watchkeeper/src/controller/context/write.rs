//! Writes of a context. All of them pass through [`Context::send`].

use std::fmt;
use std::sync::Arc;

use futures::FutureExt;
use http::Request;
use kube_core::params::{DeleteParams, Patch, Preconditions};
use serde::Serialize;
use serde_json::{Map, Value};

use super::Context;
use super::read::{ReadError, is_cluster_scoped, is_scope_unknown};
use crate::controller::caches::KindCaches;
use crate::controller::writes::Unknown;
use crate::object::{DecodeError, IdentityError, JsonError, Kind, Object, ObjectName};
use crate::wire::{ApiError, Class};

/// Why a write of a context failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The server refused the request, or its outcome is not known.
    #[error("cannot {action}")]
    Api {
        /// The operation and its object, such as `apply Deployment default/web`.
        action: String,
        /// Why.
        #[source]
        source: ApiError,
    },
    /// An object of that name exists, and the main object does not control it.
    #[error("{kind} {name} exists already and is not controlled by {owner}: {controller}")]
    Foreign {
        /// The kind of the object.
        kind: String,
        /// The object.
        name: ObjectName,
        /// The main object.
        owner: String,
        /// Who controls the object, in words.
        controller: String,
    },
    /// The main object cannot own an object there.
    #[error(
        "{owner} cannot own {kind} {name}: it is in another namespace, or in none; write it with cx.unowned()"
    )]
    OutOfReach {
        /// The kind of the object.
        kind: String,
        /// The object.
        name: ObjectName,
        /// The main object.
        owner: String,
    },
    /// The object has no name. A name that the server chooses would be another one after each lost answer.
    #[error("{kind} has no name: set metadata.name, or create it with cx.create_generated()")]
    NoName {
        /// The kind of the object.
        kind: String,
    },
    /// The main object is gone.
    #[error("{0} is gone, so nothing can be written for it: use cx.unowned()")]
    Gone(ObjectName),
    /// The same object was applied again and again: another manager changes it back.
    #[error(
        "{kind} {name} was applied {sends} times within a minute, and each time somebody changed it back: \
         {managers}; not applied again for now"
    )]
    Fighting {
        /// The kind of the object.
        kind: String,
        /// The object.
        name: ObjectName,
        /// How often it was applied.
        sends: usize,
        /// The other field managers of the object, in words.
        managers: String,
    },
    /// The object cannot be written as JSON.
    #[error("cannot write {kind} as JSON")]
    Encode {
        /// The kind of the object.
        kind: String,
        /// Why.
        #[source]
        source: JsonError,
    },
    /// The object cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl From<DecodeError> for WriteError {
    fn from(error: DecodeError) -> Self {
        Self::Read(error.into())
    }
}

/// A write that is ready to be sent.
pub(super) struct Outgoing<W: Kind> {
    pub(super) verb: &'static str,
    pub(super) kind: W::DynamicType,
    pub(super) name: ObjectName,
    /// The uid of the object that is written, if it is known.
    pub(super) uid: String,
    pub(super) request: Result<Request<Vec<u8>>, ApiError>,
}

/// The object in the answer to a write. That to a delete may be a Status, which has no name.
type Answer<W> = Result<Object<W>, IdentityError>;

impl<K: Kind> Context<K> {
    /// Creates an object. It belongs to the main object: its namespace, unless it says another, and its owner reference are set.
    ///
    /// # Errors
    ///
    /// An object of that name exists already (a conflict, which is retried quietly), or the server refuses.
    pub async fn create<W>(&self, object: &W) -> Result<Arc<W>, WriteError>
    where
        W: Kind<DynamicType: Default> + Serialize,
    {
        let kind = W::DynamicType::default();
        let body = self.body(&kind, object)?;
        let name = name_of::<W>(&kind, &body)?;
        self.post(kind, name, &body).await
    }

    /// As [`create`](Self::create), for an object whose name the server chooses by its `metadata.generateName`.
    ///
    /// If the answer is lost, nobody knows the name: the next reconcile finds the object only by its owner, and must look for it
    /// with [`owned`](Self::owned) before it creates another.
    pub async fn create_generated<W>(&self, object: &W) -> Result<Arc<W>, WriteError>
    where
        W: Kind<DynamicType: Default> + Serialize,
    {
        let kind = W::DynamicType::default();
        let body = self.body(&kind, object)?;
        let prefix = body["metadata"]["generateName"].as_str().unwrap_or_default().to_owned();
        let namespace = body["metadata"]["namespace"].as_str();
        let name = ObjectName::namespaced(namespace.unwrap_or_default(), &prefix);
        self.post(kind, name, &body).await
    }

    async fn post<W: Kind>(
        &self,
        kind: W::DynamicType,
        name: ObjectName,
        body: &Value,
    ) -> Result<Arc<W>, WriteError> {
        let request = self.shared().requests.api_of::<W>(kind.clone()).create_request(&name, body);
        let outgoing = Outgoing { verb: "create", kind, name, uid: String::new(), request };
        Ok(self.send(outgoing).await?.get()?)
    }

    /// Replaces an object that the main object controls; where it carries a resource version, only that version.
    pub async fn replace<W>(&self, object: &W) -> Result<Arc<W>, WriteError>
    where
        W: Kind<DynamicType: Default> + Serialize,
    {
        let kind = W::DynamicType::default();
        let body = self.body(&kind, object)?;
        let name = name_of::<W>(&kind, &body)?;
        let uid = self.check_owner::<W>(&kind, self.known::<W>(&kind, &name).as_ref())?;
        let request = self.shared().requests.api_of::<W>(kind.clone()).replace_request(&name, &body);
        let outgoing = Outgoing { verb: "replace", kind, name, uid, request };
        Ok(self.send(outgoing).await?.get()?)
    }

    /// Patches the object called `name` beside the main object.
    pub async fn patch<W, P>(&self, name: &str, patch: &Patch<P>) -> Result<Arc<W>, WriteError>
    where
        W: Kind<DynamicType: Default>,
        P: Serialize + fmt::Debug,
    {
        let (kind, name) = (W::DynamicType::default(), self.beside::<W>(name));
        let uid = self.check_owner::<W>(&kind, self.known::<W>(&kind, &name).as_ref())?;
        let request = self.shared().requests.api_of::<W>(kind.clone()).patch_request(&name, patch, None);
        let outgoing = Outgoing { verb: "patch", kind, name, uid, request };
        Ok(self.send(outgoing).await?.get()?)
    }

    /// Deletes the object called `name` beside the main object, if it is there: exactly the one that this context sees. Returns
    /// whether there was one.
    pub async fn delete<W: Kind<DynamicType: Default>>(&self, name: &str) -> Result<bool, WriteError> {
        self.delete_of::<W>(&W::DynamicType::default(), &self.beside::<W>(name)).await
    }

    /// As [`delete`](Self::delete), for a kind known at run time and an object in any namespace.
    pub async fn delete_of<W: Kind>(
        &self,
        kind: &W::DynamicType,
        name: &ObjectName,
    ) -> Result<bool, WriteError> {
        self.delete_as::<W>(kind, name, DeleteParams::default()).await
    }

    /// As [`delete`](Self::delete), with a grace period or a policy for dependents. The uid of the object is a precondition in any
    /// case.
    pub async fn delete_with<W: Kind<DynamicType: Default>>(
        &self,
        name: &str,
        params: DeleteParams,
    ) -> Result<bool, WriteError> {
        self.delete_as::<W>(&W::DynamicType::default(), &self.beside::<W>(name), params).await
    }

    async fn delete_as<W: Kind>(
        &self,
        kind: &W::DynamicType,
        name: &ObjectName,
        params: DeleteParams,
    ) -> Result<bool, WriteError> {
        let known = match self.known::<W>(kind, name) {
            None if self.shared().caches.find::<W>(kind).is_none() => {
                self.read_live::<W>("delete", kind, name).await?
            }
            known => known,
        };
        let Some(known) = known else { return Ok(false) };
        self.forget_applied::<W>(kind, name);
        let uid = self.check_owner::<W>(kind, Some(&known))?;
        let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..params };
        let request = self.shared().requests.api_of::<W>(kind.clone()).delete_request(name, &params);
        let outgoing = Outgoing::<W> {
            verb: "delete",
            kind: kind.clone(),
            name: name.clone(),
            uid: uid.clone(),
            request,
        };
        match self.exchange(outgoing).await {
            // Another object of that name is not the one that was meant.
            Err(WriteError::Api { source, .. })
                if source.is_missing_object() || source.class() == Class::Conflict =>
            {
                Ok(false)
            }
            outcome => outcome.map(|_| true),
        }
    }

    /// Sends a write, and enters its answer.
    pub(super) async fn send<W: Kind>(&self, outgoing: Outgoing<W>) -> Result<Object<W>, WriteError> {
        let action = action::<W>(outgoing.verb, &outgoing.kind, &outgoing.name);
        let answer = self.exchange(outgoing).await?;
        answer.map_err(|error| WriteError::Api { action, source: ApiError::undecodable(error) })
    }

    /// Sends a write: the one place through which writes of a context leave. If this run is dropped meanwhile, the request goes on
    /// and its outcome is entered all the same.
    async fn exchange<W: Kind>(&self, outgoing: Outgoing<W>) -> Result<Answer<W>, WriteError> {
        let Outgoing { verb, kind, name, uid, request } = outgoing;
        let action = action::<W>(verb, &kind, &name);
        let request = match request {
            Ok(request) => request,
            Err(source) => return Err(WriteError::Api { action, source }),
        };
        let (context, requests) = (self.clone(), self.shared().requests.clone());
        let whole = async move {
            let answer = requests.send(request).await.map(|bytes| Object::from_json(&bytes));
            context.enter::<W>(verb, &kind, &name, &uid, &answer);
            answer
        };
        let answer = self.shared().writes.finish(self.key(), whole).await;
        answer.map_err(|source| WriteError::Api { action, source })
    }

    /// Enters the outcome of a write in the caches that may show it.
    fn enter<W: Kind>(
        &self,
        verb: &'static str,
        kind: &W::DynamicType,
        name: &ObjectName,
        uid: &str,
        answer: &Result<Answer<W>, ApiError>,
    ) {
        let Some(caches) = self.shared().caches.find::<W>(kind) else { return };
        match answer {
            Ok(answer) => self.enter_state(&caches, name, uid, answer.as_ref().ok(), verb == "delete"),
            Err(error) if is_outcome_unknown(error) => {
                let (context, uid) = (self.clone(), uid.to_owned());
                let (kind_name, of, at) = (W::kind(kind).into_owned(), kind.clone(), name.clone());
                let settle = move || context.clone().settle::<W>(of.clone(), at.clone(), uid.clone()).boxed();
                let unknown = Unknown { kind: kind_name, name: name.clone(), settle: Box::new(settle) };
                self.shared().writes.lost(self.key(), unknown);
            }
            Err(_) => {}
        }
    }

    /// Reads from the server what became of a write, and enters that.
    async fn settle<W: Kind>(
        self,
        kind: W::DynamicType,
        name: ObjectName,
        uid: String,
    ) -> Result<(), ApiError> {
        let Some(caches) = self.shared().caches.find::<W>(&kind) else { return Ok(()) };
        let found = self.shared().requests.api_of::<W>(kind).get_object(&name).await?;
        // What is not there now may be gone since a create that was never acted on, or since a delete that was.
        let is_gone = found.is_none() && !uid.is_empty();
        if found.is_some() || is_gone {
            self.enter_state(&caches, &name, &uid, found.as_ref(), is_gone);
        }
        Ok(())
    }

    fn enter_state<W: Kind>(
        &self,
        caches: &KindCaches<W>,
        name: &ObjectName,
        uid: &str,
        state: Option<&Object<W>>,
        is_delete: bool,
    ) {
        let writes = &self.shared().writes;
        for part in caches.covering(name) {
            let store = part.store();
            match state {
                // The answer to a delete is the object only while finalizers hold it.
                Some(object) if !is_delete || object.is_deleting() => {
                    writes.enter(self.key(), store, object, !part.matcher.matches(object));
                }
                _ if is_delete => writes.deleted(self.key(), store, name, uid),
                _ => {}
            }
        }
    }

    /// The object as this context sees it, in whatever form it is cached.
    pub(super) fn known<W: Kind>(&self, kind: &W::DynamicType, name: &ObjectName) -> Option<Object<W>> {
        let caches = self.shared().caches.find::<W>(kind)?;
        caches.covering(name).iter().find_map(|part| self.cached(part, name))
    }

    pub(super) async fn read_live<W: Kind>(
        &self,
        verb: &'static str,
        kind: &W::DynamicType,
        name: &ObjectName,
    ) -> Result<Option<Object<W>>, WriteError> {
        let read = self.shared().requests.api_of::<W>(kind.clone()).get_object(name).await;
        read.map_err(|source| WriteError::Api { action: action::<W>(verb, kind, name), source })
    }

    /// Checks that the main object controls `object`; returns its uid, empty where there is no object.
    pub(super) fn check_owner<W: Kind>(
        &self,
        kind: &W::DynamicType,
        object: Option<&Object<W>>,
    ) -> Result<String, WriteError> {
        let Some(object) = object else { return Ok(String::new()) };
        if !self.0.owning {
            return Ok(object.uid().to_owned());
        }
        let main = self.main().ok_or_else(|| WriteError::Gone(self.key().clone()))?;
        // A finalizer's cleanup and a status write may address the main object itself.
        if object.uid() == main.uid() {
            return Ok(object.uid().to_owned());
        }
        let controller = match object.controller() {
            Some(owner) if owner.uid == main.uid() => return Ok(object.uid().to_owned()),
            Some(owner) if owner.name == main.name() && owner.kind == K::kind(&self.shared().kind) => {
                format!(
                    "an earlier {} of that name, which is gone, controls it until it is garbage collected",
                    owner.kind
                )
            }
            Some(owner) => format!("{} {} controls it", owner.kind, owner.name),
            None => "nothing controls it".to_owned(),
        };
        Err(WriteError::Foreign {
            kind: W::kind(kind).into_owned(),
            name: object.key(),
            owner: self.describe_main(),
            controller,
        })
    }

    pub(super) fn describe_main(&self) -> String {
        format!("{} {}", K::kind(&self.shared().kind), self.key())
    }

    /// The JSON of an object as it is sent: with its kind, its namespace and its owner.
    pub(super) fn body<W: Kind + Serialize>(
        &self,
        kind: &W::DynamicType,
        object: &W,
    ) -> Result<Value, WriteError> {
        let kind_name = || W::kind(kind).into_owned();
        let mut body = serde_json::to_value(object)
            .map_err(|error| WriteError::Encode { kind: kind_name(), source: error.into() })?;
        let Value::Object(members) = &mut body else {
            return Err(WriteError::NoName { kind: kind_name() });
        };
        members.insert("apiVersion".to_owned(), W::api_version(kind).into());
        members.insert("kind".to_owned(), kind_name().into());
        let metadata = members.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(metadata) = metadata {
            metadata.remove("managedFields");
            self.complete::<W>(kind, metadata)?;
        }
        Ok(body)
    }

    /// Sets the namespace and the owner of an object.
    fn complete<W: Kind>(
        &self,
        kind: &W::DynamicType,
        metadata: &mut Map<String, Value>,
    ) -> Result<(), WriteError> {
        let own = self.key().namespace();
        if !is_cluster_scoped::<W>()
            && !is_scope_unknown::<W>()
            && !metadata.contains_key("namespace")
            && let Some(namespace) = own
        {
            metadata.insert("namespace".to_owned(), namespace.into());
        }
        if !self.0.owning {
            return Ok(());
        }
        let namespace = metadata.get("namespace").and_then(Value::as_str);
        if own.is_some() && namespace != own {
            let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default();
            return Err(WriteError::OutOfReach {
                kind: W::kind(kind).into_owned(),
                name: ObjectName::namespaced(namespace.unwrap_or_default(), name),
                owner: self.describe_main(),
            });
        }
        let main = self.main().ok_or_else(|| WriteError::Gone(self.key().clone()))?;
        // The main object itself has no owner among itself.
        let name = metadata.get("name").and_then(Value::as_str);
        let is_main =
            name == Some(main.name()) && metadata.get("uid").and_then(Value::as_str) == Some(main.uid());
        if !is_main {
            let owner = serde_json::to_value(self.owner_reference(&main)).unwrap_or_default();
            let owners = metadata.entry("ownerReferences").or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(owners) = owners {
                owners.retain(|known| known["uid"].as_str() != Some(main.uid()));
                owners.push(owner);
            }
        }
        Ok(())
    }
}

fn action<W: Kind>(verb: &str, kind: &W::DynamicType, name: &ObjectName) -> String {
    format!("{verb} {} {name}", W::kind(kind))
}

/// The name of an object to be sent.
pub(super) fn name_of<W: Kind>(kind: &W::DynamicType, body: &Value) -> Result<ObjectName, WriteError> {
    let metadata = &body["metadata"];
    let name = metadata["name"].as_str().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| WriteError::NoName { kind: W::kind(kind).into_owned() })?;
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    Ok(ObjectName::namespaced(namespace, name))
}

/// Whether the server may have acted on a request that failed.
fn is_outcome_unknown(error: &ApiError) -> bool {
    match error.class() {
        Class::Timeout | Class::ConnectionLost | Class::Undecodable => true,
        Class::Other => error.code().is_none_or(|code| code >= 500),
        _ => false,
    }
}
