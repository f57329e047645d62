//! Pods: scheduling gates, bindings, and the fields of a pod that may change.

use serde_json::{Value, json};

use crate::common::*;
use crate::{PODS, message, pod};

const BINDING: &str = "/api/v1/namespaces/wktest/pods/p/binding";

fn binding() -> Value {
    json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}})
}

/// Returns the status and reason of the condition `PodScheduled`.
fn scheduled(pod: &Value) -> (&Value, &Value) {
    let condition = &pod["status"]["conditions"][0];
    assert_eq!(condition["type"], "PodScheduled", "{pod}");
    (&condition["status"], &condition["reason"])
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_no_node_before_its_gates_are_open() {
    let server = Server::start().await;
    let gated = json!({"schedulingGates": [{"name": "g"}]});
    let made = post(&server, PODS, &pod(&gated)).await;
    assert_eq!(scheduled(&made), (&json!("False"), &json!("SchedulingGated")));
    let (code, status) = call(&server, "POST", BINDING, &binding()).await;
    let refused =
        "Operation cannot be fulfilled on pods/binding \"p\": pod p has non-empty .spec.schedulingGates";
    assert_eq!((code, message(&status)), (409, refused));
    let path = format!("{PODS}/p");
    let (_, open) = patch(&server, &path, MERGE, &json!({"spec": {"schedulingGates": []}})).await;
    assert_eq!(scheduled(&open), (&json!("False"), &json!("SchedulingGated")), "left to the scheduler");
    assert_eq!(call(&server, "POST", BINDING, &binding()).await.0, 201);
    let (_, bound) = get(&server, &path).await;
    assert_eq!(
        (scheduled(&bound), &bound["spec"]["nodeName"]),
        ((&json!("True"), &Value::Null), &json!("n"))
    );
}

#[tokio::test(start_paused = true)]
async fn labels_and_annotations_of_a_binding_are_laid_over_those_of_the_pod() {
    let server = Server::start().await;
    let mut pod = pod(&json!({}));
    pod["metadata"]["labels"] = json!({"zone": "old", "app": "a"});
    post(&server, PODS, &pod).await;
    let mut binding = binding();
    binding["metadata"]["labels"] = json!({"zone": "new"});
    binding["metadata"]["annotations"] = json!({"note": "new"});
    assert_eq!(call(&server, "POST", BINDING, &binding).await.0, 201);
    let (_, bound) = get(&server, &format!("{PODS}/p")).await;
    assert_eq!(bound["metadata"]["labels"], json!({"zone": "new", "app": "a"}));
    assert_eq!(bound["metadata"]["annotations"], json!({"note": "new"}));
}

#[tokio::test(start_paused = true)]
async fn a_binding_names_its_pod_and_a_node() {
    let server = Server::start().await;
    let kind = "target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\"";
    let both = format!("[{kind}, target.name: Required value]");
    // A binding is validated before its pod is looked up.
    for (target, problem) in [
        (json!({}), "target.name: Required value"),
        (json!({"kind": "Pod", "name": "n"}), kind),
        (json!({"kind": "Pod"}), &both),
    ] {
        let binding = json!({"metadata": {"name": "p"}, "target": target});
        let (code, status) = call(&server, "POST", BINDING, &binding).await;
        assert_eq!((code, message(&status)), (500, problem));
    }
    assert_eq!(call(&server, "POST", BINDING, &binding()).await.0, 404);
    post(&server, PODS, &pod(&json!({}))).await;
    let target = json!({"target": {"name": "n"}});
    for (action, kind) in [("binding", "Binding"), ("eviction", "Eviction")] {
        let (code, status) = call(&server, "POST", &format!("{PODS}/p/{action}"), &target).await;
        let refused = format!("name in URL does not match name in {kind} object");
        assert_eq!((code, message(&status)), (400, refused.as_str()));
    }
}

#[tokio::test(start_paused = true)]
async fn gates_are_qualified_names_and_keep_a_new_pod_from_having_a_node() {
    let server = Server::start().await;
    for (spec, problem) in [
        (
            json!({"schedulingGates": [{"name": "g"}, {"name": "g"}]}),
            "spec.schedulingGates[1]: Duplicate value: \"g\"",
        ),
        (
            json!({"schedulingGates": [{"name": "g"}], "nodeName": "n"}),
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
        ),
        (
            json!({"schedulingGates": [{"name": "a b"}]}),
            "spec.schedulingGates[0]: Invalid value: \"a b\": name part must",
        ),
        (json!({"nodeSelector": {"a b": "c"}}), "spec.nodeSelector: Invalid value: \"a b\": name part must"),
    ] {
        let (code, status) = call(&server, "POST", PODS, &pod(&spec)).await;
        let expected = format!("Pod \"p\" is invalid: {problem}");
        assert!(code == 422 && message(&status).starts_with(&expected), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_of_hosts_and_kernel_parameters_are_validated() {
    let server = Server::start().await;
    let sysctls = |names: &[&str]| {
        let list: Vec<_> = names.iter().map(|name| json!({"name": name, "value": "1"})).collect();
        json!({"securityContext": {"sysctls": list}})
    };
    for (spec, problem) in [
        (
            json!({"hostnameOverride": "a", "hostNetwork": true}),
            "spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true",
        ),
        (
            json!({"hostnameOverride": "a", "setHostnameAsFQDN": true}),
            "spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true",
        ),
        (
            json!({"hostnameOverride": "A_b"}),
            "spec.hostnameOverride: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain must",
        ),
        (
            json!({"hostnameOverride": "a".repeat(65)}),
            "spec.hostnameOverride: Too long: may not be more than 64 bytes",
        ),
        (
            json!({"hostname": "a_b"}),
            "spec.hostname: Invalid value: \"a_b\": a lowercase RFC 1123 label must",
        ),
        (json!({"hostname": "a.b"}), "spec.hostname: Invalid value: \"a.b\": must not contain dots"),
        (json!({"subdomain": "-"}), "spec.subdomain: Invalid value: \"-\": a lowercase RFC 1123 label must"),
        (
            sysctls(&["kernel.shmmax", "foo-"]),
            "spec.securityContext.sysctls[1].name: Invalid value: \"foo-\": must have at most 253 characters and match regex ^",
        ),
        (sysctls(&["bar.."]), "spec.securityContext.sysctls[0].name: Invalid value: \"bar..\": must have"),
        (sysctls(&[""]), "spec.securityContext.sysctls[0].name: Required value"),
        (sysctls(&["a", "a"]), "spec.securityContext.sysctls[1].name: Duplicate value: \"a\""),
    ] {
        let (code, status) = call(&server, "POST", PODS, &pod(&spec)).await;
        let expected = format!("Pod \"p\" is invalid: {problem}");
        assert!(code == 422 && message(&status).starts_with(&expected), "{status}");
    }
    let mut good = sysctls(&["kernel/shm_rmid_forced", "net.ipv4.conf.eno2/100.rp_filter"]);
    good["hostnameOverride"] = "a.b".into();
    post(&server, PODS, &pod(&good)).await;
}

fn affinity(terms: &Value) -> Value {
    let terms = terms.as_array().unwrap().iter().map(|keys| {
        let keys = keys.as_array().unwrap().iter();
        json!({"matchExpressions": keys.map(|key| json!({"key": key, "operator": "Exists"})).collect::<Vec<_>>()})
    });
    let terms: Vec<_> = terms.collect();
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

#[tokio::test(start_paused = true)]
async fn a_pod_at_a_gate_may_ask_more_of_its_node_and_never_less() {
    const TERMS: &str =
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let server = Server::start().await;
    let gated = json!({
        "schedulingGates": [{"name": "g"}, {"name": "h"}],
        "nodeSelector": {"disk": "fast"},
        "affinity": affinity(&json!([["a"]])),
    });
    let refused =
        |field: &str, value: &str, problem: &str| format!("{field}: Invalid value: {value}: {problem}");
    let b = r#"{"MatchExpressions":[{"Key":"b","Operator":"Exists","Values":null}],"MatchFields":null}"#;
    let a = b.replace("\"b\"", "\"a\"");
    let added = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
    let counted = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
    let new_gate = "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'i'";
    for (change, problem) in [
        (json!({"nodeSelector": {"zone": "z"}}), String::new()),
        (
            json!({"nodeSelector": {"disk": "slow"}}),
            refused("spec.nodeSelector", "{\"disk\":\"slow\"}", added),
        ),
        (json!({"nodeSelector": null}), refused("spec.nodeSelector", "null", added)),
        (json!({"affinity": affinity(&json!([["a", "b"]]))}), String::new()),
        (
            json!({"affinity": affinity(&json!([["b"]]))}),
            refused(&format!("{TERMS}[0]"), b, "only additions are allowed (no mutations or deletions)"),
        ),
        (
            json!({"affinity": affinity(&json!([["a"], ["b"]]))}),
            refused(TERMS, &format!("[{a},{b}]"), counted),
        ),
        (json!({"affinity": null}), refused(TERMS, "null", counted)),
        (
            json!({"affinity": {"podAffinity": {}}}),
            "spec: Forbidden: pod updates may not change fields other than".to_owned(),
        ),
        (json!({"schedulingGates": [{"name": "i"}]}), new_gate.to_owned()),
        (json!({"schedulingGates": [{"name": "h"}]}), String::new()),
    ] {
        post(&server, PODS, &pod(&gated)).await;
        let path = format!("{PODS}/p");
        let (code, answer) = patch(&server, &path, MERGE, &json!({"spec": change})).await;
        let expected = if problem.is_empty() {
            (200, String::new())
        } else {
            (422, format!("Pod \"p\" is invalid: {problem}"))
        };
        assert!(code == expected.0 && message(&answer).starts_with(&expected.1), "{change}: {answer}");
        call(&server, "DELETE", &path, &Value::Null).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_seconds_of_a_toleration_may_change_and_its_key_may_not() {
    let server = Server::start().await;
    let toleration = |key: &str, seconds: u64| json!({"tolerations": [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]});
    post(&server, PODS, &pod(&toleration("k", 5))).await;
    let path = format!("{PODS}/p");
    for (change, code) in
        [(toleration("k", 9), 200), (toleration("l", 9), 422), (json!({"tolerations": []}), 422)]
    {
        let (found, answer) = patch(&server, &path, MERGE, &json!({"spec": change})).await;
        assert_eq!(found, code, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_times_of_a_pod_change_in_one_direction() {
    let server = Server::start().await;
    let path = format!("{PODS}/p");
    for (field, from, to, code) in [
        ("activeDeadlineSeconds", json!(60), json!(30), 200),
        ("activeDeadlineSeconds", json!(60), json!(90), 422),
        ("activeDeadlineSeconds", json!(60), Value::Null, 422),
        ("activeDeadlineSeconds", Value::Null, json!(60), 200),
        // A negative grace period counts as one second.
        ("terminationGracePeriodSeconds", json!(-5), json!(1), 200),
        ("terminationGracePeriodSeconds", json!(-5), json!(2), 422),
        ("terminationGracePeriodSeconds", json!(0), json!(1), 422),
        ("terminationGracePeriodSeconds", json!(30), json!(1), 422),
    ] {
        post(&server, PODS, &pod(&json!({field: from}))).await;
        let (found, answer) = patch(&server, &path, MERGE, &json!({"spec": {field: to}})).await;
        assert_eq!(found, code, "{field} {from} {to}: {answer}");
        call(&server, "DELETE", &path, &Value::Null).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_changes_only_where_it_may() {
    let server = Server::start().await;
    let path = format!("{PODS}/p");
    let made = post(&server, PODS, &pod(&json!({"terminationGracePeriodSeconds": -1}))).await;
    assert_eq!(made["spec"]["terminationGracePeriodSeconds"], 1);
    // An update without the tolerations that admission has added gets them again.
    let mut same = pod(&json!({"activeDeadlineSeconds": 60, "terminationGracePeriodSeconds": 1}));
    let (code, answer) = call(&server, "PUT", &path, &same).await;
    assert_eq!((code, &answer["spec"]["tolerations"]), (200, &made["spec"]["tolerations"]), "{answer}");
    let toleration = json!({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}});
    assert_eq!(patch(&server, &path, MERGE, &toleration).await.0, 200);
    let two = json!([{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]);
    for (field, value, refused) in [
        ("containers", two, "spec.containers"),
        ("activeDeadlineSeconds", json!(90), "spec.activeDeadlineSeconds"),
        ("tolerations", json!([]), "spec.tolerations"),
    ] {
        let kept = same["spec"].clone();
        same["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
        same["spec"][field] = value;
        let (code, status) = call(&server, "PUT", &path, &same).await;
        assert_eq!((code, &status["details"]["causes"][0]["field"]), (422, &json!(refused)), "{status}");
        same["spec"] = kept;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_takes_no_other_policy() {
    let server = Server::start().await;
    let path = format!("{PODS}/p");
    post(&server, PODS, &pod(&json!({"nodeName": "n"}))).await;
    let (_, ending) = call(&server, "DELETE", &path, &Value::Null).await;
    let foreground = json!({"propagationPolicy": "Foreground"});
    assert_eq!(call(&server, "DELETE", &path, &foreground).await, (200, ending));
}

#[tokio::test(start_paused = true)]
async fn a_finished_pod_keeps_the_grace_period_of_its_deletion() {
    let server = Server::start().await;
    let path = format!("{PODS}/p");
    post(&server, PODS, &pod(&json!({"nodeName": "n"}))).await;
    call(&server, "DELETE", &path, &Value::Null).await;
    patch(&server, &format!("{path}/status"), MERGE, &json!({"status": {"phase": "Succeeded"}})).await;
    let (_, object) = call(&server, "DELETE", &path, &json!({"gracePeriodSeconds": 5})).await;
    assert_eq!(object["metadata"]["deletionGracePeriodSeconds"], 5, "{object}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_node_that_is_not_there_has_no_log() {
    let server = Server::start().await;
    post(&server, PODS, &pod(&json!({"nodeName": "wktest-n"}))).await;
    let (code, status) = get(&server, &format!("{PODS}/p/log")).await;
    assert_eq!((code, message(&status)), (404, "pods \"wktest-n\" not found"));
}
