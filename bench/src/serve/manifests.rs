//! Pods made from manifests, as an alternative to synthetic ones.

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};
use watchkeeper::clock::Generator;

use super::pod::{CHECKPOINT, Draft, Part, Pod, TRACK, time};
use super::world::NamedPod;

/// Why a directory of manifests cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The directory or a file in it cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The directory or file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is neither JSON nor YAML.
    #[error("{} is not valid: {reason}; mend it or take it out of the directory", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        reason: String,
    },
    /// Nothing in the directory has Pods.
    #[error("no Pod and no workload with a Pod template in the *.json, *.yaml and *.yml files of {}", .0.display())]
    NoPods(PathBuf),
}

/// `count` Pods: the templates of `directory` over and over, each under a name and uid of its own.
pub(crate) fn pods(
    directory: &Path,
    count: u32,
    generator: &Generator,
) -> Result<Vec<NamedPod>, ManifestError> {
    let templates = templates(directory)?;
    let generator = generator.fork("manifests");
    let made = (0..count).zip(templates.iter().cycle());
    Ok(made.map(|(index, template)| pod(template, index, count, &generator)).collect())
}

fn templates(directory: &Path) -> Result<Vec<Map<String, Value>>, ManifestError> {
    let read = |path: &Path| {
        let path = path.to_owned();
        move |source| ManifestError::Read { path, source }
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(read(directory))? {
        paths.push(entry.map_err(read(directory))?.path());
    }
    // A directory has no order of its own, and the same seed must give the same Pods.
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let parse = |reason: String| ManifestError::Parse { path: path.clone(), reason };
        let documents: Vec<Value> = match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => {
                let text = std::fs::read_to_string(&path).map_err(read(&path))?;
                let documents =
                    serde_json::Deserializer::from_str(&text).into_iter().collect::<Result<_, _>>();
                documents.map_err(|error| parse(error.to_string()))?
            }
            Some("yaml" | "yml") => {
                let text = std::fs::read_to_string(&path).map_err(read(&path))?;
                serde_saphyr::from_multiple(&text).map_err(|error| parse(error.to_string()))?
            }
            _ => continue,
        };
        documents.into_iter().for_each(|document| collect(document, &mut found));
    }
    if found.is_empty() { Err(ManifestError::NoPods(directory.to_owned())) } else { Ok(found) }
}

/// The Pods in a document: itself, the items of a list, or the template of a workload. Other kinds have none.
fn collect(document: Value, found: &mut Vec<Map<String, Value>>) {
    let Value::Object(mut object) = document else { return };
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(Value::Array(items)) = object.remove("items") {
        for mut item in items {
            // Items of a list of Pods do not say that they are.
            if let (Value::Object(item), Some(kind)) =
                (&mut item, kind.strip_suffix("List").filter(|kind| !kind.is_empty()))
            {
                item.entry("kind").or_insert_with(|| kind.into());
            }
            collect(item, found);
        }
        return;
    }
    let path = match kind.as_str() {
        "Pod" => "",
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicationController" => {
            "/spec/template"
        }
        "CronJob" => "/spec/jobTemplate/spec/template",
        _ => return,
    };
    let name = object.get("metadata").and_then(|metadata| metadata.get("name")).cloned();
    let mut document = Value::Object(object);
    if let Some(Value::Object(pod)) = document.pointer_mut(path) {
        let mut pod = std::mem::take(pod);
        let metadata = pod.entry("metadata").or_insert_with(|| Map::new().into());
        if let (Value::Object(metadata), Some(name)) = (metadata, name) {
            metadata.entry("name").or_insert(name);
        }
        found.push(pod);
    }
}

/// The metadata that is taken over; the rest is the server's to write.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    labels: Option<Map<String, Value>>,
    annotations: Option<Map<String, Value>>,
    owner_references: Option<Value>,
    managed_fields: Option<Value>,
}

fn pod(template: &Map<String, Value>, index: u32, count: u32, generator: &Generator) -> NamedPod {
    let part = |name| template.get(name).cloned().unwrap_or_else(|| Map::new().into());
    // Metadata that no API server would take is left out; the rest of the manifest still counts.
    let metadata: Metadata = serde_json::from_value(part("metadata")).unwrap_or_default();
    let mut name: String = metadata.name.as_deref().unwrap_or("pod").chars().take(200).collect();
    name += &format!("-{index}");
    let namespace = metadata.namespace.unwrap_or_else(|| "default".into());
    let created = time(-(generator.below(9_000_000) as i64)).to_string();
    let mut draft = Draft::default();
    draft.put(format_args!(
        r#"{{"metadata":{{"name":{},"namespace":{},"uid":""#,
        Value::from(&*name),
        Value::from(&*namespace)
    ));
    draft.slot(Part::Uid, &generator.uuid());
    draft.raw(r#"","resourceVersion":""#);
    let version = 1_000_000 + u64::from(index) * (9_000_000 / u64::from(count));
    draft.slot(Part::ResourceVersion, &version.to_string());
    draft.raw(r#"","creationTimestamp":""#);
    draft.slot(Part::Created, &created);
    draft.raw(r#"","labels":{"#);
    put_entries(&mut draft, metadata.labels, TRACK);
    draft.put(format_args!(r#""{TRACK}":""#));
    draft.slot(Part::Track, "stable");
    draft.raw(r#""},"annotations":{"#);
    put_entries(&mut draft, metadata.annotations, CHECKPOINT);
    draft.put(format_args!(r#""{CHECKPOINT}":""#));
    draft.slot(Part::Checkpoint, "none");
    draft.raw(r#"""#);
    draft.raw("}");
    for (key, value) in
        [("ownerReferences", metadata.owner_references), ("managedFields", metadata.managed_fields)]
    {
        if let Some(value) = value {
            draft.put(format_args!(r#","{key}":{value}"#));
        }
    }
    draft.put(format_args!(r#"}},"spec":{},"status":"#, part("spec")));
    put_status(&mut draft, part("status"), &created);
    (format!("{namespace}/{name}"), finish(draft))
}

fn finish(mut draft: Draft) -> Pod {
    draft.raw("}");
    draft.finish()
}

fn put_entries(draft: &mut Draft, entries: Option<Map<String, Value>>, ours: &str) {
    for (key, value) in entries.unwrap_or_default() {
        if key != ours {
            // An unquoted `version: 1.0` is a number in YAML, and a frequent slip.
            let value = if value.is_string() { value } else { value.to_string().into() };
            draft.put(format_args!("{}:{value},", Value::from(key)));
        }
    }
}

/// Appends the manifest's own status with the conditions of readiness replaced by ones that events change.
fn put_status(draft: &mut Draft, mut status: Value, created: &str) {
    let mut conditions = Vec::new();
    if let Value::Object(status) = &mut status
        && let Some(Value::Array(found)) = status.remove("conditions")
    {
        conditions = found;
    }
    conditions.retain(|condition| condition.get("type").and_then(Value::as_str) != Some("Ready"));
    draft.raw(r#"{"conditions":["#);
    for condition in conditions {
        draft.put(format_args!("{condition},"));
    }
    draft.raw(r#"{"type":"Ready","status":""#);
    draft.slot(Part::Ready, "True");
    draft.raw(r#"","lastProbeTime":null,"lastTransitionTime":""#);
    draft.slot(Part::Transition, created);
    draft.raw(r#""}]"#);
    if let Value::Object(status) = status {
        for (key, value) in status {
            draft.put(format_args!(",{}:{value}", Value::from(key)));
        }
    }
    draft.raw("}");
}
