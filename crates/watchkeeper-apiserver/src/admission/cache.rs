//! What is compiled of stored objects, for as long as they do not change.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::state::store::Stored;

/// Keeps what was compiled of a list of objects.
#[derive(Debug)]
pub(super) struct Cache<T>(Mutex<Option<Compiled<T>>>);

/// The objects, and what was compiled of them.
type Compiled<T> = (Vec<Arc<Stored>>, Arc<T>);

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Cache<T> {
    /// Returns what `compile` makes of these objects; the same as before if they are the same versions.
    pub(super) fn get(&self, objects: Vec<Arc<Stored>>, compile: impl FnOnce(&[Arc<Stored>]) -> T) -> Arc<T> {
        let mut kept = self.0.lock();
        if let Some((known, compiled)) = &*kept
            && known.len() == objects.len()
            && known.iter().zip(&objects).all(|(a, b)| Arc::ptr_eq(a, b))
        {
            return compiled.clone();
        }
        let compiled = Arc::new(compile(&objects));
        *kept = Some((objects, compiled.clone()));
        compiled
    }
}
