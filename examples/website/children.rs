//! The objects that a Website owns, as they should be.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapVolumeSource, Container, EnvFromSource, PodSpec, PodTemplateSpec, Secret,
    SecretEnvSource, Service, ServicePort, ServiceSpec, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::types::Website;

type Labels = BTreeMap<String, String>;

fn labels(site: &Website) -> Labels {
    let name = site.metadata.name.clone().unwrap_or_default();
    Labels::from([("app".to_owned(), "website".to_owned()), ("website".to_owned(), name)])
}

fn metadata(site: &Website) -> ObjectMeta {
    ObjectMeta { name: site.metadata.name.clone(), labels: Some(labels(site)), ..ObjectMeta::default() }
}

pub(crate) fn config_map(site: &Website) -> ConfigMap {
    let data = BTreeMap::from([("index.html".to_owned(), site.spec.page.clone())]);
    ConfigMap { metadata: metadata(site), data: Some(data), ..ConfigMap::default() }
}

pub(crate) fn service(site: &Website) -> Service {
    let ports = vec![ServicePort { port: 80, ..ServicePort::default() }];
    let spec = ServiceSpec { selector: Some(labels(site)), ports: Some(ports), ..ServiceSpec::default() };
    Service { metadata: metadata(site), spec: Some(spec), ..Service::default() }
}

pub(crate) fn deployment(site: &Website, secret: &Secret) -> Deployment {
    // Another version of the Secret makes another template, so the Pods are replaced.
    let version = secret.metadata.resource_version.clone().unwrap_or_default();
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels(site)),
            annotations: Some(BTreeMap::from([("example.dev/secret-version".to_owned(), version)])),
            ..ObjectMeta::default()
        }),
        spec: Some(pod(site)),
    };
    let spec = DeploymentSpec {
        replicas: Some(site.spec.replicas),
        selector: LabelSelector { match_labels: Some(labels(site)), ..LabelSelector::default() },
        template,
        ..DeploymentSpec::default()
    };
    Deployment { metadata: metadata(site), spec: Some(spec), ..Deployment::default() }
}

fn pod(site: &Website) -> PodSpec {
    let secret = SecretEnvSource { name: site.spec.secret.clone(), ..SecretEnvSource::default() };
    let page = VolumeMount {
        name: "page".to_owned(),
        mount_path: "/usr/share/nginx/html".to_owned(),
        ..VolumeMount::default()
    };
    let container = Container {
        name: "web".to_owned(),
        image: Some("nginx:1.29".to_owned()),
        env_from: Some(vec![EnvFromSource { secret_ref: Some(secret), ..EnvFromSource::default() }]),
        volume_mounts: Some(vec![page]),
        ..Container::default()
    };
    let page =
        ConfigMapVolumeSource { name: site.metadata.name.clone().unwrap_or_default(), ..Default::default() };
    let volume = Volume { name: "page".to_owned(), config_map: Some(page), ..Volume::default() };
    PodSpec { containers: vec![container], volumes: Some(vec![volume]), ..PodSpec::default() }
}
