//! Access control: which requests over a socket are answered at all.

pub(crate) mod local;
