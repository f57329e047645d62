//! Validation rules of custom resources: `x-kubernetes-validations`, in CEL.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kube_cel::cel::Program;
use kube_cel::{CompilationResult, CompiledSchema, ErrorKind, compile_schema, validate_compiled};
use serde_json::Value;

use crate::failure::Cause;
use crate::kinds::schema::Schema;

mod budget;
mod cost;
mod form;
mod optional;
mod places;
mod size;
mod types;

pub(crate) use types::policy_problem;

/// The maximum number of brackets, dots and operators in a rule. It bounds the depth of the syntax tree.
pub(crate) const MOST_SIGNS: usize = 2_000;
/// Enough for the deepest rule. Untouched pages cost no memory.
const STACK: usize = 256 << 20;

/// The compiled rules of a version.
pub(crate) struct Rules {
    /// `None` if a rule exceeds [`MOST_SIGNS`].
    compiled: Option<CompiledSchema>,
    /// Whether a rule builds strings or lists.
    builds: bool,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").finish_non_exhaustive()
    }
}

impl Rules {
    /// Compiles the rules of a schema, if it has any. Every object violates a rule that does not compile.
    pub(crate) fn compile(schema: &Value) -> Option<Self> {
        let signs = most_signs(schema)?;
        let compiled = (signs <= MOST_SIGNS)
            .then(|| with_room(|| compile_schema(&optional::rewritten(schema))))
            .flatten();
        let builds = compiled.as_ref().is_some_and(|rules| with_room(|| builds(rules)).unwrap_or(true));
        Some(Self { compiled, builds })
    }

    /// Returns the problems of a schema's rules: those that do not compile, have the wrong types or exceed the cost
    /// budget. `at` is the path of the schema in the definition.
    pub(crate) fn check(&self, schema: &Value, at: &str) -> Vec<Cause> {
        let checked =
            self.compiled.as_ref().and_then(|compiled| with_room(|| cost::check(schema, compiled, at)));
        checked.unwrap_or_else(|| {
            vec![Cause::invalid(at, &"".into(), "compilation failed: a rule is too long or too deep")]
        })
    }

    /// Returns the rules of `schema` that an object violates. Transition rules need the old state; other rules ratchet:
    /// they are skipped for unchanged parts.
    pub(crate) fn broken(&self, schema: &Schema, value: &Value, old: Option<&Value>) -> Vec<Cause> {
        let unfollowed = || vec![Cause::invalid("<nil>", &Value::Null, "a rule is too long or too deep")];
        let Some(compiled) = &self.compiled else { return unfollowed() };
        let places = places::of(schema.root(), compiled, value, old);
        match with_room(|| places.iter().position(exceeds(budget::BUDGET))) {
            Some(None) => {}
            Some(Some(at)) => return vec![Cause::invalid(&places[at].shown, &Value::Null, OUT_OF_BUDGET)],
            None => return unfollowed(),
        }
        if self.builds {
            let mut lengths = size::Lengths::default();
            match with_room(|| places.iter().find_map(|place| place.excess(&mut lengths))) {
                Some(None) => {}
                Some(Some(cause)) => return vec![cause],
                None => return unfollowed(),
            }
        }
        let errors = match with_room(|| validate_compiled(compiled, value, old)) {
            Some(Err(errors)) => errors,
            Some(Ok(())) => return Vec::new(),
            None => return unfollowed(),
        };
        // Of equal rules at one place the first counts.
        let numbered = places.iter().enumerate().rev();
        let known: BTreeMap<_, _> =
            numbered.map(|(at, place)| ((place.field.as_str(), place.rule), at)).collect();
        let mut causes = Vec::new();
        for error in errors.iter() {
            let place = known.get(&(error.field_path.as_str(), error.rule.as_str())).copied();
            let is_broken = error.kind == ErrorKind::ValidationFailure;
            if is_broken && place.is_some_and(|at| places[at].tolerated) {
                continue;
            }
            // Only scalars are quoted; other values may be long.
            let scalar =
                place.map(|at| places[at].value).filter(|value| !value.is_object() && !value.is_array());
            let shown = scalar.filter(|_| is_broken).map_or_else(String::new, |value| format!(": {value}"));
            let (reason, message) = match error.reason.as_deref() {
                Some("FieldValueRequired") => {
                    ("FieldValueRequired", format!("Required value: {}", error.message))
                }
                Some("FieldValueForbidden") => {
                    ("FieldValueForbidden", format!("Forbidden: {}", error.message))
                }
                Some("FieldValueDuplicate") => ("FieldValueDuplicate", format!("Duplicate value{shown}")),
                _ => ("FieldValueInvalid", format!("Invalid value{shown}: {}", error.message)),
            };
            let field = place.map_or(&error.field_path, |at| &places[at].shown).clone();
            causes.push((place, Cause { reason, message, field }));
        }
        causes.sort_by_key(|(place, _)| *place);
        causes.into_iter().map(|(_, cause)| cause).collect()
    }
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Returns a predicate for places in order: whether the rules up to there exceed the budget.
fn exceeds(budget: u64) -> impl FnMut(&places::Place<'_>) -> bool {
    let mut spent = 0_u64;
    move |place| {
        spent = spent.saturating_add(place.cost());
        spent > budget
    }
}

/// Returns whether a rule or its message expression builds strings or lists.
fn builds(schema: &CompiledSchema) -> bool {
    let within = schema
        .properties
        .values()
        .chain(schema.items.as_deref())
        .chain(schema.additional_properties.as_deref());
    let mut rules = schema.validations.iter().flatten();
    rules.any(|rule| programs(rule).any(|program| size::builds(program.expression())))
        || within.into_iter().any(builds)
}

/// Returns the programs of a rule and of its message expression.
fn programs(rule: &CompilationResult) -> impl Iterator<Item = &Program> {
    std::iter::once(&rule.program).chain(&rule.message_program)
}

/// Returns the largest number of brackets, dots and operators of any rule; `None` without rules.
fn most_signs(schema: &Value) -> Option<usize> {
    match schema {
        Value::Object(map) => {
            let rules = map.get("x-kubernetes-validations").into_iter().flat_map(|rules| {
                let texts = rules.as_array().into_iter().flatten();
                let texts =
                    texts.flat_map(|rule| [rule["rule"].as_str(), rule["messageExpression"].as_str()]);
                texts.flatten().map(signs).chain([0])
            });
            rules.chain(map.values().filter_map(most_signs)).max()
        }
        Value::Array(list) => list.iter().filter_map(most_signs).max(),
        _ => None,
    }
}

pub(crate) fn signs(rule: &str) -> usize {
    rule.chars().filter(|letter| "([{.?+-*/%<>=!".contains(*letter)).count()
}

/// Runs `work`, which recurses deeply, on a large stack. Returns `None` if it panics, as the parser does on some
/// invalid rules.
pub(crate) fn with_room<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(|| stacker::grow(STACK, work))).ok()
}

/// The cause that is added to other errors when rules were not evaluated.
pub(crate) fn unchecked() -> Cause {
    Cause {
        reason: "FieldValueInvalid",
        message: "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation".to_owned(),
        field: "<nil>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_are_kept_on_create_and_on_change() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
            "properties": {"n": {"type": "integer"}},
            "x-kubernetes-validations": [
                {"rule": "self.n <= 10", "message": "too many"},
                {"rule": "self.n >= oldSelf.n", "message": "must not shrink"}]}}});
        let rules = Rules::compile(&schema).unwrap();
        let (schema, _) = Schema::compile(&schema, "");
        let with = |n: i64| json!({"spec": {"n": n}});
        assert_eq!(rules.broken(&schema, &with(3), None), []);
        let broken = rules.broken(&schema, &with(11), None);
        assert_eq!(
            (broken[0].field.as_str(), broken[0].message.as_str()),
            ("spec", "Invalid value: too many")
        );
        assert_eq!(
            rules.broken(&schema, &with(2), Some(&with(3)))[0].message,
            "Invalid value: must not shrink"
        );
        assert!(Rules::compile(&json!({"type": "object"})).is_none());
    }

    #[test]
    fn rules_that_cost_more_than_the_budget_together_are_not_followed() {
        let told = |rule: &str, count: usize| {
            let items = json!({"type": "integer", "x-kubernetes-validations": [{"rule": rule}]});
            let list = json!({"type": "array", "items": items});
            let schema = json!({"type": "object", "properties": {"list": list}});
            let rules = Rules::compile(&schema).unwrap();
            let (schema, _) = Schema::compile(&schema, "");
            rules.broken(&schema, &json!({"list": vec![1; count]}), None)
        };
        assert_eq!(told("self > 0", 1_000), []);
        let broken = told("self > 1", 200_000);
        assert_eq!(broken.len(), 1);
        assert_eq!(broken[0].message, format!("Invalid value: null: {OUT_OF_BUDGET}"));
        assert!(broken[0].field.starts_with("list["), "{}", broken[0].field);
    }

    #[test]
    fn a_loop_costs_as_much_as_it_has_turns() {
        let told = |count: usize| {
            let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
                "properties": {"list": {"type": "array", "items": {"type": "integer"}}},
                "x-kubernetes-validations": [{"rule": "self.list.all(a, self.list.exists(b, a != b))"}]}}});
            let rules = Rules::compile(&schema).unwrap();
            let (schema, _) = Schema::compile(&schema, "");
            let list: Vec<_> = (0..count).collect();
            rules.broken(&schema, &json!({"spec": {"list": list}}), None)
        };
        assert_eq!(told(100), []);
        assert_eq!(told(5_000)[0].field, "spec");
    }

    #[test]
    fn a_rule_that_cannot_be_understood_is_named_wherever_it_stands() {
        let bad =
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "true"}, {"rule": "self.("}]});
        let at = |schema: &Value| {
            Rules::compile(schema)
                .unwrap()
                .check(schema, "s")
                .into_iter()
                .map(|c| c.field)
                .collect::<Vec<_>>()
        };
        assert_eq!(at(&bad), ["s.x-kubernetes-validations[1].rule"]);
        let inside = json!({"type": "object", "properties": {"a": {"type": "array", "items": bad}}});
        assert_eq!(at(&inside), ["s.properties[a].items.x-kubernetes-validations[1].rule"]);
    }
}
