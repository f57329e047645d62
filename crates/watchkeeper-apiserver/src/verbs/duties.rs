//! Work that spans a collection, in slices: emptying a definition, reading objects by a new schema, passing on names.
//!
//! A slice reads a few objects under the lock, works without it, and stores the results if nothing has changed meanwhile.
//! Other requests run between slices. They may see a terminating definition that still has objects, or objects of which
//! some are read by the previous schema.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use crate::failure::Result;
use crate::kinds::definition;
use crate::kinds::kind::Kind;
use crate::kinds::registry::Registry;
use crate::state::core::Core;
use crate::state::duty::Duty;
use crate::state::renew::renewed;
use crate::state::store::{Key, Stored};
use crate::verbs::definitions::{KindsChange, reconsider};
use crate::verbs::delete::{DeleteOptions, Departure, Propagation};

/// The maximum number of objects in a slice, and of their bytes; a slice has at least one object.
pub(crate) const SLICE_OBJECTS: usize = 32;
pub(crate) const SLICE_BYTES: usize = 256 * 1024;

/// Access to the core, for short moments or for good.
pub(crate) trait Access {
    fn with<T>(&mut self, look: impl FnOnce(&mut Core) -> T) -> T;
}

impl Access for Core {
    fn with<T>(&mut self, look: impl FnOnce(&mut Core) -> T) -> T {
        look(self)
    }
}

impl Core {
    /// Completes all duties under the lock.
    pub(crate) fn complete(&mut self) {
        while let Some(duty) = self.duties.pop_front() {
            if let Some(rest) = step(self, duty) {
                self.duties.push_front(rest);
            }
        }
    }

    /// Resumes the duties of a server that was killed, and reads all custom objects by their schemas.
    pub(crate) fn resume_duties(&mut self) {
        for definition in self.registry.definitions() {
            // Clients saw the objects read by the same schemas before the restart.
            self.duties.push_back(Duty::Renew { definition, after: None, any: false, expire: false });
        }
        if let Some(kind) = self.registry.custom_resource_definitions() {
            let definitions = self.store.range(&kind.storage, None, None);
            self.duties
                .extend(definitions.filter(|stored| stored.terminating).map(|stored| Duty::empty(stored)));
        }
        self.complete();
    }
}

/// Does a slice of a duty. Returns the rest of it.
pub(crate) fn step(access: &mut impl Access, duty: Duty) -> Option<Duty> {
    match duty {
        Duty::Empty { definition, uid, after } => empty(access, definition, uid, after),
        Duty::Renew { definition, after, any, expire } => renew(access, definition, after, (any, expire)),
        Duty::Decide(touched) => decide(access, touched).map(Duty::Decide),
    }
}

/// Takes one slice of the objects.
fn slice<'a>(objects: impl Iterator<Item = &'a Arc<Stored>>) -> Vec<Arc<Stored>> {
    let mut bytes = 0;
    let fits = move |stored: &&Arc<Stored>| {
        let fits = bytes < SLICE_BYTES;
        bytes += stored.bytes.len();
        fits
    };
    objects.take(SLICE_OBJECTS).take_while(fits).cloned().collect()
}

fn empty(access: &mut impl Access, definition: String, uid: String, after: Option<Key>) -> Option<Duty> {
    let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    let (kind, objects, now) = access.with(|core| core.next_objects(&definition, &uid, after.as_ref()))?;
    let departures: Vec<_> =
        objects.iter().map(|object| Departure::plan(&kind, object, &options, now)).collect();
    access.with(|core| {
        let mut is_done = |departure: &Result<Departure>| match departure {
            // An object that has changed is planned again; one that is gone needs nothing.
            Ok(departure) => core.depart(departure).err().is_none_or(|failure| !failure.outdated),
            Err(_) => true,
        };
        let done = departures.iter().take_while(|departure| is_done(departure)).count();
        let after = objects.get(..done).and_then(<[_]>::last).map(|object| object.key.clone()).or(after);
        // The definition goes with the last of its objects.
        core.next_objects(&definition, &uid, after.as_ref())?;
        Some(Duty::Empty { definition, uid, after })
    })
}

impl Core {
    /// Returns the next objects to be deleted with their definition. If there are none, removes the definition unless
    /// something holds it.
    fn next_objects(
        &mut self,
        definition: &str,
        uid: &str,
        after: Option<&Key>,
    ) -> Option<(Arc<Kind>, Vec<Arc<Stored>>, Timestamp)> {
        let (_, marked) = self.definition(definition)?;
        // A definition created anew under the same name has another uid.
        if !marked.terminating || marked.uid != uid {
            return None;
        }
        if let Some(kind) = self.registry.defined(definition).into_iter().next() {
            let objects = slice(self.store.range(&kind.storage, None, after));
            if !objects.is_empty() {
                return Some((kind, objects, self.clock.wall()));
            }
        }
        self.finish_definition(definition);
        None
    }
}

fn renew(
    access: &mut impl Access,
    name: String,
    after: Option<Key>,
    (mut any, expire): (bool, bool),
) -> Option<Duty> {
    let (kinds, objects) = access.with(|core| {
        let kinds = core.registry.defined(&name);
        let objects = slice(core.store.range(&kinds.first()?.storage, None, after.as_ref()));
        Some((kinds, objects))
    })?;
    let renew = |stored: &Arc<Stored>| {
        let kind = kinds.iter().find(|kind| kind.api_version == stored.api_version)?;
        Some((stored.clone(), Arc::new(renewed(kind, stored)?)))
    };
    let news: Vec<_> = objects.iter().filter_map(renew).collect();
    access.with(|core| {
        if !kinds.iter().all(|kind| core.registry.is_current(kind)) {
            // The schema changed again: repeat the slice.
            return Some(Duty::Renew { definition: name, after, any, expire });
        }
        let storage = &kinds.first()?.storage;
        // An object written meanwhile was written by the new schema.
        news.iter().for_each(|(old, new)| core.store.renew(storage, old, new));
        any |= !news.is_empty();
        let after = objects.last().map(|object| object.key.clone()).or(after);
        if core.store.range(storage, None, after.as_ref()).next().is_some() {
            return Some(Duty::Renew { definition: name, after, any, expire });
        }
        if any && expire {
            // Selectors may match other objects now.
            core.store.expire(storage);
        }
        None
    })
}

/// A definition with a new verdict on its names.
struct Decided {
    kind: Arc<Kind>,
    old: Arc<Stored>,
    new: Stored,
    change: KindsChange,
}

fn decide(access: &mut impl Access, touched: BTreeSet<String>) -> Option<BTreeSet<String>> {
    let (seen, now) = access.with(|core| (core.registry.clone(), core.now()));
    let mut left = touched.clone();
    let mut registry: Option<Registry> = None;
    let (mut decided, mut bytes) = (Vec::<Decided>::new(), 0);
    while let Some(name) = left.pop_first() {
        if decided.len() >= SLICE_OBJECTS
            || bytes >= SLICE_BYTES
            || decided.iter().any(|known| known.old.key.name == name)
        {
            left.insert(name);
            break;
        }
        if definition::is_decided(registry.as_ref().unwrap_or(&seen), &name) {
            continue;
        }
        let found = access.with(|core| core.definition(&name)).filter(|(_, stored)| !stored.terminating);
        let Some((kind, old)) = found else { continue };
        bytes += old.bytes.len();
        let registry = registry.get_or_insert_with(|| seen.draft());
        if let Some((after, more, change)) = reconsider(registry, &old, &now) {
            let new = Stored::encode(&kind, old.key.clone(), old.revision, &after);
            decided.push(Decided { kind, old, new, change });
            left.extend(more);
        }
    }
    let is_current = match registry {
        None => true,
        Some(mut registry) => {
            registry.reindex();
            let registry = Arc::new(registry);
            access.with(|core| core.store_decided(&seen, &registry, &decided))
        }
    };
    // If other kinds were registered meanwhile, decide again.
    Some(if is_current { left } else { touched }).filter(|left| !left.is_empty())
}

impl Core {
    /// Stores definitions with the verdicts on their names, if nothing that these depend on has changed.
    fn store_decided(&mut self, seen: &Arc<Registry>, registry: &Arc<Registry>, decided: &[Decided]) -> bool {
        let is_same = |it: &Decided| {
            self.store.get(&it.kind.storage, &it.old.key).is_some_and(|stored| Arc::ptr_eq(stored, &it.old))
        };
        if !Arc::ptr_eq(&self.registry, seen) || !decided.iter().all(is_same) {
            return false;
        }
        self.registry = registry.clone();
        for Decided { kind, old, new, change } in decided {
            self.store.put_encoded(&kind.storage, new);
            self.take_up(&old.key.name, *change);
        }
        true
    }
}
