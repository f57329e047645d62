//! ValidatingAdmissionPolicies, their bindings and parameters.

use serde_json::{Value, json};

use crate::common::{CONFIG_MAPS, MERGE, OURS, Server, call, get, patch, post, send};
use crate::hook::GROUP;
use crate::{own, refused};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/wktest/deployments";

/// A deployment with so many replicas.
fn deployment(name: &str, replicas: i64) -> Value {
    let labels = json!({"app": "a"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": labels}, "template": template});
    json!({"metadata": {"name": name}, "spec": spec})
}

/// A policy about deployments and ConfigMaps of the test's namespace.
fn policy(name: &str, validations: &Value) -> Value {
    json!({"metadata": {"name": own(name)}, "spec": {
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": OURS}},
            "resourceRules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": ["apps", ""], "apiVersions": ["v1"],
                "resources": ["deployments", "configmaps"]}]},
        "validations": validations}})
}

/// Creates a policy with a binding of these further fields.
async fn create(server: &Server, policy: &Value, binding: &Value) {
    post(server, &format!("{GROUP}/validatingadmissionpolicies"), policy).await;
    let name = &policy["metadata"]["name"];
    let mut body =
        json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    for (field, value) in binding.as_object().into_iter().flatten() {
        body["spec"][field] = value.clone();
    }
    post(server, &format!("{GROUP}/validatingadmissionpolicybindings"), &body).await;
}

/// Waits until a write is refused: a real server learns of a policy a moment later.
async fn until_refused(server: &Server, path: &str, body: &Value) -> String {
    let path = format!("{path}?dryRun=All");
    server
        .until("a refusal", async || {
            let (code, answer) = call(server, "POST", &path, body).await;
            (code == 422).then(|| answer["message"].as_str().unwrap().to_owned())
        })
        .await
}

// e2e: ValidatingAdmissionPolicy should validate against a Deployment
#[tokio::test(start_paused = true)]
async fn a_policy_refuses_what_its_expressions_do_not_hold_for() {
    let server = Server::with_admission().await;
    let validations = json!([
        {"expression": "!has(object.spec) || !has(object.spec.replicas) || object.spec.replicas > 1",
         "messageExpression": "'wants more than ' + string(object.spec.replicas)"},
        {"expression": "object.metadata.name != 'never'", "reason": "Forbidden"},
        {"expression": "object.metadata.name != 'odd'", "message": "odd name"},
    ]);
    create(&server, &policy("replicas", &validations), &json!({})).await;
    let name = own("replicas");
    let denied = format!("ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: ");
    assert_eq!(
        until_refused(&server, DEPLOYMENTS, &deployment("a", 1)).await,
        format!("deployments.apps \"a\" is forbidden: {denied}wants more than 1")
    );
    assert_eq!(
        refused(call(&server, "POST", DEPLOYMENTS, &deployment("never", 2)).await, 403),
        format!(
            "deployments.apps \"never\" is forbidden: {denied}failed expression: object.metadata.name != 'never'"
        )
    );
    assert!(
        refused(call(&server, "POST", DEPLOYMENTS, &deployment("odd", 2)).await, 422).ends_with(": odd name")
    );
    post(&server, DEPLOYMENTS, &deployment("a", 2)).await;
    let one = json!({"spec": {"replicas": 1}});
    assert_eq!(patch(&server, &format!("{DEPLOYMENTS}/a"), MERGE, &one).await.0, 422);
    assert_eq!(call(&server, "DELETE", &format!("{DEPLOYMENTS}/a"), &Value::Null).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn variables_parameters_and_the_namespace_are_seen_by_expressions() {
    let server = Server::with_admission().await;
    let validations = json!([{"expression": "variables.count <= int(params.data.most)", "message": "too many"},
        {"expression": "namespaceObject.metadata.name == request.namespace"}]);
    let mut policy = policy("params", &validations);
    policy["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    policy["spec"]["variables"] = json!([{"name": "all", "expression": "object.data"},
        {"name": "count", "expression": "size(variables.all)"}]);
    policy["spec"]["matchConditions"] =
        json!([{"name": "counted", "expression": "object.metadata.name.startsWith('counted')"}]);
    let limit = json!({"metadata": {"name": "limit", "labels": {"limit": "yes"}}, "data": {"most": "1"}});
    post(&server, CONFIG_MAPS, &limit).await;
    let reference = json!({"selector": {"matchLabels": {"limit": "yes"}}, "parameterNotFoundAction": "Deny"});
    create(&server, &policy, &json!({"paramRef": reference})).await;
    let map = |name: &str| json!({"metadata": {"name": name}, "data": {"a": "", "b": ""}});
    assert!(until_refused(&server, CONFIG_MAPS, &map("counted")).await.ends_with("denied request: too many"));
    post(&server, CONFIG_MAPS, &map("other")).await;
    post(&server, CONFIG_MAPS, &json!({"metadata": {"name": "counted-one"}, "data": {"a": ""}})).await;
    assert_eq!(call(&server, "DELETE", &format!("{CONFIG_MAPS}/limit"), &Value::Null).await.0, 200);
    let missing = async || {
        let (code, answer) =
            call(&server, "POST", &format!("{CONFIG_MAPS}?dryRun=All"), &map("counted")).await;
        let message = answer["message"].as_str().unwrap_or_default().to_owned();
        (code == 422 && message.contains("no params found")).then_some(message)
    };
    assert!(server.until("no parameters", missing).await.contains("`Deny` parameterNotFoundAction"));
}

#[tokio::test(start_paused = true)]
async fn a_binding_can_warn_instead_and_an_expression_that_fails_denies_by_policy() {
    let server = Server::with_admission().await;
    create(
        &server,
        &policy("warns", &json!([{"expression": "object.metadata.name != 'warned'", "message": "bad name"}])),
        &json!({"validationActions": ["Warn", "Audit"]}),
    )
    .await;
    let validations = json!([{"expression": "object.data.none == ''"}]);
    create(&server, &policy("fails", &validations), &json!({})).await;
    let map = |name: &str, data: &Value| json!({"metadata": {"name": name}, "data": data});
    let message = until_refused(&server, CONFIG_MAPS, &map("a", &json!({}))).await;
    assert!(message.contains("expression 'object.data.none == ''' resulted in error: "), "{message}");
    let body = map("warned", &json!({"none": ""})).to_string();
    let kind = [("content-type", "application/json")];
    let answer = send(&server, "POST", CONFIG_MAPS, &kind, body).await;
    assert_eq!(answer.status(), 201);
    let warning = answer.headers()["warning"].to_str().unwrap();
    assert!(
        warning.contains("Validation failed for ValidatingAdmissionPolicy") && warning.contains(": bad name")
    );
}

#[tokio::test(start_paused = true)]
async fn policies_and_bindings_are_validated() {
    let server = Server::start().await;
    let empty = json!({"metadata": {"name": own("empty")}, "spec": {"matchConstraints": {}}});
    let message =
        refused(call(&server, "POST", &format!("{GROUP}/validatingadmissionpolicies"), &empty).await, 422);
    for expected in
        ["spec.matchConstraints.resourceRules: Required value", "spec.validations: Required value"]
    {
        assert!(message.contains(expected), "{message}");
    }
    let binding = json!({"metadata": {"name": own("empty")}, "spec": {"policyName": "a", "validationActions": ["Deny", "Warn"]}});
    let path = format!("{GROUP}/validatingadmissionpolicybindings");
    let message = refused(call(&server, "POST", &path, &binding).await, 422);
    assert!(message.contains("must not contain both Deny and Warn"), "{message}");
}

/// A definition of `Crontab` in a group of the test, with a number of replicas.
fn definition(group: &str) -> Value {
    let replicas = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    let schema = json!({"type": "object", "properties": {"spec": replicas}});
    json!({"metadata": {"name": format!("crontabs.{group}")}, "spec": {
        "group": group, "scope": "Namespaced", "names": {"plural": "crontabs", "kind": "Crontab"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

/// The types that a policy is found to have wrong: the fields and the messages.
async fn checked(server: &Server, name: &str) -> Vec<(String, String)> {
    let path = format!("{GROUP}/validatingadmissionpolicies/{}", own(name));
    let status = async || {
        let (_, policy) = get(server, &path).await;
        let is_done = policy["status"]["typeChecking"].is_object()
            && policy["status"]["observedGeneration"] == policy["metadata"]["generation"];
        is_done.then(|| policy["status"]["typeChecking"]["expressionWarnings"].clone())
    };
    let warnings = server.until("a type check", status).await;
    let warnings = warnings.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    warnings.iter().map(|it| (text(&it["fieldRef"]), text(&it["warning"]))).collect()
}

// e2e: ValidatingAdmissionPolicy should type check validation expressions
/// On the embedded server alone: it is a controller that checks types elsewhere.
#[tokio::test(start_paused = true)]
async fn the_types_of_a_policy_are_checked() {
    let server = Server::embedded_with_admission("*").await;
    let policies = format!("{GROUP}/validatingadmissionpolicies");
    let with = |name: &str, validations: &Value| {
        let mut policy = policy(name, validations);
        policy["spec"]["matchConstraints"]["resourceRules"][0]["apiGroups"] = json!(["apps"]);
        policy
    };
    let sound = json!([
        {"expression": "object.spec.replicas > 1 && object.metadata.labels['a'] == 'b' && request.userInfo.x == 1"},
        {"expression": "authorizer.group('apps').resource('deployments').check('get').allowed()",
         "messageExpression": "object.spec.template.spec.containers.map(c, c.name + c.image).join(',')"},
        {"expression": "object.spec.strategy.rollingUpdate.maxSurge == 1 && object.spec.selector.x__y == null",
         "messageExpression": "string(variables.any) + oldObject.metadata.__namespace__"},
    ]);
    post(&server, &policies, &with("types", &sound)).await;
    let wrong = checked(&server, "types").await;
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    assert_eq!(wrong[0].0, "spec.validations[2].expression");
    assert!(wrong[0].1.contains("undefined field 'x__y'"), "{wrong:?}");

    let confused = json!([{"expression": "object.spec.replicas > '1'",
        "messageExpression": "'wants replicas > 1, got ' + object.spec.replicas"}]);
    let path = format!("{policies}/{}", own("types"));
    let (code, _) = patch(&server, &path, MERGE, &json!({"spec": {"validations": confused}})).await;
    assert_eq!(code, 200);
    let wrong = checked(&server, "types").await;
    assert_eq!(
        wrong[0].1,
        "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, \
         string)'\n | object.spec.replicas > '1'\n | .....................^\n"
    );
    assert_eq!(wrong[1].0, "spec.validations[0].messageExpression");
    let overload = "found no matching overload for '_+_' applied to '(string, int)'";
    assert!(wrong.len() == 2 && wrong[1].1.contains(overload), "{wrong:?}");

    // A change of something else leaves the result as it is.
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(patch(&server, &path, MERGE, &labels).await.0, 200);
    assert_eq!(checked(&server, "types").await.len(), 2);
}

// e2e: ValidatingAdmissionPolicy should type check a CRD
#[tokio::test(start_paused = true)]
async fn a_policy_about_custom_resources_is_checked_by_their_schema() {
    let server = Server::embedded_with_admission("*").await;
    let group = format!("{OURS}.dev");
    post(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition(&group)).await;
    let mut policy = policy(
        "custom",
        &json!([
            {"expression": "object.spec.replicas > 1 && object.metadata.uid != ''"},
            {"expression": "object.spec.replicas > '1'"},
            {"expression": "object.spec.maxRetries < 10"},
            {"expression": "params.data['a'] == 1 && params.other == ''"},
        ]),
    );
    let rule = &mut policy["spec"]["matchConstraints"]["resourceRules"][0];
    (rule["apiGroups"], rule["resources"]) = (json!([group]), json!(["crontabs", "*/scale"]));
    policy["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    post(&server, &format!("{GROUP}/validatingadmissionpolicies"), &policy).await;
    let wrong = checked(&server, "custom").await;
    let fields: Vec<_> = wrong.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(fields, [1, 2, 3].map(|at| format!("spec.validations[{at}].expression")));
    assert!(wrong[0].1.starts_with(&format!("{group}/v1, Kind=Crontab: ERROR: ")), "{wrong:?}");
    assert!(wrong[1].1.contains("undefined field 'maxRetries'"), "{wrong:?}");
    assert!(wrong[2].1.contains("applied to '(string, int)'"), "{wrong:?}");
    assert!(wrong[2].1.contains("undefined field 'other'"), "{wrong:?}");
}

#[tokio::test(start_paused = true)]
async fn a_policy_about_whatever_there_is_has_no_types() {
    let server = Server::embedded_with_admission("*").await;
    let mut policy = policy("any", &json!([{"expression": "object.no.such.field == 1"}]));
    policy["spec"]["matchConstraints"]["resourceRules"][0]["apiGroups"] = json!(["*"]);
    let created = post(&server, &format!("{GROUP}/validatingadmissionpolicies"), &policy).await;
    assert_eq!(created["status"], json!({"observedGeneration": 1, "typeChecking": {}}));
}
