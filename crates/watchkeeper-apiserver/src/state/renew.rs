//! Objects of a kind whose schema has changed: they are read by the new one, pruned and with its defaults.
//!
//! As on the real server nothing is written: an object keeps its version until somebody writes it. Watches end, and only a list tells.

use crate::kinds::kind::Kind;
use crate::state::store::Stored;

/// Whether objects read as one kind as they do as the other.
pub(crate) fn reads_alike(one: &Kind, other: &Kind) -> bool {
    let documents = [one, other].map(|kind| kind.custom.as_ref().map(|custom| &custom.document));
    one.version == other.version && one.fields == other.fields && documents[0] == documents[1]
}

/// The object as it is read now, if that is another.
pub(crate) fn renewed(kind: &Kind, stored: &Stored) -> Option<Stored> {
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
