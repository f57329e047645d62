//! ControllerRevisions.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::cells::{Row, list, number, text};

#[derive(Debug)]
pub(in crate::kinds) struct ControllerRevision;

impl Behaviour for ControllerRevision {
    fn headers(&self) -> &'static str {
        "Name Controller Revision Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let owners = list(&row.object["metadata"]["ownerReferences"]);
        let owner = owners.iter().find(|owner| owner["controller"] == true);
        let owner = owner.map_or("<none>".to_owned(), controller);
        json!([row.name(), owner, number(&row.object["revision"]), row.age()])
    }
}

/// `kind.group/name` of an owner.
fn controller(owner: &Value) -> String {
    let group = text(&owner["apiVersion"]).split_once('/').map_or("", |(group, _)| group);
    let dot = if group.is_empty() { "" } else { "." };
    format!("{}{dot}{group}/{}", text(&owner["kind"]).to_lowercase(), text(&owner["name"]))
}
