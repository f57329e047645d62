//! Services.

use serde_json::{Value, json};

use super::{Behaviour, Change, Context, Findings};
use crate::failure::{Cause, Result};
use crate::kinds::cells::{Row, balancer, labels, list, number, or, text};
use crate::kinds::fill::{each, fill};
use crate::kinds::kind::Kind;

mod addresses;
mod conflicts;
mod validate;

#[derive(Debug)]
pub(in crate::kinds) struct Service;

impl Behaviour for Service {
    fn defaults(&self, _kind: &Kind, service: &mut Value) -> Result<()> {
        let spec = &mut service["spec"];
        fill(spec, "type", "ClusterIP".into());
        default_affinity(spec);
        default_traffic(spec);
        for port in spec.get_mut("ports").into_iter().flat_map(each) {
            fill(port, "protocol", "TCP".into());
            if [&json!(0), &json!("")].contains(&&port["targetPort"]) {
                port["targetPort"] = port["port"].clone();
            }
        }
        Ok(())
    }

    fn prepare_create(&self, service: &mut Value, context: &dyn Context) {
        addresses::allocate(&mut service["spec"], context);
    }

    fn prepare_update(&self, before: &Value, after: &mut Value, context: &dyn Context) {
        addresses::keep(&before["spec"], &mut after["spec"]);
        addresses::allocate(&mut after["spec"], context);
    }

    fn conflicts(&self, before: Option<&Value>, after: &Value, context: &dyn Context) -> Vec<Cause> {
        conflicts::find(before.map(|before| &before["spec"]), &after["spec"], context)
    }

    fn status_metadata(&self) -> &'static [&'static str] {
        &["annotations", "finalizers", "labels", "ownerReferences"]
    }

    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        validate::spec(&change.new["spec"], &mut findings.causes);
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        validate::update(&old["spec"], &new["spec"])
    }

    fn warnings(&self, parse: &dyn Fn() -> Value) -> Vec<String> {
        let spec = &parse()["spec"];
        let ignored = spec["clusterIP"] == "None" && spec["sessionAffinity"] != "None";
        let warning = || "spec.SessionAffinity is ignored for headless services".to_owned();
        ignored.then(warning).into_iter().collect()
    }

    /// No two services have the same address or node port.
    fn allocates(&self) -> bool {
        true
    }

    fn storage_path(&self, _kind: &Kind) -> String {
        "services/specs".to_owned()
    }

    fn headers(&self) -> &'static str {
        "Name Type Cluster-IP External-IP Port(s) Age Selector*"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let spec = row.spec();
        json!([
            row.name(),
            text(&spec["type"]),
            or(text(&spec["clusterIP"]), "<none>"),
            external_address(row.object),
            ports(&spec["ports"]),
            row.age(),
            labels(&spec["selector"]),
        ])
    }
}

/// Whether services of this type are reached from outside of the cluster, by ports of the nodes.
fn has_node_ports(sort: &str) -> bool {
    ["NodePort", "LoadBalancer"].contains(&sort)
}

fn default_affinity(spec: &mut Value) {
    fill(spec, "sessionAffinity", "None".into());
    if spec["sessionAffinity"] == "ClientIP" {
        fill(spec, "sessionAffinityConfig", json!({}));
        fill(&mut spec["sessionAffinityConfig"], "clientIP", json!({}));
        fill(&mut spec["sessionAffinityConfig"]["clientIP"], "timeoutSeconds", 10_800.into());
    } else if spec["sessionAffinity"] == "None"
        && let Value::Object(map) = spec
    {
        map.remove("sessionAffinityConfig");
    }
}

fn default_traffic(spec: &mut Value) {
    let sort = text(&spec["type"]).to_owned();
    if ["ClusterIP", "NodePort", "LoadBalancer"].contains(&sort.as_str()) {
        fill(spec, "internalTrafficPolicy", "Cluster".into());
    }
    if has_node_ports(&sort) {
        fill(spec, "externalTrafficPolicy", "Cluster".into());
    }
    if sort == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", true.into());
    }
}

fn external_address(service: &Value) -> String {
    let spec = &service["spec"];
    let own: Vec<_> = list(&spec["externalIPs"]).iter().map(text).collect();
    match text(&spec["type"]) {
        "ExternalName" => text(&spec["externalName"]).to_owned(),
        "LoadBalancer" => {
            let balanced = balancer(&service["status"]);
            let all: Vec<_> = [balanced.as_str()].into_iter().filter(|b| !b.is_empty()).chain(own).collect();
            or(&all.join(","), "<pending>").to_owned()
        }
        _ => or(&own.join(","), "<none>").to_owned(),
    }
}

fn ports(ports: &Value) -> String {
    let shown = list(ports).iter().map(|port| match number(&port["nodePort"]) {
        0 => format!("{}/{}", number(&port["port"]), text(&port["protocol"])),
        node => format!("{}:{node}/{}", number(&port["port"]), text(&port["protocol"])),
    });
    or(&shown.collect::<Vec<_>>().join(","), "<none>").to_owned()
}
