//! A write between the two moments at which it holds the core: what it has seen, and what it wants stored.
//!
//! Patching, defaulting, checking and noting who wrote what may take long, so they work on a [`Seen`] without the lock and give a [`Draft`].
//! [`Core::store`] takes the draft if everything that it depends on is still as it was seen; otherwise the request begins anew.

use std::sync::Arc;

use serde_json::Value;
use watchkeeper::clock::{Clock, Generator};

use crate::failure::{Failure, Result};
use crate::fields;
use crate::kinds::behaviour::{Contents, Context};
use crate::kinds::definition::Compiled;
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::state::core::Core;
use crate::state::store::{Key, Stored};

/// What a write knows of the server.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) key: Key,
    /// The object as it is stored, if it is there.
    pub(crate) old: Option<Arc<Stored>>,
    /// Whether its name was generated: if it is taken meanwhile, another one will do.
    pub(crate) generated: bool,
    /// Whether a new object would be accepted in its place.
    pub(crate) open: Result<()>,
    /// All objects of the kind, if it [allocates](crate::kinds::behaviour::Behaviour::allocates).
    pub(crate) peers: Vec<Arc<Stored>>,
    /// For a write of a definition the kinds that it has.
    pub(crate) kinds: Vec<Arc<Kind>>,
    pub(crate) generator: Generator,
    clock: Clock,
}

/// An object as it is to be stored.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) kind: Arc<Kind>,
    pub(crate) key: Key,
    /// In its stored form.
    pub(crate) value: Value,
    /// What it replaces.
    pub(crate) old: Option<Arc<Stored>>,
    /// Whether the verdict on a definition is to be written anew.
    pub(crate) accept: bool,
    /// Whether it is to be new, so that one of its name is in the way.
    pub(crate) posted: bool,
    pub(crate) dry_run: bool,
    pub(crate) peers: Vec<Arc<Stored>>,
    /// The versions of a definition.
    pub(crate) compiled: Vec<Compiled>,
    /// Whether it is what is stored already.
    pub(crate) same: bool,
}

impl Context for Seen {
    fn now(&self) -> String {
        Self::now(self)
    }

    fn generator(&self) -> &Generator {
        &self.generator
    }

    fn any_peer_has(&self, field: &str, value: &str) -> bool {
        let has =
            |peer: &Arc<Stored>| peer.fields.iter().any(|(path, found)| path == field && found == value);
        self.peers.iter().any(has)
    }

    fn peers(&self) -> Box<dyn Iterator<Item = Value> + '_> {
        Box::new(self.peers.iter().map(|peer| peer.value()))
    }
}

impl Seen {
    pub(crate) fn now(&self) -> String {
        meta::timestamp(self.clock.wall())
    }

    /// The object as it is stored.
    pub(crate) fn stored(&self, kind: &Kind) -> Result<&Arc<Stored>> {
        self.old.as_ref().ok_or_else(|| Failure::not_found(kind, &self.key.name))
    }
}

impl Core {
    /// Looks at what a write of the object at `key` depends on.
    pub(crate) fn see(&self, kind: &Kind, key: &Key) -> Seen {
        let old = self.store.get(&kind.storage, key).cloned();
        let open = if old.is_none() { self.check_open(kind, &key.namespace, &key.name) } else { Ok(()) };
        Seen {
            old,
            generated: false,
            open,
            peers: self.peers(kind).cloned().collect(),
            kinds: if kind.is_definition() { self.registry.defined(&key.name) } else { Vec::new() },
            generator: self.generator.clone(),
            clock: self.clock.clone(),
            key: key.clone(),
        }
    }

    /// All objects of a kind on which its writes depend.
    fn peers(&self, kind: &Kind) -> impl Iterator<Item = &Arc<Stored>> {
        let peers = kind.behaviour.allocates().then(|| self.store.range(&kind.storage, None, None));
        peers.into_iter().flatten()
    }

    /// Refuses new objects where they are not accepted.
    pub(crate) fn check_open(&self, kind: &Kind, namespace: &str, name: &str) -> Result<()> {
        if kind.namespaced {
            self.check_namespace(kind, namespace, name)?;
        }
        self.check_definition_accepts(kind, name)
    }

    /// Stores an object, or says why it cannot be; the flag tells that it was created. Fails with [`Failure::outdated`] if what it was made
    /// from has changed.
    pub(crate) fn store(&mut self, draft: Draft) -> Result<(Arc<Stored>, bool)> {
        let is_same = |(one, other): (&Arc<Stored>, &Arc<Stored>)| Arc::ptr_eq(one, other);
        let alone = self.peers(&draft.kind).count() == draft.peers.len()
            && self.peers(&draft.kind).zip(&draft.peers).all(is_same);
        let current = self.store.get(&draft.kind.storage, &draft.key);
        match (current, &draft.old) {
            (Some(current), None) if draft.posted => {
                return Err(Failure::already_exists(&draft.kind, &draft.key.name, current.terminating));
            }
            (Some(current), Some(old)) if Arc::ptr_eq(current, old) && alone => {}
            (None, None) if alone => self.check_open(&draft.kind, &draft.key.namespace, &draft.key.name)?,
            _ => return Err(Failure::outdated()),
        }
        match draft.old.clone() {
            Some(old) => self.store_change(draft, &old).map(|stored| (stored, false)),
            None => Ok((self.store_new(draft), true)),
        }
    }

    fn store_new(&mut self, mut draft: Draft) -> Arc<Stored> {
        let (kind, key) = (draft.kind.clone(), draft.key.clone());
        if draft.accept {
            self.accept_definition(&mut draft.value);
        }
        if draft.dry_run {
            return self.pretend(&kind, &key, &draft.value);
        }
        self.put(&kind, &key, draft.value, draft.compiled)
    }

    fn store_change(&mut self, mut draft: Draft, old: &Arc<Stored>) -> Result<Arc<Stored>> {
        let (kind, key) = (draft.kind.clone(), draft.key.clone());
        if draft.accept {
            self.accept_definition(&mut draft.value);
            draft.same = old.written.is_none() && fields::same(&draft.value, &old.value());
        }
        if draft.same {
            // Nothing changed: the version stays, and nobody is told.
            return Ok(old.clone());
        }
        let released = old.terminating && is_released(&kind, &draft.value);
        if !draft.dry_run && !released {
            return Ok(self.put(&kind, &key, draft.value, draft.compiled));
        }
        // The write that removes the last finalizer is answered with the version before the removal.
        let answer = self.pretend(&kind, &key, &draft.value);
        if released && !draft.dry_run {
            self.release(draft, old);
        }
        Ok(answer)
    }

    fn put(&mut self, kind: &Kind, key: &Key, value: Value, compiled: Vec<Compiled>) -> Arc<Stored> {
        let stored = self.commit(kind, key, value);
        if kind.is_definition() {
            self.publish_definition(&stored.value(), compiled);
        }
        stored
    }

    /// Lets go of an object whose last finalizer is gone. Watchers see the state before that write.
    fn release(&mut self, draft: Draft, old: &Arc<Stored>) {
        let (kind, key) = (draft.kind.clone(), draft.key.clone());
        match kind.behaviour.contents() {
            Contents::CustomKinds => {
                self.put(&kind, &key, draft.value, draft.compiled);
                self.finish_definition(&key.name);
            }
            Contents::NamespacedObjects | Contents::Nothing => {
                self.erase(&kind, old);
            }
        }
    }
}

/// Whether nothing holds a terminating object any more.
fn is_released(kind: &Kind, value: &Value) -> bool {
    let waits = value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0;
    !waits && !kind.behaviour.is_held(value) && meta::finalizers(value).is_empty()
}
