//! Writes of definitions: the verdict on their names, and the kinds that are served after them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::fields::{Managers, track};
use crate::kinds::conditions;
use crate::kinds::definition::{self, CLEANUP_FINALIZER, Compiled, Compiler, list, text, texts};
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::kinds::registry::Registry;
use crate::state::core::Core;
use crate::state::duty::Duty;
use crate::state::store::{Key, Stored};
use crate::verbs::write::Write;

/// What a change of a definition means for its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KindsChange {
    /// The kinds are new and have no objects yet.
    New,
    /// Objects read differently.
    Reads,
    /// Objects read as before.
    Alike,
}

/// The effect of a definition that is to be stored on the registry.
#[derive(Debug)]
pub(crate) struct Definition {
    /// The registry that the decision is based on, and the one that results from it.
    seen: Arc<Registry>,
    registry: Arc<Registry>,
    /// The definitions whose names have to be decided again.
    touched: BTreeSet<String>,
    change: KindsChange,
    /// The definition without the verdict on its names.
    undecided: Value,
    accept: bool,
    compiled: Vec<Compiled>,
}

impl Definition {
    /// `value` is the definition as it is to be stored, `undecided` the same without the verdict on its names.
    pub(crate) fn of(
        seen: &Arc<Registry>,
        undecided: Value,
        value: &Value,
        compiled: Vec<Compiled>,
        accept: bool,
    ) -> Self {
        let mut registry = seen.draft();
        let (touched, change) = define(&mut registry, value, compiled.clone());
        registry.reindex();
        let (seen, registry) = (seen.clone(), Arc::new(registry));
        Self { seen, registry, touched, change, undecided, accept, compiled }
    }

    /// Returns whether the decision is based on this registry.
    pub(crate) fn is_of(&self, registry: &Arc<Registry>) -> bool {
        Arc::ptr_eq(&self.seen, registry)
    }

    /// Decides again, based on the current registry. Returns the definition to store.
    pub(crate) fn decide_again(&mut self, registry: &Arc<Registry>, now: &str) -> Value {
        let mut value = self.undecided.clone();
        if self.accept {
            accept(registry, &mut value, now);
        }
        *self = Self::of(
            registry,
            self.undecided.take(),
            &value,
            std::mem::take(&mut self.compiled),
            self.accept,
        );
        value
    }
}

/// Replaces the kinds of a definition. Returns the definitions whose names have to be decided again.
fn define(
    registry: &mut Registry,
    value: &Value,
    compiled: Vec<Compiled>,
) -> (BTreeSet<String>, KindsChange) {
    let name = meta::text(value, "name");
    let (before, touched) = registry.define(name, definition::kinds(value, compiled));
    let same = |kind: &Arc<Kind>| before.iter().any(|before| reads_alike(before, kind));
    let change = match () {
        () if before.is_empty() => KindsChange::New,
        () if registry.defined(name).iter().all(same) => KindsChange::Alike,
        () => KindsChange::Reads,
    };
    (touched, change)
}

/// Returns whether objects read the same in both kinds.
fn reads_alike(one: &Kind, other: &Kind) -> bool {
    let documents = [one, other].map(|kind| kind.custom.as_ref().map(|custom| &custom.document));
    one.version == other.version && one.fields == other.fields && documents[0] == documents[1]
}

/// Decides again on the names of a definition. Returns the definition to store if it differs, and the effects.
pub(crate) fn reconsider(
    registry: &mut Registry,
    stored: &Stored,
    now: &str,
) -> Option<(Value, BTreeSet<String>, KindsChange)> {
    let before = stored.value();
    let mut after = before.clone();
    accept(registry, &mut after, now);
    if after["status"] == before["status"] {
        return None;
    }
    let compiled = Compiler::knowing(&registry.defined(&stored.key.name)).compile_all(&after);
    let (touched, change) = define(registry, &after, compiled);
    Some((after, touched, change))
}

/// Writes the verdict on a definition's names into its status. An established definition stays so, with the names it has.
pub(crate) fn accept(registry: &Registry, value: &mut Value, now: &str) {
    let spec = value["spec"].clone();
    let established = definition::is_established(value);
    let had = &value["status"]["acceptedNames"];
    let (names, conflict) = definition::accept_names(
        registry,
        meta::text(value, "name"),
        (text(&spec, "group"), &spec["names"], had),
    );
    let accepted = conflict.is_none();
    let (reason, message) = conflict.unwrap_or_else(|| ("NoConflicts", "no conflicts found".to_owned()));
    let before = value.clone();
    let status = &mut value["status"];
    if !status.is_object() {
        *status = json!({});
    }
    let verdict = if accepted { "True" } else { "False" };
    let mut note = |name: &str, reason: &str, message: &str| {
        let condition = json!({
            "type": name, "status": verdict, "lastTransitionTime": now, "reason": reason, "message": message,
        });
        conditions::set(status, condition);
    };
    note("NamesAccepted", reason, &message);
    if !established {
        let (reason, message) = if accepted {
            ("InitialNamesAccepted", "the initial names have been accepted")
        } else {
            ("NotAccepted", "not all names are accepted")
        };
        note("Established", reason, message);
    }
    status["acceptedNames"] = names;
    if let Some(kind) = registry.custom_resource_definitions() {
        let (managers, own) = (Managers::read(value), Write::own());
        track(&kind, &before, value, Some(managers), &own.writer(&kind, "status", now));
    }
    let storage = list(&spec["versions"]).iter().find(|version| version["storage"] == true);
    let storage = storage.map_or("", |version| text(version, "name"));
    let status = &mut value["status"];
    let mut stored = texts(&status["storedVersions"]);
    if !stored.iter().any(|version| version == storage) {
        stored.push(storage.to_owned());
    }
    status["storedVersions"] = json!(stored);
}

impl Core {
    pub(crate) fn definition(&self, name: &str) -> Option<(Arc<Kind>, Arc<Stored>)> {
        let kind = self.registry.custom_resource_definitions()?;
        let stored = self.get(&kind, &Key::new("", name)).ok()?;
        Some((kind, stored))
    }

    /// Refuses new objects of a kind that is absent or being deleted.
    pub(crate) fn check_definition_accepts(&self, kind: &Kind, name: &str) -> Result<()> {
        let Some(custom) = &kind.custom else { return Ok(()) };
        match self.definition(&custom.definition) {
            Some((_, stored)) if stored.terminating => Err(Failure::forbidden(
                kind,
                name,
                "create not allowed while custom resource definition is terminating",
            )),
            Some(_) => Ok(()),
            None => Err(Failure::no_such_path()),
        }
    }

    /// Serves the kinds of a stored definition, and frees the names that it has given up.
    pub(crate) fn publish_definition(&mut self, name: &str, definition: &Definition) {
        self.registry = definition.registry.clone();
        self.take_up(name, definition.change);
        self.reconsider_definitions(definition.touched.clone());
    }

    /// Adapts the objects of a definition to a change of its kinds.
    pub(crate) fn take_up(&mut self, name: &str, change: KindsChange) {
        match change {
            KindsChange::New => {
                if let Some(id) = self.registry.storage_of(name).cloned() {
                    self.store.begin(&id);
                }
            }
            KindsChange::Reads => self.duties.push_back(Duty::renew(name)),
            KindsChange::Alike => {}
        }
    }

    /// Decides again on the names of these definitions, in slices.
    fn reconsider_definitions(&mut self, touched: BTreeSet<String>) {
        if !touched.is_empty() {
            self.duties.push_back(Duty::Decide(touched));
        }
    }

    /// Removes a terminating definition that has no objects and no other finalizers.
    pub(crate) fn finish_definition(&mut self, name: &str) {
        let Some((kind, stored)) = self.definition(name).filter(|(_, stored)| stored.terminating) else {
            return;
        };
        // Called for each deleted object: the definition may be large and is not parsed before this check.
        let storage = self.registry.storage_of(name);
        if storage.is_some_and(|id| self.store.range(id, None, None).next().is_some()) {
            return;
        }
        let finalizers = meta::finalizers(&json!({"metadata": stored.metadata()}));
        if finalizers.iter().all(|finalizer| finalizer == CLEANUP_FINALIZER) {
            self.erase(&kind, &stored);
        }
    }

    /// Stops serving the kinds of a removed definition: their watches end, and its names are free.
    pub(crate) fn withdraw_definition(&mut self, name: &str) {
        let storage = self.registry.storage_of(name).cloned();
        let registry = Arc::make_mut(&mut self.registry);
        let (_, touched) = registry.define(name, Vec::new());
        registry.reindex();
        if let Some(storage) = storage {
            self.store.close(&storage);
        }
        self.reconsider_definitions(touched);
    }
}
