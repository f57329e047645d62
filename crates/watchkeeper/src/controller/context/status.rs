//! Writes of the main object's status, and only of what differs.

use kube_core::object::HasStatus;
use kube_core::params::Patch;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Context;
use super::write::{Outgoing, WriteError};
use crate::object::Kind;

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
        let Some(difference) = difference_of(main.view::<StatusOf<S>>()?.status, change)
            .map_err(|source| WriteError::Encode { kind: self.describe_main(), source: source.into() })?
        else {
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

/// The merge patch from the status `before` to what `change` makes of it; none if they are equal.
fn difference_of<S: Serialize + Default>(
    before: Option<S>,
    change: impl FnOnce(&mut S),
) -> Result<Option<Value>, serde_json::Error> {
    let mut old = before.as_ref().map_or(Ok(Value::Object(Map::new())), serde_json::to_value)?;
    let mut status = before.unwrap_or_default();
    change(&mut status);
    let mut new = serde_json::to_value(status)?;
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

    #[test]
    fn a_status_that_is_the_same_is_not_written() {
        let status = |ready| Some(Status { ready, phase: None });
        assert_eq!(difference_of(status(1), |status| status.ready = 1).unwrap(), None);
        let changed = difference_of(status(1), |status| status.ready = 2).unwrap();
        assert_eq!(changed, Some(json!({"ready": 2})));
    }

    #[test]
    fn a_field_that_is_null_counts_as_absent() {
        let status = Some(json!({"ready": 1}));
        assert_eq!(difference_of(status.clone(), |status| status["phase"] = Value::Null).unwrap(), None);
        assert_eq!(
            difference_of(status, |status| status["ready"] = Value::Null).unwrap(),
            Some(json!({"ready": null}))
        );
    }

    #[test]
    fn a_first_status_is_written_whole() {
        let first = difference_of(None, |status: &mut Status| status.phase = Some("Up".to_owned())).unwrap();
        assert_eq!(first, Some(json!({"ready": 0, "phase": "Up"})));
    }
}
