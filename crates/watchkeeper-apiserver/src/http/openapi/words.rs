//! Descriptions of types and fields, from the schemas of k8s-openapi. They are generated for each document and dropped
//! with it: documents are rarely requested, and clients cache them.

use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value};

/// The schemas of all types of one group version, by the names under which the real server publishes them.
pub(super) struct Words(Map<String, Value>);

impl Words {
    pub(super) fn of(group: &str, version: &str) -> Self {
        let mut generator = SchemaSettings::openapi3().into_generator();
        collect(group, version, &mut generator);
        Self(generator.take_definitions(true))
    }

    /// Returns the description of a type.
    pub(super) fn on_type(&self, name: &str) -> Option<&Value> {
        self.0.get(name)?.get("description")
    }

    /// Returns the description of a field.
    pub(super) fn on_field(&self, name: &str, field: &str) -> Option<&Value> {
        self.0.get(name)?.get("properties")?.get(field)?.get("description")
    }

    /// Returns the required fields of a type. k8s-openapi requires metadata of kinds; the API does not.
    pub(super) fn required(&self, name: &str) -> Vec<&str> {
        let fields = self.0.get(name).and_then(|schema| schema["required"].as_array());
        let fields = fields.into_iter().flatten().filter_map(Value::as_str);
        fields.filter(|field| *field != "metadata").collect()
    }

    /// Returns the description of a field that every kind has.
    pub(super) fn on_any(&self, field: &str) -> Option<&Value> {
        self.on_field("io.k8s.api.core.v1.ConfigMap", field)
    }
}

macro_rules! each {
    ($generator:ident: $($kind:ty),*) => {{
        $($generator.subschema_for::<$kind>();)*
    }};
}

/// Custom resources have no types here, but share some fields with all kinds.
fn collect(group: &str, version: &str, generator: &mut SchemaGenerator) {
    use api::{admissionregistration, apps, autoscaling, batch, certificates, coordination, core, discovery};
    use api::{events, flowcontrol, networking, node, policy, rbac, scheduling, storage};
    generator.subschema_for::<core::v1::ConfigMap>();
    collect_newer(group, version, generator);
    collect_newest(group, version, generator);
    match (group, version) {
        ("", "v1") => each!(generator: core::v1::ComponentStatus, core::v1::Endpoints, core::v1::Event,
            core::v1::LimitRange, core::v1::Namespace, core::v1::Node, core::v1::PersistentVolume,
            core::v1::PersistentVolumeClaim, core::v1::Pod, core::v1::PodTemplate,
            core::v1::ReplicationController, core::v1::ResourceQuota, core::v1::Secret,
            core::v1::Service, core::v1::ServiceAccount),
        ("admissionregistration.k8s.io", "v1") => each!(generator:
            admissionregistration::v1::MutatingWebhookConfiguration,
            admissionregistration::v1::ValidatingAdmissionPolicy,
            admissionregistration::v1::ValidatingAdmissionPolicyBinding,
            admissionregistration::v1::ValidatingWebhookConfiguration),
        ("apiextensions.k8s.io", "v1") => each!(generator: apiextensions::v1::CustomResourceDefinition),
        ("apiregistration.k8s.io", "v1") => each!(generator: apiregistration::v1::APIService),
        ("apps", "v1") => each!(generator: apps::v1::ControllerRevision, apps::v1::DaemonSet,
            apps::v1::Deployment, apps::v1::ReplicaSet, apps::v1::StatefulSet),
        ("autoscaling", "v1") => each!(generator: autoscaling::v1::HorizontalPodAutoscaler),
        ("autoscaling", "v2") => each!(generator: autoscaling::v2::HorizontalPodAutoscaler),
        ("batch", "v1") => each!(generator: batch::v1::CronJob, batch::v1::Job),
        ("certificates.k8s.io", "v1") => each!(generator: certificates::v1::CertificateSigningRequest),
        ("coordination.k8s.io", "v1") => each!(generator: coordination::v1::Lease),
        ("discovery.k8s.io", "v1") => each!(generator: discovery::v1::EndpointSlice),
        ("flowcontrol.apiserver.k8s.io", "v1") => each!(generator: flowcontrol::v1::FlowSchema,
            flowcontrol::v1::PriorityLevelConfiguration),
        ("events.k8s.io", "v1") => each!(generator: events::v1::Event),
        ("networking.k8s.io", "v1") => each!(generator: networking::v1::Ingress,
            networking::v1::IngressClass, networking::v1::NetworkPolicy),
        ("node.k8s.io", "v1") => each!(generator: node::v1::RuntimeClass),
        ("policy", "v1") => each!(generator: policy::v1::PodDisruptionBudget),
        ("rbac.authorization.k8s.io", "v1") => each!(generator: rbac::v1::ClusterRole,
            rbac::v1::ClusterRoleBinding, rbac::v1::Role, rbac::v1::RoleBinding),
        ("scheduling.k8s.io", "v1") => each!(generator: scheduling::v1::PriorityClass),
        ("storage.k8s.io", "v1") => each!(generator: storage::v1::CSIDriver, storage::v1::CSINode,
            storage::v1::CSIStorageCapacity, storage::v1::StorageClass, storage::v1::VolumeAttachment),
        _ => {}
    }
}

k8s_openapi::k8s_if_ge_1_34! {
    /// The kinds that older versions of the published types lack.
    fn collect_newer(group: &str, version: &str, generator: &mut SchemaGenerator) {
        use api::{networking, resource, storage};
        match (group, version) {
            ("networking.k8s.io", "v1") => each!(generator: networking::v1::IPAddress, networking::v1::ServiceCIDR),
            ("resource.k8s.io", "v1") => each!(generator: resource::v1::DeviceClass, resource::v1::ResourceClaim,
                resource::v1::ResourceClaimTemplate, resource::v1::ResourceSlice),
            ("storage.k8s.io", "v1") => each!(generator: storage::v1::VolumeAttributesClass),
            _ => {}
        }
    }
}

k8s_openapi::k8s_if_le_1_33! {
    fn collect_newer(_group: &str, _version: &str, _generator: &mut SchemaGenerator) {}
}

k8s_openapi::k8s_if_ge_1_36! {
    /// Kinds that 1.35 does not have.
    fn collect_newest(group: &str, version: &str, generator: &mut SchemaGenerator) {
        use api::admissionregistration;
        if let ("admissionregistration.k8s.io", "v1") = (group, version) {
            each!(generator: admissionregistration::v1::MutatingAdmissionPolicy,
                admissionregistration::v1::MutatingAdmissionPolicyBinding)
        }
    }
}

k8s_openapi::k8s_if_le_1_35! {
    fn collect_newest(_group: &str, _version: &str, _generator: &mut SchemaGenerator) {}
}
