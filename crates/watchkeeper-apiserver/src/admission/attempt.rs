//! An attempt to write an object, as the plugins see it.

use std::sync::Arc;

use serde_json::Value;

use crate::access::user::User;
use crate::admission::plugin::Charge;
use crate::admission::session::Session;
use crate::failure::{Failure, Result};
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::state::store::{Key, Stored};

/// What an attempt does to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

/// An attempt to write an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt<'a> {
    pub(crate) session: &'a Session,
    pub(crate) operation: Operation,
    /// The kind of the resource in the URL.
    pub(crate) kind: &'a Arc<Kind>,
    /// Empty for the resource itself.
    pub(crate) subresource: &'a str,
    /// `apiVersion` and kind of the object, where the subresource has a kind of its own.
    pub(crate) body: Option<(&'static str, &'static str)>,
    pub(crate) namespace: &'a str,
    /// Empty while a name is to be generated, and for an object of a deleted collection.
    pub(crate) name: &'a str,
    pub(crate) dry_run: bool,
    /// The present object, in the version of the request.
    pub(crate) old: Option<&'a Value>,
}

impl<'a> Attempt<'a> {
    /// The attempt to write the object at `key`: a create without an `old` one.
    pub(crate) fn write(
        session: &'a Session,
        kind: &'a Arc<Kind>,
        key: &'a Key,
        old: Option<&'a Value>,
        dry_run: bool,
    ) -> Self {
        let operation = if old.is_some() { Operation::Update } else { Operation::Create };
        let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
        Self { session, operation, kind, subresource: "", body: None, namespace, name, dry_run, old }
    }

    /// The same for a subresource, whose objects are of the kind `body` if they are not of the resource's own.
    pub(crate) fn of(self, subresource: &'a str, body: Option<(&'static str, &'static str)>) -> Self {
        Self { subresource, body, ..self }
    }

    /// Lets the plugins change the object.
    pub(crate) fn mutate(&self, object: &mut Value) -> Result<()> {
        self.session.chain().mutate(self, object)
    }

    /// Lets the plugins refuse the object; `None` for a delete.
    pub(crate) fn validate(&self, object: Option<&Value>) -> Result<()> {
        self.session.chain().validate(self, object)
    }

    /// Lets the plugins refuse the delete of `old`.
    pub(crate) fn delete(&self, old: &Value) -> Result<()> {
        let attempt = Attempt { operation: Operation::Delete, old: Some(old), ..*self };
        attempt.mutate(&mut old.clone())?;
        attempt.validate(None)
    }

    /// Returns whether it is about a resource, not one of its subresources.
    pub(crate) fn is_about(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_empty() && self.is_part_of(group, plural)
    }

    /// Returns whether it is about a resource or one of its subresources.
    pub(crate) fn is_part_of(&self, group: &str, plural: &str) -> bool {
        self.kind.custom.is_none() && self.kind.group == group && self.kind.plural == plural
    }

    pub(crate) fn user(&self) -> &User {
        self.session.user()
    }

    /// Returns a stored object of a built-in kind.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str, key: &Key) -> Option<Arc<Stored>> {
        let core = self.session.core().lock();
        let kind = core.registry.find(group, version, plural)?;
        core.store.get(&kind.storage, key).cloned()
    }

    /// Returns the stored objects of a built-in kind, of one namespace or of all.
    pub(crate) fn list(
        &self,
        group: &str,
        version: &str,
        plural: &str,
        namespace: Option<&str>,
    ) -> Vec<Arc<Stored>> {
        let core = self.session.core().lock();
        let Some(kind) = core.registry.find(group, version, plural) else { return Vec::new() };
        core.store.range(&kind.storage, namespace, None).cloned().collect()
    }

    /// Adds a warning to the response.
    pub(crate) fn warn(&self, warning: impl Into<String>) {
        self.session.warn(warning.into());
    }

    /// Makes the commit of the write depend on a charge. Only for creates and updates of a resource itself or of its status.
    pub(crate) fn charge(&self, charge: impl Charge + 'static) {
        self.session.charge(Box::new(charge));
    }

    /// The refusal by a plugin.
    pub(crate) fn forbidden(&self, object: Option<&Value>, why: &str) -> Box<Failure> {
        Failure::forbidden(self.kind, &self.shown_name(object), why)
    }

    /// The name of the object in messages: it may not be generated yet.
    pub(crate) fn shown_name(&self, object: Option<&Value>) -> String {
        if !self.name.is_empty() {
            return self.name.to_owned();
        }
        let texts = object.map(|object| ["name", "generateName"].map(|field| meta::text(object, field)));
        let name = texts.into_iter().flatten().find(|text| !text.is_empty());
        name.unwrap_or("Unknown").to_owned()
    }
}
