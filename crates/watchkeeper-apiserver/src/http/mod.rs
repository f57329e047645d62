//! One HTTP call: routing, parameters, content negotiation, responses, metrics, discovery and OpenAPI.

pub(crate) mod backlog;
pub(crate) mod discovery;
mod endpoints;
pub(crate) mod handler;
pub(crate) mod metrics;
pub(crate) mod negotiate;
pub(crate) mod openapi;
pub(crate) mod parameters;
pub(crate) mod pod_actions;
pub(crate) mod reply;
pub(crate) mod reviews;
pub(crate) mod route;
pub(crate) mod shared;
pub(crate) mod static_routes;
pub(crate) mod table;
pub(crate) mod transaction;
mod warnings;
pub(crate) mod watch;
