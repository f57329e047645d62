//! Addresses and node ports that a client asks for, and that it cannot have.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::addresses::{FIRST_NODE_PORT, NODE_PORTS, node_ports};
use super::has_node_ports;
use crate::failure::Cause;
use crate::kinds::behaviour::Context;
use crate::kinds::cells::{list, number, text};
use crate::kinds::ip_range::IpRange;

/// The range of a cluster without a ServiceCIDR.
const DEFAULT_RANGE: &str = "10.0.0.0/16";
const TAKEN: &str = "provided IP is already allocated";
const NO_NETWORK: &str = "the provided network does not match the current range";
const TAKEN_PORT: &str = "provided port is already allocated";

/// Returns why a service cannot have what it asks for; `before` is its stored spec.
pub(super) fn find(before: Option<&Value>, spec: &Value, context: &dyn Context) -> Vec<Cause> {
    let cause = address(before, spec, context);
    if cause.is_some() {
        return cause.into_iter().collect();
    }
    // The allocator stops at the first.
    node_port(before, spec, context).into_iter().collect()
}

fn address(before: Option<&Value>, spec: &Value, context: &dyn Context) -> Option<Cause> {
    let wanted = text(&spec["clusterIP"]);
    let is_kept = before.is_some_and(|before| text(&before["clusterIP"]) == wanted);
    if ["", "None"].contains(&wanted) || is_kept || spec["type"] == "ExternalName" {
        return None;
    }
    // An address that is set is immutable, and validation says so.
    if before.is_some_and(|before| before["type"] != "ExternalName") {
        return None;
    }
    let Ok(address) = wanted.parse::<IpAddr>() else {
        let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        return Some(Cause::invalid("spec.clusterIPs[0]", &wanted.into(), why));
    };
    let mut ranges: Vec<_> = context.ranges().iter().filter_map(|text| IpRange::parse(text)).collect();
    if ranges.is_empty() {
        ranges.extend(IpRange::parse(DEFAULT_RANGE));
    }
    let addresses = json!([wanted]);
    if !ranges.iter().any(|range| range.first().is_ipv4() == address.is_ipv4()) {
        let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        let why = format!("{family} is not configured on this cluster");
        return Some(Cause::invalid("spec.clusterIPs[0]", &addresses, &why));
    }
    let why = match ranges.iter().find(|range| range.contains(address)) {
        None => NO_NETWORK.to_owned(),
        Some(range) if !range.offers(address) => {
            format!("the provided IP ({wanted}) is not in the valid range. The range of valid IPs is {range}")
        }
        Some(_) if context.any_peer_has("spec.clusterIP", wanted) => TAKEN.to_owned(),
        Some(_) => return None,
    };
    Some(Cause::invalid("spec.clusterIPs", &addresses, &format!("failed to allocate IP {wanted}: {why}")))
}

fn node_port(before: Option<&Value>, spec: &Value, context: &dyn Context) -> Option<Cause> {
    if !has_node_ports(text(&spec["type"])) {
        return None;
    }
    let own = before.map(node_ports).unwrap_or_default();
    let asked = list(&spec["ports"]).iter().enumerate().map(|(at, port)| (at, number(&port["nodePort"])));
    let asked: Vec<_> = asked.filter(|(_, port)| *port != 0 && !own.contains(port)).collect();
    if asked.is_empty() {
        return None;
    }
    let last = FIRST_NODE_PORT + i64::from(NODE_PORTS) - 1;
    let used: BTreeSet<i64> = context.peers().flat_map(|service| node_ports(&service["spec"])).collect();
    asked.into_iter().find_map(|(at, port)| {
        let why = match port {
            port if !(FIRST_NODE_PORT..=last).contains(&port) => {
                let range = format!("{FIRST_NODE_PORT}-{last}");
                format!("provided port is not in the valid range. The range of valid ports is {range}")
            }
            port if used.contains(&port) => TAKEN_PORT.to_owned(),
            _ => return None,
        };
        Some(Cause::invalid(&format!("spec.ports[{at}].nodePort"), &port.into(), &why))
    })
}
