//! Admission: what changes or refuses a write after its author is known to be allowed to make it.
//!
//! A [`Chain`](chain::Chain) of [plugins](plugin::Plugin) sees each [`Attempt`](attempt::Attempt) to write an object:
//! first to change the object, and once it is complete and valid, to refuse it. Plugins run without the lock and may be
//! asked again, because a write that was overtaken starts over.

pub(crate) mod attempt;
mod cache;
pub(crate) mod chain;
mod completion;
mod expression;
mod initializers;
pub(crate) mod plugin;
mod plugins;
mod policies;
mod reinvocation;
mod rules;
pub(crate) mod selection;
pub(crate) mod session;
mod webhooks;
