//! Errors of strategic merge patches, with the real server's messages.

use serde_json::{Map, Value};

use crate::failure::{Failure, beginning};

/// Why a patch cannot be applied. Values are formatted as by Go.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum StrategicError {
    #[error("unknown patch type: {} in map: {}", verb(.0), printed_map(.1))]
    UnknownDirective(Value, Map<String, Value>),
    #[error("merging lists cannot yet be specified in the patch")]
    MergeDirective,
    #[error("map: {} does not contain declared merge key: {key}", printed_map(.element))]
    NoMergeKey { element: Map<String, Value>, key: &'static str },
    #[error("cannot merge lists without merge key for {0}")]
    NotMerged(String),
    #[error("invalid patch format of retainKeys")]
    RetainKeys,
    #[error("invalid patch format of primitive list")]
    PrimitiveList,
    #[error("invalid patch format of setElementOrder list")]
    OrderFormat,
    #[error("The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n", printed_list(.patch), printed_list(.order))]
    Order { patch: Vec<Value>, order: Vec<Value> },
    #[error("expected a {wanted}, but received a {}", type_name(.found))]
    WrongType { wanted: &'static str, found: Value },
    #[error("value for key {0} is not a map")]
    NotAMap(usize),
    #[error("list element types are not identical: [{} {}]", printed_list(.0), printed_list(.1))]
    Mixed(Vec<Value>, Vec<Value>),
    #[error("lists of lists are not supported")]
    ListOfLists,
    #[error("no elements in any of the given slices")]
    NoElements,
    #[error("unable to find api field in struct {holder} for the json field {field:?}")]
    UnknownField { holder: &'static str, field: String },
}

impl StrategicError {
    /// Returns the failure; without values of patch and object if they are `secret`.
    pub(crate) fn refusal(mut self, secret: bool) -> Box<Failure> {
        if secret {
            match &mut self {
                Self::UnknownDirective(_, element) | Self::NoMergeKey { element, .. } => element.clear(),
                Self::Order { patch: one, order: other } | Self::Mixed(one, other) => {
                    one.clear();
                    other.clear();
                }
                _ => {}
            }
        }
        match self {
            Self::RetainKeys | Self::PrimitiveList | Self::OrderFormat => {
                Failure::bad_request(self.to_string())
            }
            Self::ListOfLists => Failure::unprocessable(),
            // The message may contain whole lists.
            _ => Failure::internal(beginning(&self.to_string())),
        }
    }
}

/// Returns Go's type name of a value, or what `%s` prints for nil.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Formats a non-string value as Go's `%s` does.
fn verb(value: &Value) -> String {
    match value {
        Value::Bool(_) | Value::Number(_) => format!("%!s({}={})", type_name(value), printed(value)),
        Value::Null => type_name(value).to_owned(),
        other => printed(other),
    }
}

fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if !number.is_i64() => printed_float(float),
            _ => number.to_string(),
        },
        Value::String(text) => text.clone(),
        Value::Array(list) => printed_list(list),
        Value::Object(map) => printed_map(map),
    }
}

fn printed_map(map: &Map<String, Value>) -> String {
    let fields: Vec<_> = map.iter().map(|(name, value)| format!("{name}:{}", printed(value))).collect();
    format!("map[{}]", fields.join(" "))
}

fn printed_list(list: &[Value]) -> String {
    let elements: Vec<_> = list.iter().map(printed).collect();
    format!("[{}]", elements.join(" "))
}

/// Formats a float as `%v` does: with an exponent from 1e6 on and below 1e-4.
fn printed_float(float: f64) -> String {
    let exponential = format!("{float:e}");
    let Some((digits, exponent)) = exponential.split_once('e') else { return exponential };
    match exponent.parse::<i32>() {
        Ok(exponent) if float != 0.0 && !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => float.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_printed_as_go_prints_them() {
        let value = json!({"a": null, "b": true, "c": [1, "x", []], "d": {"e": 1.5, "f": {}}, "g": 1e21,
            "h": 100_000_000, "i": 0.000_000_1, "j": 1.0, "k": "a b", "l": 9_223_372_036_854_775_808_u64});
        assert_eq!(
            printed(&value),
            "map[a:<nil> b:true c:[1 x []] d:map[e:1.5 f:map[]] g:1e+21 h:100000000 i:1e-07 j:1 k:a b l:9.223372036854776e+18]"
        );
        assert_eq!(
            [verb(&json!(5)), verb(&json!("x")), verb(&Value::Null)],
            ["%!s(int64=5)", "x", "%!s(<nil>)"]
        );
    }

    #[test]
    fn a_long_list_is_not_repeated_as_a_whole() {
        let error = StrategicError::Mixed(vec!["x".repeat(1 << 20).into()], vec![Value::Null]);
        assert!((1 << 10..1 << 17).contains(&error.refusal(false).message.len()));
    }

    #[test]
    fn contents_of_secrets_are_not_repeated() {
        let element = json!({"$patch": "x", "data": {"password": "hunter2"}});
        let error = StrategicError::UnknownDirective("x".into(), element.as_object().unwrap().clone());
        assert!(error.to_string().contains("hunter2"));
        assert_eq!(error.refusal(true).message, "unknown patch type: x in map: map[]");
    }
}
