//! Server-side apply: sets the fields of a configuration, removes those that its manager no longer applies, and keeps
//! the fields of other managers.

use std::sync::Arc;

use serde_json::Value;

use crate::codec::yaml;
use crate::failure::{Failure, Result};
use crate::fields::Managers;
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::kinds::size;
use crate::state::core::Core;
use crate::state::store::Key;
use crate::verbs::create::{identify, place};
use crate::verbs::draft::{Draft, Seen};
use crate::verbs::patch::restored;
use crate::verbs::typed;
use crate::verbs::update::{MODIFIED, Part, check_same_name, version_of};
use crate::verbs::write::{Write, unusable};

/// Decodes a configuration.
pub(crate) fn read_config(body: &[u8], write: &mut Write) -> Result<Value> {
    let (config, duplicates) = yaml::read(body).map_err(|problem| {
        Failure::bad_request(format!("error decoding YAML: error converting YAML to JSON: yaml: {problem}"))
    })?;
    if !config.is_object() {
        return Err(Failure::bad_request("error decoding YAML: the body is not an object"));
    }
    write.judge_config(duplicates)?;
    Ok(config)
}

impl Seen {
    /// Applies `config`.
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
        let version = version_of(&config)?;
        let (uid, now) = (meta::text(&config, "uid").to_owned(), self.now());
        let writer_of = |manager: &str| Write { manager: manager.to_owned(), ..write.clone() };
        let old = match &self.old {
            Some(old) => old,
            None if !uid.is_empty() => {
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(Failure::conflict(kind, &key.name, &why));
            }
            None => {
                meta::set(&mut config, "resourceVersion", "");
                let mut managers = Managers::default();
                let writer = write.writer(kind, "", &now);
                let mut object = managers.apply(kind.merge_type(), kind.blank(), &config, &writer, force)?;
                finish(kind, &mut object, managers, write, &sent)?;
                identify(kind, &mut object);
                place(kind, &key.namespace, &mut object)?;
                return self.create(kind, object, write, false);
            }
        };
        let mut live = Core::view(kind, old);
        let mut managers = Managers::read(&live);
        meta::metadata_mut(&mut live).remove("managedFields");
        if managers.is_empty() {
            // The object predates managed fields: its fields belong to a manager other than the applier.
            let before = writer_of("before-first-apply");
            managers.update(kind.merge_type(), kind.blank(), &live, &before.writer(kind, "", &now));
        }
        let writer = write.writer(kind, part.subresource(), &now);
        let mut object = managers.apply(kind.merge_type(), &live, &config, &writer, force)?;
        if version != 0 && version != old.revision {
            return Err(Failure::conflict(kind, &key.name, MODIFIED));
        }
        finish(kind, &mut object, managers, write, &sent)?;
        let part = Part::Applied(part == Part::Status);
        self.change(kind, old, object, part, write)
    }
}

/// Describes the applied configuration as the real server does.
fn described(kind: &Kind, config: &Value) -> String {
    let (namespace, name) = (meta::text(config, "namespace"), meta::text(config, "name"));
    format!("{namespace}/{name}; {}/{}, Kind={}", kind.group, kind.version, kind.kind)
}

fn finish(kind: &Kind, object: &mut Value, managers: Managers, write: &mut Write, sent: &str) -> Result<()> {
    write.applied = true;
    write.normalize(kind, object).map_err(|why| match &kind.custom {
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

fn check_types(kind: &Kind, config: &Value, sent: &str) -> Result<()> {
    let problems = typed::problems(kind.merge_type(), config);
    if problems.is_empty() {
        return Ok(());
    }
    let problems =
        if let [one] = &problems[..] { one.clone() } else { format!("errors:\n  {}", problems.join("\n  ")) };
    Err(Failure::internal(format!("failed to create typed patch object ({sent}): {problems}")))
}
