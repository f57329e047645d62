//! CEL expressions of webhooks and policies.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_cel::KubeCelExt as _;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::parser::Expression as Tree;
use kube_cel::cel::{Context, Program, Value as CelValue};
use serde_json::{Map as Object, Value};

use crate::admission::initializers;
use crate::kinds::rules::{MOST_SIGNS, signs, with_room};

/// A compiled expression. One that does not compile fails each evaluation.
pub(super) struct Expression {
    text: String,
    tree: Result<Tree, String>,
}

impl Expression {
    pub(super) fn compile(text: &str) -> Self {
        let tree = match signs(text) > MOST_SIGNS {
            true => Err("compilation failed: the expression is too long or too deep".to_owned()),
            false => with_room(|| compiled(text))
                .unwrap_or_else(|| Err("the parser failed".to_owned()))
                .map_err(|why| format!("compilation failed: {why}")),
        };
        Self { text: text.to_owned(), tree }
    }

    /// Evaluates a condition.
    pub(super) fn holds(&self, scope: &Scope) -> Result<bool, String> {
        match self.evaluate(scope)? {
            CelValue::Bool(holds) => Ok(holds),
            _ => Err(format!("expression '{}' resulted in error: it is not a bool", self.text)),
        }
    }

    pub(super) fn evaluate(&self, scope: &Scope) -> Result<CelValue, String> {
        let failed = |why: &dyn fmt::Display| format!("expression '{}' resulted in error: {why}", self.text);
        let tree = self.tree.as_ref().map_err(|why| failed(why))?;
        let result = with_room(|| CelValue::resolve(tree, &scope.0));
        result
            .ok_or_else(|| failed(&"it cannot be evaluated"))?
            .map_err(|why| failed(&lower_case(&why.to_string())))
    }
}

fn compiled(text: &str) -> Result<Tree, String> {
    let program = Program::compile(text).map_err(|error| error.to_string())?;
    let mut tree = program.expression().clone();
    initializers::replace(&mut tree)?;
    Ok(tree)
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.text).finish()
    }
}

/// The variables of an expression.
pub(super) struct Scope(Context<'static>);

impl Scope {
    pub(super) fn new() -> Self {
        Self(Context::default().with_all())
    }

    /// Adds a variable.
    pub(super) fn with(self, name: &str, value: &Value) -> Self {
        self.with_value(name, to_cel(value))
    }

    /// Adds a variable with the result of another expression.
    pub(super) fn with_value(mut self, name: &str, value: CelValue) -> Self {
        self.0.add_variable_from_value(name, value);
        self
    }
}

/// A map of named values.
pub(super) fn map(values: &[(&str, CelValue)]) -> CelValue {
    let entries = values.iter().map(|(name, value)| (Key::from(*name), value.clone()));
    CelValue::Map(Map { map: Arc::new(entries.collect()) })
}

/// Messages of the real server's engine begin in lower case.
fn lower_case(message: &str) -> String {
    let mut letters = message.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

fn to_cel(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(value) => CelValue::Bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => CelValue::Int(number),
            (None, number) => CelValue::Float(number.unwrap_or(f64::NAN)),
        },
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(list) => CelValue::List(Arc::new(list.iter().map(to_cel).collect())),
        Value::Object(fields) => {
            let entries = fields.iter().map(|(name, value)| (Key::from(name.as_str()), to_cel(value)));
            CelValue::Map(Map { map: Arc::new(entries.collect()) })
        }
    }
}

/// Returns the JSON of a value; `None` if it has none.
pub(super) fn to_json(value: &CelValue) -> Option<Value> {
    Some(match value {
        CelValue::Null => Value::Null,
        CelValue::Bool(value) => (*value).into(),
        CelValue::Int(number) => (*number).into(),
        CelValue::UInt(number) => (*number).into(),
        CelValue::Float(number) => (*number).into(),
        CelValue::String(text) => text.as_str().into(),
        CelValue::Bytes(bytes) => STANDARD.encode(&**bytes).into(),
        CelValue::List(list) => Value::Array(list.iter().map(to_json).collect::<Option<_>>()?),
        CelValue::Map(map) => {
            let fields = map.map.iter().map(|(key, value)| match key {
                Key::String(name) => Some((name.to_string(), to_json(value)?)),
                _ => None,
            });
            Value::Object(fields.collect::<Option<Object<_, _>>>()?)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_sees_its_variables() {
        let scope = Scope::new()
            .with("object", &json!({"spec": {"replicas": 3}, "metadata": {"labels": {"a/b": "c"}}}));
        let holds = |text: &str| Expression::compile(text).holds(&scope);
        assert_eq!(holds("object.spec.replicas > 2 && object.metadata.labels['a/b'] == 'c'"), Ok(true));
        assert_eq!(holds("has(object.spec.paused)"), Ok(false));
        assert!(holds("object.spec.other == 1").is_err_and(|why| why.contains("resulted in error")));
        assert!(holds("object.spec.replicas").is_err());
        assert!(holds("Other{a: 1} == 1").is_err_and(|why| why.contains("undeclared reference to 'Other'")));
        assert!(holds("object.(").is_err_and(|why| why.contains("compilation failed")));
    }
}
