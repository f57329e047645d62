//! The kind of the operator, and the children of its objects. The benchmark of controllers has the same, by this file.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, ContainerPort, EnvFromSource, EnvVar, PodSpec, PodTemplateSpec, SecretEnvSource,
    Service, ServicePort, ServiceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a Website asks for.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Website", namespaced, status = "WebsiteStatus")]
#[kube(crates(kube_core = "watchkeeper::kube_core", k8s_openapi = "watchkeeper::k8s_openapi"))]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebsiteSpec {
    pub(crate) image: String,
    pub(crate) replicas: i32,
    /// The Secret with the environment of its containers, if any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) secret: String,
}

/// What the operator knows of a Website.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebsiteStatus {
    #[serde(default)]
    pub(crate) ready_replicas: i32,
    #[serde(default)]
    pub(crate) conditions: Vec<Condition>,
}

pub(crate) fn config_map(site: &Website) -> ConfigMap {
    let data = BTreeMap::from([("index.html".to_owned(), format!("served by {}", site.spec.image))]);
    ConfigMap { metadata: metadata(site), data: Some(data), ..ConfigMap::default() }
}

pub(crate) fn deployment(site: &Website) -> Deployment {
    let port =
        ContainerPort { name: Some("http".to_owned()), container_port: 8080, ..ContainerPort::default() };
    let variable = EnvVar { name: "SITE".to_owned(), value: site.metadata.name.clone(), ..EnvVar::default() };
    let container = Container {
        name: "web".to_owned(),
        image: Some(site.spec.image.clone()),
        ports: Some(vec![port]),
        env: Some(vec![variable]),
        env_from: (!site.spec.secret.is_empty()).then(|| vec![environment(&site.spec.secret)]),
        ..Container::default()
    };
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta { labels: Some(labels(site)), ..ObjectMeta::default() }),
        spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
    };
    let spec = DeploymentSpec {
        replicas: Some(site.spec.replicas),
        selector: LabelSelector { match_labels: Some(labels(site)), ..LabelSelector::default() },
        template,
        ..DeploymentSpec::default()
    };
    Deployment { metadata: metadata(site), spec: Some(spec), ..Deployment::default() }
}

pub(crate) fn service(site: &Website) -> Service {
    let target_port = Some(IntOrString::String("http".to_owned()));
    let port = ServicePort { name: Some("http".to_owned()), port: 80, target_port, ..ServicePort::default() };
    let spec =
        ServiceSpec { selector: Some(labels(site)), ports: Some(vec![port]), ..ServiceSpec::default() };
    Service { metadata: metadata(site), spec: Some(spec), ..Service::default() }
}

fn environment(secret: &str) -> EnvFromSource {
    let secret = SecretEnvSource { name: secret.to_owned(), optional: None };
    EnvFromSource { secret_ref: Some(secret), ..EnvFromSource::default() }
}

fn metadata(site: &Website) -> ObjectMeta {
    ObjectMeta { name: site.metadata.name.clone(), labels: Some(labels(site)), ..ObjectMeta::default() }
}

fn labels(site: &Website) -> BTreeMap<String, String> {
    let name = site.metadata.name.clone().unwrap_or_default();
    BTreeMap::from([("app".to_owned(), "site".to_owned()), ("site".to_owned(), name)])
}
