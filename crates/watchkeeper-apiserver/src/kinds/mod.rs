//! Kinds: the registry, the built-in kinds, custom resources with their schemas and rules, and the behaviour of each
//! kind.

mod age;
pub(crate) mod behaviour;
pub(crate) mod builtin;
pub(crate) mod cells;
pub(crate) mod conditions;
pub(crate) mod definition;
pub(crate) mod failures;
pub(crate) mod fill;
pub(crate) mod go_duration;
pub(crate) mod identity;
pub(crate) mod ip_range;
pub(crate) mod jsonpath;
pub(crate) mod kind;
pub(crate) mod label_selector;
pub(crate) mod merge_type;
pub(crate) mod meta;
pub(crate) mod registry;
pub(crate) mod rules;
pub(crate) mod schema;
pub(crate) mod size;
