//! A write between reading the state and storing its result.
//!
//! Merging, defaulting and validation may take long, so a write works without the lock: it reads a [`Seen`], and makes a
//! [`Draft`]. [`Core::store`] stores the draft if everything that it depends on is unchanged; otherwise the request
//! starts over.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use watchkeeper::clock::{Clock, Generator};

use crate::admission::plugin::Charge;
use crate::admission::session::Session;
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

/// The state that a write has read.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) key: Key,
    /// The stored object, if it exists.
    pub(crate) old: Option<Arc<Stored>>,
    /// Whether its name was generated: if it is taken meanwhile, another one is generated.
    pub(crate) generated: bool,
    /// Why a new object is refused here, if it is.
    pub(crate) open: Result<()>,
    /// All objects of a kind that [allocates](crate::kinds::behaviour::Behaviour::allocates).
    pub(crate) peers: Vec<Arc<Stored>>,
    /// The newest change of any of them.
    peers_at: u64,
    /// The ranges of addresses for such a kind.
    ranges: Vec<String>,
    /// The present kinds of a definition.
    pub(crate) kinds: Vec<Arc<Kind>>,
    /// All kinds, for the write of a definition.
    pub(crate) registry: Option<Arc<Registry>>,
    /// All kinds, for an object that is completed by them.
    served: Option<Arc<Registry>>,
    pub(crate) generator: Generator,
    clock: Clock,
    /// The time of the request, where all its attempts have the same.
    fixed: Option<Timestamp>,
}

/// An object to be stored. It is encoded already, so that under the lock its text is only copied.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) kind: Arc<Kind>,
    pub(crate) key: Key,
    /// In its stored form, except for the resourceVersion.
    encoded: Arc<Stored>,
    /// The version that it replaces.
    old: Option<Arc<Stored>>,
    /// Whether it must not exist already.
    posted: bool,
    dry_run: bool,
    peers_at: u64,
    /// The effect of a definition on the kinds that are served.
    definition: Option<Definition>,
    /// Whether it equals the stored version.
    same: bool,
    /// Whether no finalizer or grace period keeps the object, if it is terminating.
    released: bool,
    /// The conditions and effects that admission adds to its commit.
    charges: Vec<Box<dyn Charge>>,
}

/// The result of a verb, from which a draft is made.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// In its stored form.
    pub(crate) value: Value,
    /// The version that it replaces, and its decoded form.
    pub(crate) old: Option<(Arc<Stored>, Value)>,
    /// Whether to decide on the names of a definition.
    pub(crate) accept: bool,
    pub(crate) posted: bool,
    pub(crate) dry_run: bool,
    /// The compiled versions of a definition.
    pub(crate) compiled: Vec<Compiled>,
    /// Whether it equals the stored version.
    pub(crate) same: bool,
}

impl Draft {
    /// Adds conditions and effects to the commit.
    pub(crate) fn charge(&mut self, charges: Vec<Box<dyn Charge>>) {
        self.charges = charges;
    }

    /// The version that it replaces, and the result.
    pub(crate) fn versions(&self) -> (Option<&Stored>, &Stored) {
        (self.old.as_deref(), &self.encoded)
    }
}

impl Context for Seen {
    fn now(&self) -> String {
        Self::now(self)
    }

    fn generator(&self) -> &Generator {
        &self.generator
    }

    fn registry(&self) -> Option<&Registry> {
        self.served.as_deref()
    }

    fn any_peer_has(&self, field: &str, value: &str) -> bool {
        let has =
            |peer: &Arc<Stored>| peer.fields.iter().any(|(path, found)| **path == *field && found == value);
        self.peers.iter().any(has)
    }

    fn ranges(&self) -> &[String] {
        &self.ranges
    }

    fn peers(&self) -> Box<dyn Iterator<Item = Value> + '_> {
        Box::new(self.peers.iter().map(|peer| peer.value()))
    }
}

impl Seen {
    pub(crate) fn now(&self) -> String {
        meta::timestamp(self.fixed.unwrap_or_else(|| self.clock.wall()))
    }

    /// Takes time and randomness from the request, so that each of its attempts makes the same object.
    pub(crate) fn fix(&mut self, session: &Session) {
        self.fixed = Some(session.now());
        self.generator = session.generator();
    }

    /// Returns the stored object, or a 404.
    pub(crate) fn stored(&self, kind: &Kind) -> Result<&Arc<Stored>> {
        self.old.as_ref().ok_or_else(|| Failure::not_found(kind, &self.key.name))
    }

    /// Encodes the result of a verb, to be stored.
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
            // A placeholder until it is stored.
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
            charges: Vec::new(),
        }
    }

    /// Returns the draft of a version that is encoded already, which changes nothing that other objects depend on.
    pub(crate) fn draft_edited(&self, kind: &Arc<Kind>, old: &Arc<Stored>, encoded: Stored) -> Draft {
        Draft {
            kind: kind.clone(),
            key: self.key.clone(),
            encoded: Arc::new(encoded),
            released: true,
            old: Some(old.clone()),
            posted: false,
            dry_run: false,
            peers_at: self.peers_at,
            definition: None,
            same: false,
            charges: Vec::new(),
        }
    }
}

impl Core {
    /// Reads what a write of the object at `key` depends on.
    pub(crate) fn see(&self, kind: &Kind, key: &Key) -> Seen {
        let old = self.store.get(&kind.storage, key).cloned();
        let open = if old.is_none() { self.check_open(kind, &key.namespace, &key.name) } else { Ok(()) };
        Seen {
            old,
            generated: false,
            open,
            peers: self.peers(kind).cloned().collect(),
            peers_at: self.peers_at(kind),
            ranges: if kind.behaviour.allocates() { self.service_ranges() } else { Vec::new() },
            kinds: if kind.is_definition() { self.registry.defined(&key.name) } else { Vec::new() },
            registry: kind.is_definition().then(|| self.registry.clone()),
            served: kind.behaviour.needs_registry().then(|| self.registry.clone()),
            generator: self.generator.clone(),
            clock: self.clock.clone(),
            fixed: None,
            key: key.clone(),
        }
    }

    /// Returns all objects on which writes of the kind depend.
    fn peers(&self, kind: &Kind) -> impl Iterator<Item = &Arc<Stored>> {
        let peers = kind.behaviour.allocates().then(|| self.store.range(&kind.storage, None, None));
        peers.into_iter().flatten()
    }

    /// Returns the newest change of any of them.
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

    /// Stores a draft. Returns the stored version, and whether the object was created. Fails with [`Failure::outdated`]
    /// if the state that the draft depends on has changed.
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
            self.take_charges(draft)?;
            let new = if draft.dry_run { draft.encoded.clone() } else { self.store_as_is(draft) };
            return Ok((new, true));
        };
        if draft.same {
            // A no-op write: the version stays, and watches see nothing.
            return Ok((old.clone(), false));
        }
        self.take_charges(draft)?;
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

    /// Checks the charges of a draft, all of them before any is booked.
    fn take_charges(&mut self, draft: &Draft) -> Result<()> {
        draft.charges.iter().try_for_each(|charge| charge.check(self))?;
        if !draft.dry_run {
            draft.charges.iter().for_each(|charge| charge.book(self));
        }
        Ok(())
    }

    /// Stores the draft of a definition even if other definitions have changed meanwhile, deciding on its names under the
    /// lock. For a write that was outdated too often.
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
        let stored = self.store.put_encoded(&draft.kind.storage, &draft.encoded);
        if let Some(definition) = &draft.definition {
            self.publish_definition(&draft.key.name, definition);
        }
        stored
    }

    /// Removes an object whose last finalizer is gone. Watches see the state before that write.
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

/// Returns whether nothing keeps a terminating object.
fn is_released(kind: &Kind, value: &Value) -> bool {
    let waits = value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0;
    !waits && !kind.behaviour.is_held(value) && meta::finalizers(value).is_empty()
}
