//! Schemas and validation rules of custom resources.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use common::*;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BARS: &str = "/apis/wktest.io/v1/namespaces/wktest/bars";

/// A definition with this schema for `spec`.
fn definition(spec: &Value) -> Value {
    json!({"metadata": {"name": "bars.wktest.io"}, "spec": {
        "group": "wktest.io", "scope": "Namespaced", "names": {"kind": "Bar", "plural": "bars"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
}

fn bar(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "wktest.io/v1", "kind": "Bar", "metadata": {"name": name}, "spec": spec})
}

/// Creates a definition with this schema in a dry run; returns the response.
async fn judge(server: &Server, spec: &Value) -> (u16, Value) {
    call(server, "POST", &format!("{DEFINITIONS}?dryRun=All"), &definition(spec)).await
}

/// Creates a definition and waits until its kind is served.
async fn define(server: &Server, spec: &Value) {
    post(server, DEFINITIONS, &definition(spec)).await;
    server.until("served", async || (get(server, BARS).await.0 == 200).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn classes_in_patterns_are_of_ascii_alone() {
    let server = Server::start().await;
    let text = |pattern: &str| json!({"type": "string", "pattern": pattern});
    let properties =
        json!({"digits": text(r"^\d+$"), "words": text(r"^[\w.]{1,1000}$"), "spaces": text(r"^\S\s\S$")});
    define(&server, &json!({"type": "object", "properties": properties})).await;
    for (field, value, code) in [
        ("digits", "12", 201),
        ("digits", "١٢", 422),
        ("words", "a_b.c", 201),
        ("words", "ä", 422),
        ("spaces", "ä ä", 201),
        ("spaces", "a\u{a0}a", 422),
    ] {
        let object = bar(&format!("b{}", value.len()), &json!({field: value}));
        let (found, status) = call(&server, "POST", &format!("{BARS}?dryRun=All"), &object).await;
        assert_eq!(found, code, "{field} {value}: {status}");
    }
}

#[tokio::test(start_paused = true)]
async fn patterns_that_are_too_large_are_refused() {
    let server = Server::start().await;
    let mut two =
        definition(&json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}));
    let mut other = two["spec"]["versions"][0].clone();
    other["name"] = "v2".into();
    other["storage"] = false.into();
    other["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = json!({});
    two["spec"]["versions"].as_array_mut().unwrap().push(other);
    let (_, status) = call(&server, "POST", DEFINITIONS, &two).await;
    let field = "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[a].pattern";
    assert_eq!(status["details"]["causes"][0]["field"], field, "{status}");
    for (pattern, code) in
        [("^.{1,1000}$", 201), ("^a{1,100000}$", 422), ("^((a{0,100}){0,100}){0,100}$", 422)]
    {
        let spec = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}});
        let (found, status) = judge(&server, &spec).await;
        assert_eq!(found, code, "{pattern}: {status}");
        if code == 422 {
            let cause = &status["details"]["causes"][0];
            // A schema that all versions share is reported at the level of the definition.
            let field = "spec.validation.openAPIV3Schema.properties[spec].properties[a].pattern";
            assert_eq!(cause["field"], field, "{status}");
            assert!(
                cause["message"].as_str().unwrap().contains("must be a valid regular expression"),
                "{cause}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_at_which_a_rule_would_take_too_much_memory_is_refused() {
    // A real server may crash on this request.
    let server = Server::embedded(|settings| settings).await;
    let ten = ".replace('a', 'aaaaaaaaaa')".repeat(12);
    let rules = json!([
        {"rule": format!("!has(self.r) || self.r{ten} != ''")},
        {"rule": "self.s != 'b'", "messageExpression": "self.l.map(x, x.replace('', self.s)).join('')"},
    ]);
    let spec = json!({"type": "object", "x-kubernetes-validations": rules, "properties": {
        "s": {"type": "string"}, "r": {"type": "string"}, "l": {"type": "array", "items": {"type": "string"}}}});
    define(&server, &spec).await;
    let create = async |spec: Value| call(&server, "POST", BARS, &bar("b", &spec)).await;
    let (code, status) = create(json!({"s": "b", "l": ["", ""]})).await;
    assert!(code == 422 && status["message"].as_str().unwrap().ends_with("Invalid value: bb"), "{status}");
    let (code, status) = create(json!({"s": "", "r": "a", "l": []})).await;
    let message = status["message"].as_str().unwrap();
    assert!(
        code == 422 && message.contains("may build") && message.contains("more than 100000000"),
        "{status}"
    );
    let (code, status) = create(json!({"s": "b".repeat(20_000), "l": ["c".repeat(20_000)]})).await;
    assert!(code == 422 && status["message"].as_str().unwrap().contains("may build"), "{status}");
    assert!(!status.to_string().contains("aaaaaaaaaaaaaaaaaaaaaaa"), "{status}");
}

#[tokio::test(start_paused = true)]
async fn rules_that_could_take_too_long_are_refused() {
    let server = Server::start().await;
    let numbers = |most: Option<u64>| match most {
        Some(most) => json!({"type": "array", "maxItems": most, "items": {"type": "integer"}}),
        None => json!({"type": "array", "items": {"type": "integer"}}),
    };
    let lists = |most: Option<u64>| json!({"type": "array", "items": {"type": "object", "properties": {"n": numbers(most)}}});
    let maps = json!({"type": "object", "additionalProperties": {"type": "integer"}});
    let once = "self.n.all(x, x > 0)";
    let twice = "self.n.all(x, self.n.all(y, x + y > 0))";
    for (field, rule, code) in [
        (numbers(Some(100)), once, 201),
        (numbers(Some(100)), twice, 201),
        (numbers(None), twice, 422),
        (maps, "self.n.all(k, self.n.exists(l, self.n[k] == self.n[l]))", 422),
        (numbers(None), "self.n.filter(x, x > 0).all(x, self.n.map(y, y + x).exists(y, y > 0))", 422),
        (lists(None), "self.n.all(x, x.n.all(y, y > 0))", 422),
    ] {
        let spec = json!({"type": "object", "properties": {"n": field}, "x-kubernetes-validations": [{"rule": rule}]});
        let (found, status) = judge(&server, &spec).await;
        assert_eq!(found, code, "{rule}: {status}");
        if code == 422 {
            let cause = &status["details"]["causes"][0];
            let field = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule";
            assert_eq!(cause["field"], field, "{status}");
            let problem = "Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)";
            assert_eq!(cause["message"], problem);
        }
    }
    // A rule on each element counts once per element.
    let mut spec = json!({"type": "object", "properties": {"n": lists(Some(100))}});
    spec["properties"]["n"]["items"]["x-kubernetes-validations"] = json!([{"rule": twice}]);
    assert_eq!(judge(&server, &spec).await.0, 422);
    spec["properties"]["n"]["maxItems"] = 2.into();
    assert_eq!(judge(&server, &spec).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn what_is_there_is_read_by_the_schema_as_it_is_now() {
    let server = Server::start().await;
    let before = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
    define(&server, &before).await;
    let made = post(&server, BARS, &bar("b", &json!({"a": "1", "b": "2"}))).await;
    post(&server, BARS, &bar("other", &json!({"a": "2", "c": {}}))).await;
    let nested = json!({"type": "object", "properties": {"d": {"type": "integer", "default": 5}}});
    let after = json!({"type": "object", "properties": {"a": {"type": "string"}, "c": nested, "e": {"type": "integer", "default": 7}}});
    let mut versions = definition(&after)["spec"]["versions"].clone();
    versions[0]["selectableFields"] = json!([{"jsonPath": ".spec.a"}]);
    let path = format!("{DEFINITIONS}/bars.wktest.io");
    let (code, answer) = patch(&server, &path, MERGE, &json!({"spec": {"versions": versions}})).await;
    assert_eq!(code, 200, "{answer}");
    let object = format!("{BARS}/b");
    let renewed = async || (get(&server, &object).await.1["spec"]["e"] == 7).then_some(());
    assert!(server.inside().is_none() || renewed().await.is_some(), "not at once");
    server.until("read anew", renewed).await;
    let (_, read) = get(&server, &object).await;
    assert_eq!(read["spec"], json!({"a": "1", "e": 7}));
    assert_eq!(read["metadata"], made["metadata"], "nothing was written");
    let (_, list) = get(&server, &format!("{BARS}?fieldSelector=spec.a%3D1")).await;
    assert_eq!((names(&list), &list["items"][0]["spec"]), (vec!["b"], &read["spec"]), "{list}");
    // Writing the unchanged object updates the stored form, once.
    let (code, written) = call(&server, "PUT", &object, &read).await;
    assert_eq!(code, 200, "{written}");
    assert_eq!(written["spec"], read["spec"]);
    assert_eq!(&written["metadata"]["generation"], &read["metadata"]["generation"]);
    assert!(version(&written) > version(&read), "{written}");
    let (_, again) = call(&server, "PUT", &object, &written).await;
    assert_eq!(version(&again), version(&written));
    let mut watch =
        Watch::open(&server, &format!("{BARS}?watch=1&resourceVersion={}", version(&again))).await;
    patch(&server, &object, MERGE, &json!({"spec": {"c": {}}})).await;
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["spec"]["c"]), (&json!("MODIFIED"), &json!({"d": 5})));
}

#[tokio::test(start_paused = true)]
async fn what_a_schema_did_not_show_is_there_when_another_does() {
    let server = Server::start().await;
    let text = json!({"type": "string"});
    let both = json!({"type": "object", "properties": {"a": text, "b": text, "c": text}});
    define(&server, &both).await;
    let made = post(&server, BARS, &bar("b", &json!({"a": "1", "b": "2"}))).await;
    let defaulted = json!({"type": "string", "default": "3"});
    let other = json!({"type": "object", "properties": {"a": text, "c": defaulted}});
    for (schema, spec) in [(&other, json!({"a": "1", "c": "3"})), (&both, json!({"a": "1", "b": "2"}))] {
        let change = json!({"spec": {"versions": definition(schema)["spec"]["versions"]}});
        let (code, answer) = patch(&server, &format!("{DEFINITIONS}/bars.wktest.io"), MERGE, &change).await;
        assert_eq!(code, 200, "{answer}");
        let read = async || get(&server, &format!("{BARS}/b")).await.1;
        if server.inside().is_none() {
            server.until("read anew", async || (read().await["spec"] == spec).then_some(())).await;
        }
        assert_eq!((&read().await["spec"], &read().await["metadata"]), (&spec, &made["metadata"]));
    }
    let (_, written) = call(&server, "PUT", &format!("{BARS}/b"), &made).await;
    assert_eq!(version(&written), version(&made), "it is as it was written");
}

/// Replaces the schema of `spec`, and waits until `misfit` is refused.
async fn tighten(server: &Server, spec: &Value, misfit: &Value) {
    let change = json!({"spec": {"versions": definition(spec)["spec"]["versions"]}});
    let (code, answer) = patch(server, &format!("{DEFINITIONS}/bars.wktest.io"), MERGE, &change).await;
    assert_eq!(code, 200, "{answer}");
    let tried = async || call(server, "POST", &format!("{BARS}?dryRun=All"), &bar("misfit", misfit)).await.0;
    server.until("stricter", async || (tried().await == 422).then_some(())).await;
}

/// Returns the sorted fields for which a merge patch of object `b` is refused; empty if it is accepted.
async fn refused(server: &Server, part: &str, change: &Value) -> Vec<String> {
    let (_, answer) = patch(server, &format!("{BARS}/b{part}"), MERGE, change).await;
    let causes = answer["details"]["causes"].as_array().into_iter().flatten();
    let mut fields: Vec<_> = causes.map(|cause| cause["field"].as_str().unwrap().to_owned()).collect();
    fields.sort();
    fields
}

#[tokio::test(start_paused = true)]
async fn what_a_stricter_schema_does_not_take_may_stay_as_it_is() {
    let server = Server::start().await;
    let schema = |number: Value, set: &str, required: Value| {
        let part = json!({"type": "object", "required": required, "properties": {"n": number, "m": {"type": "string"}}});
        let mut keyed = part.clone();
        keyed["properties"]["m"]["default"] = "-".into();
        json!({"type": "object", "properties": {
            "number": number, "part": part, "map": {"type": "object", "additionalProperties": number},
            "list": {"type": "array", "items": number},
            "keyed": {"type": "array", "items": keyed, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["m"]},
            "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": set}}})
    };
    define(&server, &schema(json!({"type": "integer"}), "atomic", json!([]))).await;
    let spec = json!({
        "number": 50, "part": {"n": 50}, "map": {"a": 50, "b": 1}, "list": [50, 1],
        "keyed": [{"m": "a", "n": 50}, {"m": "b", "n": 1}], "set": ["x", "x"],
    });
    post(&server, BARS, &bar("b", &spec)).await;
    let strict = schema(json!({"type": "integer", "maximum": 10}), "set", json!(["m"]));
    tighten(&server, &strict, &json!({"number": 11})).await;
    let none: &[&str] = &[];
    for (change, fields) in [
        (json!({"metadata": {"labels": {"a": "b"}}}), none),
        (json!({"spec": {"number": 50}}), none),
        (json!({"spec": {"number": 51}}), &["spec.number"]),
        // `required` is a check of the whole part.
        (json!({"spec": {"part": {"n": 51}}}), &["spec.part.m", "spec.part.n"]),
        (json!({"spec": {"part": {"m": "there"}}}), none),
        (json!({"spec": {"map": {"b": 2}}}), none),
        (json!({"spec": {"map": {"c": 50}}}), &["spec.map.c"]),
        // Only list elements with keys can be correlated with their old state.
        (json!({"spec": {"list": [50, 1, 2]}}), &["spec.list[0]"]),
        (json!({"spec": {"keyed": [{"m": "b", "n": 2}, {"m": "a", "n": 50}]}}), none),
        (json!({"spec": {"keyed": [{"m": "b", "n": 2}, {"m": "a", "n": 51}]}}), &["spec.keyed[1].n"]),
        (json!({"spec": {"set": ["x", "x", "y"]}}), none),
        (json!({"spec": {"set": ["x"]}}), none),
        (json!({"spec": {"set": ["x", "x"]}}), &["spec.set[1]"]),
    ] {
        assert_eq!(refused(&server, "", &change).await, fields, "{change}");
    }
    assert_eq!(refused(&server, "/status", &json!({"status": {"phase": "Ready"}})).await, none);
}

#[tokio::test(start_paused = true)]
async fn rules_that_have_come_since_count_where_the_object_changes() {
    let server = Server::start().await;
    let schema = |own: Value, whole: Value| {
        json!({"type": "object", "properties": {"other": {"type": "integer", "maximum": 5}, "part": {
            "type": "object", "x-kubernetes-validations": whole,
            "properties": {"n": {"type": "integer", "x-kubernetes-validations": own}, "m": {"type": "integer"}}}}})
    };
    define(&server, &schema(json!([]), json!([]))).await;
    post(&server, BARS, &bar("b", &json!({"part": {"n": 50, "m": 1}}))).await;
    let own = json!([{"rule": "self <= 10", "message": "too large"}]);
    let whole = json!([{"rule": "self.n <= 20", "message": "far too large", "fieldPath": ".n"}]);
    tighten(&server, &schema(own.clone(), whole), &json!({"part": {"n": 11}})).await;
    let message = async |spec: Value| {
        let (_, answer) = patch(&server, &format!("{BARS}/b"), MERGE, &json!({"spec": spec})).await;
        answer["message"].as_str().map(|message| message.replace("Bar.wktest.io \"b\" is invalid: ", ""))
    };
    assert_eq!(message(json!({"other": 1})).await, None);
    let far = "spec.part.n: Invalid value: far too large";
    assert_eq!(message(json!({"part": {"m": 2}})).await.unwrap(), far);
    let both = message(json!({"part": {"n": 40}})).await.unwrap();
    assert!(both.contains(far) && both.contains("spec.part.n: Invalid value: 40: too large"), "{both}");
    // Rules run beside a value that is out of bounds, but not beside one of a wrong type.
    let both = message(json!({"part": {"n": 11}, "other": 6})).await.unwrap();
    assert!(
        both.contains("spec.part.n: Invalid value: 11: too large") && both.contains("spec.other"),
        "{both}"
    );
    let typed = message(json!({"part": {"n": 11}, "other": "6"})).await.unwrap();
    assert!(
        typed.contains("some validation rules were not checked") && !typed.contains("too large"),
        "{typed}"
    );
    // A transition rule is evaluated on every write.
    let change = json!([{"rule": "self.n != oldSelf.n", "message": "must change"}]);
    let never = schema(own, change);
    tighten(&server, &never, &json!({"part": {"n": 11}})).await;
    let must = "spec.part: Invalid value: must change".to_owned();
    server
        .until("the rule is there", async || {
            (message(json!({"other": 2})).await == Some(must.clone())).then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_has_come_since_knows_the_elements_of_a_list_by_their_keys() {
    let server = Server::start().await;
    let schema = |rules: Value| {
        let item = json!({"type": "object", "required": ["k"], "x-kubernetes-validations": rules,
            "properties": {"k": {"type": "string"}, "n": {"type": "integer"}}});
        json!({"type": "object", "properties": {"keyed": {"type": "array", "maxItems": 5, "items": item,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}}})
    };
    define(&server, &schema(json!([]))).await;
    let list = |items: &[(&str, i64)]| {
        let items: Vec<_> = items.iter().map(|(key, number)| json!({"k": key, "n": number})).collect();
        json!({"keyed": items})
    };
    post(&server, BARS, &bar("b", &list(&[("a", 50), ("b", 1)]))).await;
    let small = json!([{"rule": "self.n <= 10"}]);
    tighten(&server, &schema(small), &list(&[("a", 11)])).await;
    for (items, fields) in [
        (&[("a", 50), ("b", 2)][..], &[][..]),
        (&[("b", 2), ("c", 3), ("a", 50)], &[]),
        (&[("b", 2), ("a", 51)], &["spec.keyed[1]"]),
        (&[("a", 50), ("d", 50)], &["spec.keyed[1]"]),
    ] {
        let change = json!({"spec": list(items)});
        assert_eq!(refused(&server, "", &change).await, fields, "{change}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_version_does_not_know_is_lost_there() {
    let server = Server::start().await;
    let text = json!({"type": "string"});
    let mut two = definition(&json!({"type": "object", "properties": {"both": text, "first": text}}));
    let mut second = two["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    second["storage"] = false.into();
    let defaulted = json!({"type": "string", "default": "d"});
    second["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] =
        json!({"both": text, "second": defaulted});
    two["spec"]["versions"].as_array_mut().unwrap().push(second);
    post(&server, DEFINITIONS, &two).await;
    let seconds = BARS.replace("/v1/", "/v2/");
    let served =
        async || (get(&server, BARS).await.0 == 200 && get(&server, &seconds).await.0 == 200).then_some(());
    server.until("served", served).await;

    post(&server, BARS, &bar("b", &json!({"both": "1", "first": "2"}))).await;
    let spec = async |bars: &str, name: &str| get(&server, &format!("{bars}/{name}")).await.1["spec"].clone();
    assert_eq!(spec(BARS, "b").await, json!({"both": "1", "first": "2"}));
    assert_eq!(spec(&seconds, "b").await, json!({"both": "1"}), "and nothing is filled in");
    let (_, list) = get(&server, &seconds).await;
    assert_eq!(list["items"][0]["spec"], json!({"both": "1"}));
    // The first version is the storage version.
    let mut other = bar("c", &json!({"both": "1", "second": "2"}));
    other["apiVersion"] = "wktest.io/v2".into();
    let made = post(&server, &seconds, &other).await;
    assert_eq!((&made["spec"], spec(&seconds, "c").await), (&json!({"both": "1"}), json!({"both": "1"})));
    // A write in the second version writes every field of that version, and drops the others.
    let (_, written) = patch(&server, &format!("{seconds}/b"), MERGE, &json!({"spec": {"both": "3"}})).await;
    assert_eq!((&written["spec"], spec(BARS, "b").await), (&json!({"both": "3"}), json!({"both": "3"})));
}

#[tokio::test(start_paused = true)]
async fn numbers_are_stored_without_a_fraction_they_do_not_have() {
    let server = Server::start().await;
    let spec = json!({"type": "object", "properties": {
        "integer": {"type": "integer"}, "number": {"type": "number"}, "defaulted": {"type": "number", "default": 2.0},
        "either": {"x-kubernetes-int-or-string": true}, "any": {"x-kubernetes-preserve-unknown-fields": true}}});
    define(&server, &spec).await;
    post(&server, BARS, &bar("b", &json!({}))).await;
    let object = |name: &str, field: &str, number: &str| {
        let metadata = json!({"name": name});
        format!(
            r#"{{"apiVersion": "wktest.io/v1", "kind": "Bar", "metadata": {metadata}, "spec": {{"{field}": {number}}}}}"#
        )
    };
    for (field, number, stored) in [
        ("integer", "1.0", Some("1")),
        ("integer", "1e3", Some("1000")),
        ("integer", "-0.0", Some("0")),
        ("integer", "-0", Some("0")),
        ("integer", "1.5", None),
        ("integer", "1e20", None),
        ("integer", "9223372036854775808", None),
        ("number", "1.0", Some("1")),
        ("number", "1.5", Some("1.5")),
        ("any", "[{\"x\": 2.0}]", Some("[{\"x\":2}]")),
        ("either", "7.0", Some("7")),
    ] {
        let dry = |path: &str| format!("{path}?dryRun=All&fieldManager=m");
        for (method, path, kind, body) in [
            ("POST", dry(BARS), "application/json", object("c", field, number)),
            ("POST", dry(BARS), "application/yaml", object("c", field, number)),
            ("PATCH", dry(&format!("{BARS}/b")), MERGE, format!(r#"{{"spec": {{"{field}": {number}}}}}"#)),
            (
                "PATCH",
                dry(&format!("{BARS}/b")),
                JSON_PATCH,
                format!(r#"[{{"op": "add", "path": "/spec/{field}", "value": {number}}}]"#),
            ),
            ("PATCH", dry(&format!("{BARS}/c")), "application/apply-patch+yaml", object("c", field, number)),
        ] {
            let (code, answer) = raw(&server, method, &path, &[("content-type", kind)], &body).await;
            let found = (code < 300).then(|| answer["spec"][field].to_string());
            assert_eq!(found.as_deref(), stored, "{method} {kind} {field} {number}: {answer}");
            if code < 300 {
                assert_eq!(answer["spec"]["defaulted"].to_string(), "2", "{method} {kind}");
            } else {
                assert_eq!(code, 422, "{answer}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn problems_of_a_schema_are_reported_in_order() {
    let server = Server::start().await;
    let spec = json!({"properties": {
        "z": {"description": "x"}, "a": {"items": {}}, "m": {"type": "object", "additionalProperties": {}}, "c": {"type": "array"}}});
    let (code, status) = judge(&server, &spec).await;
    let at = "spec.validation.openAPIV3Schema.properties[spec]";
    let expected = [
        ("properties[a].items.type", "must not be empty for specified array items"),
        ("properties[a].type", "must not be empty for specified object fields"),
        ("properties[c].items", "must be specified"),
        ("properties[m].additionalProperties.type", "must not be empty for specified object fields"),
        ("properties[z].type", "must not be empty for specified object fields"),
        ("type", "must not be empty for specified object fields"),
    ]
    .map(|(field, problem)| {
        json!({"reason": "FieldValueRequired", "message": format!("Required value: {problem}"), "field": format!("{at}.{field}")})
    });
    assert_eq!((code, &status["details"]["causes"]), (422, &json!(expected)));
    let (_, status) = judge(&server, &json!({"type": "object", "properties": {"a": {"type": "text"}}})).await;
    let problem = "Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"";
    assert_eq!(status["details"]["causes"][0]["message"], problem, "{status}");
    let mut none = definition(&json!({}));
    none["spec"]["versions"][0].as_object_mut().unwrap().remove("schema");
    let (_, status) = call(&server, "POST", DEFINITIONS, &none).await;
    let cause = json!({"reason": "FieldValueRequired", "message": "Required value", "field": "spec.versions[0].schema.openAPIV3Schema"});
    assert_eq!(status["details"]["causes"], json!([cause]));
}

#[tokio::test(start_paused = true)]
async fn a_part_that_a_custom_kind_does_not_have_is_not_found() {
    let server = Server::start().await;
    let mut plain = definition(&json!({"type": "object"}));
    plain["spec"]["versions"][0].as_object_mut().unwrap().remove("subresources");
    post(&server, DEFINITIONS, &plain).await;
    server.until("served", async || (get(&server, BARS).await.0 == 200).then_some(())).await;
    post(&server, BARS, &bar("b", &json!({}))).await;
    for part in ["status", "scale", "foo"] {
        for method in ["GET", "PUT", "DELETE"] {
            let body = if method == "PUT" { bar("b", &json!({})) } else { Value::Null };
            let (code, status) = call(&server, method, &format!("{BARS}/b/{part}"), &body).await;
            let message = "bars.wktest.io \"b\" not found";
            assert_eq!((code, &status["message"]), (404, &json!(message)), "{method} {part}");
            assert_eq!(status["details"], json!({"name": "b", "group": "wktest.io", "kind": "bars"}));
        }
    }
}
