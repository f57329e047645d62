//! Cluster addresses and node ports of services: allocated once, and kept when a client does not repeat them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use watchkeeper::clock::Generator;

use super::has_node_ports;
use crate::kinds::behaviour::Context;
use crate::kinds::cells::{list, number, text};
use crate::kinds::fill::{each, fill};

const ADDRESSES: [&str; 4] = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"];
pub(super) const FIRST_NODE_PORT: i64 = 30_000;
pub(super) const NODE_PORTS: u16 = 2_768;

/// Gives a service its address within the cluster, and a port on every node where its type has one.
pub(super) fn allocate(spec: &mut Value, context: &dyn Context) {
    let sort = text(&spec["type"]).to_owned();
    if sort == "ExternalName" {
        return;
    }
    if text(&spec["clusterIP"]).is_empty() {
        spec["clusterIP"] = free_address(context).into();
    }
    let address = spec["clusterIP"].clone();
    // Without a selector the family of the addresses is not known here.
    let open = address == "None" && spec["selector"].as_object().is_none_or(serde_json::Map::is_empty);
    fill(spec, "clusterIPs", json!([address]));
    fill(spec, "ipFamilies", if open { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) });
    fill(spec, "ipFamilyPolicy", if open { "RequireDualStack" } else { "SingleStack" }.into());
    if has_node_ports(&sort) && each(&mut spec["ports"]).any(|port| lacks_node_port(port)) {
        allocate_node_ports(&mut spec["ports"], context);
    }
}

fn free_address(context: &dyn Context) -> String {
    loop {
        let number = 1 + context.generator().below(65_534);
        let address = format!("10.0.{}.{}", number / 256, number % 256);
        if !context.any_peer_has("spec.clusterIP", &address) {
            return address;
        }
    }
}

fn lacks_node_port(port: &Value) -> bool {
    number(&port["nodePort"]) == 0
}

fn allocate_node_ports(ports: &mut Value, context: &dyn Context) {
    let mut used: BTreeSet<i64> = context.peers().flat_map(|service| node_ports(&service["spec"])).collect();
    for port in each(ports).filter(|port| lacks_node_port(port)) {
        let number = free_node_port(&used, context.generator());
        used.insert(number);
        port["nodePort"] = number.into();
    }
}

/// A port that is not used, or any one if all are.
fn free_node_port(used: &BTreeSet<i64>, generator: &Generator) -> i64 {
    let range = FIRST_NODE_PORT..FIRST_NODE_PORT + i64::from(NODE_PORTS);
    let full = used.range(range).count() >= usize::from(NODE_PORTS);
    loop {
        let at = i64::try_from(generator.below(u64::from(NODE_PORTS))).unwrap_or(0);
        let number = FIRST_NODE_PORT + at;
        if full || !used.contains(&number) {
            return number;
        }
    }
}

pub(super) fn node_ports(spec: &Value) -> BTreeSet<i64> {
    list(&spec["ports"]).iter().filter_map(|port| port["nodePort"].as_i64()).collect()
}

/// Keeps the allocations of a service, and drops those that its new type does not have.
pub(super) fn keep(before: &Value, after: &mut Value) {
    let (was, sort) = (text(&before["type"]).to_owned(), text(&after["type"]).to_owned());
    drop_fields(before, after, &was, &sort);
    match (has_node_ports(&was), has_node_ports(&sort)) {
        (true, false) => drop_node_ports(before, after),
        (true, true) => keep_node_ports(before, after),
        _ => {}
    }
    if was != "ExternalName" && sort != "ExternalName" {
        for field in ADDRESSES {
            if let Some(value) = before.get(field) {
                fill(after, field, value.clone());
            }
        }
    }
}

/// Drops the fields that only services of the type `was` have. One that the client has changed is left for validation to refuse.
fn drop_fields(before: &Value, after: &mut Value, was: &str, sort: &str) {
    let mut without = |field: &str| {
        if let Value::Object(spec) = after
            && spec.get(field) == before.get(field)
        {
            spec.remove(field);
        }
    };
    if was == "LoadBalancer" && sort != "LoadBalancer" {
        without("allocateLoadBalancerNodePorts");
    }
    if has_node_ports(was) && !has_node_ports(sort) {
        without("externalTrafficPolicy");
    }
    if was != "ExternalName" && sort == "ExternalName" {
        ADDRESSES.iter().for_each(|field| without(field));
        without("internalTrafficPolicy");
    }
}

fn drop_node_ports(before: &Value, after: &mut Value) {
    let known = node_ports(before);
    for port in each(&mut after["ports"]).filter_map(Value::as_object_mut) {
        if port.get("nodePort").and_then(Value::as_i64).is_some_and(|number| known.contains(&number)) {
            port.remove("nodePort");
        }
    }
}

/// Gives ports without a node port the one that they had by their name.
fn keep_node_ports(before: &Value, after: &mut Value) {
    let mut used = node_ports(after);
    // Of several of one name the first counts.
    let ports = list(&before["ports"]).iter().rev();
    let known: BTreeMap<_, _> = ports.map(|old| (old["name"].as_str(), &old["nodePort"])).collect();
    for port in each(&mut after["ports"]).filter(|port| port.get("nodePort").is_none()) {
        let same = known.get(&port["name"].as_str()).and_then(|number| number.as_i64());
        if let Some(number) = same.filter(|own| used.insert(*own)) {
            port["nodePort"] = number.into();
        }
    }
}
