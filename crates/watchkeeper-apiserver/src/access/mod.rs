//! Access control: who makes a request, whether they may, and which flow it belongs to.

pub(crate) mod attributes;
pub(crate) mod authenticate;
pub(crate) mod authorize;
pub(crate) mod flow;
pub(crate) mod impersonate;
mod local;
mod node;
pub(crate) mod rbac;
pub(crate) mod tokens;
pub(crate) mod user;
