//! MutatingAdmissionPolicies: apply configurations, JSON patches, order and reinvocation.

use serde_json::{Value, json};

use crate::common::{CONFIG_MAPS, MERGE, OURS, Server, call, patch, post};
use crate::hook::GROUP;
use crate::own;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/wktest/deployments";

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn json_patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

/// Creates a policy about deployments and ConfigMaps of the test's namespace, and its binding. `fields` are added to the
/// spec of the policy.
async fn create(server: &Server, name: &str, mutations: &[Value], fields: &Value) {
    let mut spec = json!({
        "reinvocationPolicy": "Never", "mutations": mutations,
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": OURS}},
            "resourceRules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": ["apps", ""], "apiVersions": ["v1"],
                "resources": ["deployments", "configmaps"]}]}});
    for (field, value) in fields.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let mut binding = json!({"policyName": own(name)});
    if spec["paramKind"].is_object() {
        binding["paramRef"] = json!({"name": "param", "parameterNotFoundAction": "Deny"});
    }
    for (plural, spec) in [("mutatingadmissionpolicies", spec), ("mutatingadmissionpolicybindings", binding)]
    {
        post(server, &format!("{GROUP}/{plural}"), &json!({"metadata": {"name": own(name)}, "spec": spec}))
            .await;
    }
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "b"}})
}

fn deployment() -> Value {
    let labels = json!({"app": "a"});
    let containers = json!([{"name": "c", "image": "i"}]);
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": labels}, "template": template});
    json!({"metadata": {"name": "a"}, "spec": spec})
}

/// The answer to a dry run, once it is as expected: a real server learns of a policy a moment later.
async fn until(
    server: &Server,
    path: &str,
    body: &Value,
    is_expected: impl Fn(u16, &Value) -> bool,
) -> Value {
    let path = format!("{path}?dryRun=All");
    server
        .until("a mutation", async || {
            let (code, answer) = call(server, "POST", &path, body).await;
            is_expected(code, &answer).then_some(answer)
        })
        .await
}

// e2e: MutatingAdmissionPolicy should mutate a Deployment with annotations
// e2e: MutatingAdmissionPolicy should mutate a Deployment
#[tokio::test(start_paused = true)]
async fn an_apply_configuration_is_merged_into_the_object() {
    let server = Server::with_admission().await;
    let annotations = "Object{metadata: Object.metadata{annotations: {\"mutated-by\": \"policy\"}}}";
    let replicas = "Object{spec: Object.spec{replicas: object.spec.replicas + 1336}}";
    let sidecar = "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{
        containers: [Object.spec.template.spec.containers{name: 'c', imagePullPolicy: 'Never'},
            Object.spec.template.spec.containers{name: 'sidecar', image: 'other:1'}]}}}}";
    let only = json!({"matchConditions": [{"name": "d", "expression": "request.resource.resource == 'deployments'"}]});
    create(&server, "apply", &[apply(annotations), apply(replicas), apply(sidecar)], &only).await;
    let mutated = until(&server, DEPLOYMENTS, &deployment(), |_, it| it["spec"]["replicas"] == 1337).await;
    assert_eq!(mutated["metadata"]["annotations"], json!({"mutated-by": "policy"}));
    let containers = &mutated["spec"]["template"]["spec"]["containers"];
    assert_eq!((&containers[0]["image"], &containers[0]["imagePullPolicy"]), (&json!("i"), &json!("Never")));
    // A new container gets its defaults.
    assert_eq!(
        (&containers[1]["name"], &containers[1]["imagePullPolicy"]),
        (&json!("sidecar"), &json!("IfNotPresent"))
    );
    let created = post(&server, DEPLOYMENTS, &deployment()).await;
    assert_eq!(created["spec"]["replicas"], 1337);
    let two = json!({"spec": {"replicas": 2}});
    let (code, changed) = patch(&server, &format!("{DEPLOYMENTS}/a"), MERGE, &two).await;
    assert_eq!((code, &changed["spec"]["replicas"]), (200, &json!(1338)));
    assert_eq!(call(&server, "DELETE", &format!("{DEPLOYMENTS}/a"), &Value::Null).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_json_patch_sees_parameters_and_variables() {
    let server = Server::with_admission().await;
    post(&server, CONFIG_MAPS, &json!({"metadata": {"name": "param"}, "data": {"key": "example.dev/size"}}))
        .await;
    let expression = "has(object.data.gone) ? [JSONPatch{op: 'remove', path: '/data/gone'}] : [
        JSONPatch{op: 'test', path: '/data/a', value: 'b'},
        JSONPatch{op: 'add', path: '/metadata/annotations', value: {}},
        JSONPatch{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey(variables.key), value: variables.size}]";
    let fields = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "variables": [{"name": "key", "expression": "params.data.key"}, {"name": "size", "expression": "string(size(object.data))"}],
        "matchConditions": [{"name": "m", "expression": "request.resource.resource == 'configmaps'"}]});
    create(&server, "patch", &[json_patch(expression)], &fields).await;
    let expected = json!({"example.dev/size": "1"});
    until(&server, CONFIG_MAPS, &map("a"), |_, it| it["metadata"]["annotations"] == expected).await;
    // The patch of a test that does not hold is not for this object.
    let other = json!({"metadata": {"name": "other"}, "data": {"a": "c"}});
    assert_eq!(post(&server, CONFIG_MAPS, &other).await["metadata"].get("annotations"), None);
    let gone = json!({"metadata": {"name": "gone"}, "data": {"gone": "", "here": ""}});
    assert_eq!(post(&server, CONFIG_MAPS, &gone).await["data"], json!({"here": ""}));
}

/// On the embedded server alone: a policy that fails would refuse the objects of other tests.
#[tokio::test(start_paused = true)]
async fn a_policy_that_fails_refuses_the_object_unless_failures_are_ignored() {
    for (mutation, problem) in [
        (apply("Object{spec: Object.spec{replicas: object.none}}"), "resulted in error: "),
        (
            apply("Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}"),
            "may not mutate atomic arrays, maps or structs: .spec.selector",
        ),
        (
            apply("Object{spec: Object.wrong{replicas: 1}}"),
            "type mismatch: unexpected type name \"Object.wrong\"",
        ),
        (apply("Object{spec: Object.spec{nothing: 1}}"), ".spec.nothing: field not declared in schema"),
        (apply("1"), "unsupported return type"),
        (apply("Other{a: 1}"), "undeclared reference to 'Other'"),
        (json_patch("JSONPatch{op: 'add', path: '/a', value: 1}"), "should evaluate to array"),
        (json_patch("[JSONPatch{op: 'remove', path: '/none/a'}]"), "JSON Patch: "),
    ] {
        for policy in ["Fail", "Ignore"] {
            let server = Server::embedded_with_admission("MutatingAdmissionPolicy").await;
            create(&server, "fails", std::slice::from_ref(&mutation), &json!({"failurePolicy": policy}))
                .await;
            let (code, answer) = call(&server, "POST", DEPLOYMENTS, &deployment()).await;
            if policy == "Ignore" {
                assert_eq!((code, &answer["spec"]["replicas"]), (201, &json!(1)), "{mutation}: {answer}");
                continue;
            }
            let message = answer["message"].as_str().unwrap();
            let name = own("fails");
            let begin = format!("policy '{name}' with binding '{name}' denied request: ");
            assert!(message.starts_with(&begin) && message.contains(problem), "{mutation}: {message}");
            assert_eq!((code, &answer["reason"]), (403, &json!("Invalid")), "{message}");
        }
    }
}

/// On the embedded server alone: the names decide on the order, and those of a real server are others.
#[tokio::test(start_paused = true)]
async fn a_policy_that_wishes_it_runs_again_after_a_later_one() {
    let count = "Object{data: {'count': string(has(object.data.count) ? int(object.data.count) + 1 : 1)}}";
    for (reinvocation, expected) in [("Never", "1"), ("IfNeeded", "2")] {
        let server = Server::embedded_with_admission("MutatingAdmissionPolicy").await;
        create(&server, "a", &[apply(count)], &json!({"reinvocationPolicy": reinvocation})).await;
        create(&server, "b", &[apply("Object{data: {'later': 'yes'}}")], &json!({})).await;
        let created = post(&server, CONFIG_MAPS, &map("m")).await;
        assert_eq!(created["data"], json!({"a": "b", "count": expected, "later": "yes"}));
    }
}

/// On the embedded server alone: it has no other kinds than a test defines.
#[tokio::test(start_paused = true)]
async fn custom_resources_are_changed_by_their_schema() {
    let server = Server::embedded_with_admission("*,-ServiceAccount").await;
    let item = json!({"type": "object", "properties": {"key": {"type": "string"}, "value": {"type": "integer", "default": 7}}});
    let items = json!({"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"]});
    let spec = json!({"type": "object", "properties": {"items": items, "plain": {"type": "array", "items": {"type": "string"}}}});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let definition = json!({"metadata": {"name": "foos.wktest.dev"}, "spec": {
        "group": "wktest.dev", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    post(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    let rules = json!([{"operations": ["*"], "apiGroups": ["wktest.dev"], "apiVersions": ["v1"], "resources": ["foos"]}]);
    let added = "Object{spec: Object.spec{items: [Object.spec.items{key: 'b'}, Object.spec.items{key: 'a', value: 2}]}}";
    create(&server, "custom", &[apply(added)], &json!({"matchConstraints": {"resourceRules": rules}})).await;
    let path = "/apis/wktest.dev/v1/namespaces/wktest/foos";
    let foo = json!({"apiVersion": "wktest.dev/v1", "kind": "Foo", "metadata": {"name": "x"}, "spec": {"items": [{"key": "a", "value": 1}]}});
    let created = post(&server, path, &foo).await;
    let mut items = created["spec"]["items"].as_array().unwrap().clone();
    items.sort_by_key(|item| item["key"].to_string());
    assert_eq!(items, [json!({"key": "a", "value": 2}), json!({"key": "b", "value": 7})]);
}
