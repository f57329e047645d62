//! Objects of a kind whose schema has changed: they are read by the new one, pruned and with its defaults.
//!
//! As on the real server nothing is written: an object keeps its version until the next write. Watches end, so clients
//! list again.

use crate::kinds::kind::Kind;
use crate::state::store::Stored;

/// Returns the object as it is read now, if that differs.
pub(crate) fn renewed(kind: &Kind, stored: &Stored) -> Option<Stored> {
    // Start from what was written: an earlier schema may have pruned more.
    let written = stored.written.as_ref().unwrap_or(&stored.bytes);
    let mut value = serde_json::from_slice(written).ok()?;
    if let Some(custom) = &kind.custom {
        custom.schema.prune(&mut value, false);
    }
    // If its defaults cannot be filled in, the object stays as it was.
    kind.behaviour.defaults(kind, &mut value).ok()?;
    let mut new = Stored::encode(kind, stored.key.clone(), stored.revision, &value);
    new.written = (new.bytes != *written).then(|| written.clone());
    (new.bytes != stored.bytes || new.fields != stored.fields).then_some(new)
}
