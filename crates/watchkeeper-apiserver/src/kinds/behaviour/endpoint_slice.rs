//! EndpointSlices.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::cells::{Row, list, shown, some, text};

#[derive(Debug)]
pub(in crate::kinds) struct EndpointSlice;

impl Behaviour for EndpointSlice {
    fn headers(&self) -> &'static str {
        "Name AddressType Ports Endpoints Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let slice = row.object;
        let ports = list(&slice["ports"]).iter().map(|port| shown(&port["port"], "*"));
        let addresses = list(&slice["endpoints"]).iter().flat_map(|endpoint| list(&endpoint["addresses"]));
        let addresses = addresses.map(|address| text(address).to_owned());
        json!([
            row.name(),
            text(&slice["addressType"]),
            first_three(&ports.collect::<Vec<_>>()),
            first_three(&addresses.collect::<Vec<_>>()),
            row.age(),
        ])
    }
}

fn first_three(texts: &[String]) -> String {
    if texts.is_empty() { "<unset>".to_owned() } else { some(texts, 3) }
}
