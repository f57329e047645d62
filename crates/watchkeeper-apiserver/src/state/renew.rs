//! What becomes of objects when the schema of their kind changes? They are read by the new one: pruned, and with its defaults.
//!
//! As on the real server nothing is written: an object keeps its version until somebody writes it. Its watches end, and only a list tells.

use std::sync::Arc;

use crate::kinds::kind::Kind;
use crate::state::core::Core;
use crate::state::store::Stored;

impl Core {
    /// Makes the objects of a definition fit its kinds, unless those read as they did `before`. Whoever watches lists anew then, as what is
    /// selected may be other objects.
    pub(crate) fn renew_objects(&mut self, definition: &str, before: &[Arc<Kind>]) {
        let kinds = self.registry.defined(definition);
        let same = |kind: &Arc<Kind>| before.iter().any(|before| reads_alike(before, kind));
        let Some(first) = kinds.first().filter(|_| !kinds.iter().all(same)) else { return };
        let any = self.store.renew(&first.storage, |stored| {
            let kind = kinds.iter().find(|kind| kind.api_version == stored.api_version)?;
            renewed(kind, stored)
        });
        // After a restart all that is known was read so before.
        if any && !before.is_empty() {
            self.store.expire(&first.storage);
        }
    }
}

fn reads_alike(one: &Kind, other: &Kind) -> bool {
    let documents = [one, other].map(|kind| kind.custom.as_ref().map(|custom| &custom.document));
    one.version == other.version && one.fields == other.fields && documents[0] == documents[1]
}

/// The object as it is read now, if that is another.
fn renewed(kind: &Kind, stored: &Stored) -> Option<Stored> {
    // What an earlier schema did not show is not lost.
    let written = stored.written.as_ref().unwrap_or(&stored.bytes);
    let mut value = serde_json::from_slice(written).ok()?;
    if let Some(custom) = &kind.custom {
        custom.schema.prune(&mut value, false);
    }
    // With defaults that cannot be filled in it stays as it was.
    kind.behaviour.defaults(kind, &mut value).ok()?;
    let mut new = Stored::encode(kind, stored.key.clone(), stored.revision, &value);
    new.written = (new.bytes != *written).then(|| written.clone());
    (new.bytes != stored.bytes || new.fields != stored.fields).then_some(new)
}
