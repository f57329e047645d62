//! `/openapi/v2`: one document with the types and operations of all kinds, in JSON or in protobuf.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::{body, custom_name, document_name, gnostic, schema_name};
use crate::codec::wire::Message;
use crate::http::discovery::{MINOR, fingerprint};
use crate::kinds::kind::Kind;
use crate::kinds::registry::{Document, Registry, Version};
use crate::types;

/// Members of the objects `definitions` and `paths`, as JSON without the braces.
#[derive(Default)]
struct Members {
    definitions: Vec<String>,
    paths: Vec<String>,
    /// The names of the definitions.
    names: BTreeSet<String>,
}

/// The part of the built-in kinds. It is the same for all servers, and made on first use.
static BUILTIN: LazyLock<Members> = LazyLock::new(|| {
    let mut members = Members::default();
    for group in Registry::new().groups() {
        for version in &group.versions {
            members.add(&group.name, version, |_| true, &BTreeSet::new());
        }
    }
    members
});

/// The same in protobuf: the messages of all paths and of all definitions.
static BUILTIN_MESSAGES: LazyLock<[Message; 2]> = LazyLock::new(|| BUILTIN.messages());

const VERSION: &str = "2.0";

/// Returns the document. Encoded once per change of the kinds.
pub(crate) fn swagger(registry: &Registry, is_protobuf: bool) -> &Document {
    registry.swagger(is_protobuf, || {
        let customs = customs(registry);
        let info = json!({"title": "Kubernetes", "version": format!("v1.{MINOR}.0")});
        let text = if is_protobuf {
            let [mut paths, mut definitions] = BUILTIN_MESSAGES.clone();
            let [more_paths, more_definitions] = customs.messages();
            paths.append(&more_paths);
            definitions.append(&more_definitions);
            gnostic::document(VERSION, &info, paths, definitions)
        } else {
            let members = |of: fn(&Members) -> &Vec<String>| {
                let all: Vec<_> = of(&BUILTIN).iter().chain(of(&customs)).map(String::as_str).collect();
                all.join(",")
            };
            let (paths, definitions) = (members(|all| &all.paths), members(|all| &all.definitions));
            format!(
                r#"{{"swagger":"{VERSION}","info":{info},"paths":{{{paths}}},"definitions":{{{definitions}}}}}"#
            )
            .into_bytes()
        };
        let etag = format!("\"{}\"", fingerprint(&text));
        Document { text: text.into(), etag }
    })
}

/// The part of the custom kinds.
fn customs(registry: &Registry) -> Members {
    let mut customs = Members::default();
    for group in registry.groups() {
        for version in &group.versions {
            if version.kinds.iter().any(|kind| kind.custom.is_some()) {
                customs.add(&group.name, version, |kind| kind.custom.is_some(), &BUILTIN.names);
            }
        }
    }
    customs
}

impl Members {
    /// Adds the kinds of a group version that are `wanted`, with the types that they refer to and that are not `known`.
    fn add(
        &mut self,
        group: &str,
        version: &Version,
        wanted: impl Fn(&Kind) -> bool,
        known: &BTreeSet<String>,
    ) {
        let mut document = body(group, version);
        let schemas = match document["components"]["schemas"].take() {
            Value::Object(schemas) => schemas,
            _ => Map::new(),
        };
        for (name, mut schema) in schemas {
            if !known.contains(&name) && self.names.insert(name.clone()) {
                if is_opaque(&schema) {
                    schema = json!({"type": "object", GVK: schema[GVK]});
                }
                convert(&mut schema);
                self.definitions.push(member(&name, &schema));
            }
        }
        for kind in version.kinds.iter().filter(|kind| wanted(kind)) {
            self.paths.extend(paths(kind).iter().map(|(path, operations)| member(path, operations)));
        }
    }

    /// The messages of all paths and of all definitions.
    fn messages(&self) -> [Message; 2] {
        let all = |members: &[String], add: fn(&mut Message, &str, &Value)| {
            let mut all = Message::default();
            for member in members {
                // Our own encoding, which always parses.
                let object: Map<String, Value> =
                    serde_json::from_str(&format!("{{{member}}}")).unwrap_or_default();
                object.iter().for_each(|(name, value)| add(&mut all, name, value));
            }
            all
        };
        [all(&self.paths, gnostic::add_path), all(&self.definitions, gnostic::add_definition)]
    }
}

/// The extension that names the kinds of a type.
const GVK: &str = "x-kubernetes-group-version-kind";

/// Whether it is a kind whose schema says nothing that clients could check: any field may be in its objects. To kubectl,
/// properties would mean that there are no others.
fn is_opaque(schema: &Value) -> bool {
    schema.get(GVK).is_some() && schema["x-kubernetes-preserve-unknown-fields"] == true
}

fn member(name: &str, value: &Value) -> String {
    format!("{}:{value}", Value::from(name))
}

/// Converts a schema of version 3 into one of version 2, as far as clients understand it: what they would misread is
/// left out.
fn convert(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    // A reference is wrapped in version 3, as its siblings would be ignored.
    let reference = map.get("$ref").or_else(|| map.get("allOf")?.get(0)?.get("$ref"));
    let name = reference.and_then(Value::as_str).and_then(|text| text.rsplit('/').next());
    if let Some(name) = name.map(|name| format!("#/definitions/{name}")) {
        map.retain(|key, _| key == "description" || key.starts_with("x-kubernetes-"));
        map.insert("$ref".to_owned(), name.into());
        return;
    }
    let alternatives = map.remove("oneOf");
    for junctor in ["allOf", "anyOf", "not"] {
        map.remove(junctor);
    }
    if alternatives.is_some() && !map.contains_key("type") && !map.contains_key("x-kubernetes-int-or-string")
    {
        map.insert("type".to_owned(), "string".into());
    }
    let is_open = map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    let is_nullable = map.remove("nullable") == Some(Value::Bool(true));
    if is_open || is_nullable {
        map.remove("items");
        map.remove("properties");
    }
    let ty = map.get("type").and_then(Value::as_str).unwrap_or_default();
    if is_nullable || is_open && ty == "object" || ty == "array" && !map.contains_key("items") {
        map.remove("type");
    }
    drop_nullable(map);
    for inner in ["items", "additionalProperties"] {
        map.get_mut(inner).map(convert);
    }
    if let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(convert);
    }
}

/// Removes nullable fields from the required ones: a client would refuse a null.
fn drop_nullable(map: &mut Map<String, Value>) {
    let properties = map.get("properties").and_then(Value::as_object);
    let nullable: Vec<_> = properties
        .into_iter()
        .flatten()
        .filter(|(_, property)| property["nullable"] == true)
        .map(|(name, _)| Value::from(name.as_str()))
        .collect();
    let values = map.get("additionalProperties");
    let all = values.is_some_and(|values| values["nullable"] == true);
    let Some(required) = map.get_mut("required").and_then(Value::as_array_mut) else { return };
    required.retain(|name| !all && !nullable.contains(name));
    if required.is_empty() {
        map.remove("required");
    }
}

/// Returns the paths of a kind with their operations.
fn paths(kind: &Kind) -> BTreeMap<String, Value> {
    let namespaces = if kind.namespaced { "namespaces/{namespace}/" } else { "" };
    let all = format!("/{}/{namespaces}{}", document_name(&kind.group, &kind.version), kind.plural);
    let verbs = kind.verbs();
    let mut collection = Map::new();
    let mut object = Map::new();
    for (verb, method, action, is_collection) in [
        ("list", "get", "list", true),
        ("create", "post", "post", true),
        ("deletecollection", "delete", "deletecollection", true),
        ("get", "get", "get", false),
        ("update", "put", "put", false),
        ("patch", "patch", "patch", false),
        ("delete", "delete", "delete", false),
    ] {
        if verbs.contains(&verb) {
            let into = if is_collection { &mut collection } else { &mut object };
            into.insert(method.to_owned(), operation(kind, verb, action));
        }
    }
    let of = |path: &str, operations: &Map<String, Value>| {
        let mut item = operations.clone();
        let names = ["namespace", "name"].into_iter().filter(|name| path.contains(&format!("{{{name}}}")));
        let parameters = names
            .map(|name| json!({"name": name, "in": "path", "required": true, "type": "string", "uniqueItems": true}));
        item.insert("parameters".to_owned(), parameters.collect());
        (path.to_owned(), Value::Object(item))
    };
    [(all.clone(), collection), (format!("{all}/{{name}}"), object)]
        .iter()
        .filter(|(_, operations)| !operations.is_empty())
        .map(|(path, operations)| of(path, operations))
        .collect()
}

fn operation(kind: &Kind, verb: &str, action: &str) -> Value {
    let writes = ["create", "update", "patch"].contains(&verb);
    let options: &[&str] = match verb {
        "list" | "deletecollection" => {
            &["continue", "fieldSelector", "labelSelector", "limit", "resourceVersion"]
        }
        "delete" => &["dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"],
        "patch" => &["dryRun", "fieldManager", "fieldValidation", "force"],
        "create" | "update" => &["dryRun", "fieldManager", "fieldValidation"],
        _ => &[],
    };
    let name = match kind.schema {
        Some(id) => schema_name(types::get(id).name),
        None => custom_name(kind),
    };
    let reference = json!({"$ref": format!("#/definitions/{name}")});
    let query = |name: &&str| json!({"name": name, "in": "query", "type": "string", "uniqueItems": true});
    let mut parameters: Vec<_> = options.iter().map(query).collect();
    if writes {
        let schema = if verb == "patch" { json!({"type": "object"}) } else { reference.clone() };
        parameters.insert(0, json!({"name": "body", "in": "body", "required": true, "schema": schema}));
    }
    let scope = if kind.namespaced { "Namespaced" } else { "" };
    let first = match verb {
        "get" => "read",
        "update" => "replace",
        "deletecollection" => "deleteCollection",
        other => other,
    };
    let group: String = kind.group.split('.').next().unwrap_or_default().to_owned();
    let group = if group.is_empty() { "core".to_owned() } else { group };
    json!({
        "operationId": format!("{first}{}{}{scope}{}", capital(&group), capital(&kind.version), kind.kind),
        "consumes": ["*/*"], "produces": ["application/json", "application/yaml"], "schemes": ["https"],
        "tags": [format!("{group}_{}", kind.version)],
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "schema": reference}, "401": {"description": "Unauthorized"}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    })
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + letters.as_str())
}
