//! Sockets: TLS, credentials, connection limits.

pub(crate) mod credentials;
pub(crate) mod serve;
