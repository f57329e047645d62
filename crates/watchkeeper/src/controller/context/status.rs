//! Writes of the main object's status, and only of what differs.

use foldhash::fast::FixedState;
use kube_core::object::HasStatus;
use kube_core::params::Patch;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Context;
use super::write::{Outgoing, WriteError};
use crate::controller::canonical::hash_of;
use crate::object::{JsonError, Kind};

#[derive(Deserialize)]
struct StatusOf<S> {
    #[serde(default = "Option::default")]
    status: Option<S>,
}

impl<K> Context<K>
where
    K: Kind + HasStatus<Status: Serialize + DeserializeOwned + Default + Send>,
{
    /// Changes the status of the main object, and writes what differs through the status subresource; nothing, if nothing does.
    ///
    /// `change` gets the status that this run saw or wrote last, or the default one. The write is for that version of the object
    /// only: if somebody else has changed the object meanwhile, it fails with a conflict, and the reconcile is retried.
    pub async fn status(&self, change: impl FnOnce(&mut K::Status) + Send) -> Result<(), WriteError> {
        self.status_as::<K::Status>(change).await
    }
}

impl<K: Kind> Context<K> {
    /// As [`status`](Self::status), for kinds whose type does not name its status: built-in ones and those known at run time.
    pub async fn status_as<S>(&self, change: impl FnOnce(&mut S) + Send) -> Result<(), WriteError>
    where
        S: Serialize + DeserializeOwned + Default + Send,
    {
        let main = self.main().ok_or_else(|| WriteError::Gone(self.key().clone()))?;
        let unencodable = |source| WriteError::Encode { kind: self.describe_main(), source };
        let read = || main.view::<StatusOf<S>>().map(|view| view.status);
        let hasher = self.shared().applied.hasher();
        let before = read()?;
        let unchanged = hash_of_status(before.as_ref(), hasher).map_err(unencodable)?;
        let mut status = before.unwrap_or_default();
        change(&mut status);
        // Most often nothing has changed, which takes no JSON values to see.
        if hash_of_status(Some(&status), hasher).map_err(unencodable)? == unchanged {
            return Ok(());
        }
        let difference = difference(read()?.as_ref(), &status);
        let Some(difference) = difference.map_err(|source| unencodable(source.into()))? else {
            return Ok(());
        };
        let metadata = json!({ "resourceVersion": main.version().to_string(), "uid": main.uid() });
        self.patch_main(&json!({ "metadata": metadata, "status": difference }), Some("status")).await
    }

    /// Patches the main object, which must be in the version that the patch names.
    pub(in crate::controller) async fn patch_main(
        &self,
        patch: &Value,
        subresource: Option<&str>,
    ) -> Result<(), WriteError> {
        let main = self.main().ok_or_else(|| WriteError::Gone(self.key().clone()))?;
        let kind = self.shared().kind.clone();
        let requests = &self.shared().requests;
        let request =
            requests.api_of::<K>(kind.clone()).patch_request(self.key(), &Patch::Merge(patch), subresource);
        let verb = if subresource.is_some() { "write the status of" } else { "patch" };
        let (name, uid) = (self.key().clone(), main.uid().to_owned());
        let written = self.send(Outgoing::<K> { verb, kind, name, uid, request }).await?;
        self.set_main(Some(written));
        Ok(())
    }
}

/// The hash of a status as JSON; of an empty one if there is none.
fn hash_of_status<S: Serialize>(status: Option<&S>, hasher: &FixedState) -> Result<u64, JsonError> {
    match status {
        Some(status) => hash_of(status, hasher),
        None => hash_of(&Map::new(), hasher),
    }
}

/// The merge patch from the status `before` to the status `after`; none if they are equal.
fn difference<S: Serialize>(before: Option<&S>, after: &S) -> Result<Option<Value>, serde_json::Error> {
    let mut old = before.map_or(Ok(Value::Object(Map::new())), serde_json::to_value)?;
    let mut new = serde_json::to_value(after)?;
    // In a merge patch a null takes a member away, so there are none in what is stored.
    drop_nulls(&mut old);
    drop_nulls(&mut new);
    Ok((old != new).then(|| merge_patch(old, new)))
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(elements) => elements.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// The merge patch that makes `new` of `old`. Members that it does not name stay, so fields that the type does not know are kept.
fn merge_patch(old: Value, new: Value) -> Value {
    let (Value::Object(mut old), Value::Object(new)) = (old, new.clone()) else { return new };
    let mut patch = Map::new();
    for (name, value) in new {
        match old.remove(&name) {
            Some(before) if before == value => {}
            Some(before) => {
                patch.insert(name, merge_patch(before, value));
            }
            None => {
                patch.insert(name, value);
            }
        }
    }
    patch.extend(old.into_iter().map(|(gone, _)| (gone, Value::Null)));
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_has_what_changed_and_null_for_what_is_gone() {
        let old = json!({"ready": 1, "phase": "Up", "nested": {"a": 1, "b": 2}, "list": [1, 2]});
        let new = json!({"ready": 2, "nested": {"a": 1, "c": 3}, "list": [1], "phase": "Up", "more": {}});
        let patch = json!({"ready": 2, "nested": {"b": null, "c": 3}, "list": [1], "more": {}});
        assert_eq!(merge_patch(old.clone(), new), patch);
        assert_eq!(merge_patch(old.clone(), old), json!({}));
        assert_eq!(merge_patch(json!(1), json!({"a": 1})), json!({"a": 1}));
    }

    #[derive(Default, Serialize)]
    struct Status {
        ready: i32,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<String>,
    }

    fn status(ready: i32) -> Status {
        Status { ready, phase: None }
    }

    #[test]
    fn a_status_that_is_the_same_is_not_written() {
        assert_eq!(difference(Some(&status(1)), &status(1)).unwrap(), None);
        assert_eq!(difference(Some(&status(1)), &status(2)).unwrap(), Some(json!({"ready": 2})));
    }

    #[test]
    fn a_field_that_is_null_counts_as_absent() {
        let absent = json!({"ready": 1});
        assert_eq!(difference(Some(&absent), &json!({"ready": 1, "phase": null})).unwrap(), None);
        let patch = difference(Some(&absent), &json!({"ready": null})).unwrap();
        assert_eq!(patch, Some(json!({"ready": null})));
    }

    #[test]
    fn a_first_status_is_written_whole() {
        let first = difference(None, &Status { ready: 0, phase: Some("Up".to_owned()) }).unwrap();
        assert_eq!(first, Some(json!({"ready": 0, "phase": "Up"})));
    }

    #[test]
    fn hashes_are_equal_where_there_is_no_difference_and_only_there() {
        let states = [
            None,
            Some(json!({})),
            Some(json!({"phase": null})),
            Some(json!({"ready": 1})),
            Some(json!({"ready": 1, "phase": null})),
            Some(json!({"ready": 1, "list": [{"a": null}]})),
            Some(json!({"ready": 1, "list": [{}]})),
            Some(json!({"ready": 1, "list": []})),
            Some(json!({"ready": 1.0})),
        ];
        let hasher = FixedState::with_seed(1);
        for (before, after) in
            states.iter().flat_map(|before| states.iter().map(move |after| (before, after)))
        {
            let Some(written) = after else { continue };
            let hash = |status: &Option<Value>| hash_of_status(status.as_ref(), &hasher).unwrap();
            let is_same = difference(before.as_ref(), written).unwrap().is_none();
            assert_eq!(hash(before) == hash(after), is_same, "{before:?} and {after:?}");
        }
    }
}
