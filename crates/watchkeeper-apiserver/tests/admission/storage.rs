//! `StorageObjectInUseProtection` and `DefaultIngressClass`: what new objects get.

use serde_json::json;

use crate::common::{Server, post};
use crate::own;

const NETWORKING: &str = "/apis/networking.k8s.io/v1";

#[tokio::test(start_paused = true)]
async fn claims_and_volumes_are_protected_from_the_start() {
    let server = Server::with_admission().await;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let claims = "/api/v1/namespaces/wktest/persistentvolumeclaims";
    let claim = post(&server, claims, &json!({"metadata": {"name": "c"}, "spec": spec})).await;
    assert_eq!(claim["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    let spec =
        json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}});
    let volume = json!({"metadata": {"name": own("v"), "finalizers": ["example.com/mine"]}, "spec": spec});
    let volume = post(&server, "/api/v1/persistentvolumes", &volume).await;
    assert_eq!(volume["metadata"]["finalizers"], json!(["example.com/mine", "kubernetes.io/pv-protection"]));
}

/// On the embedded server alone: a default class would reach ingresses of other tests.
#[tokio::test(start_paused = true)]
async fn an_ingress_without_a_class_gets_the_default_one() {
    let server = Server::embedded_with_admission("DefaultIngressClass").await;
    let ingresses = format!("{NETWORKING}/namespaces/wktest/ingresses");
    let ingress = |name: &str| {
        let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
        json!({"metadata": {"name": name}, "spec": {"defaultBackend": backend}})
    };
    let before = post(&server, &ingresses, &ingress("a")).await;
    assert_eq!(before["spec"].get("ingressClassName"), None);
    let annotations = json!({"ingressclass.kubernetes.io/is-default-class": "true"});
    let class = json!({"metadata": {"name": "usual", "annotations": annotations}, "spec": {"controller": "example.com/c"}});
    post(&server, &format!("{NETWORKING}/ingressclasses"), &class).await;
    let after = post(&server, &ingresses, &ingress("b")).await;
    assert_eq!(after["spec"]["ingressClassName"], "usual");
    let mut own = ingress("c");
    own["spec"]["ingressClassName"] = json!("other");
    assert_eq!(post(&server, &ingresses, &own).await["spec"]["ingressClassName"], "other");
}
