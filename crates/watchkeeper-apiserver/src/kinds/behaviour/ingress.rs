//! Ingresses and IngressClasses.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::cells::{Row, balancer, list, or, some, text};

#[derive(Debug)]
pub(in crate::kinds) struct Ingress;

impl Behaviour for Ingress {
    fn headers(&self) -> &'static str {
        "Name Class Hosts Address Ports Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let spec = row.spec();
        let hosts = list(&spec["rules"]).iter().map(|rule| text(&rule["host"]).to_owned());
        let hosts: Vec<_> = hosts.filter(|host| !host.is_empty()).collect();
        json!([
            row.name(),
            or(text(&spec["ingressClassName"]), "<none>"),
            if hosts.is_empty() { "*".to_owned() } else { some(&hosts, 3) },
            balancer(row.status()),
            if list(&spec["tls"]).is_empty() { "80" } else { "80, 443" },
            row.age(),
        ])
    }
}

#[derive(Debug)]
pub(in crate::kinds) struct IngressClass;

impl Behaviour for IngressClass {
    fn headers(&self) -> &'static str {
        "Name Controller Parameters Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let spec = row.spec();
        json!([row.name(), text(&spec["controller"]), parameters(&spec["parameters"]), row.age()])
    }
}

/// `kind.group/name` of the parameters.
fn parameters(parameters: &Value) -> String {
    let (kind, name) = (text(&parameters["kind"]), text(&parameters["name"]));
    match (parameters.is_object(), text(&parameters["apiGroup"])) {
        (false, _) => "<none>".to_owned(),
        (true, "") => format!("{kind}/{name}"),
        (true, group) => format!("{kind}.{group}/{name}"),
    }
}
