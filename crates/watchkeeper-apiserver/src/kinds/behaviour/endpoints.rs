//! Endpoints.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::cells::{Row, list, number, some, text};
use crate::kinds::kind::Kind;

#[derive(Debug)]
pub(in crate::kinds) struct Endpoints;

impl Behaviour for Endpoints {
    fn deprecation(&self, _kind: &Kind) -> Option<String> {
        Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned())
    }

    fn headers(&self) -> &'static str {
        "Name Endpoints Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let addresses = list(&row.object["subsets"]).iter().flat_map(addresses);
        json!([row.name(), some(&addresses.collect::<Vec<_>>(), 3), row.age()])
    }
}

/// The addresses of a subset, each with each of its ports.
fn addresses(subset: &Value) -> Vec<String> {
    let addresses = list(&subset["addresses"]);
    let ports = list(&subset["ports"]);
    if ports.is_empty() {
        return addresses.iter().map(|address| text(&address["ip"]).to_owned()).collect();
    }
    let pairs = ports.iter().flat_map(|port| {
        addresses.iter().map(move |address| format!("{}:{}", text(&address["ip"]), number(&port["port"])))
    });
    pairs.collect()
}
