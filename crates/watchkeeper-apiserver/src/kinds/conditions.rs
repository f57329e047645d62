//! Conditions in the status of an object.

use serde_json::{Value, json};

/// Returns whether the condition `name` is true.
pub(crate) fn holds(status: &Value, name: &str) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == name && condition["status"] == "True")
}

/// Sets a condition. `lastTransitionTime` changes only with the condition's status.
pub(crate) fn set(status: &mut Value, mut condition: Value) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    match conditions.iter_mut().find(|other| other["type"] == condition["type"]) {
        Some(before) => {
            if before["status"] == condition["status"] {
                condition["lastTransitionTime"] = before["lastTransitionTime"].take();
            }
            *before = condition;
        }
        None => conditions.push(condition),
    }
}
