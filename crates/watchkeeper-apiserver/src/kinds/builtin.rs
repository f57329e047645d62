//! The table of built-in kinds: their names, their properties, and the [`Behaviour`] of each.

use crate::kinds::behaviour::{
    AdmissionPolicy, AdmissionPolicyBinding, ApiService, Behaviour, CertificateSigningRequest,
    ComponentStatus, ConfigMap, ControllerRevision, CoreEvent, CronJob, CsiDriver, CsiNode,
    CsiStorageCapacity, CustomResourceDefinition, DaemonSet, Deployment, DeviceClass, EndpointSlice,
    Endpoints, Event, FlowSchema, HorizontalPodAutoscaler, Ingress, IngressClass, IpAddress, Job, Lease,
    LimitRange, Namespace, NetworkPolicy, Node, OldHorizontalPodAutoscaler, PersistentVolume,
    PersistentVolumeClaim, Pod, PodDisruptionBudget, PodTemplate, PriorityClass, PriorityLevelConfiguration,
    ReplicaSet, ReplicationController, ResourceClaim, ResourceClaimTemplate, ResourceQuota, ResourceSlice,
    Role, RoleBinding, RuntimeClass, Secret, Service, ServiceAccount, ServiceCidr, StatefulSet, StorageClass,
    VolumeAttachment, VolumeAttributesClass, WebhookConfiguration,
};

/// Which names a kind's objects may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// A DNS subdomain: the rule for most kinds.
    Subdomain,
    /// A DNS label of at most 63 characters.
    Label,
    /// Anything that fits into one segment of a URL.
    PathSegment,
}

/// How a kind's `status` begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InitialStatus {
    /// The kind has no status subresource; `status` is a field like any other.
    None,
    /// What the client sent is kept, as a node's agent registers with its status.
    AsSent,
    /// Always this JSON, whatever the client sent, with the zeros of its type.
    Fixed(&'static str),
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Builtin {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    pub(crate) status: InitialStatus,
    pub(crate) scale: bool,
    /// `metadata.generation` counts changes of the desired state.
    pub(crate) generation: bool,
    /// A PUT of an absent object creates it.
    pub(crate) create_on_update: bool,
    /// A PUT without a resourceVersion overwrites.
    pub(crate) unconditional_update: bool,
    pub(crate) delete_collection: bool,
    pub(crate) names: NameRule,
    /// Fields that a fieldSelector may name, beyond `metadata.name` and `metadata.namespace`.
    pub(crate) fields: &'static [&'static str],
    /// The resource that holds the objects, where two resources are views of one.
    pub(crate) stored_as: Option<(&'static str, &'static str)>,
    /// A delete answers with the object even when nothing holds it.
    pub(crate) returns_deleted: bool,
    pub(crate) behaviour: &'static dyn Behaviour,
}

const fn kind(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    behaviour: &'static dyn Behaviour,
) -> Builtin {
    Builtin {
        group,
        version,
        kind,
        plural,
        short_names: &[],
        categories: &[],
        namespaced: true,
        status: InitialStatus::None,
        scale: false,
        generation: false,
        create_on_update: false,
        unconditional_update: true,
        delete_collection: true,
        names: NameRule::Subdomain,
        fields: &[],
        stored_as: None,
        returns_deleted: false,
        behaviour,
    }
}

impl Builtin {
    const fn cluster(mut self) -> Self {
        self.namespaced = false;
        self
    }

    const fn short(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }

    const fn category(mut self, categories: &'static [&'static str]) -> Self {
        self.categories = categories;
        self
    }

    const fn status(mut self, json: &'static str) -> Self {
        self.status = InitialStatus::Fixed(json);
        self
    }

    const fn status_as_sent(mut self) -> Self {
        self.status = InitialStatus::AsSent;
        self
    }

    const fn scale(mut self) -> Self {
        self.scale = true;
        self
    }

    const fn generation(mut self) -> Self {
        self.generation = true;
        self
    }

    const fn create_on_update(mut self) -> Self {
        self.create_on_update = true;
        self
    }

    const fn conditional(mut self) -> Self {
        self.unconditional_update = false;
        self
    }

    const fn no_delete_collection(mut self) -> Self {
        self.delete_collection = false;
        self
    }

    const fn names(mut self, rule: NameRule) -> Self {
        self.names = rule;
        self
    }

    const fn fields(mut self, fields: &'static [&'static str]) -> Self {
        self.fields = fields;
        self
    }

    const fn stored_as(mut self, group: &'static str, plural: &'static str) -> Self {
        self.stored_as = Some((group, plural));
        self
    }

    const fn returns_deleted(mut self) -> Self {
        self.returns_deleted = true;
        self
    }
}

const ALL: &[&str] = &["all"];
const EXTENSIONS: &[&str] = &["api-extensions"];
const RBAC: &str = "rbac.authorization.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";
const RESOURCE: &str = "resource.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];
const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];
const NEW_EVENT_FIELDS: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
];

/// Every kind that is served from the start, in the order in which discovery lists the groups.
pub(crate) const BUILTINS: &[Builtin] = &[
    kind("apiregistration.k8s.io", "v1", "APIService", "apiservices", &ApiService)
        .cluster()
        .category(EXTENSIONS)
        .status("{}")
        .conditional(),
    kind("", "v1", "ComponentStatus", "componentstatuses", &ComponentStatus).cluster().short(&["cs"]),
    kind("", "v1", "ConfigMap", "configmaps", &ConfigMap).short(&["cm"]),
    kind("", "v1", "Endpoints", "endpoints", &Endpoints).short(&["ep"]).create_on_update(),
    kind("", "v1", "Event", "events", &CoreEvent).short(&["ev"]).create_on_update().fields(EVENT_FIELDS),
    kind("", "v1", "LimitRange", "limitranges", &LimitRange).short(&["limits"]).create_on_update(),
    kind("", "v1", "Namespace", "namespaces", &Namespace)
        .cluster()
        .short(&["ns"])
        .status(r#"{"phase":"Active"}"#)
        .no_delete_collection()
        .names(NameRule::Label)
        .fields(&["status.phase"]),
    kind("", "v1", "Node", "nodes", &Node)
        .cluster()
        .short(&["no"])
        .status_as_sent()
        .fields(&["spec.unschedulable"]),
    kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", &PersistentVolumeClaim)
        .returns_deleted()
        .short(&["pvc"])
        .status(r#"{"phase":"Pending"}"#),
    kind("", "v1", "PersistentVolume", "persistentvolumes", &PersistentVolume)
        .returns_deleted()
        .cluster()
        .short(&["pv"])
        .status(r#"{"phase":"Pending"}"#),
    kind("", "v1", "Pod", "pods", &Pod)
        .short(&["po"])
        .category(ALL)
        .status(r#"{"phase":"Pending"}"#)
        .generation()
        .fields(POD_FIELDS),
    kind("", "v1", "PodTemplate", "podtemplates", &PodTemplate).returns_deleted().generation(),
    kind("", "v1", "ReplicationController", "replicationcontrollers", &ReplicationController)
        .short(&["rc"])
        .category(ALL)
        .status("{}")
        .scale()
        .generation()
        .fields(&["status.replicas"]),
    kind("", "v1", "ResourceQuota", "resourcequotas", &ResourceQuota)
        .returns_deleted()
        .short(&["quota"])
        .status("{}"),
    kind("", "v1", "Secret", "secrets", &Secret).fields(&["type"]),
    kind("", "v1", "ServiceAccount", "serviceaccounts", &ServiceAccount).returns_deleted().short(&["sa"]),
    kind("", "v1", "Service", "services", &Service)
        .returns_deleted()
        .short(&["svc"])
        .category(ALL)
        .status("{}")
        .create_on_update()
        .names(NameRule::Label)
        .fields(&["spec.clusterIP", "spec.type"]),
    kind("apps", "v1", "ControllerRevision", "controllerrevisions", &ControllerRevision),
    kind("apps", "v1", "DaemonSet", "daemonsets", &DaemonSet)
        .short(&["ds"])
        .category(ALL)
        .status("{}")
        .generation(),
    kind("apps", "v1", "Deployment", "deployments", &Deployment)
        .short(&["deploy"])
        .category(ALL)
        .status("{}")
        .scale()
        .generation(),
    kind("apps", "v1", "ReplicaSet", "replicasets", &ReplicaSet)
        .short(&["rs"])
        .category(ALL)
        .status("{}")
        .scale()
        .generation(),
    kind("apps", "v1", "StatefulSet", "statefulsets", &StatefulSet)
        .short(&["sts"])
        .category(ALL)
        .status("{}")
        .scale()
        .generation(),
    kind("events.k8s.io", "v1", "Event", "events", &Event)
        .short(&["ev"])
        .create_on_update()
        .fields(NEW_EVENT_FIELDS)
        .stored_as("", "events"),
    kind(
        "autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        &HorizontalPodAutoscaler,
    )
    .short(&["hpa"])
    .category(ALL)
    .status("{}"),
    kind(
        "autoscaling",
        "v1",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        &OldHorizontalPodAutoscaler,
    )
    .short(&["hpa"])
    .category(ALL)
    .status("{}"),
    kind("batch", "v1", "CronJob", "cronjobs", &CronJob)
        .short(&["cj"])
        .category(ALL)
        .status("{}")
        .generation(),
    kind("batch", "v1", "Job", "jobs", &Job)
        .category(ALL)
        .status("{}")
        .generation()
        .fields(&["status.successful"]),
    kind(
        "certificates.k8s.io",
        "v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        &CertificateSigningRequest,
    )
    .cluster()
    .short(&["csr"])
    .status("{}")
    .fields(&["spec.signerName"]),
    kind("networking.k8s.io", "v1", "IngressClass", "ingressclasses", &IngressClass).cluster().generation(),
    kind("networking.k8s.io", "v1", "Ingress", "ingresses", &Ingress)
        .short(&["ing"])
        .status("{}")
        .generation(),
    kind("networking.k8s.io", "v1", "IPAddress", "ipaddresses", &IpAddress)
        .cluster()
        .short(&["ip"])
        .names(NameRule::PathSegment),
    kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", &NetworkPolicy)
        .short(&["netpol"])
        .generation(),
    kind("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", &ServiceCidr).cluster().status("{}"),
    kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", &PodDisruptionBudget)
        .short(&["pdb"])
        .status("{}")
        .generation()
        .conditional(),
    kind(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", &RoleBinding)
        .cluster()
        .create_on_update()
        .names(NameRule::PathSegment),
    kind(RBAC, "v1", "ClusterRole", "clusterroles", &Role)
        .cluster()
        .create_on_update()
        .names(NameRule::PathSegment),
    kind(RBAC, "v1", "RoleBinding", "rolebindings", &RoleBinding)
        .create_on_update()
        .names(NameRule::PathSegment),
    kind(RBAC, "v1", "Role", "roles", &Role).create_on_update().names(NameRule::PathSegment),
    kind(STORAGE, "v1", "CSIDriver", "csidrivers", &CsiDriver).returns_deleted().cluster().conditional(),
    kind(STORAGE, "v1", "CSINode", "csinodes", &CsiNode).returns_deleted().cluster().conditional(),
    kind(STORAGE, "v1", "CSIStorageCapacity", "csistoragecapacities", &CsiStorageCapacity).conditional(),
    kind(STORAGE, "v1", "StorageClass", "storageclasses", &StorageClass)
        .returns_deleted()
        .cluster()
        .short(&["sc"]),
    kind(STORAGE, "v1", "VolumeAttachment", "volumeattachments", &VolumeAttachment)
        .returns_deleted()
        .cluster()
        .status("{}")
        .conditional(),
    kind(STORAGE, "v1", "VolumeAttributesClass", "volumeattributesclasses", &VolumeAttributesClass)
        .returns_deleted()
        .cluster()
        .short(&["vac"]),
    kind(
        ADMISSION,
        "v1",
        "MutatingAdmissionPolicy",
        "mutatingadmissionpolicies",
        &AdmissionPolicy {
            rules: "mutations",
            headers: "Name Mutations:integer ParamKind Age",
            is_checked: false,
        },
    )
    .cluster()
    .category(EXTENSIONS)
    .generation()
    .conditional(),
    kind(
        ADMISSION,
        "v1",
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        &AdmissionPolicyBinding { acts: false },
    )
    .cluster()
    .category(EXTENSIONS)
    .generation()
    .conditional(),
    kind(
        ADMISSION,
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        &WebhookConfiguration { mutating: true },
    )
    .cluster()
    .category(EXTENSIONS)
    .generation()
    .conditional(),
    kind(
        ADMISSION,
        "v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        &AdmissionPolicy {
            rules: "validations",
            headers: "Name Validations:integer ParamKind Age",
            is_checked: true,
        },
    )
    .cluster()
    .category(EXTENSIONS)
    .status("{}")
    .generation()
    .conditional(),
    kind(
        ADMISSION,
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        &AdmissionPolicyBinding { acts: true },
    )
    .cluster()
    .category(EXTENSIONS)
    .generation()
    .conditional(),
    kind(
        ADMISSION,
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        &WebhookConfiguration { mutating: false },
    )
    .cluster()
    .category(EXTENSIONS)
    .generation()
    .conditional(),
    kind(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        &CustomResourceDefinition,
    )
    .cluster()
    .short(&["crd", "crds"])
    .category(EXTENSIONS)
    .status("{}")
    .generation()
    .conditional(),
    kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", &PriorityClass)
        .cluster()
        .short(&["pc"])
        .generation(),
    kind("coordination.k8s.io", "v1", "Lease", "leases", &Lease).create_on_update().conditional(),
    kind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", &RuntimeClass)
        .cluster()
        .create_on_update()
        .conditional(),
    kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", &EndpointSlice).generation(),
    kind(RESOURCE, "v1", "DeviceClass", "deviceclasses", &DeviceClass)
        .returns_deleted()
        .cluster()
        .generation(),
    kind(RESOURCE, "v1", "ResourceClaim", "resourceclaims", &ResourceClaim).returns_deleted().status("{}"),
    kind(RESOURCE, "v1", "ResourceClaimTemplate", "resourceclaimtemplates", &ResourceClaimTemplate)
        .returns_deleted(),
    kind(RESOURCE, "v1", "ResourceSlice", "resourceslices", &ResourceSlice)
        .returns_deleted()
        .cluster()
        .generation()
        .fields(&["spec.driver", "spec.nodeName"]),
    kind(FLOW, "v1", "FlowSchema", "flowschemas", &FlowSchema).cluster().status("{}").generation(),
    kind(
        FLOW,
        "v1",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        &PriorityLevelConfiguration,
    )
    .cluster()
    .status("{}")
    .generation(),
];

/// A kind that is only ever created, and answered at once: nothing is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Review {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) answer: Answer,
}

/// What a review is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Whether the user who asks may do something.
    OwnAccess,
    /// Whether another user may.
    Access,
    /// The same in one namespace.
    LocalAccess,
    /// All that the user may do.
    Rules,
    /// Who the user is.
    User,
    /// Whose token it is.
    Token,
}

const AUTHORIZATION: &str = "authorization.k8s.io";

/// The questions about users and access.
pub(crate) const REVIEWS: &[Review] = &[
    review("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews", false, Answer::User),
    review("authentication.k8s.io", "TokenReview", "tokenreviews", false, Answer::Token),
    review(AUTHORIZATION, "LocalSubjectAccessReview", "localsubjectaccessreviews", true, Answer::LocalAccess),
    review(AUTHORIZATION, "SelfSubjectAccessReview", "selfsubjectaccessreviews", false, Answer::OwnAccess),
    review(AUTHORIZATION, "SelfSubjectRulesReview", "selfsubjectrulesreviews", false, Answer::Rules),
    review(AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews", false, Answer::Access),
];

const fn review(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    answer: Answer,
) -> Review {
    Review { group, version: "v1", kind, plural, namespaced, answer }
}
