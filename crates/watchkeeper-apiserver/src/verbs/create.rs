//! Creates: POST, and an update or apply of an object that does not exist yet.

use std::sync::Arc;

use serde_json::Value;
use watchkeeper::clock::Generator;

use crate::admission::attempt::Attempt;
use crate::failure::{Cause, Failure, Result};
use crate::fields::{Managers, track};
use crate::kinds::behaviour::{Change, Findings};
use crate::kinds::identity::{SUFFIX_LENGTH, identify, place, random_suffix};
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::kinds::size;
use crate::state::core::Core;
use crate::state::store::{Key, Stored};
use crate::verbs::draft::{Draft, Outcome, Seen};
use crate::verbs::update::stored_at;
use crate::verbs::write::Write;

const NAME_BASE_LIMIT: usize = 63 - SUFFIX_LENGTH;
const NAME_TRIES: usize = 8;

/// The name of a new object, or the start of one to generate.
#[derive(Debug)]
pub(crate) struct Name {
    given: String,
    /// The prefix of a name to generate.
    base: String,
    /// What to generate it from, if not from the server's generator.
    generator: Option<Generator>,
}

impl Name {
    pub(crate) fn of(value: &Value) -> Self {
        let text = |field: &str| meta::text(value, field).to_owned();
        Self { given: text("name"), base: text("generateName"), generator: None }
    }

    /// Generates the name from another generator than the server's.
    pub(crate) fn from(self, generator: Generator) -> Self {
        Self { generator: Some(generator), ..self }
    }
}

impl Core {
    /// Refuses new objects in a namespace that is absent or being deleted.
    pub(crate) fn check_namespace(&self, kind: &Kind, namespace: &str, name: &str) -> Result<()> {
        let Some(namespaces) = self.registry.namespaces() else { return Ok(()) };
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

    /// Creates `value`, which is in the version of `kind`, in `namespace` (empty for a cluster-scoped kind).
    pub(crate) fn create(
        &mut self,
        kind: &Arc<Kind>,
        namespace: &str,
        mut value: Value,
        write: &Write,
    ) -> Result<Arc<Stored>> {
        identify(kind, &mut value);
        place(kind, namespace, &mut value)?;
        let draft = self.see_new(kind, namespace, &Name::of(&value))?.create(kind, value, write, true)?;
        let stored = self.store(&draft).map(|(stored, _)| stored);
        self.complete();
        stored
    }

    /// Reads what the creation of an object depends on, and generates its name if it has none.
    pub(crate) fn see_new(&self, kind: &Kind, namespace: &str, name: &Name) -> Result<Seen> {
        self.check_open(kind, namespace, &name.given)?;
        let key = self.name_object(kind, namespace, name)?;
        let mut seen = self.see(kind, &key);
        seen.generated = name.given.is_empty();
        Ok(seen)
    }

    fn name_object(&self, kind: &Kind, namespace: &str, name: &Name) -> Result<Key> {
        let Name { given, base, generator } = name;
        let generator = generator.as_ref().unwrap_or(&self.generator);
        if !given.is_empty() {
            return Ok(Key::new(namespace, given));
        }
        if base.is_empty() {
            return Ok(Key::new(namespace, ""));
        }
        let mut cut = base.len().min(NAME_BASE_LIMIT);
        while !base.is_char_boundary(cut) {
            cut -= 1;
        }
        let mut name = String::new();
        for _ in 0..NAME_TRIES {
            name = format!("{}{}", &base[..cut], random_suffix(generator));
            let key = Key::new(namespace, &name);
            if self.store.get(&kind.storage, &key).is_none() {
                return Ok(key);
            }
        }
        let mut failure = Failure::already_exists(kind, &name, false);
        if let Some(details) = &mut failure.details {
            details.retry_after = 1;
        }
        Err(failure)
    }
}

impl Seen {
    /// Drafts the new object `value`, which has its kind and namespace. If it is `posted`, it must not exist already.
    pub(crate) fn create(
        &self,
        kind: &Arc<Kind>,
        mut value: Value,
        write: &Write,
        posted: bool,
    ) -> Result<Draft> {
        self.open.clone()?;
        kind.behaviour.defaults(kind, &mut value)?;
        let metadata = meta::metadata_mut(&mut value);
        for field in
            ["selfLink", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
        {
            metadata.remove(field);
        }
        if !write.applied {
            let (nobody, now) = (Some(Managers::default()), self.now());
            track(kind, kind.blank(), &mut value, nobody, &write.writer(kind, "", &now));
        }
        self.mutate_new(kind, &mut value, write)?;
        let conflicts = kind.behaviour.conflicts(None, &value, self);
        if !conflicts.is_empty() {
            return Err(Failure::invalid(kind, &self.key.name, conflicts));
        }
        meta::set(&mut value, "name", &self.key.name);
        let sent_version = meta::text(&value, "resourceVersion").to_owned();
        self.fill_system_fields(kind, &mut value);
        kind.begin_status(&mut value);
        kind.behaviour.prepare_create(&mut value, self);
        if let Some(author) = &write.author {
            kind.behaviour.prepare_author(&mut value, &author.shown());
        }
        let mut findings = Findings::default();
        let change = Change { kind, old: None, new: &value, status: false, defined: &self.kinds };
        kind.behaviour.validate(&change, &mut findings);
        let mut causes = meta::validate(kind, &value);
        causes.extend(findings.causes);
        if !causes.is_empty() {
            return Err(Failure::invalid(kind, &self.key.name, causes));
        }
        if !sent_version.is_empty() && sent_version != "0" {
            return Err(Failure::internal("resourceVersion should not be set on objects to be created"));
        }
        if let Some(attempt) = write.attempt(kind, &self.key, None) {
            attempt.validate(Some(&value))?;
        }
        let value = kind.to_storage(value);
        if !write.dry_run {
            size::check(kind, || stored_at(kind, &self.key, false), &value)?;
        }
        let outcome = Outcome {
            value,
            old: None,
            accept: kind.is_definition(),
            posted: posted && !self.generated,
            dry_run: write.dry_run,
            compiled: findings.compiled,
            same: false,
        };
        Ok(self.draft(kind, &self.key, outcome))
    }

    /// Lets admission change a new object. A generated name is not known to it.
    fn mutate_new(&self, kind: &Arc<Kind>, value: &mut Value, write: &Write) -> Result<()> {
        let Some(attempt) = write.attempt(kind, &self.key, None) else { return Ok(()) };
        let name = if self.generated { "" } else { attempt.name };
        Attempt { name, ..attempt }.mutate(value)
    }

    fn fill_system_fields(&self, kind: &Kind, value: &mut Value) {
        let (now, uid) = (self.now(), self.generator.uuid());
        let metadata = meta::metadata_mut(value);
        metadata.remove("resourceVersion");
        metadata.insert("uid".to_owned(), uid.into());
        metadata.insert("creationTimestamp".to_owned(), now.into());
        if kind.generation {
            metadata.insert("generation".to_owned(), 1.into());
        }
    }
}
