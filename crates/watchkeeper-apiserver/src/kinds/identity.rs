//! The identity of a body: its `apiVersion`, `kind` and namespace, compared with those of the URL; and generated names.

use serde_json::Value;
use watchkeeper::clock::Generator;

use crate::failure::{Failure, Result, quoted};
use crate::kinds::fill::set_text;
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::types;

/// Without vowels and look-alikes, so that generated names form no words.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The length of the random part of a generated name.
pub(crate) const SUFFIX_LENGTH: usize = 5;

/// Returns the random part of a generated name.
pub(crate) fn random_suffix(generator: &Generator) -> String {
    let letter = || NAME_ALPHABET[generator.below(NAME_ALPHABET.len() as u64) as usize] as char;
    std::iter::repeat_with(letter).take(SUFFIX_LENGTH).collect()
}

/// Why a body is not an object of the kind in the URL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// The apiVersion cannot be parsed.
    Malformed(String),
    /// The right kind, in another version.
    Version(String),
    /// A kind that cannot be converted to that of the URL, or an unknown one.
    Kind(String),
}

/// Versions that are no longer served but still known to the real server, with their kinds.
const RETIRED: &[(&str, &[&str])] = &[
    (
        "admissionregistration.k8s.io/v1beta1",
        &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"],
    ),
    ("apiextensions.k8s.io/v1beta1", &["CustomResourceDefinition"]),
    ("apps/v1beta1", &["ControllerRevision", "Deployment", "StatefulSet"]),
    ("apps/v1beta2", &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    ("batch/v1beta1", &["CronJob"]),
    ("certificates.k8s.io/v1beta1", &["CertificateSigningRequest"]),
    ("coordination.k8s.io/v1beta1", &["Lease"]),
    ("discovery.k8s.io/v1beta1", &["EndpointSlice"]),
    ("events.k8s.io/v1beta1", &["Event"]),
    ("extensions/v1beta1", &["DaemonSet", "Deployment", "Ingress", "NetworkPolicy", "ReplicaSet"]),
    ("networking.k8s.io/v1beta1", &["Ingress", "IngressClass", "IPAddress", "ServiceCIDR"]),
    ("node.k8s.io/v1alpha1", &["RuntimeClass"]),
    ("node.k8s.io/v1beta1", &["RuntimeClass"]),
    ("policy/v1beta1", &["PodDisruptionBudget"]),
    ("rbac.authorization.k8s.io/v1alpha1", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
    ("rbac.authorization.k8s.io/v1beta1", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
    ("scheduling.k8s.io/v1beta1", &["PriorityClass"]),
    ("storage.k8s.io/v1alpha1", &["CSIStorageCapacity", "VolumeAttachment", "VolumeAttributesClass"]),
    (
        "storage.k8s.io/v1beta1",
        &[
            "CSIDriver",
            "CSINode",
            "CSIStorageCapacity",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
];

/// Kinds that have moved to another group, with the groups between which they can be converted.
const MOVED: &[(&str, &[&str])] = &[("Event", &["", "events.k8s.io"])];

/// Returns how the version and kind of a body differ from those of the URL. Empty ones match.
pub(crate) fn mismatch(kind: &Kind, sent_version: &str, sent_kind: &str) -> Option<Mismatch> {
    let version = if sent_version.is_empty() { &kind.api_version } else { sent_version };
    let shown = if sent_kind.is_empty() { &kind.kind } else { sent_kind };
    if version.split('/').count() > 2 {
        return Some(Mismatch::Malformed(format!("unexpected GroupVersion string: {version}")));
    }
    let other = || {
        let problem = format!(
            "the API version in the data ({sent_version}) does not match the expected API version ({})",
            kind.api_version
        );
        Some(Mismatch::Version(problem))
    };
    if kind.custom.is_some() {
        return if sent_version == kind.api_version { None } else { other() };
    }
    if (version, shown) == (&kind.api_version, &kind.kind) {
        return None;
    }
    let retired = RETIRED.iter().any(|(retired, kinds)| *retired == version && kinds.contains(&shown));
    if !retired && types::of_kind(version, shown).is_none() {
        return Some(Mismatch::Kind(format!(
            "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
            quoted(shown),
            quoted(version)
        )));
    }
    let group = |version: &str| version.split_once('/').map_or("", |(group, _)| group).to_owned();
    let moved =
        MOVED.iter().any(|(kind, groups)| *kind == shown && groups.contains(&group(version).as_str()));
    if shown == kind.kind && (moved || group(version) == "extensions" || group(version) == kind.group) {
        return other();
    }
    let package =
        if kind.group.is_empty() { "core" } else { kind.group.split('.').next().unwrap_or_default() };
    let last = version.rsplit('/').next().unwrap_or_default();
    Some(Mismatch::Kind(format!(
        "converting ({last}.{shown}) to ({package}.{}): unknown conversion",
        kind.kind
    )))
}

/// Sets the `apiVersion` and `kind` of an object to those of the URL.
pub(crate) fn identify(kind: &Kind, value: &mut Value) {
    set_text(value, "apiVersion", &kind.api_version);
    set_text(value, "kind", &kind.kind);
}

/// Puts an object into the namespace of the URL; refuses one that names another.
pub(crate) fn place(kind: &Kind, namespace: &str, value: &mut Value) -> Result<()> {
    let sent = meta::text(value, "namespace");
    if kind.namespaced && !sent.is_empty() && sent != namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    meta::set(value, "namespace", if kind.namespaced { namespace } else { "" });
    Ok(())
}
