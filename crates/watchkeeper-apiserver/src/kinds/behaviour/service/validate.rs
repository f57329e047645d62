//! Validation of services.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::has_node_ports;
use crate::failure::Cause;
use crate::kinds::cells::{list, number, text};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";

/// Validates the spec of a service.
pub(super) fn spec(spec: &Value, causes: &mut Vec<Cause>) {
    let sort = text(&spec["type"]);
    if !TYPES.contains(&sort) {
        causes.push(Cause::not_supported("spec.type", &spec["type"], &TYPES));
    }
    if list(&spec["ports"]).is_empty() && sort != "ExternalName" && spec["clusterIP"] != "None" {
        causes.push(Cause::required("spec.ports", ""));
    }
    if has_node_ports(sort) && spec["clusterIP"] == "None" {
        let problem = format!("may not be set to 'None' for {sort} services");
        causes.push(Cause::invalid("spec.clusterIPs[0]", &spec["clusterIP"], &problem));
    }
    if sort == "ExternalName" && text(&spec["externalName"]).is_empty() {
        causes.push(Cause::required("spec.externalName", ""));
    }
    ports(list(&spec["ports"]), causes);
}

fn ports(ports: &[Value], causes: &mut Vec<Cause>) {
    let is_port = |number: i64| (1..=65_535).contains(&number);
    let mut names = BTreeSet::new();
    for (at, port) in ports.iter().enumerate() {
        let field = |name: &str| format!("spec.ports[{at}].{name}");
        let name = text(&port["name"]);
        if ports.len() > 1 && name.is_empty() {
            causes.push(Cause::required(&field("name"), ""));
        }
        if !is_port(number(&port["port"])) {
            let found = port.get("port").cloned().unwrap_or(json!(0));
            causes.push(Cause::invalid(&field("port"), &found, PORT_RANGE));
        }
        let target = &port["targetPort"];
        if target.as_i64().is_some_and(|target| !is_port(target)) {
            causes.push(Cause::invalid(&field("targetPort"), target, PORT_RANGE));
        }
        if !name.is_empty() && !names.insert(name) {
            causes.push(Cause::duplicate(&field("name"), &name.into()));
        }
    }
}

/// Refuses a change of the cluster address.
pub(super) fn update(old: &Value, new: &Value) -> Vec<Cause> {
    let addressed = |spec: &Value| spec["type"] != "ExternalName";
    let (before, after) = (&old["clusterIP"], &new["clusterIP"]);
    let changed = addressed(old) && addressed(new) && before != after;
    let cause = || Cause::invalid("spec.clusterIPs[0]", &json!([after]), "may not change once set");
    changed.then(cause).into_iter().collect()
}
