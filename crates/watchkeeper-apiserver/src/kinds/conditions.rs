//! What is so of an object, and since when? The conditions in its status.

use serde_json::{Value, json};

/// Whether a status says that something is so.
pub(crate) fn holds(status: &Value, name: &str) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == name && condition["status"] == "True")
}

/// Notes in a status whether something is so; since when, only if it was otherwise before.
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
