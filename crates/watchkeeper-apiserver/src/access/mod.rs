//! Access control: who makes a request, and whether they may.

pub(crate) mod attributes;
pub(crate) mod authenticate;
pub(crate) mod authorize;
pub(crate) mod impersonate;
mod local;
mod node;
pub(crate) mod rbac;
pub(crate) mod tokens;
pub(crate) mod user;
