//! Role-based access control: rules, the index of roles and bindings, and the check of what a role may grant.

pub(crate) mod escalation;
pub(crate) mod index;
pub(crate) mod rule;

#[cfg(test)]
mod tests;
