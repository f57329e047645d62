//! Deletes: preconditions, propagation policy, finalizers and grace periods.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::failure::{Cause, Failure, Result};
use crate::kinds::behaviour::Contents;
use crate::kinds::definition::CLEANUP_FINALIZER;
use crate::kinds::failures;
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::state::core::Core;
use crate::state::duty::Duty;
use crate::state::store::{Key, Stored};
use crate::verbs::update::precondition_failed;

/// What happens to the dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The options of a delete, from its body or its query.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) dry_run: bool,
}

impl DeleteOptions {
    /// Reads the options as JSON; the query's values are given in the same form.
    pub(crate) fn read(value: &Value) -> Result<Self> {
        let wrong =
            |field: &str| Failure::bad_request(format!("DeleteOptions: cannot read the field {field}"));
        let grace = match &value["gracePeriodSeconds"] {
            Value::Null => None,
            number => Some(number.as_i64().ok_or_else(|| wrong("gracePeriodSeconds"))?),
        };
        let orphan = match &value["orphanDependents"] {
            Value::Null => None,
            flag => Some(flag.as_bool().ok_or_else(|| wrong("orphanDependents"))?),
        };
        let mut causes = Vec::new();
        let policy = &value["propagationPolicy"];
        let mut propagation = match policy.as_str() {
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            None if policy.is_null() => None,
            _ => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                causes.push(Cause::not_supported("propagationPolicy", policy, &supported));
                None
            }
        };
        if let Some(orphan) = orphan {
            if !policy.is_null() {
                let problem = "orphanDependents and deletionPropagation cannot be both set";
                causes.push(Cause::invalid("propagationPolicy", policy, problem));
            }
            propagation = Some(if orphan { Propagation::Orphan } else { Propagation::Background });
        }
        let dry_run = match &value["dryRun"] {
            Value::Null => false,
            Value::Array(list) if list.is_empty() => false,
            Value::Array(list) if list.iter().all(|entry| entry == "All") => true,
            other => {
                causes.push(Cause::not_supported("dryRun", other, &["All"]));
                false
            }
        };
        if !causes.is_empty() {
            return Err(Failure::invalid_options("DeleteOptions", causes));
        }
        let preconditions = &value["preconditions"];
        if !matches!(preconditions, Value::Null | Value::Object(_)) {
            return Err(wrong("preconditions"));
        }
        // Malformed options must not turn into a delete without preconditions.
        let condition = |field: &str| match &preconditions[field] {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.clone())),
            _ => Err(wrong(&format!("preconditions.{field}"))),
        };
        Ok(Self {
            grace,
            propagation,
            uid: condition("uid")?,
            version: condition("resourceVersion")?,
            dry_run,
        })
    }
}

/// The result of a delete.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// The object is gone; the answer is a `Status`.
    Gone(Value),
    /// The object in its present state, waiting for its finalizers, or in its last state.
    Object(Arc<Stored>),
}

/// The planned deletion of an object. It is planned without the lock; [`Core::depart`] carries it out.
#[derive(Debug)]
pub(crate) struct Departure {
    kind: Arc<Kind>,
    old: Arc<Stored>,
    /// The object marked for deletion; `None` if it stays as it is.
    marked: Option<Arc<Stored>>,
    /// Whether it is removed at once.
    goes: bool,
    /// Whether the answer is a `Status` in place of the object.
    status: bool,
    dry_run: bool,
}

impl Departure {
    /// Plans the deletion of an object, or refuses it.
    pub(crate) fn plan(
        kind: &Arc<Kind>,
        old: &Arc<Stored>,
        options: &DeleteOptions,
        now: Timestamp,
    ) -> Result<Self> {
        check_preconditions(kind, old, options)?;
        let mut plan = Self {
            kind: kind.clone(),
            old: old.clone(),
            marked: None,
            goes: false,
            status: false,
            dry_run: options.dry_run,
        };
        let value = old.value();
        if kind.behaviour.contents() == Contents::NamespacedObjects
            && plan.mark_namespace(&value, options, now)?
        {
            return Ok(plan);
        }
        if is_ending(&value, options) {
            return Ok(plan);
        }
        let mut finalizers = wanted_finalizers(kind, &value, options.propagation);
        if kind.is_definition() && !finalizers.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER) {
            finalizers.push(CLEANUP_FINALIZER.to_owned());
        }
        let grace = kind.behaviour.grace_period(&value, options.grace);
        let at_its_end = value["metadata"]["deletionGracePeriodSeconds"] == 0;
        let goes_now = finalizers.is_empty() && (grace.is_none() || (at_its_end && grace == Some(0)));
        if goes_now && options.version.is_some() && !meta::finalizers(&value).is_empty() {
            // On the real server, an object that is removed at once never gets the version of its mark.
            let found = old.revision.to_string();
            let why = precondition_failed(kind, &old.key, options.dry_run, ("ResourceVersion", "", &found));
            return Err(Failure::conflict(kind, &old.key.name, &why));
        }
        if finalizers.is_empty() && grace.is_none() {
            plan.goes = true;
            plan.status = !kind.returns_deleted;
            return Ok(plan);
        }
        if goes_now && !options.dry_run {
            plan.goes = true;
            return Ok(plan);
        }
        let mut marked = value.clone();
        meta::set_finalizers(&mut marked, &finalizers);
        mark(&mut marked, grace.unwrap_or(0), now);
        plan.goes = finalizers.is_empty() && grace == Some(0);
        if marked != value {
            plan.mark(&marked);
        }
        Ok(plan)
    }

    fn mark(&mut self, marked: &Value) {
        let encoded = Stored::encode(&self.kind, self.old.key.clone(), self.old.revision, marked);
        self.marked = Some(Arc::new(encoded));
    }

    /// Marks a namespace for deletion. Returns false where it was marked before and the finalizers of its spec are gone:
    /// then it is deleted like any other object. Emptying it, and removing those finalizers, is up to the namespace
    /// controller.
    fn mark_namespace(&mut self, value: &Value, options: &DeleteOptions, now: Timestamp) -> Result<bool> {
        let name = &self.old.key.name;
        if ["default", "kube-system", "kube-public"].contains(&name.as_str()) {
            return Err(Failure::forbidden(&self.kind, name, "this namespace may not be deleted"));
        }
        if self.old.terminating {
            return Ok(value["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty()));
        }
        let mut marked = value.clone();
        let finalizers = wanted_finalizers(&self.kind, value, options.propagation);
        meta::set_finalizers(&mut marked, &finalizers);
        meta::set(&mut marked, "deletionTimestamp", &meta::timestamp(now));
        marked["status"]["phase"] = "Terminating".into();
        self.mark(&marked);
        Ok(true)
    }
}

impl Core {
    /// Deletes an object and completes the duties that follow from it, under the lock.
    pub(crate) fn delete(&mut self, kind: &Arc<Kind>, key: &Key, options: &DeleteOptions) -> Result<Deleted> {
        let deleted = self.delete_one(kind, key, options);
        self.complete();
        deleted
    }

    /// Deletes an object under the lock, and leaves the duties that follow from it.
    pub(crate) fn delete_one(
        &mut self,
        kind: &Arc<Kind>,
        key: &Key,
        options: &DeleteOptions,
    ) -> Result<Deleted> {
        let old = self.get(kind, key)?;
        let departure = Departure::plan(kind, &old, options, self.clock.wall())?;
        self.depart(&departure)
    }

    /// Deletes an object as planned. Fails with [`Failure::outdated`] if it has changed since.
    pub(crate) fn depart(&mut self, departure: &Departure) -> Result<Deleted> {
        let Departure { kind, old, marked, goes, status, dry_run } = departure;
        let current = self.get(kind, &old.key)?;
        if !Arc::ptr_eq(&current, old) || !self.registry.is_current(kind) {
            return Err(Failure::outdated());
        }
        let gone = || Deleted::Gone(failures::deleted(kind, &old.key.name, &old.uid));
        if *dry_run {
            let object = marked.as_ref().unwrap_or(old).clone();
            return Ok(if *status { gone() } else { Deleted::Object(object) });
        }
        let last = match marked {
            Some(marked) => self.store.put_encoded(&kind.storage, marked),
            None => current,
        };
        if *goes {
            let last = self.erase(kind, &last);
            return Ok(if *status { gone() } else { Deleted::Object(last) });
        }
        if kind.behaviour.contents() == Contents::CustomKinds {
            self.duties.push_back(Duty::empty(&last));
        }
        Ok(Deleted::Object(last))
    }

    /// Removes an object. Watchers receive its last content with a new version.
    pub(crate) fn erase(&mut self, kind: &Kind, last: &Stored) -> Arc<Stored> {
        let revision = self.store.next_revision();
        let gone = self.store.remove(&kind.storage, last.at(revision));
        if kind.is_definition() {
            self.withdraw_definition(&last.key.name);
        }
        if let Some(custom) = &kind.custom {
            self.finish_definition(&custom.definition);
        }
        gone
    }
}

/// Marks an object for deletion. A repeated mark may only shorten its grace period.
fn mark(value: &mut Value, grace: i64, now: Timestamp) {
    let first = !value["metadata"]["deletionTimestamp"].is_string();
    let current = value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    if !first && grace >= current {
        return;
    }
    let grace_time = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
    let end = now.checked_add(grace_time).unwrap_or(Timestamp::MAX);
    let metadata = meta::metadata_mut(value);
    metadata.insert("deletionTimestamp".to_owned(), meta::timestamp(end).into());
    metadata.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64)
        && first
    {
        metadata.insert("generation".to_owned(), (generation + 1).into());
    }
}

fn check_preconditions(kind: &Kind, old: &Stored, options: &DeleteOptions) -> Result<()> {
    if let Some(uid) = &options.uid
        && *uid != old.uid
    {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            old.uid
        );
        return Err(Failure::precondition(kind, &old.key.name, &why));
    }
    if let Some(version) = &options.version
        && *version != old.revision.to_string()
    {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
            old.revision
        );
        return Err(Failure::precondition(kind, &old.key.name, &why));
    }
    Ok(())
}

/// Returns the finalizers of an object after a delete with this policy; no policy keeps the present ones.
fn wanted_finalizers(kind: &Kind, value: &Value, policy: Option<Propagation>) -> Vec<String> {
    let mut finalizers = meta::finalizers(value);
    let Some(policy) = policy.filter(|_| kind.behaviour.has_dependents()) else { return finalizers };
    let wanted = match policy {
        Propagation::Background => "",
        Propagation::Foreground => "foregroundDeletion",
        Propagation::Orphan => "orphan",
    };
    finalizers.retain(|own| own == wanted || (own != "orphan" && own != "foregroundDeletion"));
    if !wanted.is_empty() && !finalizers.iter().any(|own| own == wanted) {
        finalizers.push(wanted.to_owned());
    }
    finalizers
}

/// Returns whether a grace period is running that the delete does not shorten.
fn is_ending(value: &Value, options: &DeleteOptions) -> bool {
    let metadata = &value["metadata"];
    let current = metadata["deletionGracePeriodSeconds"].as_i64();
    metadata["deletionTimestamp"].is_string()
        && current.is_some_and(|current| {
            current > 0 && options.grace.is_none_or(|grace| if grace < 0 { 1 } else { grace } >= current)
        })
}
