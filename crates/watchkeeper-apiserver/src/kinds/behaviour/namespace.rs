//! Namespaces.

use serde_json::{Value, json};

use super::{Behaviour, Contents, Context, Subresource};
use crate::failure::Result;
use crate::kinds::cells::{Row, text};
use crate::kinds::fill::fill;
use crate::kinds::kind::Kind;
use crate::kinds::meta;

#[derive(Debug)]
pub(in crate::kinds) struct Namespace;

impl Behaviour for Namespace {
    fn defaults(&self, _kind: &Kind, namespace: &mut Value) -> Result<()> {
        // A name that is yet to be generated is noted by `prepare_create`.
        if !meta::text(namespace, "name").is_empty() {
            label(namespace);
        }
        Ok(())
    }

    fn prepare_create(&self, namespace: &mut Value, _context: &dyn Context) {
        label(namespace);
        fill(&mut namespace["spec"], "finalizers", json!(["kubernetes"]));
    }

    /// The spec is the finalizers, which the subresource `finalize` writes.
    fn subresource_fields(&self) -> &'static [&'static str] {
        &["spec"]
    }

    fn contents(&self) -> Contents {
        Contents::NamespacedObjects
    }

    fn is_held(&self, namespace: &Value) -> bool {
        namespace["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
    }

    fn subresources(&self) -> &'static [Subresource] {
        &[Subresource { name: "finalize", body: None, verbs: &["update"] }]
    }

    fn headers(&self) -> &'static str {
        "Name Status Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        json!([row.name(), text(&row.status()["phase"]), row.age()])
    }
}

/// Sets the label by which selectors of namespaces find one.
fn label(namespace: &mut Value) {
    let name = meta::text(namespace, "name").to_owned();
    let labels = meta::metadata_mut(namespace).entry("labels").or_insert_with(|| json!({}));
    labels["kubernetes.io/metadata.name"] = name.into();
}
