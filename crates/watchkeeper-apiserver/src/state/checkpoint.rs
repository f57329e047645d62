//! The state of a server at one revision, to start other servers from and to return to.

use std::collections::VecDeque;
use std::sync::Arc;

use watchkeeper::Env;

use crate::kinds::registry::Registry;
use crate::state::core::Core;
use crate::state::duty::Duty;
use crate::state::store::Store;

/// The objects and kinds of a server at one revision, without its history. Clones share them.
///
/// See [`ApiServer::checkpoint`](crate::ApiServer::checkpoint).
#[derive(Clone, Debug)]
pub struct Checkpoint(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    store: Store,
    /// With the compiled schemas and rules of all definitions.
    registry: Arc<Registry>,
    duties: VecDeque<Duty>,
}

impl Checkpoint {
    /// The revision of the newest change.
    pub fn revision(&self) -> u64 {
        self.0.store.revision()
    }

    pub(crate) fn of(core: &Core) -> Self {
        let (store, registry) = (core.store.without_history(), core.registry.clone());
        Self(Arc::new(Kept { store, registry, duties: core.duties.clone() }))
    }

    /// A core of its own with the same content.
    pub(crate) fn core(&self, env: &Env) -> Core {
        let (store, registry) = (self.0.store.without_history(), self.0.registry.clone());
        Core { duties: self.0.duties.clone(), ..Core::of(env, store, registry, "apiserver") }
    }

    /// Brings a core back to this content. Its watches end.
    pub(crate) fn restore(&self, core: &mut Core) {
        core.store.set_back(&self.0.store);
        (core.registry, core.duties) = (self.0.registry.clone(), self.0.duties.clone());
    }
}
