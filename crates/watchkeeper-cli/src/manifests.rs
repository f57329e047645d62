//! Manifests: reads the objects of YAML and JSON files, and remembers where each one came from.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

/// Enough for some hundred levels of nesting, also in unoptimized builds.
const STACK: usize = 16 << 20;

/// An object of a manifest file.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    pub(crate) origin: Origin,
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) value: Value,
}

/// Where an object was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    file: Arc<Path>,
    /// Counts the documents of the file that are not empty, from 1.
    document: usize,
    line: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {} (line {})", self.file.display(), self.document, self.line)
    }
}

/// Why manifests cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("there are no manifests in {}: expected files that end in .yaml, .yml or .json", .0.display())]
    Empty(PathBuf),
    #[error("{origin}: {problem}")]
    Document { origin: Origin, problem: String },
}

impl Manifest {
    /// Whether it defines a kind.
    pub(crate) fn is_definition(&self) -> bool {
        self.kind == "CustomResourceDefinition" && self.api_version.starts_with("apiextensions.k8s.io/")
    }
}

/// Reads files, and all manifest files in folders and their subfolders, in the order of their names.
///
/// Files of kustomize are left out: they are not objects of the API server.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<Manifest>, ManifestError> {
    let mut manifests = Vec::new();
    for path in paths {
        let before = manifests.len();
        let mut files = BTreeSet::new();
        collect(path, &mut files).map_err(|(path, source)| ManifestError::Read { path, source })?;
        for file in files {
            let text = std::fs::read_to_string(&file)
                .map_err(|source| ManifestError::Read { path: file.clone(), source })?;
            read_file(&file, &text, &mut manifests)?;
        }
        if manifests.len() == before {
            return Err(ManifestError::Empty(path.clone()));
        }
    }
    Ok(manifests)
}

/// Adds `path` if it is a file, whatever its name, and otherwise the manifest files below it.
fn collect(path: &Path, files: &mut BTreeSet<PathBuf>) -> Result<(), (PathBuf, io::Error)> {
    let failed = |error| (path.to_owned(), error);
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        files.insert(path.to_owned());
        return Ok(());
    }
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?.path();
        let is_manifest = entry.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json");
        if is_manifest || entry.is_dir() {
            collect(&entry, files)?;
        }
    }
    Ok(())
}

fn read_file(file: &Path, text: &str, manifests: &mut Vec<Manifest>) -> Result<(), ManifestError> {
    let file: Arc<Path> = file.into();
    let is_json = file.extension().is_some_and(|end| end == "json");
    let documents = if is_json { vec![(1, text.to_owned())] } else { documents(text) };
    let mut document = 0;
    for (line, text) in documents {
        let origin = Origin { file: file.clone(), document: document + 1, line };
        let refuse = |problem| ManifestError::Document { origin: origin.clone(), problem };
        // JSON is YAML, apart from tabs.
        let value = if is_json { json(&text) } else { yaml(&text, line) };
        match value.map_err(refuse)? {
            Value::Null => {}
            value => {
                add(value, &origin, manifests).map_err(refuse)?;
                document += 1;
            }
        }
    }
    Ok(())
}

/// Splits a file at its `---` lines, as kubectl does; each document has the number of its first line.
fn documents(text: &str) -> Vec<(usize, String)> {
    let mut documents = vec![(1, String::new())];
    for (number, line) in text.lines().enumerate() {
        if line == "---" || line.strip_prefix("---").is_some_and(|rest| rest.starts_with([' ', '\t'])) {
            documents.push((number + 2, String::new()));
        } else if let Some((_, document)) = documents.last_mut() {
            document.push_str(line);
            document.push('\n');
        }
    }
    documents.retain(|(_, document)| !document.trim().is_empty());
    documents
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))
}

/// Errors give positions in the file, which has the first line of `text` at `first`, and no contents: it may be a Secret.
fn yaml(text: &str, first: usize) -> Result<Value, String> {
    let mut options = serde_saphyr::Options::default();
    if let Some(budget) = &mut options.budget {
        (budget.max_nodes, budget.max_events) = (usize::MAX, usize::MAX);
    }
    // The parser recurses, with a large frame per level.
    let read = stacker::grow(STACK, || serde_saphyr::from_str_with_options::<Option<Value>>(text, options));
    read.map(Option::unwrap_or_default).map_err(|error| match error.location() {
        Some(at) => {
            let line = at.line() + first as u64 - 1;
            format!("not YAML: malformed at line {line} column {}", at.column())
        }
        None => "not YAML: malformed".to_owned(),
    })
}

/// Adds the object, or the items of a list.
fn add(value: Value, origin: &Origin, manifests: &mut Vec<Manifest>) -> Result<(), String> {
    let text =
        |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&value, "apiVersion"), text(&value, "kind"));
    if api_version.is_empty() || kind.is_empty() {
        return Err("not a Kubernetes object: apiVersion or kind is missing".to_owned());
    }
    if api_version.starts_with("kustomize.config.k8s.io/") {
        return Ok(());
    }
    if let Some(Value::Array(items)) = value.get("items") {
        return items.iter().try_for_each(|item| add(item.clone(), origin, manifests));
    }
    let name = value.get("metadata").map(|metadata| text(metadata, "name")).unwrap_or_default();
    if name.is_empty() {
        return Err(format!("{kind} has no metadata.name"));
    }
    manifests.push(Manifest { origin: origin.clone(), api_version, kind, name, value });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(file: &str, text: &str) -> Result<Vec<Manifest>, String> {
        let mut manifests = Vec::new();
        read_file(Path::new(file), text, &mut manifests).map_err(|error| error.to_string())?;
        Ok(manifests)
    }

    #[test]
    fn documents_are_counted_without_empty_ones_and_lists_have_one_origin() {
        let text = "# A comment.\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n--- # next\n---\n\
            apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Secret\n  metadata: {name: b}\n";
        let read = read_text("a.yaml", text).unwrap();
        let read: Vec<_> =
            read.iter().map(|it| format!("{} {} at {}", it.kind, it.name, it.origin)).collect();
        assert_eq!(
            read,
            ["Namespace a at a.yaml, document 1 (line 3)", "Secret b at a.yaml, document 2 (line 8)"]
        );
    }

    #[test]
    fn a_document_that_is_no_object_is_named_with_file_number_and_line() {
        let first = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n";
        for (text, problem) in [
            ("kind: Namespace", "not a Kubernetes object: apiVersion or kind is missing"),
            ("apiVersion: v1\nkind: Namespace", "Namespace has no metadata.name"),
            ("a: [", "not YAML: malformed at line 5 column "),
            ("- 1", "not a Kubernetes object: apiVersion or kind is missing"),
        ] {
            let error = read_text("a.yml", &format!("{first}{text}")).unwrap_err();
            assert!(error.starts_with(&format!("a.yml, document 2 (line 5): {problem}")), "{error}");
        }
        let error = read_text("a.json", "{\n]").unwrap_err();
        assert!(error.starts_with("a.json, document 1 (line 1): not JSON: "), "{error}");
    }

    #[test]
    fn what_kustomize_reads_is_no_object() {
        let text =
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [crd.yaml]\n";
        assert!(read_text("kustomization.yaml", text).unwrap().is_empty());
    }
}
