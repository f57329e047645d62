//! Definitions that a program installs, upgrades or checks when it starts.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use common::Server;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use watchkeeper::controller::crd::{CrdError, DEADLINE, Outcome, ensure};
use watchkeeper::{Client, ObjectName};

struct Cluster {
    server: Server,
    client: Client,
    group: String,
}

impl Cluster {
    async fn new() -> Self {
        let server = Server::start().await;
        Self { client: server.clients(), group: format!("{}.io", server.ours()), server }
    }

    /// As `kube-derive` writes it, with fields that a server leaves out or writes in another form.
    fn definition(&self, version: &str, spec: Value) -> CustomResourceDefinition {
        let schema = json!({
            "description": "", "type": "object", "required": ["spec"], "properties": {
                "spec": {"type": "object", "properties": spec},
                "status": {"type": "object", "nullable": true, "properties": {
                    "ready": {"type": "integer", "format": "uint32", "minimum": 0.0},
                    "conditions": {"type": "array", "default": [], "items": {
                        "type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}},
                        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
                    "port": {"x-kubernetes-int-or-string": true},
                    "state": {"type": "string", "enum": ["On", "Off"]},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}, "default": {}},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}});
        let definition = json!({
            "metadata": {"name": format!("sites.{}", self.group)},
            "spec": {"group": self.group, "scope": "Namespaced",
                "names": {"kind": "Site", "plural": "sites", "singular": "site", "shortNames": [], "categories": []},
                "versions": [{"name": version, "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
                    "selectableFields": [],
                    "additionalPrinterColumns": [
                        {"name": "Ready", "type": "integer", "jsonPath": ".status.ready", "priority": 0}]}]},
        });
        serde_json::from_value(definition).unwrap()
    }

    fn small(&self) -> CustomResourceDefinition {
        self.definition("v1", json!({"size": {"type": "integer", "format": "int32", "default": 1}}))
    }

    fn large(&self, version: &str) -> CustomResourceDefinition {
        let spec = json!({"size": {"type": "integer", "format": "int64", "default": 1}, "color": {"type": "string"}});
        self.definition(version, spec)
    }

    async fn ensure(&self, wanted: &CustomResourceDefinition) -> Result<Outcome, CrdError> {
        let version = &wanted.spec.versions[0].name;
        ensure(&self.client, wanted, version, "site-operator", DEADLINE).await
    }

    async fn installed(&self) -> CustomResourceDefinition {
        let key = ObjectName::cluster(&format!("sites.{}", self.group));
        self.client.api().get(&key).await.unwrap()
    }

    fn sites(&self, version: &str) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&self.group, version, "Site"), "sites")
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_installed_served_and_not_written_again() {
    let cluster = Cluster::new().await;
    assert_eq!(cluster.ensure(&cluster.small()).await.unwrap(), Outcome::Created);
    let list = cluster.client.api_of::<DynamicObject>(cluster.sites("v1"));
    let mut site = DynamicObject::new("a", &cluster.sites("v1")).within(cluster.server.ours());
    site.data = json!({"spec": {}});
    assert_eq!(list.create(&site).await.unwrap().data["spec"]["size"], 1);
    let before = cluster.installed().await;
    assert_eq!(cluster.ensure(&cluster.small()).await.unwrap(), Outcome::Unchanged);
    assert_eq!(cluster.installed().await.metadata.resource_version, before.metadata.resource_version);
    let managers = before.metadata.managed_fields.unwrap();
    assert!(managers.iter().any(|entry| entry.manager.as_deref() == Some("site-operator")));
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_keeps_what_others_have_set_and_a_narrower_definition_is_refused() {
    let cluster = Cluster::new().await;
    cluster.ensure(&cluster.small()).await.unwrap();
    let mut labelled = cluster.installed().await;
    labelled.metadata.labels = Some([("theirs".to_owned(), "a".to_owned())].into());
    cluster.client.api().replace(&labelled).await.unwrap();
    assert_eq!(cluster.ensure(&cluster.small()).await.unwrap(), Outcome::Unchanged);
    assert_eq!(cluster.ensure(&cluster.large("v1")).await.unwrap(), Outcome::Upgraded);
    let installed = cluster.installed().await;
    assert_eq!(installed.metadata.labels, labelled.metadata.labels);
    assert_eq!(cluster.ensure(&cluster.large("v1")).await.unwrap(), Outcome::Unchanged);
    match cluster.ensure(&cluster.small()).await.unwrap_err() {
        CrdError::Narrows { path, what, .. } => {
            let spec = "spec.versions[v1].schema.openAPIV3Schema.properties.spec.properties";
            assert_eq!((path, what.as_str()), (format!("{spec}.color"), "the field is gone"));
        }
        error => panic!("{error}"),
    }
    assert_eq!(cluster.installed().await.metadata.resource_version, installed.metadata.resource_version);
}

#[tokio::test(start_paused = true)]
async fn a_new_version_is_served_beside_the_one_that_objects_are_stored_as() {
    let cluster = Cluster::new().await;
    cluster.ensure(&cluster.small()).await.unwrap();
    assert_eq!(cluster.ensure(&cluster.large("v2")).await.unwrap(), Outcome::Upgraded);
    let installed = cluster.installed().await;
    let versions: Vec<_> = installed
        .spec
        .versions
        .iter()
        .map(|version| (version.name.as_str(), version.served, version.storage))
        .collect();
    assert_eq!(versions, [("v1", true, false), ("v2", true, true)]);
    // A replica of the older program restarts meanwhile.
    assert_eq!(cluster.ensure(&cluster.small()).await.unwrap(), Outcome::Unchanged);
    assert_eq!(cluster.ensure(&cluster.large("v2")).await.unwrap(), Outcome::Unchanged);
}

#[tokio::test(start_paused = true)]
async fn replicas_that_start_at_once_all_succeed() {
    let cluster = Cluster::new().await;
    for wanted in [cluster.small(), cluster.large("v1")] {
        let ensured = [(); 4].map(|()| cluster.ensure(&wanted));
        let [a, b, c, d] = ensured;
        let (a, b, c, d) = tokio::join!(a, b, c, d);
        let outcomes = [a, b, c, d].map(Result::unwrap);
        let writes = outcomes.iter().filter(|outcome| **outcome != Outcome::Unchanged).count();
        assert_eq!(writes, 1, "{outcomes:?}");
    }
}
