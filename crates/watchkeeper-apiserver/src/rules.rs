//! Does a custom object keep the rules of its author? `x-kubernetes-validations`, in CEL.

use std::fmt;

use kube_cel::{CompiledSchema, compile_schema, validate_compiled};
use serde_json::Value;

use crate::status::Cause;

mod cost;

/// The compiled rules of a version.
pub(crate) struct Rules(CompiledSchema);

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").finish_non_exhaustive()
    }
}

impl Rules {
    /// Compiles the rules of a schema, if it has any. One that cannot be understood is broken by every object.
    pub(crate) fn compile(schema: &Value) -> Option<Self> {
        has_rules(schema).then(|| Self(compile_schema(schema)))
    }

    /// What is wrong with the rules of a schema: those that cannot be understood, or could take too long; `at` is its path in the definition.
    pub(crate) fn check(schema: &Value, at: &str) -> Vec<Cause> {
        Self::compile(schema).map_or_else(Vec::new, |rules| cost::check(schema, &rules.0, at))
    }

    /// The rules that an object breaks; those about a change need the state before it.
    pub(crate) fn broken(&self, value: &Value, old: Option<&Value>) -> Vec<Cause> {
        let Err(errors) = validate_compiled(&self.0, value, old) else { return Vec::new() };
        let causes = errors.iter().map(|error| {
            let (reason, prefix) = match error.reason.as_deref() {
                Some("FieldValueRequired") => ("FieldValueRequired", "Required value"),
                Some("FieldValueForbidden") => ("FieldValueForbidden", "Forbidden"),
                Some("FieldValueDuplicate") => ("FieldValueDuplicate", "Duplicate value"),
                _ => ("FieldValueInvalid", "Invalid value"),
            };
            let message = format!("{prefix}: {}", error.message);
            Cause { reason, message, field: error.field_path.clone() }
        });
        causes.collect()
    }
}

fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.contains_key("x-kubernetes-validations") || map.values().any(has_rules),
        Value::Array(list) => list.iter().any(has_rules),
        _ => false,
    }
}

/// What is said beside other errors when rules could not be looked at.
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
        let with = |n: i64| json!({"spec": {"n": n}});
        assert_eq!(rules.broken(&with(3), None), []);
        let broken = rules.broken(&with(11), None);
        assert_eq!(
            (broken[0].field.as_str(), broken[0].message.as_str()),
            ("spec", "Invalid value: too many")
        );
        assert_eq!(rules.broken(&with(2), Some(&with(3)))[0].message, "Invalid value: must not shrink");
        assert!(Rules::compile(&json!({"type": "object"})).is_none());
    }

    #[test]
    fn a_rule_that_cannot_be_understood_is_named_wherever_it_stands() {
        let bad =
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "true"}, {"rule": "self.("}]});
        let at =
            |schema: &Value| Rules::check(schema, "s").iter().map(|c| c.field.clone()).collect::<Vec<_>>();
        assert_eq!(at(&bad), ["s.x-kubernetes-validations[1].rule"]);
        let inside = json!({"type": "object", "properties": {"a": {"type": "array", "items": bad}}});
        assert_eq!(at(&inside), ["s.properties[a].items.x-kubernetes-validations[1].rule"]);
    }
}
