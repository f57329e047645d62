//! The controllers that every cluster has.

/// A controller of the simulated cluster itself, which a check may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BuiltIn {
    /// Deletes objects whose owners are gone.
    GarbageCollector,
    /// Empties namespaces that are being deleted, and lets them go.
    NamespaceController,
}
