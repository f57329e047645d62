//! Does a custom object keep the rules of its author? `x-kubernetes-validations`, in CEL.

use std::fmt;

use kube_cel::{CompiledSchema, compile_schema, validate_compiled};
use serde_json::Value;

use crate::status::Cause;

/// The compiled rules of a version.
pub(crate) struct Rules(CompiledSchema);

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").finish_non_exhaustive()
    }
}

impl Rules {
    /// Compiles the rules of a schema, if it has any; the errors name those that cannot be understood.
    pub(crate) fn compile(schema: &Value, at: &str) -> Result<Option<Self>, Vec<Cause>> {
        if !has_rules(schema) {
            return Ok(None);
        }
        let compiled = compile_schema(schema);
        let errors = compiled.compilation_errors();
        if errors.is_empty() {
            return Ok(Some(Self(compiled)));
        }
        let field = format!("{at}.x-kubernetes-validations");
        Err(errors
            .iter()
            .map(|error| Cause::invalid(&field, &"".into(), &format!("compilation failed: {error}")))
            .collect())
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
        let rules = Rules::compile(&schema, "").unwrap().unwrap();
        let with = |n: i64| json!({"spec": {"n": n}});
        assert_eq!(rules.broken(&with(3), None), []);
        let broken = rules.broken(&with(11), None);
        assert_eq!(
            (broken[0].field.as_str(), broken[0].message.as_str()),
            ("spec", "Invalid value: too many")
        );
        assert_eq!(rules.broken(&with(2), Some(&with(3)))[0].message, "Invalid value: must not shrink");
        assert!(Rules::compile(&json!({"type": "object"}), "").unwrap().is_none());
        let bad = json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.("}]});
        assert_eq!(Rules::compile(&bad, "s").unwrap_err()[0].field, "s.x-kubernetes-validations");
    }
}
