//! One HTTP call: routing, content negotiation, reads, writes, deletes, responses, metrics, discovery and OpenAPI.

pub(crate) mod admit;
pub(crate) mod backlog;
pub(crate) mod body;
mod deletes;
pub(crate) mod discovery;
pub(crate) mod flow;
pub(crate) mod handler;
mod health;
pub(crate) mod metrics;
pub(crate) mod negotiate;
pub(crate) mod openapi;
mod reads;
pub(crate) mod reply;
pub(crate) mod reviews;
pub(crate) mod route;
pub(crate) mod shared;
pub(crate) mod static_routes;
mod subresources;
pub(crate) mod table;
mod timeout;
mod token_requests;
pub(crate) mod transaction;
mod warnings;
pub(crate) mod watch;
mod writes;
