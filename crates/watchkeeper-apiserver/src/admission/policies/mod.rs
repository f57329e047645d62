//! Admission policies in CEL: `MutatingAdmissionPolicy` and `ValidatingAdmissionPolicy`.

mod matching;
pub(super) mod mutating;
mod mutation;
mod params;
mod policy;
mod scope;
pub(super) mod validating;

/// The group of policies and bindings.
const GROUP: &str = "admissionregistration.k8s.io";
