//! What do objects show that fewer people list? Storage, policies, autoscalers, configuration of the server.

use serde_json::{Value, json};

use super::age::human;
use super::cells::{balancer, containers, count, labels, list, number, or, selector, shown, some, text};

/// The cells of an object of one of the rarer kinds.
pub(crate) fn row(kind: &str, object: &Value, name: &str, age: &str) -> Value {
    let (spec, status) = (&object["spec"], &object["status"]);
    match kind {
        "HorizontalPodAutoscaler" => {
            let target = &spec["scaleTargetRef"];
            let metrics: Vec<_> = list(&spec["metrics"]).iter().map(metric).collect();
            json!([
                name,
                format!("{}/{}", text(&target["kind"]), text(&target["name"])),
                some(&metrics, 2),
                shown(&spec["minReplicas"], "<unset>"),
                number(&spec["maxReplicas"]),
                number(&status["currentReplicas"]),
                age,
            ])
        }
        "Ingress" => {
            let hosts = list(&spec["rules"]).iter().map(|rule| text(&rule["host"]).to_owned());
            let hosts: Vec<_> = hosts.filter(|host| !host.is_empty()).collect();
            let hosts = if hosts.is_empty() { "*".to_owned() } else { some(&hosts, 3) };
            let ports = if list(&spec["tls"]).is_empty() { "80" } else { "80, 443" };
            json!([name, or(text(&spec["ingressClassName"]), "<none>"), hosts, balancer(status), ports, age])
        }
        "IngressClass" => {
            let parameters = &spec["parameters"];
            let group = text(&parameters["apiGroup"]);
            let shown = match (parameters.is_object(), group) {
                (false, _) => "<none>".to_owned(),
                (true, "") => format!("{}/{}", text(&parameters["kind"]), text(&parameters["name"])),
                (true, group) => {
                    format!("{}.{group}/{}", text(&parameters["kind"]), text(&parameters["name"]))
                }
            };
            json!([name, text(&spec["controller"]), shown, age])
        }
        "NetworkPolicy" => json!([name, selector(&spec["podSelector"]), age]),
        "PodDisruptionBudget" => json!([
            name,
            shown(&spec["minAvailable"], "N/A"),
            shown(&spec["maxUnavailable"], "N/A"),
            number(&status["disruptionsAllowed"]),
            age,
        ]),
        "StorageClass" => {
            let default =
                object["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true";
            let name = if default { format!("{name} (default)") } else { name.to_owned() };
            json!([
                name,
                text(&object["provisioner"]),
                or(text(&object["reclaimPolicy"]), "Delete"),
                or(text(&object["volumeBindingMode"]), "Immediate"),
                object["allowVolumeExpansion"] == true,
                age,
            ])
        }
        "PriorityClass" => json!([
            name,
            number(&object["value"]),
            object["globalDefault"] == true,
            age,
            or(text(&object["preemptionPolicy"]), "PreemptLowerPriority"),
        ]),
        "RuntimeClass" => json!([name, text(&object["handler"]), age]),
        "ControllerRevision" => {
            let owners = list(&object["metadata"]["ownerReferences"]);
            let owner = owners.iter().find(|owner| owner["controller"] == true);
            let owner = owner.map_or("<none>".to_owned(), |owner| {
                let group = text(&owner["apiVersion"]).split_once('/').map_or("", |(group, _)| group);
                let dot = if group.is_empty() { "" } else { "." };
                format!("{}{dot}{group}/{}", text(&owner["kind"]).to_lowercase(), text(&owner["name"]))
            });
            json!([name, owner, number(&object["revision"]), age])
        }
        "PodTemplate" => {
            let template = &object["template"];
            json!([
                name,
                containers(template, "name"),
                containers(template, "image"),
                labels(&template["metadata"]["labels"])
            ])
        }
        "ResourceQuota" => {
            let amounts = |limits: bool| {
                let hard = status["hard"].as_object().into_iter().flatten();
                let wanted = hard.filter(|(resource, _)| resource.starts_with("limits.") == limits);
                let shown = wanted.map(|(resource, hard)| {
                    format!(
                        "{resource}: {}/{}",
                        or(text(&status["used"][resource.as_str()]), "0"),
                        text(hard)
                    )
                });
                shown.collect::<Vec<_>>().join(", ")
            };
            json!([name, amounts(false), amounts(true), age])
        }
        "CSIDriver" => json!([
            name,
            spec["attachRequired"] != false,
            spec["podInfoOnMount"] == true,
            spec["storageCapacity"] == true,
            "<unset>",
            spec["requiresRepublish"] == true,
            or(&list(&spec["volumeLifecycleModes"]).iter().map(text).collect::<Vec<_>>().join(","), "<none>"),
            age,
        ]),
        "CSINode" => json!([name, count(&spec["drivers"]), age]),
        "VolumeAttachment" => json!([
            name,
            text(&spec["attacher"]),
            text(&spec["source"]["persistentVolumeName"]),
            text(&spec["nodeName"]),
            status["attached"] == true,
            age,
        ]),
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            json!([name, count(&object["webhooks"]), age])
        }
        "ValidatingAdmissionPolicy" => {
            let kind = &spec["paramKind"];
            let kind = if kind.is_object() {
                format!("{}/{}", text(&kind["apiVersion"]), text(&kind["kind"]))
            } else {
                "<unset>".to_owned()
            };
            json!([name, count(&spec["validations"]), kind, age])
        }
        "ValidatingAdmissionPolicyBinding" => {
            let reference = &spec["paramRef"];
            let shown = match (reference.is_object(), text(&reference["namespace"])) {
                (false, _) => "<unset>".to_owned(),
                (true, "") => text(&reference["name"]).to_owned(),
                (true, namespace) => format!("{namespace}/{}", text(&reference["name"])),
            };
            json!([name, text(&spec["policyName"]), shown, age])
        }
        "CertificateSigningRequest" => {
            let has = |wanted: &str| list(&status["conditions"]).iter().any(|c| c["type"] == wanted);
            let mut condition = match (has("Approved"), has("Denied")) {
                (_, true) => "Denied".to_owned(),
                (true, _) => "Approved".to_owned(),
                _ => "Pending".to_owned(),
            };
            if has("Failed") {
                condition += ",Failed";
            }
            if !text(&status["certificate"]).is_empty() {
                condition += ",Issued";
            }
            let duration = spec["expirationSeconds"].as_i64().map_or("<none>".to_owned(), human);
            json!([name, age, text(&spec["signerName"]), text(&spec["username"]), duration, condition])
        }
        _ => json!([name, age]),
    }
}

fn metric(metric: &Value) -> String {
    let resource = &metric["resource"];
    match (text(&metric["type"]), resource["target"]["averageUtilization"].as_i64()) {
        ("Resource", Some(wanted)) => format!("{}: <unknown>/{wanted}%", text(&resource["name"])),
        ("Resource", None) => {
            format!("{}: <unknown>/{}", text(&resource["name"]), text(&resource["target"]["averageValue"]))
        }
        _ => "<unknown>/<auto>".to_owned(),
    }
}
