//! How does an object come to be? POST, and PUT of kinds that create on update.

use std::sync::Arc;

use serde_json::Value;

use crate::convert;
use crate::core::Core;
use crate::crd;
use crate::defaults;
use crate::managed::Managers;
use crate::meta;
use crate::registry::Kind;
use crate::status::{Failure, Result};
use crate::store::{Key, Stored};
use crate::validation;
use crate::write::Write;

/// Without vowels and look-alikes, so that generated names form no words.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
const NAME_BASE_LIMIT: usize = 63 - SUFFIX_LENGTH;
const NAME_TRIES: usize = 8;

impl Core {
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
        if kind.namespaced {
            self.check_namespace(kind, namespace, meta::text(&value, "name"))?;
        }
        self.check_definition_accepts(kind, meta::text(&value, "name"))?;
        defaults::prepare(kind, &mut value);
        let definition = kind.is("apiextensions.k8s.io", "CustomResourceDefinition");
        if definition {
            crd::default(&mut value);
        }
        let metadata = meta::metadata_mut(&mut value);
        for field in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            metadata.remove(field);
        }
        if !write.applied {
            self.track(kind, kind.blank(), &mut value, Managers::default(), write, "");
        }
        let key = self.name_object(kind, namespace, &mut value)?;
        let sent_version = meta::text(&value, "resourceVersion").to_owned();
        self.fill_system_fields(kind, &mut value);
        self.complete(kind, &mut value);
        let mut causes = meta::validate(kind, &value);
        causes.extend(validation::object(kind, &value, None, false));
        if !causes.is_empty() {
            return Err(Failure::invalid(kind, &key.name, causes));
        }
        if !sent_version.is_empty() && sent_version != "0" {
            return Err(Failure::internal("resourceVersion should not be set on objects to be created"));
        }
        if let Some(existing) = self.store.get(&kind.storage, &key) {
            return Err(Failure::already_exists(kind, &key.name, existing.terminating));
        }
        if definition {
            self.accept_definition(&mut value);
        }
        let value = convert::to_storage(kind, value);
        if write.dry_run {
            return Ok(self.pretend(kind, &key, &value));
        }
        let stored = self.commit(kind, &key, value);
        if definition {
            self.publish_definition(&stored.value());
        }
        Ok(stored)
    }

    fn name_object(&mut self, kind: &Kind, namespace: &str, value: &mut Value) -> Result<Key> {
        let name = meta::text(value, "name");
        if !name.is_empty() {
            return Ok(Key::new(namespace, name));
        }
        let base = meta::text(value, "generateName").to_owned();
        if base.is_empty() {
            return Ok(Key::new(namespace, ""));
        }
        let mut cut = base.len().min(NAME_BASE_LIMIT);
        while !base.is_char_boundary(cut) {
            cut -= 1;
        }
        let mut name = String::new();
        for _ in 0..NAME_TRIES {
            name = base[..cut].to_owned();
            for _ in 0..SUFFIX_LENGTH {
                name.push(NAME_ALPHABET[self.generator.below(NAME_ALPHABET.len() as u64) as usize] as char);
            }
            let key = Key::new(namespace, &name);
            if self.store.get(&kind.storage, &key).is_none() {
                meta::set(value, "name", &name);
                return Ok(key);
            }
        }
        let mut failure = Failure::already_exists(kind, &name, false);
        if let Some(details) = &mut failure.details {
            details.retry_after = 1;
        }
        Err(failure)
    }

    fn fill_system_fields(&mut self, kind: &Kind, value: &mut Value) {
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

/// Says of what kind the object is.
pub(crate) fn identify(kind: &Kind, value: &mut Value) {
    value["apiVersion"] = kind.api_version.as_str().into();
    value["kind"] = kind.kind.as_str().into();
}

/// Puts the object into the namespace of the request; a different one in its metadata is refused.
pub(crate) fn place(kind: &Kind, namespace: &str, value: &mut Value) -> Result<()> {
    let sent = meta::text(value, "namespace");
    if kind.namespaced && !sent.is_empty() && sent != namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    meta::set(value, "namespace", if kind.namespaced { namespace } else { "" });
    Ok(())
}
