//! OpenAPI documents, generated from the type table and the schemas of custom resources.

mod gnostic;
mod swagger;
mod words;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::http::discovery::{MINOR, fingerprint};
use crate::kinds::kind::Kind;
use crate::kinds::registry::{Registry, Version};
use crate::types::{self, Field, Id, Merge, Patch, ValueType};
use words::Words;

pub(crate) use swagger::swagger;

/// A hash that changes with the table and with every release, as descriptions may change.
static TABLE: LazyLock<String> =
    LazyLock::new(|| fingerprint(&[types::TABLE.as_bytes(), env!("CARGO_PKG_VERSION").as_bytes()].concat()));

const KUBERNETES: &str = "io.k8s.apimachinery.pkg.";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.";

fn document_name(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `/openapi/v3`: the index of documents. Clients cache a document by the hash in its URL.
pub(crate) fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for group in registry.groups() {
        for version in &group.versions {
            let name = document_name(&group.name, &version.name);
            // A document of built-in kinds alone depends only on the table.
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

/// `/openapi/v3/{name}`; `None` if it is not served.
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

/// Builds a document: one operation per kind, which declares the field validation parameter, and the schemas of all
/// types.
fn body(group: &str, version: &Version) -> Value {
    let words = Words::of(group, &version.name);
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
            (Some(id), _) => (schema_name(types::get(id).name), of_type(id, &words, &mut wanted)),
            (None, Some(custom)) => (custom_name(kind), of_custom(&custom.document, &words, &mut wanted)),
            (None, None) => continue,
        };
        for field in ["apiVersion", "kind"] {
            schema["properties"][field] = json!({"type": "string"});
            describe(&mut schema["properties"][field], words.on_any(field));
        }
        schema["x-kubernetes-group-version-kind"] = json!([gvk]);
        schemas.insert(name, schema);
    }
    let mut done = BTreeSet::new();
    while let Some(id) = wanted.pop() {
        let name = schema_name(types::get(id).name);
        if done.insert(name.clone()) && !schemas.contains_key(&name) {
            let schema = of_type(id, &words, &mut wanted);
            schemas.insert(name, schema);
        }
    }
    for (ty, schema) in SCALARS {
        if let Some(name) = scalar_name(ty) {
            let mut schema = serde_json::from_str(schema).unwrap_or_default();
            describe(&mut schema, words.on_type(&name));
            schemas.insert(name, schema);
        }
    }
    json!({
        "openapi": "3.0.0", "info": {"title": "watchkeeper", "version": format!("v1.{MINOR}.0")},
        "paths": paths, "components": {"schemas": schemas},
    })
}

fn describe(schema: &mut Value, words: Option<&Value>) {
    if let Some(words) = words {
        schema["description"] = words.clone();
    }
}

/// Adds the enum values of a field, also to its description.
fn enumerate(property: &mut Value, field: &Field) {
    let values = field.values();
    if values.is_empty() {
        return;
    }
    let list: Vec<_> = values.iter().map(|value| format!(" - `{}`", Value::from(value.as_str()))).collect();
    let words = property["description"].as_str().unwrap_or_default();
    property["description"] = format!("{words}\n\nPossible enum values:\n{}", list.join("\n")).into();
    match property.get_mut("items") {
        Some(items) => items["enum"] = json!(values),
        None => property["enum"] = json!(values),
    }
}

/// Named types that are not structs.
const SCALARS: &[(ValueType, &str)] = &[
    (ValueType::Time, r#"{"type":"string","format":"date-time"}"#),
    (ValueType::MicroTime, r#"{"type":"string","format":"date-time"}"#),
    (ValueType::IntOrString, r#"{"format":"int-or-string","oneOf":[{"type":"integer"},{"type":"string"}]}"#),
    (ValueType::Quantity, r#"{"oneOf":[{"type":"string"},{"type":"number"}]}"#),
    (ValueType::Fields, r#"{"type":"object"}"#),
    (ValueType::Raw, r#"{"type":"object"}"#),
    (ValueType::Json, "{}"),
    (ValueType::SchemaOrBool, "{}"),
    (ValueType::SchemaOrArray, "{}"),
    (ValueType::SchemaOrStrings, "{}"),
];

fn scalar_name(ty: &ValueType) -> Option<String> {
    let (package, name) = match ty {
        ValueType::Time => (KUBERNETES, "apis.meta.v1.Time"),
        ValueType::MicroTime => (KUBERNETES, "apis.meta.v1.MicroTime"),
        ValueType::Fields => (KUBERNETES, "apis.meta.v1.FieldsV1"),
        ValueType::IntOrString => (KUBERNETES, "util.intstr.IntOrString"),
        ValueType::Quantity => (KUBERNETES, "api.resource.Quantity"),
        ValueType::Raw => (KUBERNETES, "runtime.RawExtension"),
        ValueType::Json => (EXTENSIONS, "JSON"),
        ValueType::SchemaOrBool => (EXTENSIONS, "JSONSchemaPropsOrBool"),
        ValueType::SchemaOrArray => (EXTENSIONS, "JSONSchemaPropsOrArray"),
        ValueType::SchemaOrStrings => (EXTENSIONS, "JSONSchemaPropsOrStringArray"),
        _ => return None,
    };
    Some(format!("{package}{name}"))
}

/// Returns the name under which the real server publishes a type.
fn schema_name(name: &str) -> String {
    let (package, kind) = name.split_once('.').unwrap_or(("", name));
    let package = match package.split_once('/') {
        Some(("meta", version)) => format!("io.k8s.apimachinery.pkg.apis.meta.{version}"),
        Some(("apiextensions", version)) => {
            format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}")
        }
        Some(("apiregistration", version)) => {
            format!("io.k8s.kube-aggregator.pkg.apis.apiregistration.{version}")
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

fn of_custom(document: &Value, words: &Words, wanted: &mut Vec<Id>) -> Value {
    let mut schema = if document.is_object() { document.clone() } else { json!({"type": "object"}) };
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    schema["properties"]["metadata"] = schema_of(types::metadata(), wanted);
    describe(&mut schema["properties"]["metadata"], words.on_any("metadata"));
    schema
}

fn of_type(id: Id, words: &Words, wanted: &mut Vec<Id>) -> Value {
    let kind = types::get(id);
    let name = schema_name(kind.name);
    let mut properties = Map::new();
    for field in kind.all() {
        let mut property = of_field(field, wanted);
        describe(&mut property, words.on_field(&name, field.name));
        enumerate(&mut property, field);
        properties.insert(field.name.to_owned(), property);
    }
    let mut schema = json!({"type": "object", "properties": properties});
    describe(&mut schema, words.on_type(&name));
    let required = words.required(&name);
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if kind.atomic {
        schema["x-kubernetes-map-type"] = "atomic".into();
    }
    schema
}

fn of_field(field: &'static Field, wanted: &mut Vec<Id>) -> Value {
    let mut schema = schema_of(&field.ty, wanted);
    // Siblings of a bare `$ref` would be ignored.
    if let Some(reference) = schema.get("$ref") {
        schema = json!({"allOf": [{"$ref": reference}]});
    }
    match (&field.ty, &field.merge) {
        (ValueType::List(_), Merge::Set) => schema["x-kubernetes-list-type"] = "set".into(),
        (ValueType::List(_), Merge::Keys(keys)) => {
            schema["x-kubernetes-list-type"] = "map".into();
            schema["x-kubernetes-list-map-keys"] = json!(keys);
        }
        (ValueType::List(_), _) => schema["x-kubernetes-list-type"] = "atomic".into(),
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

fn schema_of(ty: &'static ValueType, wanted: &mut Vec<Id>) -> Value {
    match ty {
        ValueType::String => json!({"type": "string"}),
        ValueType::Bool => json!({"type": "boolean"}),
        ValueType::Int32 => json!({"type": "integer", "format": "int32"}),
        ValueType::Int64 => json!({"type": "integer", "format": "int64"}),
        ValueType::Float => json!({"type": "number", "format": "double"}),
        ValueType::Bytes => json!({"type": "string", "format": "byte"}),
        ValueType::Strings => json!({"type": "array", "items": {"type": "string"}}),
        ValueType::List(inner) => json!({"type": "array", "items": schema_of(inner, wanted)}),
        ValueType::Map(inner) => json!({"type": "object", "additionalProperties": schema_of(inner, wanted)}),
        ValueType::Message(id) => {
            wanted.push(*id);
            let name = schema_name(types::get(*id).name);
            json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}], "default": {}})
        }
        named => match scalar_name(named) {
            Some(name) => json!({"$ref": format!("#/components/schemas/{name}")}),
            None => json!({}),
        },
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
    fn every_built_in_kind_and_field_is_described() {
        let registry = Registry::new();
        // The published types have no description of these either.
        let silent = [("CertificateSigningRequest", "metadata"), ("IngressRule", "http")];
        for name in index(&registry)["paths"].as_object().unwrap().keys() {
            let document = document(&registry, name).unwrap();
            for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
                let described =
                    |schema: &Value| schema["description"].as_str().is_some_and(|it| !it.is_empty());
                if schema.get("x-kubernetes-group-version-kind").is_some() {
                    assert!(described(schema), "{name}");
                }
                let kind = name.rsplit('.').next().unwrap();
                if ["JSONSchemaProps", "ExternalDocumentation"].contains(&kind) {
                    continue;
                }
                for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
                    assert!(described(schema) || silent.contains(&(kind, field)), "{name} {field}");
                }
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

    #[test]
    fn fields_say_which_values_they_may_have() {
        let document = document(&Registry::new(), "apis/certificates.k8s.io/v1").unwrap();
        let schemas = &document["components"]["schemas"];
        let usages =
            &schemas["io.k8s.api.certificates.v1.CertificateSigningRequestSpec"]["properties"]["usages"];
        assert_eq!(usages["items"]["enum"][1], "cert sign");
        assert!(usages["description"].as_str().unwrap().contains("Possible enum values:\n - `\"any\"`\n"));
    }
}
