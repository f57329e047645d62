//! Refusals: codes, reasons, messages and details that clients match on.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use common::*;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/wktest/pods";
const SUBDOMAIN: &str = r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Each row as a real kube-apiserver 1.36 answers it.
#[tokio::test(start_paused = true)]
async fn refusals_carry_code_reason_message_and_details() {
    let server = Server::start().await;
    post(&server, CONFIG_MAPS, &config_map("a", &json!({"k": "v"}))).await;
    let object = |fields: Value| {
        let mut object = config_map("x", &json!({}));
        for (key, value) in fields.as_object().unwrap() {
            object["metadata"][key.as_str()] = value.clone();
        }
        object
    };
    let invalid_name =
        format!("ConfigMap \"Bad_Name\" is invalid: metadata.name: Invalid value: \"Bad_Name\": {SUBDOMAIN}");
    let a = format!("{CONFIG_MAPS}/a");
    type Row<'a> = (&'a str, String, Value, u16, Option<&'a str>, &'a str);
    let rows: Vec<Row<'_>> = vec![
        (
            "POST",
            CONFIG_MAPS.into(),
            config_map("a", &json!({})),
            409,
            Some("AlreadyExists"),
            "configmaps \"a\" already exists",
        ),
        (
            "GET",
            format!("{CONFIG_MAPS}/no"),
            Value::Null,
            404,
            Some("NotFound"),
            "configmaps \"no\" not found",
        ),
        (
            "GET",
            "/apis/apps/v1/namespaces/wktest/deployments/no".into(),
            Value::Null,
            404,
            Some("NotFound"),
            "deployments.apps \"no\" not found",
        ),
        (
            "GET",
            "/api/v1/namespaces/wktest/foos".into(),
            Value::Null,
            404,
            Some("NotFound"),
            "the server could not find the requested resource",
        ),
        (
            "POST",
            a.clone(),
            config_map("a", &json!({})),
            405,
            Some("MethodNotAllowed"),
            "the server does not allow this method on the requested resource",
        ),
        (
            "PUT",
            CONFIG_MAPS.into(),
            config_map("a", &json!({})),
            405,
            Some("MethodNotAllowed"),
            "the server does not allow this method on the requested resource",
        ),
        (
            "POST",
            CONFIG_MAPS.into(),
            object(json!({"name": "Bad_Name"})),
            422,
            Some("Invalid"),
            &invalid_name,
        ),
        (
            "POST",
            CONFIG_MAPS.into(),
            json!({"metadata": {}}),
            422,
            Some("Invalid"),
            "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
        ),
        (
            "POST",
            CONFIG_MAPS.into(),
            object(json!({"namespace": "other"})),
            400,
            Some("BadRequest"),
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "POST",
            CONFIG_MAPS.into(),
            json!({"apiVersion": "v2", "kind": "ConfigMap"}),
            400,
            Some("BadRequest"),
            "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v2\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
        (
            "POST",
            CONFIG_MAPS.into(),
            json!({"apiVersion": "apps/v1", "kind": "Deployment"}),
            400,
            Some("BadRequest"),
            "Deployment in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Deployment) to (core.ConfigMap): unknown conversion",
        ),
        (
            "POST",
            "/apis/apps/v1/namespaces/wktest/deployments".into(),
            json!({"apiVersion": "apps/v1beta1", "kind": "Deployment"}),
            400,
            Some("BadRequest"),
            "the API version in the data (apps/v1beta1) does not match the expected API version (apps/v1)",
        ),
        (
            "POST",
            "/api/v1/namespaces/wktest/events".into(),
            json!({"apiVersion": "events.k8s.io/v1", "kind": "Event"}),
            400,
            Some("BadRequest"),
            "the API version in the data (events.k8s.io/v1) does not match the expected API version (v1)",
        ),
        (
            "POST",
            CONFIG_MAPS.into(),
            json!({"apiVersion": "v1", "kind": "Secret"}),
            400,
            Some("BadRequest"),
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion",
        ),
        (
            "POST",
            CONFIG_MAPS.into(),
            config_map("z", &json!({"a": 1})),
            400,
            Some("BadRequest"),
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "POST",
            CONFIG_MAPS.into(),
            object(json!({"resourceVersion": "5"})),
            500,
            None,
            "resourceVersion should not be set on objects to be created",
        ),
        (
            "POST",
            CONFIG_MAPS.into(),
            object(json!({"finalizers": ["Bad"]})),
            422,
            Some("Invalid"),
            "ConfigMap \"x\" is invalid: metadata.finalizers[0]: Invalid value: \"Bad\": name is neither a standard finalizer name nor is it fully qualified",
        ),
        (
            "POST",
            "/api/v1/namespaces/nons/configmaps".into(),
            config_map("x", &json!({})),
            404,
            Some("NotFound"),
            "namespaces \"nons\" not found",
        ),
        (
            "POST",
            format!("{CONFIG_MAPS}?dryRun=foo"),
            config_map("x", &json!({})),
            422,
            Some("Invalid"),
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"foo\"]: supported values: \"All\"",
        ),
        (
            "POST",
            format!("{CONFIG_MAPS}?fieldValidation=Bogus"),
            config_map("x", &json!({})),
            422,
            Some("Invalid"),
            "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Bogus\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
        ),
        (
            "POST",
            format!("{CONFIG_MAPS}?fieldManager=%00x"),
            config_map("x", &json!({})),
            422,
            Some("Invalid"),
            "CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: \"\\x00x\": invalid character U+0000 (at position 0)",
        ),
        (
            "PUT",
            a.clone(),
            config_map("u2", &json!({})),
            400,
            Some("BadRequest"),
            "the name of the object (u2) does not match the name on the URL (a)",
        ),
        (
            "PUT",
            a.clone(),
            json!({"metadata": {}}),
            400,
            Some("BadRequest"),
            "the name of the object (a based on URL) was undeterminable: name must be provided",
        ),
        (
            "PUT",
            a.clone(),
            json!({"metadata": {"name": "a", "resourceVersion": "1"}}),
            409,
            Some("Conflict"),
            "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again",
        ),
        (
            "PUT",
            a.clone(),
            json!({"metadata": {"name": "a", "resourceVersion": "abc"}}),
            500,
            None,
            "strconv.ParseUint: parsing \"abc\": invalid syntax",
        ),
        ("DELETE", a.clone(), json!({"preconditions": {"resourceVersion": "1"}}), 409, Some("Conflict"), ""),
        ("DELETE", a.clone(), json!({"preconditions": {"resourceVersion": 1}}), 400, Some("BadRequest"), ""),
        ("DELETE", a.clone(), json!({"preconditions": {"uid": 5}}), 400, Some("BadRequest"), ""),
        ("DELETE", a.clone(), json!({"preconditions": []}), 400, Some("BadRequest"), ""),
        (
            "DELETE",
            a.clone(),
            json!({"propagationPolicy": "Bogus"}),
            422,
            Some("Invalid"),
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Bogus\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
        ),
        (
            "DELETE",
            a.clone(),
            json!({"orphanDependents": true, "propagationPolicy": "Orphan"}),
            422,
            Some("Invalid"),
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set",
        ),
        (
            "DELETE",
            "/api/v1/namespaces/default".into(),
            Value::Null,
            403,
            Some("Forbidden"),
            "namespaces \"default\" is forbidden: this namespace may not be deleted",
        ),
        (
            "GET",
            format!("{CONFIG_MAPS}?labelSelector=%3D%3Dbad%3D"),
            Value::Null,
            400,
            Some("BadRequest"),
            "found '==', expected: !, identifier, or 'end of string'",
        ),
        (
            "GET",
            format!("{CONFIG_MAPS}?fieldSelector=data.a%3Db"),
            Value::Null,
            400,
            Some("BadRequest"),
            "\"data.a\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        (
            "GET",
            format!("{CONFIG_MAPS}?limit=abc"),
            Value::Null,
            400,
            Some("BadRequest"),
            "strconv.ParseInt: parsing \"abc\": invalid syntax",
        ),
        (
            "GET",
            format!("{CONFIG_MAPS}?resourceVersion=abc"),
            Value::Null,
            400,
            Some("BadRequest"),
            "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax",
        ),
        (
            "GET",
            format!("{a}?resourceVersion=abc"),
            Value::Null,
            500,
            None,
            "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax",
        ),
        (
            "GET",
            format!("{CONFIG_MAPS}?resourceVersionMatch=Exact"),
            Value::Null,
            422,
            Some("Invalid"),
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            "GET",
            format!("{CONFIG_MAPS}?resourceVersion=0&resourceVersionMatch=Exact"),
            Value::Null,
            422,
            Some("Invalid"),
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ),
        ("GET", format!("{CONFIG_MAPS}?continue=!!"), Value::Null, 400, Some("BadRequest"), ""),
    ];
    for (method, path, body, code, reason, message) in rows {
        let (found, status) = call(&server, method, &path, &body).await;
        assert_eq!(found, code, "{method} {path}: {status}");
        assert_eq!(
            (&status["kind"], &status["status"], &status["code"]),
            (&json!("Status"), &json!("Failure"), &json!(code))
        );
        assert_eq!(status.get("reason").and_then(Value::as_str), reason, "{method} {path}");
        if !message.is_empty() {
            assert_eq!(status["message"], message, "{method} {path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn details_name_what_was_wrong() {
    let server = Server::start().await;
    let (_, status) = get(&server, "/apis/apps/v1/namespaces/wktest/deployments/x").await;
    assert_eq!(status["details"], json!({"name": "x", "group": "apps", "kind": "deployments"}));
    let (_, status) = call(&server, "POST", CONFIG_MAPS, &json!({"metadata": {}})).await;
    assert_eq!(
        status["details"],
        json!({"kind": "ConfigMap", "causes": [{"reason": "FieldValueRequired",
            "message": "Required value: name or generateName is required", "field": "metadata.name"}]})
    );
    let (_, status) = get(&server, "/api/v1/namespaces/wktest/foos").await;
    assert_eq!(status["details"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn unknown_groups_and_paths_are_plain_text() {
    let server = Server::start().await;
    for path in ["/apis/nope.io/v1/foos", "/apis/nope.io/v1", "/apis/nope.io", "/nope"] {
        assert_eq!(get(&server, path).await, (404, json!("404 page not found\n")), "{path}");
    }
    for path in ["/apis/apps/v9/deployments", "/apis/apps/v9", "/api/v2/pods", "/api/v2"] {
        let (code, status) = get(&server, path).await;
        assert_eq!((code, &status["reason"]), (404, &json!("NotFound")), "of a known group: {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn bodies_in_other_forms_are_refused() {
    let server = Server::start().await;
    post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await;
    let a = format!("{CONFIG_MAPS}/a");
    for (method, path, kind, body, code) in [
        ("POST", CONFIG_MAPS, "text/plain", "x", 415),
        ("POST", CONFIG_MAPS, "application/vnd.kubernetes.protobuf", "no magic", 400),
        ("POST", CONFIG_MAPS, "application/vnd.kubernetes.protobuf", "k8s\0\n\u{7f}", 400),
        ("POST", CONFIG_MAPS, "application/vnd.kubernetes.protobuf", "k8s\0", 400),
        ("POST", CONFIG_MAPS, "application/json", "{bad json", 400),
        ("POST", CONFIG_MAPS, "application/json", "", 400),
        ("POST", CONFIG_MAPS, "application/json", "[]", 400),
        ("POST", CONFIG_MAPS, "application/yaml", "a: [", 400),
        ("PATCH", &a, "application/json", "{}", 415),
        ("PATCH", &a, MERGE, "{bad", 400),
        ("PATCH", &a, MERGE, "[]", 400),
        ("PATCH", &a, JSON_PATCH, r#"{"op":"add"}"#, 400),
        ("PATCH", &a, JSON_PATCH, r#"[{"op":"test","path":"/data/z","value":"2"}]"#, 422),
        ("PATCH", &a, JSON_PATCH, r#"[{"op":"replace","path":"/no/x","value":"2"}]"#, 422),
        ("PATCH", &a, JSON_PATCH, r#"[{"op":"replace","path":"","value":7}]"#, 422),
        ("PATCH", &a, MERGE, r#"{"metadata":{"name":"other"}}"#, 400),
        ("PATCH", &a, MERGE, r#"{"metadata":{"uid":"x"}}"#, 422),
        ("PATCH", &a, MERGE, r#"{"metadata":7}"#, 422),
        ("PATCH", &a, MERGE, r#"{"data":{"s":5}}"#, 422),
        ("PATCH", &a, MERGE, r#"{"metadata":{"labels":{"bad label!":"x"}}}"#, 422),
        ("PATCH", &a, MERGE, r#"{"metadata":{"resourceVersion":"1"}}"#, 409),
        ("PATCH", &a, "application/apply-patch+yaml", "{}", 422),
        ("DELETE", &a, "application/json", "{bad", 400),
    ] {
        let (found, status) = raw(&server, method, path, &[("content-type", kind)], body).await;
        assert_eq!(found, code, "{method} {kind} {body}: {status}");
        assert_eq!(status["kind"], "Status");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_beyond_three_mebibytes_is_too_large() {
    let server = Server::start().await;
    let object = config_map("big", &json!({"a": "x".repeat(3 * 1024 * 1024)}));
    let (code, status) = call(&server, "POST", CONFIG_MAPS, &object).await;
    assert_eq!((code, &status["reason"]), (413, &json!("RequestEntityTooLarge")));
    assert_eq!(status["message"], "Request entity too large: limit is 3145728");
    assert_eq!(status.get("details"), None);
}

#[tokio::test(start_paused = true)]
async fn more_data_than_a_mebibyte_is_refused() {
    const MEBIBYTE: usize = 1024 * 1024;
    let server = Server::start().await;
    let secrets = "/api/v1/namespaces/wktest/secrets";
    let secret = |bytes: usize| json!({"metadata": {"name": "s"}, "data": {"a": "AAAA".repeat(bytes / 3)}});
    let binary = |rest: &str| json!({"metadata": {"name": "b"}, "data": {"a": "x".repeat(MEBIBYTE - 3)}, "binaryData": {"b": rest}});
    for (path, object, place) in [
        (CONFIG_MAPS, config_map("big", &json!({"a": "x".repeat(MEBIBYTE + 1)})), Some("[]")),
        (CONFIG_MAPS, binary("AAAAAA=="), Some("[]")),
        (CONFIG_MAPS, binary("AAAA"), None),
        (secrets, secret(MEBIBYTE + 3), Some("data")),
        (secrets, secret(MEBIBYTE), None),
    ] {
        let (code, status) = call(&server, "POST", path, &object).await;
        assert_eq!(code, if place.is_some() { 422 } else { 201 }, "{path} {place:?}: {}", status["message"]);
        if let Some(place) = place {
            let cause = json!({"reason": "FieldValueTooLong", "field": place,
                "message": "Too long: may not be more than 1048576 bytes"});
            assert_eq!(status["details"]["causes"], json!([cause]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_controllers_of_an_object_are_named_with_their_kinds() {
    let server = Server::start().await;
    let owner = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": "u", "controller": true});
    let owners = ["z", "a", "b"].map(owner);
    let object = json!({"metadata": {"name": "x", "ownerReferences": owners}});
    let (code, status) = call(&server, "POST", CONFIG_MAPS, &object).await;
    let shown = ["z", "a", "b"].map(|name| {
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","name":"{name}","uid":"u","controller":true}}"#)
    });
    let problem = |other: &str| {
        let shown = shown.join(",");
        json!({"reason": "FieldValueInvalid", "field": "metadata.ownerReferences", "message": format!(
            "Invalid value: [{shown}]: Only one reference can have Controller set to true. \
             Found \"true\" in references for ConfigMap/z and ConfigMap/{other}")})
    };
    assert_eq!((code, &status["details"]["causes"]), (422, &json!([problem("a"), problem("b")])));
}

#[tokio::test(start_paused = true)]
async fn json_nested_too_deeply_is_refused() {
    let server = Server::start().await;
    let body = format!("{{\"metadata\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(raw(&server, "POST", CONFIG_MAPS, &[], &body).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn a_patch_cannot_copy_an_object_into_itself_without_end() {
    let server = Server::start().await;
    post(&server, CONFIG_MAPS, &config_map("a", &json!({"k": "v"}))).await;
    let operations: Vec<_> =
        (0..64).map(|n| json!({"op": "copy", "from": "/data", "path": format!("/data/c{n}")})).collect();
    let (code, _) = patch(&server, &format!("{CONFIG_MAPS}/a"), JSON_PATCH, &json!(operations)).await;
    assert_eq!(code, 422);
}

#[tokio::test(start_paused = true)]
async fn what_has_the_wrong_type_is_refused_by_subresources_too() {
    let server = Server::start().await;
    let deployments = "/apis/apps/v1/namespaces/wktest/deployments";
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    post(&server, deployments, &json!({"metadata": {"name": "d"}, "spec": spec})).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    post(&server, PODS, &pod).await;
    let target = json!({"kind": "Node", "name": "n"});
    let binding = json!({"metadata": {"name": "p", "annotations": {"a": 5}}, "target": target});
    assert_eq!(call(&server, "POST", &format!("{PODS}/p/binding"), &binding).await.0, 400);
    let scale = json!({"metadata": {"name": "d"}, "spec": {"replicas": 5_000_000_000_i64}});
    assert_eq!(call(&server, "PUT", &format!("{deployments}/d/scale"), &scale).await.0, 400);
    let nothing = json!([{"op": "replace", "path": "", "value": []}]);
    assert_ne!(patch(&server, &format!("{deployments}/d/scale"), JSON_PATCH, &nothing).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_is_refused_writes_nothing() {
    let server = Server::embedded(|settings| settings).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    post(&server, PODS, &pod).await;
    let running = json!({"status": {"phase": "Running"}});
    let (_, before) = patch(&server, &format!("{PODS}/p/status"), MERGE, &running).await;
    let evict = async |preconditions: Value| {
        let eviction = json!({"metadata": {"name": "p"}, "deleteOptions": {"preconditions": preconditions}});
        call(&server, "POST", &format!("{PODS}/p/eviction"), &eviction).await.0
    };
    assert_eq!(evict(json!({"uid": "another"})).await, 409);
    assert_eq!(get(&server, &format!("{PODS}/p")).await.1, before);
    assert_eq!(evict(json!({"resourceVersion": before["metadata"]["resourceVersion"]})).await, 201);
    assert_eq!(get(&server, &format!("{PODS}/p")).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_binding_of_another_pod_or_another_version_is_refused() {
    let server = Server::start().await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = post(&server, PODS, &pod).await;
    let bind = async |precondition: &str, value: &Value| {
        let mut binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
        binding["metadata"][precondition] = value.clone();
        call(&server, "POST", &format!("{PODS}/p/binding"), &binding).await
    };
    let field = |name: &str| &made["metadata"][name];
    for (precondition, sent, shown) in
        [("uid", json!("another"), "UID"), ("resourceVersion", json!("1"), "ResourceVersion")]
    {
        let (code, status) = bind(precondition, &sent).await;
        let found = field(precondition).as_str().unwrap();
        let sent = sent.as_str().unwrap();
        let message = format!(
            "Operation cannot be fulfilled on pods \"p\": StorageError: invalid object, Code: 4, Key: /registry/pods/wktest/p, \
             ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {shown} in precondition: {sent}, {shown} in object meta: {found}"
        );
        assert_eq!((code, &status["message"]), (409, &json!(message)), "{status}");
        assert_eq!(status["details"], json!({"name": "p", "kind": "pods"}));
    }
    assert_eq!(
        &get(&server, &format!("{PODS}/p")).await.1["metadata"]["resourceVersion"],
        field("resourceVersion")
    );
    assert_eq!(bind("uid", field("uid")).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn refusals_carry_the_warnings_too() {
    let server = Server::start().await;
    let mut object = config_map("a", &json!({}));
    object["surprise"] = 1.into();
    for code in [201, 409] {
        let json = [("content-type", "application/json")];
        let response = send(&server, "POST", CONFIG_MAPS, &json, object.to_string()).await;
        assert_eq!(response.status(), code);
        assert_eq!(response.headers()["warning"], "299 - \"unknown field \\\"surprise\\\"\"");
    }
}

// e2e: CronJob should support timezone
#[tokio::test(start_paused = true)]
async fn cron_jobs_that_could_never_run_are_refused() {
    const CRON_JOBS: &str = "/apis/batch/v1/namespaces/wktest/cronjobs";
    let server = Server::start().await;
    let cron_job = |name: &str, changes: &Value| {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
        let mut spec =
            json!({"schedule": "*/1 * * * ?", "jobTemplate": {"spec": {"template": {"spec": pod}}}});
        for (field, value) in changes.as_object().unwrap() {
            spec[field.as_str()] = value.clone();
        }
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec})
    };
    for (changes, problem) in [
        (json!({"schedule": ""}), "spec.schedule: Required value"),
        (
            json!({"schedule": "* * * *"}),
            "spec.schedule: Invalid value: \"* * * *\": expected exactly 5 fields, found 4: [* * * *]",
        ),
        (
            json!({"schedule": "TZ=UTC * * * * *"}),
            "spec.schedule: Invalid value: \"TZ=UTC * * * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        ),
        (
            json!({"timeZone": "bad-time-zone"}),
            "spec.timeZone: Invalid value: \"bad-time-zone\": unknown time zone bad-time-zone",
        ),
        (
            json!({"timeZone": ""}),
            "spec.timeZone: Invalid value: \"\": timeZone must be nil or non-empty string",
        ),
        (
            json!({"failedJobsHistoryLimit": -1}),
            "spec.failedJobsHistoryLimit: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            json!({"concurrencyPolicy": "Never"}),
            "spec.concurrencyPolicy: Unsupported value: \"Never\": supported values: \"Allow\", \"Forbid\", \"Replace\"",
        ),
    ] {
        let (code, status) = call(&server, "POST", CRON_JOBS, &cron_job("c", &changes)).await;
        let expected = format!("CronJob.batch \"c\" is invalid: {problem}");
        assert_eq!((code, status["message"].as_str()), (422, Some(expected.as_str())));
    }
    let long = "c".repeat(53);
    let (code, _) = call(&server, "POST", CRON_JOBS, &cron_job(&long, &json!({}))).await;
    assert_eq!(code, 422);
    post(&server, CRON_JOBS, &cron_job("c", &json!({"timeZone": "Europe/Berlin"}))).await;
}

// e2e: FieldValidation should detect unknown and duplicate fields of a typed object
#[tokio::test(start_paused = true)]
async fn unknown_and_duplicate_fields_are_named_together() {
    let server = Server::start().await;
    let body = r#"{"metadata": {"name": "a"}, "data": {"k": "v"}, "odd": 1, "data": {"k": "w"}}"#;
    let headers = [("content-type", "application/json")];
    let path = format!("{CONFIG_MAPS}?fieldValidation=Strict");
    let (code, answer) = raw(&server, "POST", &path, &headers, body).await;
    let why = "strict decoding error: unknown field \"odd\", duplicate field \"data\"";
    assert_eq!(code, 400, "{answer}");
    assert!(answer["message"].as_str().unwrap().ends_with(why), "{answer}");
}
