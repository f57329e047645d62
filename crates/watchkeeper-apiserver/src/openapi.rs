//! What are the kinds made of, for clients that ask? OpenAPI v3 documents from the type table and from the schemas of custom kinds.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::discovery::{MINOR, fingerprint};
use crate::registry::{Kind, Registry, Version};
use crate::types::{self, Field, Form, Id, Merge, Patch};

/// Changes when the table does.
static TABLE: LazyLock<String> = LazyLock::new(|| fingerprint(types::TABLE.as_bytes()));

fn document_name(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `/openapi/v3`: where the documents are. Clients cache each by the hash in its URL.
pub(crate) fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for group in registry.groups() {
        for version in &group.versions {
            let name = document_name(&group.name, &version.name);
            // Built-in kinds are the same for as long as the table is.
            let hash = if version.kinds.iter().any(|kind| kind.custom.is_some()) {
                fingerprint(body(&group.name, version).to_string().as_bytes())
            } else {
                fingerprint(format!("{}{name}", *TABLE).as_bytes())
            };
            paths.insert(
                name.clone(),
                json!({"serverRelativeURL": format!("/openapi/v3/{name}?hash={hash}")}),
            );
        }
    }
    json!({"paths": paths})
}

/// `/openapi/v3/{name}`; none when it is not served.
pub(crate) fn document(registry: &Registry, name: &str) -> Option<Value> {
    for group in registry.groups() {
        for version in &group.versions {
            if document_name(&group.name, &version.name) == name {
                return Some(body(&group.name, version));
            }
        }
    }
    None
}

/// One operation per kind, which tells clients that field validation may be asked for, and the schemas of all that the kinds hold.
fn body(group: &str, version: &Version) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    let mut wanted: Vec<Id> = Vec::new();
    for kind in &version.kinds {
        let gvk = json!({"group": group, "version": version.name, "kind": kind.kind});
        let namespaces = if kind.namespaced { "namespaces/{namespace}/" } else { "" };
        let path = format!("/{}/{namespaces}{}/{{name}}", document_name(group, &version.name), kind.plural);
        let text = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
        let parameters: Vec<_> = ["dryRun", "fieldManager", "fieldValidation", "force"].map(text).into();
        paths.insert(
            path,
            json!({"patch": {
                "parameters": parameters, "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": gvk,
            }}),
        );
        let (name, mut schema) = match (kind.schema, &kind.custom) {
            (Some(id), _) => (schema_name(types::get(id).name), of_type(id, &mut wanted)),
            (None, Some(custom)) => (custom_name(kind), of_custom(&custom.document, &mut wanted)),
            (None, None) => continue,
        };
        let properties = &mut schema["properties"];
        properties["apiVersion"] = json!({"type": "string"});
        properties["kind"] = json!({"type": "string"});
        schema["x-kubernetes-group-version-kind"] = json!([gvk]);
        schemas.insert(name, schema);
    }
    let mut done = BTreeSet::new();
    while let Some(id) = wanted.pop() {
        let name = schema_name(types::get(id).name);
        if done.insert(name.clone()) && !schemas.contains_key(&name) {
            let schema = of_type(id, &mut wanted);
            schemas.insert(name, schema);
        }
    }
    json!({
        "openapi": "3.0.0", "info": {"title": "watchkeeper", "version": format!("v1.{MINOR}.0")},
        "paths": paths, "components": {"schemas": schemas},
    })
}

/// The name under which the real server publishes a type.
fn schema_name(name: &str) -> String {
    let (package, kind) = name.split_once('.').unwrap_or(("", name));
    let package = match package.split_once('/') {
        Some(("meta", version)) => format!("io.k8s.apimachinery.pkg.apis.meta.{version}"),
        Some(("apiextensions", version)) => {
            format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}")
        }
        Some((group, version)) => format!("io.k8s.api.{group}.{version}"),
        None => package.to_owned(),
    };
    format!("{package}.{kind}")
}

fn custom_name(kind: &Kind) -> String {
    let reversed: Vec<_> = kind.group.rsplit('.').collect();
    format!("{}.{}.{}", reversed.join("."), kind.version, kind.kind)
}

fn of_custom(document: &Value, wanted: &mut Vec<Id>) -> Value {
    let mut schema = if document.is_object() { document.clone() } else { json!({"type": "object"}) };
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    schema["properties"]["metadata"] = of_form(types::metadata(), wanted);
    schema
}

fn of_type(id: Id, wanted: &mut Vec<Id>) -> Value {
    let kind = types::get(id);
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for field in kind.all() {
        properties.insert(field.name.to_owned(), of_field(field, wanted));
        let plain = !matches!(
            field.form,
            Form::Message(_) | Form::Time | Form::MicroTime | Form::IntOrString | Form::Raw | Form::Json
        );
        if field.always && plain {
            required.push(field.name);
        }
    }
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if kind.atomic {
        schema["x-kubernetes-map-type"] = "atomic".into();
    }
    schema
}

fn of_field(field: &'static Field, wanted: &mut Vec<Id>) -> Value {
    let mut schema = of_form(&field.form, wanted);
    match (&field.form, &field.merge) {
        (Form::List(_), Merge::Set) => schema["x-kubernetes-list-type"] = "set".into(),
        (Form::List(_), Merge::Keys(keys)) => {
            schema["x-kubernetes-list-type"] = "map".into();
            schema["x-kubernetes-list-map-keys"] = json!(keys);
        }
        (Form::List(_), _) => schema["x-kubernetes-list-type"] = "atomic".into(),
        (_, Merge::Atomic) => schema["x-kubernetes-map-type"] = "atomic".into(),
        _ => {}
    }
    let mut strategies = Vec::new();
    match field.patch {
        Some(Patch::Merge(key)) => {
            strategies.push("merge");
            if let Some(key) = key {
                schema["x-kubernetes-patch-merge-key"] = key.into();
            }
        }
        Some(Patch::Replace) => strategies.push("replace"),
        None => {}
    }
    if field.retain_keys {
        strategies.push("retainKeys");
    }
    if !strategies.is_empty() {
        schema["x-kubernetes-patch-strategy"] = strategies.join(",").into();
    }
    schema
}

fn of_form(form: &'static Form, wanted: &mut Vec<Id>) -> Value {
    match form {
        Form::String => json!({"type": "string"}),
        Form::Bool => json!({"type": "boolean"}),
        Form::Int32 => json!({"type": "integer", "format": "int32"}),
        Form::Int64 => json!({"type": "integer", "format": "int64"}),
        Form::Float => json!({"type": "number", "format": "double"}),
        Form::Bytes => json!({"type": "string", "format": "byte"}),
        Form::Time | Form::MicroTime => json!({"type": "string", "format": "date-time"}),
        Form::IntOrString => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        Form::Quantity => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        Form::Fields | Form::Raw => json!({"type": "object"}),
        Form::Json | Form::SchemaOrBool | Form::SchemaOrArray | Form::SchemaOrStrings => json!({}),
        Form::Strings => json!({"type": "array", "items": {"type": "string"}}),
        Form::List(inner) => json!({"type": "array", "items": of_form(inner, wanted)}),
        Form::Map(inner) => json!({"type": "object", "additionalProperties": of_form(inner, wanted)}),
        Form::Message(id) => {
            wanted.push(*id);
            let name = schema_name(types::get(*id).name);
            json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}], "default": {}})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_in_a_document_leads_somewhere() {
        let registry = Registry::new();
        let index = index(&registry);
        for name in index["paths"].as_object().unwrap().keys() {
            let document = document(&registry, name).unwrap();
            let text = document.to_string();
            for reference in text.split("#/components/schemas/").skip(1) {
                let target = reference.split('"').next().unwrap();
                assert!(document["components"]["schemas"].get(target).is_some(), "{name}: {target}");
            }
        }
    }

    #[test]
    fn lists_say_how_they_merge() {
        let document = document(&Registry::new(), "apis/apps/v1").unwrap();
        let containers =
            &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
        assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
        assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
        let strategy =
            &document["components"]["schemas"]["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["strategy"];
        assert_eq!(strategy["x-kubernetes-patch-strategy"], "retainKeys");
    }
}
