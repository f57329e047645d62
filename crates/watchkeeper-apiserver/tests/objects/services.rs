//! Services: defaults by type, validation, node ports and status.

use serde_json::{Value, json};

use crate::common::*;

const SERVICES: &str = "/api/v1/namespaces/wktest/services";

fn service(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test(start_paused = true)]
async fn a_service_is_filled_in_by_its_type() {
    let server = Server::start().await;
    let ports = json!([{"port": 80}]);
    for (name, spec, field, filled) in [
        ("a", json!({"type": "NodePort", "ports": ports}), "externalTrafficPolicy", json!("Cluster")),
        ("b", json!({"type": "LoadBalancer", "ports": ports}), "allocateLoadBalancerNodePorts", json!(true)),
        (
            "c",
            json!({"sessionAffinity": "ClientIP", "ports": ports}),
            "sessionAffinityConfig",
            json!({"clientIP": {"timeoutSeconds": 10800}}),
        ),
        ("d", json!({"clusterIP": "None"}), "ipFamilyPolicy", json!("RequireDualStack")),
        ("e", json!({"clusterIP": "None", "selector": {"a": "b"}}), "ipFamilyPolicy", json!("SingleStack")),
    ] {
        let made = post(&server, SERVICES, &service(name, &spec)).await;
        assert_eq!(made["spec"][field], filled, "{made}");
    }
    let cluster = json!({"spec": {"type": "ClusterIP", "sessionAffinity": "None"}});
    for (name, field) in [
        ("a", "externalTrafficPolicy"),
        ("b", "allocateLoadBalancerNodePorts"),
        ("c", "sessionAffinityConfig"),
    ] {
        let (code, changed) = patch(&server, &format!("{SERVICES}/{name}"), MERGE, &cluster).await;
        let port = changed["spec"]["ports"][0].get("nodePort");
        assert_eq!((code, changed["spec"].get(field), port), (200, None, None), "{changed}");
    }
}

#[tokio::test(start_paused = true)]
async fn services_with_mistakes_are_refused_by_field() {
    let server = Server::start().await;
    let ports = json!([{"port": 80}]);
    for (spec, fields) in [
        (json!({}), &["spec.ports"][..]),
        (json!({"ports": ports, "type": "Odd"}), &["spec.type"]),
        (json!({"type": "ExternalName"}), &["spec.externalName"]),
        (json!({"ports": [{"port": 0}]}), &["spec.ports[0].port", "spec.ports[0].targetPort"]),
        (json!({"ports": [{"name": "x", "port": 1}, {"name": "x", "port": 2}]}), &["spec.ports[1].name"]),
        (json!({"ports": ports, "type": "NodePort", "clusterIP": "None"}), &["spec.clusterIPs[0]"]),
    ] {
        let (code, status) = call(&server, "POST", SERVICES, &service("a", &spec)).await;
        let causes = status["details"]["causes"].as_array().unwrap().iter();
        let mut fields_found: Vec<_> = causes.map(|cause| cause["field"].as_str().unwrap()).collect();
        fields_found.sort_unstable();
        assert_eq!((code, &fields_found[..]), (422, fields), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_port_follows_the_name_of_its_port() {
    let server = Server::start().await;
    let spec = json!({"type": "NodePort", "ports": [{"name": "x", "port": 80}]});
    let number = |service: &Value| service["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    let first = number(&post(&server, SERVICES, &service("a", &spec)).await);
    for (name, port, same) in [("x", 81, true), ("y", 81, false)] {
        let ports = json!({"spec": {"ports": [{"name": name, "port": port}]}});
        let (_, changed) = patch(&server, &format!("{SERVICES}/a"), MERGE, &ports).await;
        assert_eq!(number(&changed) == first, same, "{changed}");
    }
}

#[tokio::test(start_paused = true)]
async fn deletes_of_some_kinds_return_the_object() {
    let server = Server::start().await;
    let core = "/api/v1/namespaces/wktest";
    for (plural, object, answer) in [
        ("services", service("a", &json!({"clusterIP": "None"})), "Service"),
        ("serviceaccounts", json!({"metadata": {"name": "a"}}), "ServiceAccount"),
        ("secrets", json!({"metadata": {"name": "a"}}), "Status"),
    ] {
        let made = post(&server, &format!("{core}/{plural}"), &object).await;
        let (code, last) = call(&server, "DELETE", &format!("{core}/{plural}/a"), &Value::Null).await;
        assert_eq!((code, &last["kind"]), (200, &json!(answer)), "{last}");
        assert!(answer == "Status" || version(&last) > version(&made), "{last}");
        assert_eq!(get(&server, &format!("{core}/{plural}/a")).await.0, 404);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_has_no_uid_and_in_a_dry_run_the_version_that_was_sent() {
    let server = Server::start().await;
    let path = format!("{SERVICES}/a");
    let mut object = service("a", &json!({"clusterIP": "None", "sessionAffinity": "ClientIP"}));
    object["metadata"]["uid"] = "00000000-0000-0000-0000-00000000dead".into();
    let (code, status) = call(&server, "PUT", &path, &object).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")), "{status}");
    object["metadata"] = json!({"name": "a", "resourceVersion": "1"});
    let json = [("content-type", "application/json")];
    let response = send(&server, "PUT", &format!("{path}?dryRun=All"), &json, object.to_string()).await;
    let warning = "299 - \"spec.SessionAffinity is ignored for headless services\"";
    assert_eq!(
        (response.status().as_u16(), &response.headers()["warning"]),
        (201, &warning.parse().unwrap())
    );
    let (_, made) = call(&server, "PUT", &format!("{path}?dryRun=All"), &object).await;
    assert_eq!(version(&made), 1, "{made}");
    assert_eq!(get(&server, &path).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_service_takes_labels() {
    let server = Server::start().await;
    post(&server, SERVICES, &service("a", &json!({"clusterIP": "None"}))).await;
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let (code, object) = patch(&server, &format!("{SERVICES}/a/status"), MERGE, &labels).await;
    assert_eq!((code, &object["metadata"]["labels"]["a"]), (200, &json!("b")), "{object}");
}

/// The real server, started with another range, says so in other numbers: only the words of the embedded one are compared.
#[tokio::test(start_paused = true)]
async fn an_address_or_a_port_that_cannot_be_had_is_refused() {
    let server = Server::embedded(|settings| settings).await;
    let ports = json!([{"port": 80, "nodePort": 30_080}]);
    let wanted = json!({"type": "NodePort", "clusterIP": "10.0.7.7", "ports": ports});
    let made = post(&server, SERVICES, &service("first", &wanted)).await;
    assert_eq!(made["spec"]["clusterIPs"], json!(["10.0.7.7"]));
    let plain = |address: &str| json!({"clusterIP": address, "ports": [{"port": 80}]});
    let node_port = |port: i64| json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    for (spec, field, why) in [
        (
            plain("10.0.7.7"),
            "spec.clusterIPs",
            "failed to allocate IP 10.0.7.7: provided IP is already allocated",
        ),
        (
            plain("192.168.0.1"),
            "spec.clusterIPs",
            "failed to allocate IP 192.168.0.1: the provided network does not match the current range",
        ),
        (
            plain("10.0.255.255"),
            "spec.clusterIPs",
            "the provided IP (10.0.255.255) is not in the valid range. The range of valid IPs is 10.0.0.0/16",
        ),
        (plain("fd00::1"), "spec.clusterIPs[0]", "IPv6 is not configured on this cluster"),
        (plain("ten"), "spec.clusterIPs[0]", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        (node_port(30_080), "spec.ports[0].nodePort", "provided port is already allocated"),
        (
            node_port(80),
            "spec.ports[0].nodePort",
            "provided port is not in the valid range. The range of valid ports is 30000-32767",
        ),
    ] {
        let (code, status) = call(&server, "POST", SERVICES, &service("second", &spec)).await;
        assert_eq!((code, &status["details"]["causes"][0]["field"]), (422, &json!(field)), "{status}");
        assert!(status["message"].as_str().unwrap().ends_with(why), "{status}");
    }
    // What a service has, it keeps; what it gets must be free.
    let path = format!("{SERVICES}/first");
    assert_eq!(call(&server, "PUT", &path, &service("first", &wanted)).await.0, 200);
    post(&server, SERVICES, &service("second", &node_port(30_081))).await;
    let change = json!([{"op": "replace", "path": "/spec/ports/0/nodePort", "value": 30_081}]);
    let (code, status) = patch(&server, &path, JSON_PATCH, &change).await;
    assert_eq!(code, 422, "{status}");
    // A further range has further addresses.
    let range = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["192.168.0.0/24"]}});
    post(&server, "/apis/networking.k8s.io/v1/servicecidrs", &range).await;
    post(&server, SERVICES, &service("third", &plain("192.168.0.1"))).await;
}
