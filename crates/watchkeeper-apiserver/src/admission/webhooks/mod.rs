//! Admission webhooks: `MutatingAdmissionWebhook` and `ValidatingAdmissionWebhook`.
//!
//! A call is made between two attempts of a request: an attempt that lacks an answer enters the call in its session and
//! starts over once it has been made ([`Calls`](calls::Calls)). So no lock is held over IO.

pub(crate) mod calls;
mod client;
mod hook;
pub(super) mod mutating;
mod review;
mod target;
pub(super) mod validating;
