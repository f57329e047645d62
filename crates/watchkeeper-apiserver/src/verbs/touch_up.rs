//! Patches that only replace scalars at the top level of an object, as those that count an Event up. The stored text is
//! edited in place: neither the object nor its managed fields are decoded.
//!
//! The result is that of every other patch. Whatever these steps do not cover is left to those of [`Seen::patch`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::fields::Writer;
use crate::kinds::kind::Kind;
use crate::state::store::Stored;
use crate::types::{self, normalize};
use crate::verbs::draft::{Draft, Seen};
use crate::verbs::patch::Patch;
use crate::verbs::update::Part;
use crate::verbs::write::Write;

/// The length of text from which the limits on the size of an object matter.
const LARGE: usize = 64 * 1024;

impl Seen {
    /// Applies a patch to the stored text; `None` if it may do more than replace scalars that nothing depends on.
    pub(super) fn touch_up(
        &self,
        kind: &Arc<Kind>,
        patch: &Patch,
        part: Part,
        write: &Write,
    ) -> Option<Draft> {
        let (Patch::Merge(Value::Object(patch)) | Patch::Strategic(Value::Object(patch))) = patch else {
            return None;
        };
        let old = self.old.as_ref()?;
        let free = kind.behaviour.free_fields();
        let is_plain = part == Part::Main && !write.dry_run && !write.applied && write.admission.is_none();
        let is_as_stored = old.api_version == kind.api_version && old.written.is_none() && !old.terminating;
        if free.is_empty() || patch.is_empty() || !is_plain || !is_as_stored || kind.generation {
            return None;
        }
        let id = types::get(kind.schema?);
        let is_free = |(name, value): (&String, &Value)| {
            let field = id.field(name).filter(|_| free.contains(&name.as_str()));
            field.is_some_and(|field| normalize::is_stored_scalar(&field.ty, value))
        };
        if !patch.iter().all(is_free) {
            return None;
        }
        let now = self.now();
        let edits = edits(&old.bytes, patch, &write.writer(kind, part.subresource(), &now))?;
        let grown: usize = edits.iter().map(|(_, text)| text.len()).sum();
        if old.bytes.len() + grown > LARGE {
            return None;
        }
        Some(self.draft_edited(kind, old, Stored::edited(old, &edits)))
    }
}

/// A range of a text, and what replaces it.
type Edit = (Range<usize>, String);

/// The parts of an object's metadata that a write without a change of metadata depends on.
#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, rename = "managedFields")]
    managers: Vec<Entry<'a>>,
}

/// An entry of `managedFields`, as the server writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    manager: &'a str,
    operation: &'a str,
    api_version: &'a str,
    #[serde(borrow)]
    time: Option<&'a str>,
    #[serde(default)]
    subresource: &'a str,
    #[serde(borrow)]
    fields_v1: BTreeMap<&'a str, &'a RawValue>,
}

impl Entry<'_> {
    /// Returns the key of the entry, which is unique within an object.
    fn id(&self) -> (&str, &str, &str, &str) {
        let version = if self.operation == "Apply" { "" } else { self.api_version };
        (self.operation, self.manager, self.subresource, version)
    }

    fn is_update_of(&self, writer: &Writer<'_>) -> bool {
        self.operation == "Update"
            && self.manager == writer.manager
            && self.subresource == writer.subresource
            && self.api_version == writer.api_version
    }
}

/// Returns the edits of the patch and of the time of its writer's entry, in the order of the text; `None` unless each
/// field is there, one of them changes, and the writer, whose entry is the last one, owns those that change alone.
fn edits(text: &[u8], patch: &Map<String, Value>, writer: &Writer<'_>) -> Option<Vec<Edit>> {
    let fields: BTreeMap<&str, &RawValue> = serde_json::from_slice(text).ok()?;
    let metadata: Metadata<'_> = serde_json::from_str(fields.get("metadata")?.get()).ok()?;
    let (own, others) = metadata.managers.split_last()?;
    let time = own.time.filter(|time| *time <= writer.now)?;
    let mut known = BTreeSet::new();
    let are_sound = metadata.managers.iter().all(|entry| known.insert(entry.id()));
    if !are_sound || !own.is_update_of(writer) {
        return None;
    }
    let at = |part: &str| {
        // Every part is a slice of the text.
        let start = part.as_ptr() as usize - text.as_ptr() as usize;
        start..start + part.len()
    };
    let mut edits = vec![(at(time), writer.now.to_owned())];
    for (name, value) in patch {
        let (before, after) = (fields.get(name.as_str())?.get(), value.to_string());
        if before == after {
            continue;
        }
        let step = format!("f:{name}");
        let is_own = own.fields_v1.get(step.as_str()).is_some_and(|below| below.get() == "{}");
        if !is_own || others.iter().any(|other| other.fields_v1.contains_key(step.as_str())) {
            return None;
        }
        edits.push((at(before), after));
    }
    edits.sort_by_key(|(range, _)| range.start);
    (edits.len() > 1).then_some(edits)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use watchkeeper::Env;
    use watchkeeper::clock::Clock;

    use super::*;
    use crate::kinds::identity::{identify, place};
    use crate::state::core::Core;
    use crate::state::store::Key;

    const MANAGER: &str = "controller";

    fn write(manager: &str) -> Write {
        Write { manager: manager.to_owned(), ..Write::own() }
    }

    fn event() -> Value {
        json!({"count": 1, "message": "one", "reason": "Tried", "metadata": {"name": "e", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"})
    }

    fn again(count: u32, message: &str) -> Value {
        json!({"count": count, "message": message, "lastTimestamp": "2026-01-01T00:01:00Z"})
    }

    /// A core with an Event that `MANAGER` has created, and others have patched; half a minute later.
    fn core(patches: &[(&str, Value)]) -> (Core, Arc<Kind>, Key) {
        let mut core = Core::new(&Env::simulated(1), 100);
        core.create_defaults();
        let kind = core.registry.find("", "v1", "events").unwrap().clone();
        let (mut value, key) = (event(), Key::new("default", "e"));
        kind.behaviour.normalize(&kind, &mut value, false).unwrap();
        identify(&kind, &mut value);
        place(&kind, "default", &mut value).unwrap();
        let draft = core.see(&kind, &key).create(&kind, value, &write(MANAGER), true).unwrap();
        core.store(&draft).unwrap();
        for (manager, patch) in patches {
            let patch = Patch::Strategic(patch.clone());
            let seen = core.see(&kind, &key);
            let draft = seen.patch_decoded(&kind, &patch, Part::Main, &mut write(manager)).unwrap();
            core.store(&draft).unwrap();
        }
        core.clock = Clock::virtual_at(core.clock.wall() + jiff::SignedDuration::from_secs(30));
        (core, kind, key)
    }

    /// Everything in a draft, and what is stored of it.
    fn parts(draft: &Draft) -> impl PartialEq + std::fmt::Debug + use<> {
        let (_, new) = draft.versions();
        let stored = new.at(77);
        let texts = [&new.bytes, &stored.bytes].map(|text| String::from_utf8(text.to_vec()).unwrap());
        let selectable = (new.labels.clone(), new.fields.clone(), new.head, new.uid.clone());
        (format!("{draft:?}"), texts, selectable)
    }

    #[tokio::test(start_paused = true)]
    async fn an_edited_text_is_what_a_decoded_patch_makes() {
        let counted = |count| (MANAGER, again(count, "one"));
        // Of entries with one time, that of the controller is the last one.
        let labelled = ("another", json!({"metadata": {"labels": {"a": "b"}}}));
        for (patches, patch) in [
            (vec![], again(2, "one")),
            (vec![], again(2, "\"two\" \\ \n…")),
            (vec![], json!({"count": 1, "message": "other"})),
            (vec![counted(9)], again(10, "a longer text than before")),
            (vec![counted(2), counted(3)], json!({"count": 4})),
            (vec![labelled, counted(2)], again(3, "one")),
        ] {
            let (core, kind, key) = core(&patches);
            let seen = core.see(&kind, &key);
            for patch in [Patch::Strategic(patch.clone()), Patch::Merge(patch.clone())] {
                let edited = seen.touch_up(&kind, &patch, Part::Main, &write(MANAGER));
                let decoded = seen.patch_decoded(&kind, &patch, Part::Main, &mut write(MANAGER)).unwrap();
                assert_eq!(parts(&edited.unwrap()), parts(&decoded), "{patch:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_patch_that_may_do_more_is_decoded() {
        let (core, kind, key) = core(&[]);
        let seen = core.see(&kind, &key);
        let is_edited = |patch: Value, part: Part, write: &Write| {
            seen.touch_up(&kind, &Patch::Strategic(patch), part, write).is_some()
        };
        assert!(is_edited(again(2, "one"), Part::Main, &write(MANAGER)));
        for patch in [
            json!({}),
            json!({"count": 1}),
            json!({"count": 0}),
            json!({"count": 1.5}),
            json!({"count": 3_000_000_000_u32}),
            json!({"count": "2"}),
            json!({"count": null}),
            json!({"message": ""}),
            json!({"message": {}}),
            json!({"lastTimestamp": "2026-01-01T00:01:00.5Z"}),
            json!({"count": 2, "reason": "Failed"}),
            json!({"count": 2, "metadata": {"labels": {"a": "b"}}}),
            json!({"count": 2, "$patch": "replace"}),
            json!({"count": 2, "unknown": 1}),
            json!({"count": 2, "action": "Try"}),
        ] {
            assert!(!is_edited(patch.clone(), Part::Main, &write(MANAGER)), "{patch}");
        }
        assert!(!is_edited(again(2, "one"), Part::Main, &write("someone")));
        assert!(!is_edited(again(2, "one"), Part::Status, &write(MANAGER)));
        assert!(!is_edited(again(2, "one"), Part::Main, &Write { dry_run: true, ..write(MANAGER) }));
    }

    #[tokio::test(start_paused = true)]
    async fn fields_of_other_managers_are_decoded() {
        for patches in [
            vec![("another", json!({"count": 5}))],
            vec![("someone", json!({"metadata": {"labels": {"a": "b"}}}))],
        ] {
            let (core, kind, key) = self::core(&patches);
            let patch = Patch::Strategic(again(6, "one"));
            let edited = core.see(&kind, &key).touch_up(&kind, &patch, Part::Main, &write(MANAGER));
            assert!(edited.is_none(), "{patches:?}");
        }
    }
}
