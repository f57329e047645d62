use serde_json::json;

use super::*;

fn version(name: &str, properties: Value) -> Value {
    json!({"name": name, "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}})
}

fn definition(versions: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "sites.example.dev"},
        "spec": {"group": "example.dev", "scope": "Namespaced",
            "names": {"kind": "Site", "plural": "sites", "singular": "site", "shortNames": []},
            "versions": versions},
    })
}

/// A definition as a server keeps it.
fn installed(versions: Value, stored: &[&str]) -> Value {
    let mut installed = definition(versions);
    installed["metadata"]["resourceVersion"] = json!("7");
    installed["spec"]["names"]["listKind"] = json!("SiteList");
    installed["spec"]["names"].as_object_mut().unwrap().remove("shortNames");
    installed["spec"]["conversion"] = json!({"strategy": "None"});
    installed["status"] = json!({"storedVersions": stored});
    installed
}

fn with(mut value: Value, path: &str, part: Value) -> Value {
    let (parent, key) = path.rsplit_once('/').unwrap();
    value.pointer_mut(parent).unwrap()[key] = part;
    value
}

fn object(value: &Value) -> DynamicObject {
    serde_json::from_value(value.clone()).unwrap()
}

fn upgraded(found: &Value, wanted: &Value) -> Result<Option<Value>, Narrowing> {
    let upgraded = upgrade(&object(found), &as_object(wanted).unwrap())?;
    Ok(upgraded.map(|object| serde_json::to_value(object).unwrap()))
}

fn refused(found: &Value, wanted: &Value) -> (String, String) {
    let narrowing = upgraded(found, wanted).unwrap_err();
    (narrowing.path, narrowing.what)
}

/// The versions with whether they are served and store objects.
fn states(definition: &Value) -> Vec<(&str, bool, bool)> {
    let state = |version| (name(version), version["served"] == true, version["storage"] == true);
    versions(&definition["spec"]).map(state).collect()
}

#[test]
fn what_the_server_adds_is_no_difference() {
    let v1 = version("v1", json!({"size": {"type": "integer", "minimum": 0.0}}));
    let kept = version("v1", json!({"size": {"type": "integer", "minimum": 0}}));
    let wanted = with(definition(json!([v1])), "/spec/versions/0/additionalPrinterColumns", json!([]));
    assert_eq!(upgraded(&installed(json!([kept.clone()]), &["v1"]), &wanted), Ok(None));
    let labelled = with(installed(json!([kept]), &["v1"]), "/metadata/labels", json!({"theirs": "a"}));
    assert_eq!(upgraded(&labelled, &wanted), Ok(None));
}

#[test]
fn each_difference_is_an_upgrade_and_what_others_have_set_is_kept() {
    let v1 = version("v1", json!({"size": {"type": "integer", "maximum": 9}}));
    let mut found = installed(json!([v1.clone()]), &["v1"]);
    found["metadata"]["labels"] = json!({"theirs": "a", "ours": "old"});
    found["metadata"]["annotations"] = json!({"theirs": "a"});
    found["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "u"}}});
    found["spec"]["versions"][0]["newer"] = json!("kept");
    found["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.size"}]);
    let wanted = with(
        definition(json!([v1])),
        "/spec/versions/0/selectableFields",
        json!([{"jsonPath": ".spec.size"}]),
    );
    assert_eq!(upgraded(&found, &wanted), Ok(None));
    for (path, part) in [
        ("/spec/versions/0/schema/openAPIV3Schema/properties/size/maximum", json!(10)),
        ("/spec/versions/0/schema/openAPIV3Schema/properties/size/description", json!("how many")),
        ("/spec/versions/0/schema/openAPIV3Schema/properties/new", json!({"type": "string"})),
        ("/spec/versions/0/subresources", json!({"status": {}})),
        ("/spec/versions/0/deprecated", json!(true)),
        ("/spec/versions/0/served", json!(false)),
        ("/spec/versions/0/selectableFields", json!(null)),
        ("/spec/versions/0/additionalPrinterColumns", json!([{"name": "Size"}])),
        ("/spec/names/shortNames", json!(["si"])),
        ("/metadata/labels", json!({"ours": "new"})),
        ("/metadata/annotations", json!({"ours": "new"})),
    ] {
        let wanted = with(wanted.clone(), path, part.clone());
        let result = upgraded(&found, &wanted).unwrap().expect(path);
        if !path.starts_with("/metadata") {
            assert_eq!(result.pointer(path).unwrap_or(&Value::Null), &part, "{path}");
        }
        assert_eq!(result["metadata"]["resourceVersion"], "7", "nobody else's change is overwritten");
        for kept in ["/spec/conversion", "/status", "/spec/versions/0/newer", "/metadata/annotations/theirs"]
        {
            assert_eq!(result.pointer(kept), found.pointer(kept), "{path} {kept}");
        }
        assert_eq!(result["metadata"]["labels"]["theirs"], "a");
        assert_eq!(upgraded(&result, &wanted), Ok(None), "{path}: once is enough");
    }
}

#[test]
fn a_conversion_is_set_where_there_is_none() {
    let found = installed(json!([version("v1", json!({}))]), &["v1"]);
    let webhook = json!({"strategy": "Webhook", "webhook": {}});
    let wanted = with(definition(json!([version("v1", json!({}))])), "/spec/conversion", webhook.clone());
    assert_eq!(upgraded(&found, &wanted).unwrap().unwrap()["spec"]["conversion"], webhook);
}

#[test]
fn a_new_version_stores_objects_and_the_old_one_is_kept() {
    let found = installed(json!([version("v1", json!({"a": {}}))]), &["v1"]);
    let wanted = definition(json!([version("v2", json!({"a": {}, "b": {}}))]));
    let result = upgraded(&found, &wanted).unwrap().unwrap();
    assert_eq!(states(&result), [("v1", true, false), ("v2", true, true)]);
    let narrower = definition(json!([version("v2", json!({"b": {}}))]));
    let refusal = (
        "spec.versions[v2].schema.openAPIV3Schema.properties.a".to_owned(),
        "the field is gone, and objects are stored as v1".to_owned(),
    );
    assert_eq!(refused(&found, &narrower), refusal);
    let converting = with(found, "/spec/conversion", json!({"strategy": "Webhook"}));
    let result = upgraded(&converting, &narrower).unwrap().unwrap();
    assert_eq!(states(&result), [("v1", true, false), ("v2", true, true)], "a webhook knows how");
}

#[test]
fn a_program_of_an_older_version_changes_nothing_of_the_newer_one() {
    let mut v1 = version("v1", json!({"a": {}}));
    v1["storage"] = json!(false);
    let found = installed(json!([v1, version("v2", json!({"b": {}}))]), &["v1", "v2"]);
    assert_eq!(upgraded(&found, &definition(json!([version("v1", json!({"a": {}}))]))), Ok(None));
    let wanted = definition(json!([version("v1", json!({"a": {}, "c": {}}))]));
    let result = upgraded(&found, &wanted).unwrap().unwrap();
    assert_eq!(states(&result), [("v1", true, false), ("v2", true, true)]);
    assert_eq!(result["spec"]["versions"][1], found["spec"]["versions"][1]);
}

#[test]
fn versions_that_nobody_needs_are_dropped_and_stored_ones_are_kept() {
    let mut unserved = version("v1alpha1", json!({}));
    unserved["served"] = json!(false);
    unserved["storage"] = json!(false);
    let versions = json!([unserved, version("v1", json!({}))]);
    let wanted = definition(json!([version("v1", json!({}))]));
    assert_eq!(upgraded(&installed(versions.clone(), &["v1alpha1", "v1"]), &wanted), Ok(None));
    let result = upgraded(&installed(versions, &["v1"]), &wanted).unwrap().unwrap();
    assert_eq!(states(&result), [("v1", true, true)]);
}

#[test]
fn names_and_scope_cannot_change_and_schemas_cannot_narrow() {
    let found = installed(json!([version("v1", json!({"size": {"type": "integer"}}))]), &["v1"]);
    let wanted = definition(json!([version("v1", json!({"size": {"type": "integer"}}))]));
    for (path, shown) in [
        ("/spec/group", "spec.group"),
        ("/spec/scope", "spec.scope"),
        ("/spec/names/kind", "spec.names.kind"),
        ("/spec/names/plural", "spec.names.plural"),
    ] {
        let (at, what) = refused(&found, &with(wanted.clone(), path, json!("Other")));
        assert!(at == shown && what.ends_with(r#"cannot become "Other""#), "{at} {what}");
    }
    let narrower = definition(json!([version("v1", json!({"size": {"type": "string"}}))]));
    assert_eq!(refused(&found, &narrower).0, "spec.versions[v1].schema.openAPIV3Schema.properties.size");
    let free = with(found.clone(), "/spec/versions/0/schema", json!(null));
    assert!(upgraded(&free, &narrower).unwrap().is_some(), "there was no schema");
    let preserving = with(found, "/spec/preserveUnknownFields", json!(true));
    assert_eq!(refused(&preserving, &wanted).0, "spec.preserveUnknownFields");
    let path = "/spec/versions/0/schema/openAPIV3Schema/x-kubernetes-preserve-unknown-fields";
    let result = upgraded(&preserving, &with(wanted, path, json!(true))).unwrap().unwrap();
    assert_eq!(result["spec"].get("preserveUnknownFields"), None);
}

#[test]
fn a_version_is_served_if_it_is_there_and_says_so() {
    let mut unserved = version("v2", json!({}));
    unserved["served"] = json!(false);
    let found = object(&definition(json!([version("v1", json!({})), unserved])));
    assert_eq!(["v1", "v2", "v3"].map(|version| serves(&found, version)), [true, false, false]);
}
