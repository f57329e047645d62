//! Names of definitions: wanted, accepted and conflicting ones.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{list, text, texts};
use crate::failure::quoted;
use crate::kinds::kind::{NameSet, Waiting};
use crate::kinds::registry::Registry;

/// The name fields of a definition, with the reason of a conflict.
const NAMES: [(&str, NameSet, &str); 5] = [
    ("plural", NameSet::Resources, "PluralConflict"),
    ("singular", NameSet::Resources, "SingularConflict"),
    ("shortNames", NameSet::Resources, "ShortNamesConflict"),
    ("kind", NameSet::Kinds, "KindConflict"),
    ("listKind", NameSet::Kinds, "ListKindConflict"),
];

/// The names in one field of a definition's names, which may be one or a list.
fn names_in(names: &Value, field: &str) -> BTreeSet<String> {
    match &names[field] {
        Value::String(name) => BTreeSet::from([name.clone()]),
        other => texts(other).into_iter().collect(),
    }
}

/// Returns what a definition waits for, unless it has all its names.
pub(super) fn waiting(value: &Value) -> Option<Waiting> {
    let (wanted, had) = (&value["spec"]["names"], &value["status"]["acceptedNames"]);
    if wanted == had {
        return None;
    }
    let missing = NAMES.iter().flat_map(|(field, set, _)| {
        let had = names_in(had, field);
        names_in(wanted, field).into_iter().filter(move |name| !had.contains(name)).map(|name| (*set, name))
    });
    let verdict = list(&value["status"]["conditions"]).iter().find(|it| it["type"] == "NamesAccepted");
    let part = |field: &str| verdict.map_or("", |verdict| text(verdict, field)).to_owned();
    Some(Waiting {
        wanted: wanted.clone(),
        had: had.clone(),
        verdict: (part("reason"), part("message")),
        missing: missing.collect(),
    })
}

/// Returns whether the verdict on a definition's names is up to date, without parsing the definition, which may be large.
pub(crate) fn is_decided(registry: &Registry, definition: &str) -> bool {
    let Some((group, waiting)) = registry.waiting(definition) else { return true };
    let (names, conflict) = accept_names(registry, definition, (group, &waiting.wanted, &waiting.had));
    let (reason, message) = &waiting.verdict;
    names == waiting.had && conflict.is_some_and(|found| found.0 == reason && found.1 == *message)
}

/// Returns the names that a definition gets: those it asks for, and where one is taken, the previous one. Of several
/// conflicts the last is reported, as by the real server.
pub(crate) fn accept_names(
    registry: &Registry,
    definition: &str,
    (group, wanted, had): (&str, &Value, &Value),
) -> (Value, Option<(&'static str, String)>) {
    let mut names = if had.is_object() { had.clone() } else { json!({"plural": "", "kind": ""}) };
    let mut conflict = None;
    for (field, set, reason) in NAMES {
        let had = names_in(&names, field);
        let mut taken = match &wanted[field] {
            Value::String(name) => vec![name.clone()],
            other => texts(other),
        };
        taken.retain(|name| !had.contains(name) && registry.is_taken(group, set, name, definition));
        let conflicts: Vec<_> =
            taken.iter().map(|name| format!("{} is already in use", quoted(name))).collect();
        match conflicts.as_slice() {
            [] => copy(wanted, &mut names, field),
            [only] => conflict = Some((reason, only.clone())),
            _ => conflict = Some((reason, format!("[{}]", conflicts.join(", ")))),
        }
    }
    copy(wanted, &mut names, "categories");
    (names, conflict)
}

/// Copies a field, or removes it if `from` lacks it.
fn copy(from: &Value, to: &mut Value, field: &str) {
    match (from.get(field), to.as_object_mut()) {
        (Some(value), _) => to[field] = value.clone(),
        (None, Some(to)) => drop(to.remove(field)),
        (None, None) => {}
    }
}
