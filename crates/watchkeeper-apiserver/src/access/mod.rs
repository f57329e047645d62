//! Access control: which requests on a socket are served.

pub(crate) mod local;
