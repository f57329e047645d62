//! Server-side apply: sets the fields of a configuration, removes those that its manager no longer applies, and keeps
//! the fields of other managers.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::failure::{Failure, Result};
use crate::fields::Managers;
use crate::kinds::identity::{identify, place};
use crate::kinds::kind::Kind;
use crate::kinds::merge_type::{MergeType, Treatment};
use crate::kinds::meta;
use crate::kinds::size;
use crate::state::store::Key;
use crate::types::ValueType;
use crate::verbs::draft::{Draft, Seen};
use crate::verbs::patch::restored;
use crate::verbs::update::{MODIFIED, Part, check_same_name, version_of};
use crate::verbs::write::{Write, unusable};

impl Seen {
    /// Applies `config`: brings the object to the merged state, or creates it.
    pub(crate) fn apply(
        &self,
        kind: &Arc<Kind>,
        mut config: Value,
        part: Part,
        force: bool,
        write: &mut Write,
    ) -> Result<Draft> {
        let key = &self.key;
        check_config(kind, key, &config)?;
        if part != Part::Main && self.old.is_none() {
            return Err(Failure::not_found(kind, &key.name));
        }
        if size::has_long_paths(&config) {
            return Err(Failure::bad_request("the names of its fields are too long"));
        }
        let sent = described(kind, &config);
        check_types(kind, &config, &sent)?;
        meta::set(&mut config, "name", &key.name);
        place(kind, &key.namespace, &mut config)?;
        let (version, now) = (version_of(&config)?, self.now());
        let present = self.old.as_ref().map(|old| (old, old.value()));
        let (live, mut managers) = match &present {
            Some((_, stored)) => read_live(kind, stored.clone(), write, &now),
            None => {
                check_no_uid(kind, key, &config)?;
                meta::set(&mut config, "resourceVersion", "");
                (kind.blank().clone(), Managers::default())
            }
        };
        let writer = write.writer(kind, part.subresource(), &now);
        let mut object = managers.apply(kind.merge_type(), &live, &config, &writer, force)?;
        if self.old.as_ref().is_some_and(|old| version != 0 && version != old.revision) {
            return Err(Failure::conflict(kind, &key.name, MODIFIED));
        }
        finish(kind, &mut object, managers, write, &sent)?;
        match present {
            Some(present) => {
                self.change_decoded(kind, present, object, Part::Applied(part == Part::Status), write)
            }
            None => {
                identify(kind, &mut object);
                place(kind, &key.namespace, &mut object)?;
                self.create(kind, object, write, false)
            }
        }
    }
}

/// Returns a stored object in the version of `kind`, without its managed fields, and its field managers.
fn read_live(kind: &Kind, stored: Value, write: &Write, now: &str) -> (Value, Managers) {
    let mut live = kind.to_served(stored);
    let mut managers = Managers::read(&live);
    meta::metadata_mut(&mut live).remove("managedFields");
    if managers.is_empty() {
        // The object predates managed fields: its fields belong to a manager other than the applier.
        let before = Write { manager: "before-first-apply".to_owned(), ..write.clone() };
        managers.update(kind.merge_type(), kind.blank(), &live, &before.writer(kind, "", now));
    }
    (live, managers)
}

/// Refuses a configuration with a uid if the object does not exist.
fn check_no_uid(kind: &Kind, key: &Key, config: &Value) -> Result<()> {
    let uid = meta::text(config, "uid");
    if uid.is_empty() {
        return Ok(());
    }
    let why =
        format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
    Err(Failure::conflict(kind, &key.name, &why))
}

/// Describes the applied configuration as the real server does.
fn described(kind: &Kind, config: &Value) -> String {
    let (namespace, name) = (meta::text(config, "namespace"), meta::text(config, "name"));
    format!("{namespace}/{name}; {}/{}, Kind={}", kind.group, kind.version, kind.kind)
}

/// Normalizes the merged object, and writes its managed fields.
fn finish(kind: &Kind, object: &mut Value, managers: Managers, write: &mut Write, sent: &str) -> Result<()> {
    write.applied = true;
    let normalized = kind.behaviour.normalize(kind, object, true);
    normalized.and_then(|unknown| write.judge_unknown(&unknown)).map_err(|why| match &kind.custom {
        Some(_) => unusable(kind, &why),
        None => Failure::internal(format!(
            "failed to convert new object ({sent}) to proper version: unable to convert unstructured object to {}/{}, Kind={}: {}",
            kind.group,
            kind.version,
            kind.kind,
            restored(&why)
        )),
    })?;
    managers.write(object);
    Ok(())
}

/// Refuses a configuration of another kind or name, or with managed fields.
fn check_config(kind: &Kind, key: &Key, config: &Value) -> Result<()> {
    let text = |field: &str| config[field].as_str().unwrap_or_default();
    if text("apiVersion") != kind.api_version || text("kind") != kind.kind {
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        return Err(Failure::bad_request(format!(
            "invalid object type: {group}/{version}, Kind={}",
            text("kind")
        )));
    }
    if config["metadata"].get("managedFields").is_some_and(|entries| !entries.is_null()) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    let name = meta::text(config, "name");
    if !name.is_empty() {
        check_same_name(name, key)?;
    }
    Ok(())
}

/// Refuses unknown fields, wrong types and duplicate elements.
fn check_types(kind: &Kind, config: &Value, sent: &str) -> Result<()> {
    let problems = type_problems(kind.merge_type(), config);
    if problems.is_empty() {
        return Ok(());
    }
    let problems =
        if let [one] = &problems[..] { one.clone() } else { format!("errors:\n  {}", problems.join("\n  ")) };
    Err(Failure::internal(format!("failed to create typed patch object ({sent}): {problems}")))
}

/// Returns the problems of a value, each with its path.
fn type_problems(merge_type: MergeType<'_>, value: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    visit(merge_type, value, "", &mut problems);
    problems
}

fn visit(merge_type: MergeType<'_>, value: &Value, path: &str, problems: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(map) if has_fields(merge_type, map) => {
            for (name, value) in map {
                match merge_type.field(name) {
                    Some((inner, _)) => visit(inner, value, &format!("{path}.{name}"), problems),
                    None => problems.push(format!("{path}.{name}: field not declared in schema")),
                }
            }
        }
        Value::Array(list) => elements(merge_type, list, path, problems),
        scalar => problems.extend(unexpected(merge_type, scalar).map(|problem| format!("{path}: {problem}"))),
    }
}

fn elements(merge_type: MergeType<'_>, list: &[Value], path: &str, problems: &mut Vec<String>) {
    let treatment = merge_type.treatment(&Value::Null);
    let mut seen = BTreeSet::new();
    for (at, element) in list.iter().enumerate() {
        let step = match (&treatment, merge_type.step(&treatment, element)) {
            (Treatment::Keys(keys), None) if keys.iter().all(|key| element.get(key).is_none()) => {
                let keys: Vec<_> = keys.iter().map(|key| Value::from(*key).to_string()).collect();
                problems.push(format!(
                    "{path}: element {at}: associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                    keys.join(" ")
                ));
                continue;
            }
            (Treatment::Keys(_) | Treatment::Set, Some(step)) => shown(&step),
            _ => String::new(),
        };
        if !step.is_empty() && seen.contains(&step) {
            problems.push(format!("{path}: duplicate entries for key {step}"));
        }
        visit(merge_type.item(), element, &format!("{path}{step}"), problems);
        seen.insert(step);
    }
}

/// Formats an element for a path: `[name="c"]`, or `[="x"]` in a set.
fn shown(step: &str) -> String {
    if let Some(value) = step.strip_prefix("v:") {
        return format!("[={value}]");
    }
    let keys: Map<String, Value> =
        step.strip_prefix("k:").and_then(|keys| serde_json::from_str(keys).ok()).unwrap_or_default();
    let keys: Vec<_> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("[{}]", keys.join(","))
}

/// Returns the problem with the type of a scalar.
fn unexpected(merge_type: MergeType<'_>, value: &Value) -> Option<String> {
    let wanted = match merge_type {
        MergeType::Typed(
            ValueType::String | ValueType::Bytes | ValueType::Time | ValueType::MicroTime,
            _,
        ) => "string",
        MergeType::Typed(ValueType::Int32 | ValueType::Int64 | ValueType::Float, _) => "integer",
        MergeType::Typed(ValueType::Bool, _) => "boolean",
        MergeType::Node(node) => node.kind(),
        _ => return None,
    };
    match (wanted, value) {
        ("string", Value::Number(_) | Value::Bool(_)) => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{value}}}"))
        }
        ("integer" | "number", Value::String(_)) => {
            Some("expected numeric (int or float), got string".to_owned())
        }
        ("integer" | "number", Value::Bool(_)) => {
            Some("expected numeric (int or float), got bool".to_owned())
        }
        ("boolean", Value::String(_) | Value::Number(_)) => {
            Some(format!("expected boolean, got &{{{}}}", value.as_str().unwrap_or(&value.to_string())))
        }
        _ => None,
    }
}

/// Returns whether the merge type defines the fields of the map.
fn has_fields(merge_type: MergeType<'_>, map: &Map<String, Value>) -> bool {
    match merge_type {
        MergeType::Typed(ValueType::Message(_) | ValueType::Map(_), _)
        | MergeType::Kind(_)
        | MergeType::Custom(_) => true,
        MergeType::Node(_) => !map.is_empty(),
        _ => false,
    }
}
