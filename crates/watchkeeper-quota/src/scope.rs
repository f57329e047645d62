//! Scopes of quotas: which objects a quota counts.

use serde_json::Value;

use crate::requirements::is_best_effort;
use crate::usage::Resource;

/// Returns whether a quota with the spec `quota` counts an object. One without scopes counts all objects.
pub fn is_in_scope(resource: Resource<'_>, object: &Value, quota: &Value) -> bool {
    let plain = list(&quota["scopes"]).iter().map(|scope| (text(scope), "Exists", &Value::Null));
    let selected = list(&quota["scopeSelector"]["matchExpressions"]).iter();
    let selected = selected.map(|it| (text(&it["scopeName"]), text(&it["operator"]), &it["values"]));
    let mut scopes = plain.chain(selected);
    match (resource.group, resource.plural) {
        ("", "pods") => scopes.all(|(scope, operator, values)| pod(object, scope, operator, list(values))),
        ("", "persistentvolumeclaims") => scopes.all(|(scope, operator, values)| {
            scope == "VolumeAttributesClass" && selects(&attributes_classes(object), operator, list(values))
        }),
        _ => scopes.next().is_none(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn pod(pod: &Value, scope: &str, operator: &str, values: &[Value]) -> bool {
    let spec = &pod["spec"];
    let is_terminating = || spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0);
    match scope {
        "Terminating" => is_terminating(),
        "NotTerminating" => !is_terminating(),
        "BestEffort" => is_best_effort(spec),
        "NotBestEffort" => !is_best_effort(spec),
        "PriorityClass" => {
            let class = text(&spec["priorityClassName"]);
            selects(
                &[class].into_iter().filter(|class| !class.is_empty()).collect::<Vec<_>>(),
                operator,
                values,
            )
        }
        "CrossNamespacePodAffinity" => reaches_other_namespaces(&spec["affinity"]),
        _ => false,
    }
}

/// The classes that a claim has, or is to have.
fn attributes_classes(claim: &Value) -> Vec<&str> {
    let status = &claim["status"];
    let classes = [
        &claim["spec"]["volumeAttributesClassName"],
        &status["currentVolumeAttributesClassName"],
        &status["modifyVolumeStatus"]["targetVolumeAttributesClassName"],
    ];
    classes.into_iter().map(text).filter(|class| !class.is_empty()).collect()
}

/// Returns whether one of the names that an object has is selected.
fn selects(names: &[&str], operator: &str, values: &[Value]) -> bool {
    let is_listed = |name: &&str| values.iter().any(|value| value == name);
    match operator {
        "Exists" => !names.is_empty(),
        "DoesNotExist" => names.is_empty(),
        "In" => names.iter().any(is_listed),
        "NotIn" => names.is_empty() || names.iter().any(|name| !is_listed(name)),
        _ => false,
    }
}

fn reaches_other_namespaces(affinity: &Value) -> bool {
    let reaches =
        |term: &Value| !list(&term["namespaces"]).is_empty() || term["namespaceSelector"].is_object();
    ["podAffinity", "podAntiAffinity"].iter().any(|side| {
        let side = &affinity[*side];
        let required = list(&side["requiredDuringSchedulingIgnoredDuringExecution"]).iter();
        let preferred = list(&side["preferredDuringSchedulingIgnoredDuringExecution"]).iter();
        required.chain(preferred.map(|weighted| &weighted["podAffinityTerm"])).any(reaches)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PODS: Resource<'_> = Resource { group: "", plural: "pods" };

    fn matches(pod: &Value, scopes: &Value, expressions: &Value) -> bool {
        is_in_scope(PODS, pod, &json!({"scopes": scopes, "scopeSelector": {"matchExpressions": expressions}}))
    }

    #[test]
    fn a_pod_is_in_a_quota_if_it_is_in_all_of_its_scopes() {
        let pod = json!({"spec": {"activeDeadlineSeconds": 5, "containers": [{}]}});
        assert!(matches(&pod, &json!([]), &json!([])));
        assert!(matches(&pod, &json!(["Terminating", "BestEffort"]), &json!([])));
        assert!(!matches(&pod, &json!(["Terminating", "NotBestEffort"]), &json!([])));
        assert!(!matches(&pod, &json!(["NotTerminating"]), &json!([])));
        let term = json!([{"topologyKey": "a", "namespaces": ["b"]}]);
        let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}});
        let far = json!({"spec": {"affinity": affinity}});
        assert!(matches(&far, &json!(["CrossNamespacePodAffinity"]), &json!([])));
        assert!(!matches(&pod, &json!(["CrossNamespacePodAffinity"]), &json!([])));
    }

    #[test]
    fn a_priority_class_is_selected_by_its_name() {
        let of = |class: &str| json!({"spec": {"priorityClassName": class}});
        let by = |operator: &str, values: Value| json!([{"scopeName": "PriorityClass", "operator": operator, "values": values}]);
        let is = |class: &str, expressions: Value| matches(&of(class), &json!([]), &expressions);
        assert!(is("high", by("In", json!(["high", "low"]))) && !is("mid", by("In", json!(["high"]))));
        assert!(is("mid", by("NotIn", json!(["high"]))) && !is("high", by("NotIn", json!(["high"]))));
        assert!(is("high", by("Exists", json!([]))) && !is("", by("Exists", json!([]))));
        assert!(is("", by("DoesNotExist", json!([]))) && is("", by("NotIn", json!(["high"]))));
    }

    #[test]
    fn only_pods_and_claims_have_scopes() {
        let claim = json!({"spec": {"volumeAttributesClassName": "gold"}});
        let claims = Resource { group: "", plural: "persistentvolumeclaims" };
        let gold = json!({"scopeSelector": {"matchExpressions": [
            {"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]}]}});
        assert!(is_in_scope(claims, &claim, &gold));
        assert!(!is_in_scope(claims, &claim, &json!({"scopes": ["BestEffort"]})));
        let maps = Resource { group: "", plural: "configmaps" };
        assert!(is_in_scope(maps, &json!({}), &json!({})) && !is_in_scope(maps, &json!({}), &gold));
    }
}
