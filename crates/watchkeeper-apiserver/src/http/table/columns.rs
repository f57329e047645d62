//! Which columns does a kind have? Their names as the real server has them: `*` is for wide tables only, `:` begins a type.

use crate::kinds::registry::Kind;

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) sort: String,
    pub(crate) format: String,
    pub(crate) priority: i64,
}

/// The columns of a built-in kind.
pub(crate) fn columns(kind: &Kind) -> Vec<Column> {
    let words = headers(&kind.kind).split(' ');
    words
        .map(|word| {
            let (word, sort) = word.split_once(':').unwrap_or((word, "string"));
            let name = word.trim_end_matches('*').replace('_', " ");
            Column {
                format: if ["Name", "Attacher"].contains(&name.as_str()) { "name" } else { "" }.to_owned(),
                sort: sort.to_owned(),
                priority: i64::from(word.ends_with('*')),
                name,
            }
        })
        .collect()
}

fn headers(kind: &str) -> &'static str {
    match kind {
        "ConfigMap" => "Name Data Age",
        "ControllerRevision" => "Name Controller Revision Age",
        "CSIDriver" => {
            "Name AttachRequired:boolean PodInfoOnMount:boolean StorageCapacity:boolean TokenRequests RequiresRepublish:boolean Modes Age"
        }
        "CSINode" => "Name Drivers:integer Age",
        "CertificateSigningRequest" => "Name Age SignerName Requestor RequestedDuration Condition",
        "ClusterRoleBinding" | "RoleBinding" => "Name Role Age Users* Groups* ServiceAccounts*",
        "CronJob" => {
            "Name Schedule Timezone Suspend:boolean Active:integer Last_Schedule Age Containers* Images* Selector*"
        }
        "DaemonSet" => {
            "Name Desired:integer Current:integer Ready:integer Up-to-date:integer Available:integer Node_Selector Age Containers* Images* Selector*"
        }
        "Deployment" => "Name Ready Up-to-date Available Age Containers* Images* Selector*",
        "Endpoints" => "Name Endpoints Age",
        "EndpointSlice" => "Name AddressType Ports Endpoints Age",
        "Event" => "Last_Seen Type Reason Object Subobject* Source* Message First_Seen* Count* Name*",
        "HorizontalPodAutoscaler" => "Name Reference Targets MinPods MaxPods Replicas Age",
        "Ingress" => "Name Class Hosts Address Ports Age",
        "IngressClass" => "Name Controller Parameters Age",
        "Job" => "Name Status Completions Duration Age Containers* Images* Selector*",
        "Lease" => "Name Holder Age",
        "LimitRange" | "ClusterRole" | "Role" | "CustomResourceDefinition" => "Name Created_At:date",
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => "Name Webhooks:integer Age",
        "Namespace" => "Name Status Age",
        "NetworkPolicy" => "Name Pod-Selector Age",
        "Node" => {
            "Name Status Roles Age Version Internal-IP* External-IP* OS-Image* Kernel-Version* Container-Runtime*"
        }
        "PersistentVolume" => {
            "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age VolumeMode*"
        }
        "PersistentVolumeClaim" => {
            "Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age VolumeMode*"
        }
        "Pod" => "Name Ready Status Restarts Age IP* Node* Nominated_Node* Readiness_Gates*",
        "PodDisruptionBudget" => "Name Min_Available Max_Unavailable Allowed_Disruptions:integer Age",
        "PodTemplate" => "Name Containers Images Pod_Labels",
        "PriorityClass" => "Name Value:integer Global-Default:boolean Age PreemptionPolicy",
        "ReplicaSet" | "ReplicationController" => {
            "Name Desired:integer Current:integer Ready:integer Age Containers* Images* Selector*"
        }
        "ResourceQuota" => "Name Request Limit Age",
        "RuntimeClass" => "Name Handler Age",
        "Secret" => "Name Type Data Age",
        "Service" => "Name Type Cluster-IP External-IP Port(s) Age Selector*",
        "StatefulSet" => "Name Ready Age Containers* Images*",
        "StorageClass" => "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age",
        "ValidatingAdmissionPolicy" => "Name Validations:integer ParamKind Age",
        "ValidatingAdmissionPolicyBinding" => "Name PolicyName ParamRef Age",
        "VolumeAttachment" => "Name Attacher PV Node Attached:boolean Age",
        _ => "Name Age",
    }
}
