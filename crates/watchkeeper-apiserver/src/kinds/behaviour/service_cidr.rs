//! ServiceCIDRs: the ranges from which the addresses of services come.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{Behaviour, Change, Findings};
use crate::failure::Cause;
use crate::kinds::cells::{Row, list, text};
use crate::kinds::ip_range::{IpRange, NO_RANGE};

#[derive(Debug)]
pub(in crate::kinds) struct ServiceCidr;

const CIDRS: &str = "spec.cidrs";
const IMMUTABLE: &str = "field is immutable";

impl Behaviour for ServiceCidr {
    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        // The ranges of an object that is there have been checked; it may get another one.
        let before = change.old.map(|old| list(&old["spec"]["cidrs"]).len());
        let cidrs = &change.new["spec"]["cidrs"];
        if before != Some(list(cidrs).len()) {
            validate(cidrs, &change.new["spec"], &mut findings.causes);
        }
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        let (before, after) = (list(&old["spec"]["cidrs"]), list(&new["spec"]["cidrs"]));
        if before.len() != after.len() && (before.len(), after.len()) != (1, 2) {
            return vec![Cause::invalid(CIDRS, &new["spec"]["cidrs"], IMMUTABLE)];
        }
        let pairs = before.iter().zip(after).enumerate().filter(|(_, (before, after))| before != after);
        pairs.map(|(at, (_, after))| Cause::invalid(&format!("{CIDRS}[{at}]"), after, IMMUTABLE)).collect()
    }

    fn headers(&self) -> &'static str {
        "Name CIDRs Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let cidrs: Vec<_> = list(&row.spec()["cidrs"]).iter().map(text).collect();
        json!([row.name(), cidrs.join(","), row.age()])
    }
}

/// One range, or one of each family.
fn validate(cidrs: &Value, spec: &Value, causes: &mut Vec<Cause>) {
    let all = list(cidrs);
    match all.len() {
        0 => return causes.push(Cause::required(CIDRS, "at least one CIDR required")),
        1 | 2 => {}
        _ => return causes.push(Cause::invalid(CIDRS, spec, "may only hold up to 2 values")),
    }
    let ranges: Vec<Option<IpRange>> = all.iter().map(|cidr| IpRange::parse(text(cidr))).collect();
    for (at, (cidr, range)) in all.iter().zip(&ranges).enumerate() {
        let mut invalid = |why: &str| causes.push(Cause::invalid(&format!("{CIDRS}[{at}]"), cidr, why));
        match range {
            None => invalid(NO_RANGE),
            Some(range) if range.first() != range.address() => {
                let canonical = range.to_string();
                invalid(&format!("must not have bits set beyond the prefix length ({canonical:?})"));
            }
            Some(range) if range.to_string() != text(cidr) => {
                invalid(&format!("must be in canonical form (\"{range}\")"));
            }
            Some(_) => {}
        }
    }
    let families: Vec<_> =
        ranges.iter().flatten().map(|range| matches!(range.first(), IpAddr::V4(_))).collect();
    if families.len() == 2 && families[0] == families[1] {
        let why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        causes.push(Cause::invalid(CIDRS, cidrs, why));
    }
}
