//! IPAddresses: claims of single addresses, each named after its address.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{Behaviour, Change, Findings};
use crate::failure::Cause;
use crate::kinds::cells::{Row, text};
use crate::kinds::kind::qualified;
use crate::kinds::meta;

#[derive(Debug)]
pub(in crate::kinds) struct IpAddress;

const NO_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

impl Behaviour for IpAddress {
    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        let name = meta::text(change.new, "name");
        let mut invalid = |why: &str| {
            findings.causes.push(Cause::invalid("metadata.name", &name.into(), why));
        };
        match name.parse::<IpAddr>() {
            Err(_) => invalid(NO_ADDRESS),
            Ok(address) if address.to_string() != name => {
                invalid(&format!("must be in canonical form (\"{address}\")"));
            }
            Ok(_) => {}
        }
        let parent = &change.new["spec"]["parentRef"];
        if parent.is_null() {
            findings.causes.push(Cause::required("spec.parentRef", ""));
            return;
        }
        for field in ["resource", "name"] {
            if text(&parent[field]).is_empty() {
                findings.causes.push(Cause::required(&format!("spec.parentRef.{field}"), ""));
            }
        }
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        let (before, after) = (&old["spec"]["parentRef"], &new["spec"]["parentRef"]);
        let changed = || Cause::invalid("spec.parentRef", after, "field is immutable");
        (before != after).then(changed).into_iter().collect()
    }

    fn headers(&self) -> &'static str {
        "Name ParentRef"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        json!([row.name(), parent(&row.spec()["parentRef"])])
    }
}

/// `resource.group/namespace/name` of what an address belongs to.
fn parent(parent: &Value) -> String {
    if parent.is_null() {
        return "<none>".to_owned();
    }
    let resource = qualified(text(&parent["resource"]), text(&parent["group"])).to_lowercase();
    let parts = [resource.as_str(), text(&parent["namespace"]), text(&parent["name"])];
    let named: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    named.join("/")
}
