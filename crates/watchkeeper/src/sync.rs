//! Which lock do the parts have that a model checker looks at? This one; in a model, the checker's own.

pub(crate) use parking_lot::Mutex;
