//! A mutation of a policy: an apply configuration or a JSON patch, each made by an expression.

use serde_json::Value;

use crate::admission::attempt::Attempt;
use crate::admission::completion::complete;
use crate::admission::expression::{Expression, Scope, to_json};
use crate::failure::Failure;
use crate::fields::json_patch::{self, Misfit};
use crate::fields::walk;
use crate::kinds::cells::text;
use crate::kinds::kind::Kind;
use crate::kinds::merge_type::{MergeType, Treatment};

#[derive(Debug)]
pub(super) enum Mutation {
    /// An object to merge into the present one.
    Apply(Expression),
    /// A list of operations.
    Patch(Expression),
}

/// Why a mutation has no result.
#[derive(Debug)]
pub(super) enum Unchanged {
    /// A test of a patch does not hold, so the patch is not for this object.
    Wanted,
    /// The policy fails.
    Failed(String),
    /// The result cannot be used.
    Refused(Box<Failure>),
}

impl Mutation {
    pub(super) fn compile(mutation: &Value) -> Self {
        match text(&mutation["patchType"]) {
            "JSONPatch" => Self::Patch(Expression::compile(text(&mutation["jsonPatch"]["expression"]))),
            _ => Self::Apply(Expression::compile(text(&mutation["applyConfiguration"]["expression"]))),
        }
    }

    /// Returns the changed object. The policy sees it in the version of `kind`.
    pub(super) fn apply(
        &self,
        scope: &Scope,
        attempt: &Attempt<'_>,
        kind: &Kind,
        object: &Value,
    ) -> Result<Value, Unchanged> {
        let seen = attempt.convert(object.clone(), attempt.kind, kind);
        let mut changed = match self {
            Self::Apply(expression) => merged(&made(expression, scope)?, kind, &seen)?,
            Self::Patch(expression) => patched(made(expression, scope)?, seen)?,
        };
        let unknown = complete(attempt, kind, &mut changed).map_err(Unchanged::Refused)?;
        match unknown.first() {
            Some(field) => Err(Unchanged::Failed(format!(
                "error applying patch: failed to convert patch object to typed object: .{field}: field not declared in schema"
            ))),
            None => Ok(attempt.convert(changed, kind, attempt.kind)),
        }
    }
}

/// Returns what an expression makes.
fn made(expression: &Expression, scope: &Scope) -> Result<Value, Unchanged> {
    let value = expression.evaluate(scope).map_err(Unchanged::Failed)?;
    to_json(&value).ok_or_else(|| Unchanged::Failed("the result of the expression is no JSON".to_owned()))
}

fn merged(applied: &Value, kind: &Kind, object: &Value) -> Result<Value, Unchanged> {
    let failed = |why: String| Err(Unchanged::Failed(why));
    if !applied.is_object() {
        return failed("unsupported return type from ApplyConfiguration expression".to_owned());
    }
    let mut atomic = Vec::new();
    find_atomic(kind.merge_type(), applied, "", &mut atomic);
    if !atomic.is_empty() {
        return failed(format!(
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomic.join(", ")
        ));
    }
    Ok(walk::merge(kind.merge_type(), Some(object), applied))
}

/// Collects the paths of lists and objects that would be replaced as a whole.
fn find_atomic(merge_type: MergeType<'_>, value: &Value, path: &str, found: &mut Vec<String>) {
    if (value.is_object() || value.is_array()) && merge_type.treatment(value) == Treatment::Leaf {
        found.push(path.to_owned());
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let inner = merge_type.field(name).map_or(MergeType::Any, |(inner, _)| inner);
                find_atomic(inner, value, &format!("{path}.{name}"), found);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                find_atomic(merge_type.item(), item, &format!("{path}[{at}]"), found);
            }
        }
        _ => {}
    }
}

fn patched(operations: Value, object: Value) -> Result<Value, Unchanged> {
    let failed = |why: &str| Unchanged::Failed(why.to_owned());
    let Value::Array(operations) = operations else {
        return Err(failed("type mismatch: JSONPatchType.expression should evaluate to array"));
    };
    let operations: Result<Vec<_>, _> = operations
        .into_iter()
        .map(|operation| json_patch::Operation::read(operation).map(|(operation, _)| operation))
        .collect();
    let operations = operations.map_err(|why| failed(&why))?;
    match json_patch::apply(&operations, object) {
        Ok(patched) if patched.is_object() => Ok(patched),
        Ok(_) => Err(failed("JSON Patch: the result is not an object")),
        Err(Misfit::Test) => Err(Unchanged::Wanted),
        Err(misfit) => Err(failed(&format!("JSON Patch: {misfit}"))),
    }
}
