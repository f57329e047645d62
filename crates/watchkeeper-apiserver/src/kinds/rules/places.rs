//! The places in an object at which rules apply, in a stable order.

use kube_cel::cel::Program;
use kube_cel::{CompilationResult, CompiledSchema};
use serde_json::Value;

use super::{budget, size};
use crate::failure::Cause;
use crate::kinds::schema::{Node, Same, join};

/// A rule at a place in an object.
pub(super) struct Place<'a> {
    /// The value that the rule checks.
    pub(super) value: &'a Value,
    /// Whether the value is unchanged and the rule is no transition rule: it is then not evaluated (ratcheting).
    pub(super) tolerated: bool,
    /// The path by which the evaluator names the place, and the rule.
    pub(super) field: String,
    /// The path as it is shown: with the keys of maps in brackets.
    pub(super) shown: String,
    pub(super) rule: &'a str,
    compiled: &'a CompilationResult,
    old: Option<&'a Value>,
}

impl<'a> Place<'a> {
    /// Returns the cost of evaluating the rule and its message here.
    pub(super) fn cost(&self) -> u64 {
        let programs = super::programs(self.compiled);
        let cost = |program: &'a Program| budget::cost_at(program.expression(), self.value, self.old);
        programs.map(cost).fold(0, u64::saturating_add)
    }

    /// Returns a cause if evaluating the rule or its message here would exceed the memory limit.
    pub(super) fn excess(&self, lengths: &mut size::Lengths<'a>) -> Option<Cause> {
        let built = super::programs(self.compiled)
            .map(|program| size::built_at(program.expression(), self.value, self.old, lengths))
            .max()
            .filter(|built| *built > size::MOST)?;
        let message = format!(
            "Invalid value: rule evaluation error: the rule {:?} may build {built} characters, more than {}",
            self.rule,
            size::MOST
        );
        Some(Cause { reason: "FieldValueInvalid", message, field: self.shown.clone() })
    }
}

/// Returns all rules of a schema with the places of an object to which they apply.
pub(super) fn of<'a>(
    schema: &Node,
    compiled: &'a CompiledSchema,
    value: &'a Value,
    old: Option<&'a Value>,
) -> Vec<Place<'a>> {
    let mut places = Vec::new();
    walk(schema, compiled, (value, old, false), ("", ""), (&mut places, &mut Same::default()));
    places
}

/// Walks a value; `same` is whether an enclosing part is unchanged.
fn walk<'a>(
    schema: &Node,
    compiled: &'a CompiledSchema,
    (value, old, same): (&'a Value, Option<&'a Value>, bool),
    (path, shown): (&str, &str),
    (places, known): (&mut Vec<Place<'a>>, &mut Same),
) {
    let same = same || old.is_some_and(|old| known.is(value, old));
    for compiled in compiled.validations.iter().flatten() {
        let inside = |path: &str| match compiled.rule.field_path.as_deref() {
            Some(inside) => join(path, inside.trim_start_matches('.')),
            None => path.to_owned(),
        };
        let (field, shown) = (inside(path), inside(shown));
        let tolerated = same && !compiled.is_transition_rule;
        places.push(Place { value, tolerated, field, shown, rule: &compiled.rule.rule, compiled, old });
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        let is_key = !compiled.properties.contains_key(name);
        let compiled = compiled.properties.get(name).or(compiled.additional_properties.as_deref());
        if let Some((schema, compiled)) = schema.property(name).zip(compiled) {
            let old = old.and_then(|old| old.get(name));
            let shown = if is_key { format!("{shown}[{name}]") } else { join(shown, name) };
            walk(schema, compiled, (value, old, same), (&join(path, name), &shown), (places, known));
        }
    }
    if let (Some(items), Some(compiled), Some(list)) = (schema.item(), &compiled.items, value.as_array()) {
        let before = schema.by_keys(old);
        for (at, value) in list.iter().enumerate() {
            let (path, shown) = (format!("{path}[{at}]"), format!("{shown}[{at}]"));
            walk(items, compiled, (value, before(value), same), (&path, &shown), (places, known));
        }
    }
}
