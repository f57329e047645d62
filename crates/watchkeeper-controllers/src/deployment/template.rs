//! Pod templates: equality, and the hash that names the ReplicaSet of a template.

use k8s_openapi::api::core::v1::PodTemplateSpec;

use crate::pods::template::{encode, fnv, fnv_from};

/// The label with the hash of the template, on ReplicaSets and their Pods.
pub(super) const HASH_LABEL: &str = "pod-template-hash";

/// Whether two templates are the same, apart from the hash label.
pub(super) fn is_same(one: &PodTemplateSpec, other: &PodTemplateSpec) -> bool {
    without_hash(one) == without_hash(other)
}

fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    let metadata = template.metadata.get_or_insert_default();
    if let Some(labels) = &mut metadata.labels {
        labels.remove(HASH_LABEL);
    }
    metadata.labels = metadata.labels.take().filter(|labels| !labels.is_empty());
    metadata.annotations = metadata.annotations.take().filter(|annotations| !annotations.is_empty());
    metadata.creation_timestamp = None;
    template
}

/// The hash of a template: the same for the same template, another after each collision of names.
pub(super) fn hash(template: &PodTemplateSpec, collisions: i32) -> String {
    let json = serde_json::to_string(&without_hash(template)).unwrap_or_default();
    let mut hash = fnv(json.as_bytes());
    if collisions > 0 {
        hash = fnv_from(hash, &collisions.to_le_bytes());
    }
    encode(hash)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_hash_depends_on_the_template_and_on_collisions_alone() {
        let template = |image: &str, hash: Option<&str>| -> PodTemplateSpec {
            let mut labels = json!({"app": "web"});
            if let Some(hash) = hash {
                labels[HASH_LABEL] = hash.into();
            }
            serde_json::from_value(json!({"metadata": {"labels": labels},
                "spec": {"containers": [{"name": "a", "image": image}]}}))
            .unwrap()
        };
        let (a, labeled, b) = (template("a", None), template("a", Some("x")), template("b", None));
        assert!(is_same(&a, &labeled) && !is_same(&a, &b));
        assert_eq!(hash(&a, 0), hash(&labeled, 0));
        assert_ne!(hash(&a, 0), hash(&b, 0));
        assert_ne!(hash(&a, 0), hash(&a, 1));
        assert_eq!(fnv(b"a"), 0xe40c_292c);
    }
}
