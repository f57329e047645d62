//! Nodes.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::cells::{Row, list, or, text};

#[derive(Debug)]
pub(in crate::kinds) struct Node;

impl Behaviour for Node {
    fn node<'a>(&self, node: &'a Value) -> Option<&'a str> {
        node["metadata"]["name"].as_str()
    }

    fn field_value(&self, node: &Value, path: &str) -> Option<String> {
        (path == "spec.unschedulable")
            .then(|| node["spec"]["unschedulable"].as_bool().unwrap_or(false).to_string())
    }

    fn headers(&self) -> &'static str {
        "Name Status Roles Age Version Internal-IP* External-IP* OS-Image* Kernel-Version* Container-Runtime*"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let status = row.status();
        let address = |kind: &str| {
            let found = list(&status["addresses"]).iter().find(|address| address["type"] == kind);
            found.map_or("<none>", |address| text(&address["address"]))
        };
        let info = |field: &str| or(text(&status["nodeInfo"][field]), "<unknown>");
        json!([
            row.name(),
            state(row.object),
            or(&roles(&row.object["metadata"]["labels"]), "<none>"),
            row.age(),
            text(&status["nodeInfo"]["kubeletVersion"]),
            address("InternalIP"),
            address("ExternalIP"),
            info("osImage"),
            info("kernelVersion"),
            info("containerRuntimeVersion"),
        ])
    }
}

fn state(node: &Value) -> String {
    let mut conditions = list(&node["status"]["conditions"]).iter();
    let ready = conditions.find(|condition| condition["type"] == "Ready");
    let state = match ready.map(|condition| condition["status"] == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    };
    let disabled = if node["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
    format!("{state}{disabled}")
}

/// The roles that the labels of a node name.
fn roles(labels: &Value) -> String {
    let roles = labels.as_object().into_iter().flatten().filter_map(|(key, value)| {
        match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => Some(role),
            _ if key == "kubernetes.io/role" => Some(text(value)),
            _ => None,
        }
    });
    roles.collect::<Vec<_>>().join(",")
}
