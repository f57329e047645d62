//! The kinds that a definition defines, one per version.

use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use super::names::waiting;
use super::{Compiled, is_established, list, text, texts};
use crate::kinds::behaviour::CustomResource;
use crate::kinds::builtin::{InitialStatus, NameRule};
use crate::kinds::jsonpath::Path;
use crate::kinds::kind::{Custom, Kind, Printer, ResourceId, ScalePaths, api_version};
use crate::kinds::meta;

fn path(json_path: &str) -> Vec<String> {
    json_path.trim_start_matches('.').split('.').map(str::to_owned).collect()
}

/// The columns of a version; its age alone, if it says nothing.
fn printers(columns: &Value) -> Vec<Printer> {
    let age = json!([{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    let columns = if list(columns).is_empty() { &age } else { columns };
    let printer = |column: &Value| Printer {
        name: text(column, "name").to_owned(),
        sort: text(column, "type").to_owned(),
        format: text(column, "format").to_owned(),
        priority: column["priority"].as_i64().unwrap_or(0),
        path: Path::read(text(column, "jsonPath")),
    };
    list(columns).iter().map(printer).collect()
}

/// Where the objects of a definition are.
fn storage(value: &Value) -> ResourceId {
    let spec = &value["spec"];
    ResourceId::of_definition(text(spec, "group"), text(&spec["names"], "plural"))
}

/// The kinds of a definition under the names that were accepted, one for each version.
pub(crate) fn kinds(value: &Value, compiled: Vec<Compiled>) -> Vec<Kind> {
    let spec = &value["spec"];
    let names = &value["status"]["acceptedNames"];
    let group = text(spec, "group");
    let (established, waiting) = (is_established(value), waiting(value).map(Arc::new));
    let versions = list(&spec["versions"]);
    let stored = versions.iter().position(|version| version["storage"] == true);
    let storage_schema = stored.and_then(|at| compiled.get(at)).map(|compiled| compiled.schema.clone());
    versions
        .iter()
        .zip(compiled)
        .map(|(version, Compiled { document, schema, rules })| {
            let subresources = &version["subresources"];
            let scale = subresources["scale"].is_object().then(|| ScalePaths {
                spec_replicas: path(text(&subresources["scale"], "specReplicasPath")),
                status_replicas: path(text(&subresources["scale"], "statusReplicasPath")),
                selector: Some(path(text(&subresources["scale"], "labelSelectorPath"))),
            });
            let fields = list(&version["selectableFields"]).iter();
            Kind {
                group: group.to_owned(),
                version: text(version, "name").to_owned(),
                api_version: api_version(group, text(version, "name")),
                kind: text(names, "kind").to_owned(),
                list_kind: text(names, "listKind").to_owned(),
                plural: text(names, "plural").to_owned(),
                singular: text(names, "singular").to_owned(),
                short_names: texts(&names["shortNames"]),
                categories: texts(&names["categories"]),
                namespaced: text(spec, "scope") == "Namespaced",
                status: if subresources["status"].is_object() {
                    InitialStatus::Fixed("")
                } else {
                    InitialStatus::None
                },
                scale,
                generation: true,
                create_on_update: false,
                unconditional_update: false,
                delete_collection: true,
                returns_deleted: false,
                names: NameRule::Subdomain,
                fields: fields.map(|field| path(text(field, "jsonPath")).join(".")).collect(),
                storage: storage(value),
                schema: None,
                blank: OnceLock::new(),
                selectable: OnceLock::new(),
                custom: Some(Custom {
                    storage_version: api_version(group, stored.map_or("", |at| text(&versions[at], "name"))),
                    storage_schema: storage_schema.clone(),
                    warning: (version["deprecated"] == true).then(|| {
                        match text(version, "deprecationWarning") {
                            "" => format!(
                                "{} {} is deprecated",
                                api_version(group, text(version, "name")),
                                text(names, "kind")
                            ),
                            warning => warning.to_owned(),
                        }
                    }),
                    document,
                    printers: printers(&version["additionalPrinterColumns"]),
                    rules,
                    schema,
                    definition: meta::text(value, "name").to_owned(),
                    served: established && version["served"] == true,
                    waiting: waiting.clone(),
                }),
                behaviour: &CustomResource,
            }
        })
        .collect()
}
