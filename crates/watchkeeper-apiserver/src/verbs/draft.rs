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
use crate::kinds::registry::Registry;
use crate::state::core::Core;
use crate::state::store::{Key, Stored};
use crate::verbs::definitions::{self, Definition};

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
    /// All objects of the kind and their newest change, if it [allocates](crate::kinds::behaviour::Behaviour::allocates).
    pub(crate) peers: Vec<Arc<Stored>>,
    peers_at: u64,
    /// For a write of a definition the kinds that it has, and those that are served.
    pub(crate) kinds: Vec<Arc<Kind>>,
    pub(crate) registry: Option<Arc<Registry>>,
    pub(crate) generator: Generator,
    clock: Clock,
}

/// An object as it is to be stored: encoded, so that nothing of its size but a copy is left to do under the lock.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) kind: Arc<Kind>,
    pub(crate) key: Key,
    /// In its stored form, but for its version.
    encoded: Arc<Stored>,
    /// What it replaces.
    old: Option<Arc<Stored>>,
    /// Whether it is to be new, so that one of its name is in the way.
    posted: bool,
    dry_run: bool,
    peers_at: u64,
    /// What a definition makes of the kinds that are served.
    definition: Option<Definition>,
    /// Whether it is what is stored already.
    same: bool,
    /// Whether nothing holds the object any more, should it be on its way out.
    released: bool,
}

/// What a draft is made of.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// In its stored form.
    pub(crate) value: Value,
    /// What it replaces, and that as a value.
    pub(crate) old: Option<(Arc<Stored>, Value)>,
    /// Whether the verdict on a definition is to be written anew.
    pub(crate) accept: bool,
    pub(crate) posted: bool,
    pub(crate) dry_run: bool,
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

    /// Makes what is to be stored of what a write came to.
    pub(crate) fn draft(&self, kind: &Arc<Kind>, key: &Key, outcome: Outcome) -> Draft {
        let Outcome { mut value, old, accept, posted, dry_run, compiled, mut same } = outcome;
        let made = self.registry.as_ref().map(|registry| {
            let undecided = value.clone();
            if accept {
                definitions::accept(registry, &mut value, &self.now());
            }
            Definition::of(registry, undecided, &value, compiled, accept)
        });
        if let Some((_, before)) = old.as_ref().filter(|_| accept) {
            same = fields::same(&value, before);
        }
        if !dry_run && old.is_none() {
            // To be replaced when it is stored.
            meta::set(&mut value, "resourceVersion", "0");
        }
        let revision = old.as_ref().map_or(0, |(old, _)| old.revision);
        Draft {
            kind: kind.clone(),
            key: key.clone(),
            encoded: Arc::new(Stored::encode(kind, key.clone(), revision, &value)),
            released: is_released(kind, &value),
            old: old.map(|(old, _)| old),
            posted,
            dry_run,
            peers_at: self.peers_at,
            definition: made,
            same,
        }
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
            peers_at: self.peers_at(kind),
            kinds: if kind.is_definition() { self.registry.defined(&key.name) } else { Vec::new() },
            registry: kind.is_definition().then(|| self.registry.clone()),
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

    /// The newest change of any of them.
    fn peers_at(&self, kind: &Kind) -> u64 {
        if kind.behaviour.allocates() { self.store.changed(&kind.storage) } else { 0 }
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
    pub(crate) fn store(&mut self, draft: &Draft) -> Result<(Arc<Stored>, bool)> {
        let alone = self.peers_at(&draft.kind) == draft.peers_at;
        let current = self.store.get(&draft.kind.storage, &draft.key);
        match (current, &draft.old) {
            (Some(current), None) if draft.posted => {
                return Err(Failure::already_exists(&draft.kind, &draft.key.name, current.terminating));
            }
            (Some(current), Some(old)) if Arc::ptr_eq(current, old) && alone => {}
            (None, None) if alone => self.check_open(&draft.kind, &draft.key.namespace, &draft.key.name)?,
            _ => return Err(Failure::outdated()),
        }
        let is_outdated = |definition: &Definition| !definition.is_of(&self.registry);
        if draft.definition.as_ref().is_some_and(is_outdated) {
            return Err(Failure::outdated());
        }
        let Some(old) = &draft.old else {
            let new = if draft.dry_run { draft.encoded.clone() } else { self.store_as_is(draft) };
            return Ok((new, true));
        };
        if draft.same {
            // Nothing changed: the version stays, and nobody is told.
            return Ok((old.clone(), false));
        }
        let released = old.terminating && draft.released;
        if !draft.dry_run && !released {
            return Ok((self.store_as_is(draft), false));
        }
        if released && !draft.dry_run {
            self.release(draft, old);
        }
        // The write that removes the last finalizer is answered with the version before the removal.
        Ok((draft.encoded.clone(), false))
    }

    /// Stores the draft of a definition though other definitions have changed meanwhile, which is decided while the core is held: for one that
    /// has been outrun too often.
    pub(crate) fn store_definition(&mut self, mut draft: Draft) -> Result<(Arc<Stored>, bool)> {
        if let Some(definition) = &mut draft.definition {
            let value = definition.decide_again(&self.registry, &self.now());
            let before = draft.old.as_ref().map(|old| old.value());
            draft.same = before.is_some_and(|before| fields::same(&value, &before));
            let (key, revision) = (draft.key.clone(), draft.encoded.revision);
            draft.encoded = Arc::new(Stored::encode(&draft.kind, key, revision, &value));
        }
        self.store(&draft)
    }

    fn store_as_is(&mut self, draft: &Draft) -> Arc<Stored> {
        let stored = self.put(&draft.kind, &draft.encoded);
        if let Some(definition) = &draft.definition {
            self.publish_definition(&draft.key.name, definition);
        }
        stored
    }

    /// Lets go of an object whose last finalizer is gone. Watchers see the state before that write.
    fn release(&mut self, draft: &Draft, old: &Arc<Stored>) {
        match draft.kind.behaviour.contents() {
            Contents::CustomKinds => {
                self.store_as_is(draft);
                self.finish_definition(&draft.key.name);
            }
            Contents::NamespacedObjects | Contents::Nothing => {
                self.erase(&draft.kind, old);
            }
        }
    }
}

/// Whether nothing holds a terminating object any more.
fn is_released(kind: &Kind, value: &Value) -> bool {
    let waits = value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0;
    !waits && !kind.behaviour.is_held(value) && meta::finalizers(value).is_empty()
}
