//! Behaviour of a kind: its defaults, validation, deletion, table columns and so on. One file per kind.
//!
//! The built-in table names the [`Behaviour`] of each row; custom kinds share [`CustomResource`]. All hooks have a
//! default, so the file of a kind holds only what sets it apart. The rest of the server calls the hooks and never
//! compares the name of a kind.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};
use watchkeeper::clock::Generator;

use crate::failure::{Cause, Result};
use crate::kinds::cells::{self, Column, Row};
use crate::kinds::definition::Compiled;
use crate::kinds::kind::Kind;
use crate::kinds::registry::Registry;
use crate::kinds::size;
use crate::types::normalize::normalize;

mod admission_policy;
mod api_service;
mod certificate_signing_request;
mod component_status;
mod config_map;
mod controller_revision;
mod cron_job;
mod csi;
mod custom_resource;
mod custom_resource_definition;
mod daemon_set;
mod data;
mod deployment;
mod endpoint_slice;
mod endpoints;
mod event;
mod flow_control;
mod horizontal_pod_autoscaler;
mod ingress;
mod ip_address;
mod job;
mod lease;
mod limit_range;
mod namespace;
mod network_policy;
mod node;
mod persistent_volume;
pub(crate) mod pod;
mod pod_disruption_budget;
mod pod_spec;
mod pod_template;
mod priority_class;
mod rbac;
mod replica_set;
mod resource_claim;
mod resource_quota;
mod runtime_class;
mod secret;
mod service;
mod service_account;
mod service_cidr;
mod stateful_set;
mod storage_class;
mod volume_attachment;
mod webhook_configuration;
mod workload;

pub(super) use admission_policy::{AdmissionPolicy, AdmissionPolicyBinding};
pub(super) use api_service::ApiService;
pub(super) use certificate_signing_request::CertificateSigningRequest;
pub(super) use component_status::ComponentStatus;
pub(super) use config_map::ConfigMap;
pub(super) use controller_revision::ControllerRevision;
pub(super) use cron_job::CronJob;
pub(super) use csi::{CsiDriver, CsiNode, CsiStorageCapacity};
pub(super) use custom_resource::CustomResource;
pub(super) use custom_resource_definition::CustomResourceDefinition;
pub(super) use daemon_set::DaemonSet;
pub(super) use deployment::Deployment;
pub(super) use endpoint_slice::EndpointSlice;
pub(super) use endpoints::Endpoints;
pub(super) use event::{CoreEvent, Event};
pub(super) use flow_control::{FlowSchema, PriorityLevelConfiguration};
pub(super) use horizontal_pod_autoscaler::{HorizontalPodAutoscaler, OldHorizontalPodAutoscaler};
pub(super) use ingress::{Ingress, IngressClass};
pub(super) use ip_address::IpAddress;
pub(super) use job::Job;
pub(super) use lease::Lease;
pub(super) use limit_range::LimitRange;
pub(super) use namespace::Namespace;
pub(super) use network_policy::NetworkPolicy;
pub(super) use node::Node;
pub(super) use persistent_volume::{PersistentVolume, PersistentVolumeClaim};
pub(super) use pod::Pod;
pub(super) use pod_disruption_budget::PodDisruptionBudget;
pub(super) use pod_template::PodTemplate;
pub(super) use priority_class::PriorityClass;
pub(super) use rbac::{Role, RoleBinding};
pub(super) use replica_set::{ReplicaSet, ReplicationController};
pub(super) use resource_claim::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
pub(super) use resource_quota::ResourceQuota;
pub(super) use runtime_class::RuntimeClass;
pub(super) use secret::Secret;
pub(super) use service::Service;
pub(super) use service_account::ServiceAccount;
pub(super) use service_cidr::ServiceCidr;
pub(super) use stateful_set::StatefulSet;
pub(super) use storage_class::{StorageClass, VolumeAttributesClass};
pub(super) use volume_attachment::VolumeAttachment;
pub(super) use webhook_configuration::WebhookConfiguration;

/// What sets a kind apart from the others. Objects are in the version of the kind, except where a hook says otherwise.
pub(crate) trait Behaviour: fmt::Debug + Send + Sync {
    /// Brings a decoded object into its stored form: types are checked, unknown fields are pruned. Returns the paths of
    /// unknown fields; the error says what cannot be decoded. With `nulls`, a custom object keeps its nulls, which
    /// validation refuses where they are not allowed.
    fn normalize(&self, kind: &Kind, object: &mut Value, _nulls: bool) -> Result<Vec<String>, String> {
        size::check_shape(object)?;
        kind.schema.map_or_else(|| Ok(Vec::new()), |id| normalize(id, object))
    }

    /// Applies the defaults of a normalized object. They belong to the field manager of the write.
    fn defaults(&self, _kind: &Kind, _object: &mut Value) -> Result<()> {
        Ok(())
    }

    /// Completes a new object, which has its name and uid. Fields added here have no field manager.
    fn prepare_create(&self, _object: &mut Value, _context: &dyn Context) {}

    /// Completes a new object with the user who makes it, as reviews show users.
    fn prepare_author(&self, _object: &mut Value, _user: &Value) {}

    /// What a client asks for in an object, and cannot have, because other objects have it. Checked before the object
    /// is completed; `before` is the stored one.
    fn conflicts(&self, _before: Option<&Value>, _after: &Value, _context: &dyn Context) -> Vec<Cause> {
        Vec::new()
    }

    /// Completes an object after a write of anything but its status. Fields added here have no field manager.
    fn prepare_update(&self, _before: &Value, _after: &mut Value, _context: &dyn Context) {}

    /// Completes an object after a write of its status.
    fn prepare_status(&self, _before: &Value, _after: &mut Value) {}

    /// Top-level fields that only subresources write, beside the status.
    fn subresource_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// Metadata that a write of the status may change.
    fn status_metadata(&self) -> &'static [&'static str] {
        &["annotations", "finalizers", "ownerReferences"]
    }

    /// Metadata that belongs to the desired state: a change of it counts in `metadata.generation`.
    fn desired_metadata(&self) -> &'static [&'static str] {
        &[]
    }

    /// Validates an object beyond its metadata.
    fn validate(&self, _change: &Change<'_>, _findings: &mut Findings) {}

    /// Validates the change from `old` to `new` beyond the metadata.
    fn validate_update(&self, _old: &Value, _new: &Value) -> Vec<Cause> {
        Vec::new()
    }

    /// Returns warnings for the client that wrote an object; `parse` decodes it.
    fn warnings(&self, _parse: &dyn Fn() -> Value) -> Vec<String> {
        Vec::new()
    }

    /// The warning for clients that use a deprecated version of the kind.
    fn deprecation(&self, _kind: &Kind) -> Option<String> {
        None
    }

    /// The objects that must be gone before an object of this kind is removed.
    fn contents(&self) -> Contents {
        Contents::Nothing
    }

    /// Whether other objects may be owned by one of this kind.
    fn has_dependents(&self) -> bool {
        true
    }

    /// The grace period in seconds of a delete that requests `wanted`; `None` for kinds that are deleted at once.
    fn grace_period(&self, _object: &Value, _wanted: Option<i64>) -> Option<i64> {
        None
    }

    /// Whether something other than `metadata.finalizers` keeps a terminating object.
    fn is_held(&self, _object: &Value) -> bool {
        false
    }

    /// Whether objects hold values that must be unique, so that a write depends on all objects of the kind.
    fn allocates(&self) -> bool {
        false
    }

    /// Whether objects are completed by what is served: [`Context::registry`] has all kinds.
    fn needs_registry(&self) -> bool {
        false
    }

    /// Whether error messages must not repeat the content of an object.
    fn is_confidential(&self) -> bool {
        false
    }

    /// What an object gives to users, which its author must have; `None` for most kinds.
    fn grants(&self) -> Option<Grants> {
        None
    }

    /// All objects of a kind that is not stored, and can only be read.
    fn computed(&self) -> Option<Vec<Value>> {
        None
    }

    /// The node that an object stands for: no other node may write it.
    fn node<'a>(&self, _object: &'a Value) -> Option<&'a str> {
        None
    }

    /// Completes an object after a write of its approval.
    fn prepare_approval(&self, _before: &Value, _after: &mut Value) {}

    /// Converts a stored object into the version of `kind`, all but its `apiVersion`.
    fn to_served(&self, _kind: &Kind, _object: &mut Value) {}

    /// Converts an object into its stored form.
    fn to_storage(&self, _kind: &Kind, _object: &mut Value) {}

    /// The kind's storage prefix in messages of the real server.
    fn storage_path(&self, kind: &Kind) -> String {
        kind.plural.clone()
    }

    /// Subresources beyond `scale` and `status`.
    fn subresources(&self) -> &'static [Subresource] {
        &[]
    }

    /// The selectable field that another name stands for.
    fn field_alias<'a>(&self, field: &'a str) -> &'a str {
        field
    }

    /// The path of a selectable field in stored objects.
    fn stored_field(&self, field: &str) -> String {
        field.to_owned()
    }

    /// The value of a selectable field in a stored object, where it is not the text at that path.
    fn field_value(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    /// Top-level scalars of the stored version that no hook reads, and no selector: they may be replaced without a look at
    /// the rest of the object.
    fn free_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// The columns of a table, in the notation of [`cells::columns`].
    fn headers(&self) -> &'static str {
        "Name Age"
    }

    /// The columns of a table.
    fn columns(&self, _kind: &Kind) -> Vec<Column> {
        cells::columns(self.headers())
    }

    /// The cells of a stored object in a table: an array with one value for each column.
    fn row(&self, row: &Row<'_>) -> Value {
        json!([row.name(), row.age()])
    }
}

/// The server as a behaviour sees it while completing an object.
pub(crate) trait Context {
    /// The current time as objects carry it.
    fn now(&self) -> String;

    fn generator(&self) -> &Generator;

    /// All kinds, for a kind that [needs](Behaviour::needs_registry) them.
    fn registry(&self) -> Option<&Registry>;

    /// Whether an object of a kind that [allocates](Behaviour::allocates) has this value in a selectable field.
    fn any_peer_has(&self, field: &str, value: &str) -> bool;

    /// The ranges of addresses for a kind that [allocates](Behaviour::allocates).
    fn ranges(&self) -> &[String];

    /// All objects of a kind that [allocates](Behaviour::allocates).
    fn peers(&self) -> Box<dyn Iterator<Item = Value> + '_>;
}

/// A write to validate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) kind: &'a Kind,
    /// None for a new object.
    pub(crate) old: Option<&'a Value>,
    pub(crate) new: &'a Value,
    /// Whether only the status is written.
    pub(crate) status: bool,
    /// The kinds of a definition before the write.
    pub(crate) defined: &'a [Arc<Kind>],
}

/// The result of validating an object.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) causes: Vec<Cause>,
    /// The versions of a valid definition, compiled.
    pub(crate) compiled: Vec<Compiled>,
}

/// The contents of an object. Its deletion completes once they are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    Nothing,
    /// All objects of the namespace with its name.
    NamespacedObjects,
    /// The kinds that it defines, with their objects.
    CustomKinds,
}

/// What an object gives to users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grants {
    /// The rules that it has.
    Rules,
    /// The role that it refers to.
    Role,
}

/// A subresource, as discovery shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subresource {
    pub(crate) name: &'static str,
    /// Group, version and kind of its body; none for those of the resource.
    pub(crate) body: Option<(&'static str, &'static str, &'static str)>,
    pub(crate) verbs: &'static [&'static str],
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::kinds::builtin::BUILTINS;

    #[test]
    fn every_row_has_a_cell_for_each_column() {
        let registry = Registry::new();
        for row in BUILTINS {
            let kind = registry.find(row.group, row.version, row.plural).unwrap();
            let columns = kind.behaviour.columns(kind);
            let cells = kind.behaviour.row(&Row { kind, object: kind.blank(), now: Timestamp::UNIX_EPOCH });
            assert_eq!(cells.as_array().unwrap().len(), columns.len(), "{}", kind.kind);
        }
    }
}
