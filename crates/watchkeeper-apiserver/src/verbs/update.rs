//! Updates: PUT, and the second half of every patch and apply. Merges the fields that the request may write into the
//! object, applies defaults, validates the result and detects writes that change nothing.

use std::sync::Arc;

use serde_json::Value;

use crate::admission::attempt::Attempt;
use crate::failure::{Cause, Failure, Result};
use crate::fields::{self, Managers, track};
use crate::kinds::behaviour::{Change, Findings};
use crate::kinds::fill::{copy, copy_field, remove_null};
use crate::kinds::identity::{identify, place};
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::kinds::size;
use crate::state::store::{Key, Stored};
use crate::verbs::draft::{Draft, Outcome, Seen};
use crate::verbs::write::Write;

/// The part of an object that a request may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything but the status, where the kind has a status subresource.
    Main,
    /// The status alone.
    Status,
    /// The status alone, as an approver writes it.
    Approval,
    /// The finalizers of a namespace's spec alone.
    Finalize,
    /// The number of replicas alone.
    Scale(Owner),
    /// Everything but the status (`false`) or the status alone (`true`), merged by server-side apply. The object has
    /// its managed fields already.
    Applied(bool),
}

/// The owner of the number of replicas after a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Writer,
    /// The number is unchanged. Managers that own it by an update keep it in a separate entry without a time.
    Same,
    Nobody,
}

impl Part {
    pub(crate) fn is_main(self) -> bool {
        matches!(self, Self::Main | Self::Scale(_) | Self::Applied(false))
    }

    /// The subresource that `managedFields` name.
    pub(crate) fn subresource(self) -> &'static str {
        match self {
            Self::Main | Self::Applied(false) => "",
            Self::Status | Self::Applied(true) => "status",
            Self::Approval => "approval",
            Self::Finalize => "finalize",
            Self::Scale(_) => "scale",
        }
    }
}

pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl Seen {
    /// PUT: replaces the object, or creates it where the kind does so.
    pub(crate) fn replace(
        &self,
        kind: &Arc<Kind>,
        mut value: Value,
        part: Part,
        write: &Write,
    ) -> Result<Draft> {
        let key = &self.key;
        let name = meta::text(&value, "name");
        if name.is_empty() {
            return Err(Failure::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                key.name
            )));
        }
        check_same_name(name, key)?;
        identify(kind, &mut value);
        place(kind, &key.namespace, &mut value)?;
        let old = match &self.old {
            Some(old) => old,
            None if kind.create_on_update && part == Part::Main => {
                let uid = meta::text(&value, "uid");
                if !uid.is_empty() {
                    return Err(Failure::conflict(
                        kind,
                        &key.name,
                        &precondition_failed(kind, key, write.dry_run, ("UID", uid, "")),
                    ));
                }
                meta::set(&mut value, "resourceVersion", "");
                return self.create(kind, value, write, false);
            }
            None => return Err(Failure::not_found(kind, &key.name)),
        };
        match version_of(&value)? {
            0 if kind.unconditional_update => {}
            0 => {
                let problem = "must be specified for an update";
                let cause = Cause::invalid("metadata.resourceVersion", &0.into(), problem);
                return Err(Failure::invalid_as(&kind.group, &kind.plural, &key.name, vec![cause]));
            }
            version if version == old.revision => {}
            _ => return Err(Failure::conflict(kind, &key.name, MODIFIED)),
        }
        let uid = meta::text(&value, "uid");
        if !uid.is_empty() && uid != old.uid {
            return Err(Failure::conflict(
                kind,
                &key.name,
                &precondition_failed(kind, key, write.dry_run, ("UID", uid, &old.uid)),
            ));
        }
        self.change(kind, old, value, part, write)
    }

    /// Brings an object from `old` to `new`, which is normalized and in the version of `kind`.
    pub(crate) fn change(
        &self,
        kind: &Arc<Kind>,
        old: &Arc<Stored>,
        new: Value,
        part: Part,
        write: &Write,
    ) -> Result<Draft> {
        self.change_decoded(kind, (old, old.value()), new, part, write)
    }

    /// As [`Seen::change`], with the decoded form of `old`.
    pub(crate) fn change_decoded(
        &self,
        kind: &Arc<Kind>,
        (old, stored): (&Arc<Stored>, Value),
        new: Value,
        part: Part,
        write: &Write,
    ) -> Result<Draft> {
        let converted = (old.api_version != kind.api_version).then(|| kind.to_served(stored.clone()));
        let before = converted.as_ref().unwrap_or(&stored);
        // Tracking starts with the create or an apply: an object without managers stays so.
        let is_tracked = !write.applied && Managers::are_in(before);
        let sent = sent_managers(before, &new, part);
        let mut after = merge_part(kind, before, new, part);
        keep_system_fields(before, &mut after);
        kind.behaviour.defaults(kind, &mut after)?;
        if is_tracked {
            self.track_update(kind, before, &mut after, sent, part, write);
        }
        if let Some(attempt) = part_attempt(kind, &old.key, before, part, write) {
            attempt.mutate(&mut after)?;
            after = merge_part(kind, before, after, part);
            keep_system_fields(before, &mut after);
        }
        if part.is_main() {
            let conflicts = kind.behaviour.conflicts(Some(before), &after, self);
            if !conflicts.is_empty() {
                return Err(Failure::invalid(kind, &old.key.name, conflicts));
            }
            kind.behaviour.prepare_update(before, &mut after, self);
        }
        self.settle(kind, old, (stored, converted), after, part, write)
    }

    /// Records the writer of the changed fields. An apply has done so already.
    fn track_update(
        &self,
        kind: &Kind,
        before: &Value,
        after: &mut Value,
        sent: Option<Managers>,
        part: Part,
        write: &Write,
    ) {
        let (Part::Scale(owner), Some(paths)) = (part, &kind.scale) else {
            let now = self.now();
            return track(kind, before, after, sent, &write.writer(kind, part.subresource(), &now));
        };
        let managers = sent.unwrap_or_else(|| Managers::read(before));
        // A number of replicas without an owner gets none, as on the real server.
        if !managers.own(&paths.spec_replicas) {
            return managers.write(after);
        }
        track(kind, before, after, Some(managers), &write.writer(kind, part.subresource(), ""));
        if owner != Owner::Writer {
            let managers = Managers::read(after);
            managers.without(&paths.spec_replicas, owner == Owner::Same).write(after);
        }
    }

    /// Validates the new state and drafts it.
    fn settle(
        &self,
        kind: &Arc<Kind>,
        old: &Arc<Stored>,
        (stored, converted): (Value, Option<Value>),
        mut after: Value,
        part: Part,
        write: &Write,
    ) -> Result<Draft> {
        let before = converted.as_ref().unwrap_or(&stored);
        let main = part.is_main();
        let mut causes = meta::validate(kind, &after);
        causes.extend(meta::validate_update(before, &after));
        let status = matches!(part, Part::Status | Part::Approval | Part::Applied(true));
        let mut findings = Findings::default();
        let change = Change { kind, old: Some(before), new: &after, status, defined: &self.kinds };
        kind.behaviour.validate(&change, &mut findings);
        causes.extend(findings.causes);
        causes.extend(kind.behaviour.validate_update(before, &after));
        if !causes.is_empty() {
            return Err(Failure::invalid(kind, &old.key.name, causes));
        }
        if main && kind.generation && desire_changed(kind, before, &after) {
            let generation = before["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            meta::metadata_mut(&mut after).insert("generation".to_owned(), generation.into());
        }
        if let Some(attempt) = part_attempt(kind, &old.key, before, part, write) {
            attempt.validate(Some(&after))?;
        }
        let value = kind.to_storage(after);
        let same = fields::same(&value, &stored) && old.written.is_none();
        if !same && !write.dry_run {
            size::check(kind, || stored_at(kind, &old.key, false), &value)?;
        }
        let outcome = Outcome {
            value,
            old: Some((old.clone(), stored)),
            accept: kind.is_definition() && main,
            posted: false,
            dry_run: write.dry_run,
            compiled: findings.compiled,
            same,
        };
        Ok(self.draft(kind, &old.key, outcome))
    }
}

/// Returns the attempt to update a part of an object. Admission sees a scale as an object of its own, before.
fn part_attempt<'a>(
    kind: &'a Arc<Kind>,
    key: &'a Key,
    before: &'a Value,
    part: Part,
    write: &'a Write,
) -> Option<Attempt<'a>> {
    let is_whole = !matches!(part, Part::Scale(_));
    let attempt = is_whole.then(|| write.attempt(kind, key, Some(before))).flatten()?;
    Some(attempt.of(part.subresource(), None))
}

/// The real server's message about an object that does not meet a precondition.
pub(crate) fn precondition_failed(
    kind: &Kind,
    key: &Key,
    dry_run: bool,
    (field, sent, found): (&str, &str, &str),
) -> String {
    let place = stored_at(kind, key, dry_run);
    format!(
        "StorageError: invalid object, Code: 4, Key: {place}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {field} in precondition: {sent}, {field} in object meta: {found}"
    )
}

/// The storage key of an object on the real server.
pub(crate) fn stored_at(kind: &Kind, key: &Key, dry_run: bool) -> String {
    let root = if dry_run { "" } else { "/registry" };
    let directory = kind.behaviour.storage_path(kind);
    format!("{root}/{directory}/{}/{}", key.namespace, key.name)
}

/// Returns the resourceVersion of an object; 0 for none.
pub(crate) fn version_of(value: &Value) -> Result<u64> {
    let text = meta::text(value, "resourceVersion");
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        Failure::internal(format!(
            "strconv.ParseUint: parsing {}: invalid syntax",
            crate::failure::quoted(text)
        ))
    })
}

pub(crate) fn check_same_name(name: &str, key: &Key) -> Result<()> {
    if name == key.name {
        return Ok(());
    }
    Err(Failure::bad_request(format!(
        "the name of the object ({name}) does not match the name on the URL ({})",
        key.name
    )))
}

/// Returns the field managers that the body has, if they are others than the present ones. Subresources ignore them, and
/// a body without managers keeps the present ones.
fn sent_managers(before: &Value, new: &Value, part: Part) -> Option<Managers> {
    let field = "managedFields";
    if part != Part::Main || before["metadata"].get(field) == new["metadata"].get(field) {
        return None;
    }
    Managers::sent(new)
}

/// Merges the fields that the request may write into the present state.
fn merge_part(kind: &Kind, before: &Value, mut new: Value, part: Part) -> Value {
    match part {
        Part::Main | Part::Scale(_) | Part::Applied(false) => {
            if kind.has_status() {
                copy_field(before, &mut new, "status");
            }
            for field in kind.behaviour.subresource_fields() {
                copy_field(before, &mut new, field);
            }
            new
        }
        Part::Status | Part::Approval | Part::Applied(true) => {
            let mut after = before.clone();
            copy_field(&new, &mut after, "status");
            remove_null(&mut after, "status");
            match part {
                Part::Approval => kind.behaviour.prepare_approval(before, &mut after),
                _ => kind.behaviour.prepare_status(before, &mut after),
            }
            for field in kind.behaviour.status_metadata().iter().chain(&["managedFields"]) {
                copy(meta::metadata_mut(&mut after), field, new["metadata"].get(field));
            }
            after
        }
        Part::Finalize => {
            let mut after = before.clone();
            let finalizers =
                new["spec"].get("finalizers").filter(|list| list.as_array().is_some_and(|l| !l.is_empty()));
            match (&mut after["spec"], finalizers) {
                (Value::Object(spec), None) => {
                    spec.remove("finalizers");
                }
                (spec, Some(list)) => spec["finalizers"] = list.clone(),
                _ => {}
            }
            after
        }
    }
}

/// Restores the fields that only the server writes.
fn keep_system_fields(before: &Value, after: &mut Value) {
    let metadata = meta::metadata_mut(after);
    for field in [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
        "resourceVersion",
        "generateName",
    ] {
        copy(metadata, field, before["metadata"].get(field));
    }
    if !metadata.contains_key("uid") {
        metadata.insert("uid".to_owned(), before["metadata"]["uid"].clone());
    }
}

/// Returns whether the desired state differs: everything but most metadata, and a status that has its own endpoint.
fn desire_changed(kind: &Kind, before: &Value, after: &Value) -> bool {
    let mut metadata = kind.behaviour.desired_metadata().iter();
    if metadata.any(|field| before["metadata"].get(field) != after["metadata"].get(field)) {
        return true;
    }
    let is_desire =
        |key: &str| key != "metadata" && key != "apiVersion" && (key != "status" || !kind.has_status());
    let desired = |value| Value::as_object(value).into_iter().flatten().filter(|(key, _)| is_desire(key));
    desired(before).count() != desired(after).count()
        || desired(before).any(|(key, value)| after.get(key) != Some(value))
}
