//! Sockets: TLS, credentials, connection limits.

pub(crate) mod credentials;
mod reset;
pub(crate) mod serve;
