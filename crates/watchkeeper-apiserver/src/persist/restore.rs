//! Restoring the state of a server from a data directory.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use watchkeeper::Env;

use crate::kinds::definition;
use crate::kinds::kind::ResourceId;
use crate::kinds::meta;
use crate::persist::disk::{Kept, State, Version};
use crate::state::core::{Core, first_revision};
use crate::state::store::{Store, Stored, Window};

/// A stored version that cannot be decoded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {revision} of {resource} is not an object")]
pub(crate) struct NotRestored {
    resource: String,
    revision: u64,
}

/// Restores the core; without objects if the data directory is new.
pub(crate) fn restore(env: &Env, window: usize, kept: Kept) -> Result<Core, NotRestored> {
    let Kept { state, dropped, versions } = kept;
    let Some(State { revision, floor }) = state else {
        let revision = first_revision(env);
        return Ok(Core::empty(env, Store::kept(revision, revision, Window::of(window), []), "apiserver"));
    };
    let dropped = dropped.into_iter().map(|(id, revision)| (ResourceId::from(id.as_str()), revision));
    let store = Store::kept(revision, floor, Window::of(window), dropped);
    // A stream per start, so that a seeded generator never repeats a UID.
    let mut core = Core::empty(env, store, &format!("apiserver after {revision}"));
    restore_definitions(&mut core, &versions);
    let kinds = core.registry.storages();
    for version in versions {
        let id = ResourceId::from(version.resource.as_str());
        let kind = kinds.get(&id).map(|kind| &**kind);
        let stored = Stored::restore(kind, version.revision, (version.text, version.head))
            .filter(|_| version.revision <= revision)
            .ok_or(NotRestored { resource: version.resource, revision: version.revision })?;
        core.store.restore(&id, stored, version.removed);
    }
    core.store.close_others(|id| kinds.contains_key(id));
    Ok(core)
}

/// Registers the kinds of the stored definitions.
fn restore_definitions(core: &mut Core, versions: &[Version]) {
    let Some(kind) = core.registry.custom_resource_definitions() else {
        return;
    };
    let mut newest = BTreeMap::new();
    for version in versions.iter().filter(|version| version.resource == kind.storage.as_str()) {
        let value: Value = serde_json::from_slice(&version.text).unwrap_or_default();
        let name = meta::text(&value, "name").to_owned();
        newest.insert(name, (!version.removed).then_some(value));
    }
    for value in newest.into_values().flatten() {
        definition::restore(Arc::make_mut(&mut core.registry), &value);
    }
    Arc::make_mut(&mut core.registry).reindex();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_of_a_kind_that_is_gone_is_let_go() {
        let text = |revision: u64| {
            format!(r#"{{"metadata": {{"name": "a", "resourceVersion": "{revision}"}}}}"#).into()
        };
        let resource = "example.com/bars";
        let version = |revision: u64, removed: bool| Version {
            revision,
            resource: resource.to_owned(),
            removed,
            head: 0,
            text: text(revision),
        };
        let kept = Kept {
            state: Some(State { revision: 9, floor: 1 }),
            dropped: BTreeMap::from([(resource.to_owned(), 6)]),
            versions: vec![version(7, false), version(8, true)],
        };
        let mut core = restore(&Env::simulated(1), 10, kept).unwrap();
        let batch = core.store.take_batch().unwrap();
        assert_eq!((&batch.forgotten[..], batch.revision), (&[7, 8][..], 9));
        assert_eq!(batch.resources[&ResourceId::from(resource)], crate::state::store::Reach::Gone);
    }
}
