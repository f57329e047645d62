//! Admission policies in CEL: `ValidatingAdmissionPolicy`.

mod matching;
mod params;
mod policy;
pub(super) mod validating;
