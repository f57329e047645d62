//! What to write over an installed definition, so that it is as wanted and keeps what others rely on. Pure.

use kube_core::dynamic::DynamicObject;
use serde_json::{Map, Value};

use super::narrowing::{Narrowing, narrowing};
use super::schema::{equal, normal_schema, same};

/// What a version consists of beside its name and `storage`. Members that are not listed are kept.
const PARTS: [&str; 7] = [
    "served",
    "deprecated",
    "deprecationWarning",
    "schema",
    "subresources",
    "selectableFields",
    "additionalPrinterColumns",
];

/// The definition to replace `found` with; `None` where it is as wanted. Both have a `spec`.
///
/// Kept are the conversion, labels and annotations of others, versions that are served or stored, and a version that stores objects if
/// the wanted one is installed beside it.
///
/// # Errors
///
/// The wanted definition allows less than the installed one.
pub(super) fn upgrade(
    found: &DynamicObject,
    wanted: &DynamicObject,
) -> Result<Option<DynamicObject>, Narrowing> {
    let (old, new) = (&found.data["spec"], &wanted.data["spec"]);
    for (path, pointer) in [
        ("group", "/group"),
        ("scope", "/scope"),
        ("names.kind", "/names/kind"),
        ("names.plural", "/names/plural"),
    ] {
        let (Some(old), Some(new)) = (old.pointer(pointer), new.pointer(pointer)) else { continue };
        if old != new {
            return refuse(format!("spec.{path}"), format!("{old} cannot become {new}"));
        }
    }
    if old["preserveUnknownFields"] == true && versions(new).any(|version| !preserves_unknown(version)) {
        let what = "unknown fields are no longer preserved".to_owned();
        return refuse("spec.preserveUnknownFields".to_owned(), what);
    }
    for version in versions(new) {
        let Some(before) = version_of(old, name(version)) else { continue };
        not_narrower(before, version, "")?;
    }
    let spec = merged_spec(old, new, &found.data["status"])?;
    let mut result = found.clone();
    for (kept, set) in [
        (&mut result.metadata.labels, &wanted.metadata.labels),
        (&mut result.metadata.annotations, &wanted.metadata.annotations),
    ] {
        if let Some(set) = set.clone().filter(|set| !set.is_empty()) {
            kept.get_or_insert_default().extend(set);
        }
    }
    let is_same = result.metadata == found.metadata && same_spec(old, &spec);
    result.data["spec"] = spec;
    Ok((!is_same).then_some(result))
}

/// Whether the definition serves `version`.
pub(super) fn serves(definition: &DynamicObject, version: &str) -> bool {
    version_of(&definition.data["spec"], version).is_some_and(|version| version["served"] == true)
}

fn refuse<T>(path: String, what: String) -> Result<T, Narrowing> {
    Err(Narrowing { path, what })
}

fn versions(spec: &Value) -> impl Iterator<Item = &Value> {
    spec["versions"].as_array().into_iter().flatten()
}

fn name(version: &Value) -> &str {
    version["name"].as_str().unwrap_or_default()
}

fn version_of<'a>(spec: &'a Value, wanted: &str) -> Option<&'a Value> {
    versions(spec).find(|version| name(version) == wanted)
}

fn storage(spec: &Value) -> Option<&Value> {
    versions(spec).find(|version| version["storage"] == true)
}

fn root(version: &Value) -> &Value {
    &version["schema"]["openAPIV3Schema"]
}

fn preserves_unknown(version: &Value) -> bool {
    root(version)["x-kubernetes-preserve-unknown-fields"] == true
}

fn not_narrower(before: &Value, after: &Value, hint: &str) -> Result<(), Narrowing> {
    if root(before).is_null() {
        return Ok(());
    }
    let path = format!("spec.versions[{}].schema.openAPIV3Schema", name(after));
    match narrowing(&normal_schema(root(before)), &normal_schema(root(after)), &path) {
        Some(found) => Err(Narrowing { what: found.what + hint, ..found }),
        None => Ok(()),
    }
}

fn merged_spec(old: &Value, new: &Value, status: &Value) -> Result<Value, Narrowing> {
    let mut spec = old.clone();
    if let Some(names) = new["names"].as_object() {
        for (key, value) in names {
            spec["names"][key] = value.clone();
        }
    }
    // A webhook that somebody has set up is kept; "None" is what a server sets by itself.
    let converts = |spec: &Value| spec["conversion"]["strategy"].as_str().is_some_and(|how| how != "None");
    if converts(new) && !converts(old) {
        spec["conversion"] = new["conversion"].clone();
    }
    if let Some(members) = spec.as_object_mut() {
        members.remove("preserveUnknownFields");
    }
    let stores = storage_name(old, new, converts(&spec))?;
    let is_stored = |version: &Value| {
        let stored = status["storedVersions"].as_array();
        stored.is_some_and(|stored| stored.contains(&version["name"])) || version["storage"] == true
    };
    let mut all = Vec::new();
    for before in versions(old) {
        match version_of(new, name(before)) {
            Some(after) => all.push(merged_version(before, after)),
            None if before["served"] == true || is_stored(before) => all.push(before.clone()),
            None => {}
        }
    }
    all.extend(versions(new).filter(|version| version_of(old, name(version)).is_none()).cloned());
    for version in &mut all {
        version["storage"] = Value::Bool(version["name"] == stores);
    }
    spec["versions"] = Value::Array(all);
    Ok(spec)
}

/// The version that stores objects: the wanted one if it is new here, else the one that does now.
fn storage_name(old: &Value, new: &Value, converts: bool) -> Result<String, Narrowing> {
    let (before, after) = (storage(old), storage(new));
    let (Some(before), Some(after)) = (before, after) else {
        return Ok(before.or(after).map(name).unwrap_or_default().to_owned());
    };
    if version_of(old, name(after)).is_some() {
        return Ok(name(before).to_owned());
    }
    if !converts {
        not_narrower(before, after, &format!(", and objects are stored as {}", name(before)))?;
    }
    Ok(name(after).to_owned())
}

fn merged_version(before: &Value, after: &Value) -> Value {
    let mut version = before.as_object().cloned().unwrap_or_default();
    for part in PARTS {
        match after.get(part).filter(|value| !value.is_null()) {
            Some(value) => drop(version.insert(part.to_owned(), value.clone())),
            None => drop(version.remove(part)),
        }
    }
    Value::Object(version)
}

fn same_spec(a: &Value, b: &Value) -> bool {
    let rest = |spec: &Value| {
        let mut rest = spec.as_object().cloned().unwrap_or_default();
        rest.remove("versions");
        Value::Object(rest)
    };
    versions(a).count() == versions(b).count()
        && versions(a)
            .all(|version| version_of(b, name(version)).is_some_and(|other| same_version(version, other)))
        && same(Some(&rest(a)), Some(&rest(b)))
}

fn same_version(a: &Value, b: &Value) -> bool {
    let rest = |version: &Value| {
        let mut rest = version.as_object().cloned().unwrap_or_default();
        rest.remove("schema");
        Value::Object(rest)
    };
    let schema = |version: &Value| normal_schema(root(version));
    equal(&schema(a), &schema(b)) && same(Some(&rest(a)), Some(&rest(b)))
}

/// The wanted definition as an object that can be compared and sent.
pub(super) fn as_object<T: serde::Serialize>(definition: &T) -> serde_json::Result<DynamicObject> {
    let mut object: DynamicObject = serde_json::from_value(serde_json::to_value(definition)?)?;
    // A status is the server's.
    if let Some(members) = object.data.as_object_mut() {
        *members = Map::from_iter(members.remove("spec").map(|spec| ("spec".to_owned(), spec)));
    }
    Ok(object)
}

#[cfg(test)]
mod tests;
