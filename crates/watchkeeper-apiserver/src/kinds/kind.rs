//! A kind in one version: its names, its properties, and the additions of its definition.

use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use crate::kinds::behaviour::{Behaviour, Contents, Subresource};
use crate::kinds::builtin::{BUILTINS, Builtin, InitialStatus, NameRule};
use crate::kinds::fill::set_text;
use crate::kinds::jsonpath::Path;
use crate::kinds::merge_type::MergeType;
use crate::kinds::rules::Rules;
use crate::kinds::schema::Schema;
use crate::types;

/// One kind in one version, as requests address it.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    /// `version` or `group/version`.
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) status: InitialStatus,
    pub(crate) scale: Option<ScalePaths>,
    pub(crate) generation: bool,
    pub(crate) create_on_update: bool,
    pub(crate) unconditional_update: bool,
    pub(crate) delete_collection: bool,
    pub(crate) returns_deleted: bool,
    pub(crate) names: NameRule,
    pub(crate) fields: Vec<String>,
    /// The resource under which the objects are stored, which all versions of a kind share.
    pub(crate) storage: ResourceId,
    /// Its type in the table; `None` for a custom resource.
    pub(crate) schema: Option<types::Id>,
    /// An object without any field set, see [`Kind::blank`].
    pub(crate) blank: OnceLock<Value>,
    /// See [`Kind::selectable`].
    pub(crate) selectable: OnceLock<Vec<Arc<str>>>,
    /// The additions of a CustomResourceDefinition; `None` for a built-in kind.
    pub(crate) custom: Option<Custom>,
    pub(crate) behaviour: &'static dyn Behaviour,
}

/// The part of a kind that comes from its definition.
#[derive(Debug)]
pub(crate) struct Custom {
    /// The apiVersion of the storage version.
    pub(crate) storage_version: String,
    pub(crate) schema: Arc<Schema>,
    /// The schema of the storage version.
    pub(crate) storage_schema: Option<Arc<Schema>>,
    pub(crate) rules: Option<Arc<Rules>>,
    /// The deprecation warning of the version.
    pub(crate) warning: Option<String>,
    /// The schema as sent, for OpenAPI.
    pub(crate) document: Arc<Value>,
    /// The additional printer columns.
    pub(crate) printers: Vec<Printer>,
    /// Name of the definition: `plural.group`.
    pub(crate) definition: String,
    /// Whether the version is served. One that is not may still have objects.
    pub(crate) served: bool,
    /// Set while the definition lacks one of its requested names.
    pub(crate) waiting: Option<Arc<Waiting>>,
}

/// The names of a definition that does not have all the names it requests, and its status about them.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Its `spec.names`.
    pub(crate) wanted: Value,
    /// Its `status.acceptedNames`.
    pub(crate) had: Value,
    /// Reason and message of the condition `NamesAccepted`.
    pub(crate) verdict: (String, String),
    /// The requested names that it does not have.
    pub(crate) missing: Vec<(NameSet, String)>,
}

/// A set of names that are unique within a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NameSet {
    /// Kinds and list kinds.
    Kinds,
    /// Plurals, singulars and short names.
    Resources,
}

/// A printer column of a custom resource.
#[derive(Clone, Debug)]
pub(crate) struct Printer {
    pub(crate) name: String,
    pub(crate) sort: String,
    pub(crate) format: String,
    pub(crate) priority: i64,
    pub(crate) path: Path,
}

/// The paths of the scale subresource.
#[derive(Clone, Debug)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: Vec<String>,
    pub(crate) status_replicas: Vec<String>,
    /// `None` if the selector is the label selector in `spec.selector`.
    pub(crate) selector: Option<Vec<String>>,
}

/// The identity of stored objects: group and plural, without a version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ResourceId(Arc<str>);

impl ResourceId {
    pub(crate) fn new(group: &str, plural: &str) -> Self {
        Self(format!("{group}/{plural}").into())
    }

    /// The storage of a definition's objects, separate from that of a built-in kind of the same name.
    pub(crate) fn of_definition(group: &str, plural: &str) -> Self {
        let taken = BUILTINS.iter().any(|row| row.group == group && row.plural == plural);
        if taken { Self(format!("{group}/{plural}/custom").into()) } else { Self::new(group, plural) }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ResourceId {
    /// Parses the text of [`ResourceId::as_str`].
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl Kind {
    pub(super) fn is_served(&self) -> bool {
        self.custom.as_ref().is_none_or(|custom| custom.served)
    }

    pub(super) fn builtin(row: &Builtin) -> Self {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        let (group, plural) = row.stored_as.unwrap_or((row.group, row.plural));
        Self {
            group: row.group.to_owned(),
            version: row.version.to_owned(),
            api_version: api_version(row.group, row.version),
            kind: row.kind.to_owned(),
            list_kind: format!("{}List", row.kind),
            plural: row.plural.to_owned(),
            singular: row.kind.to_lowercase(),
            short_names: owned(row.short_names),
            categories: owned(row.categories),
            namespaced: row.namespaced,
            status: row.status,
            scale: row.scale.then(|| ScalePaths {
                spec_replicas: vec!["spec".to_owned(), "replicas".to_owned()],
                status_replicas: vec!["status".to_owned(), "replicas".to_owned()],
                selector: None,
            }),
            generation: row.generation,
            create_on_update: row.create_on_update,
            unconditional_update: row.unconditional_update,
            delete_collection: row.delete_collection,
            returns_deleted: row.returns_deleted,
            names: row.names,
            fields: owned(row.fields),
            storage: ResourceId::new(group, plural),
            schema: types::of_kind(&api_version(row.group, row.version), row.kind),
            blank: OnceLock::new(),
            selectable: OnceLock::new(),
            custom: None,
            behaviour: row.behaviour,
        }
    }

    /// The names that no other definition of the group may have.
    pub(super) fn names(&self) -> impl Iterator<Item = (NameSet, &String)> {
        let kinds = [&self.kind, &self.list_kind].map(|name| (NameSet::Kinds, name));
        let resources = [&self.plural, &self.singular].into_iter().chain(&self.short_names);
        let names = kinds.into_iter().chain(resources.map(|name| (NameSet::Resources, name)));
        // A definition without accepted names has empty ones.
        names.filter(|(_, name)| !name.is_empty())
    }

    /// `plural` or `plural.group`, as messages name a resource.
    pub(crate) fn resource(&self) -> String {
        qualified(&self.plural, &self.group)
    }

    /// `Kind` or `Kind.group`, as messages name a kind.
    pub(crate) fn qualified_kind(&self) -> String {
        qualified(&self.kind, &self.group)
    }

    pub(crate) fn has_status(&self) -> bool {
        self.status != InitialStatus::None
    }

    pub(super) fn is(&self, group: &str, kind: &str) -> bool {
        self.custom.is_none() && self.group == group && self.kind == kind
    }

    /// Returns whether its objects define other kinds.
    pub(crate) fn is_definition(&self) -> bool {
        self.behaviour.contents() == Contents::CustomKinds
    }

    /// Returns all subresources, in discovery order.
    pub(crate) fn subresources(&self) -> Vec<Subresource> {
        const READ_WRITE: &[&str] = &["get", "patch", "update"];
        let scale = ("autoscaling", "v1", "Scale");
        let mut all = self.behaviour.subresources().to_vec();
        if self.scale.is_some() {
            all.push(Subresource { name: "scale", body: Some(scale), verbs: READ_WRITE });
        }
        if self.has_status() {
            all.push(Subresource { name: "status", body: None, verbs: READ_WRITE });
        }
        if self.custom.is_some() {
            all.reverse();
        }
        all
    }

    /// Returns whether the kind has a subresource `name` other than `scale` and `status`.
    pub(crate) fn has_own_subresource(&self, name: &str) -> bool {
        self.behaviour.subresources().iter().any(|part| part.name == name)
    }

    /// Returns the merge type of objects of this kind.
    pub(crate) fn merge_type(&self) -> MergeType<'_> {
        match (&self.custom, self.schema) {
            (Some(custom), _) => MergeType::Custom(custom.schema.root()),
            (None, Some(id)) => MergeType::Kind(id),
            (None, None) => MergeType::Any,
        }
    }

    /// Returns an object of this kind without any field set.
    pub(crate) fn blank(&self) -> &Value {
        self.blank
            .get_or_init(|| self.schema.map_or_else(|| json!({"metadata": {}}), types::normalize::empty))
    }

    /// Returns the path in stored objects of a field label, or `None` if the kind does not support it.
    pub(crate) fn stored_field(&self, label: &str) -> Option<String> {
        if matches!(label, "metadata.name" | "metadata.namespace") {
            return Some(label.to_owned());
        }
        let label = self.behaviour.field_alias(label);
        self.fields.iter().any(|field| field == label).then(|| self.behaviour.stored_field(label))
    }

    /// Returns the paths of the selectable fields in stored objects. The fields of all objects share them.
    pub(crate) fn selectable(&self) -> &[Arc<str>] {
        self.selectable.get_or_init(|| {
            self.fields.iter().filter_map(|label| self.stored_field(label).map(Into::into)).collect()
        })
    }

    /// The version in which the objects of a built-in kind are stored: that of the first kind in the table.
    pub(crate) fn stored_version(&self) -> String {
        let is_stored = |row: &&Builtin| ResourceId::new(row.group, row.plural) == self.storage;
        BUILTINS
            .iter()
            .find(is_stored)
            .map_or_else(|| self.api_version.clone(), |row| api_version(row.group, row.version))
    }

    /// Converts a stored object to this version of the kind.
    pub(crate) fn to_served(&self, mut object: Value) -> Value {
        self.behaviour.to_served(self, &mut object);
        set_text(&mut object, "apiVersion", &self.api_version);
        object
    }

    /// Converts an object of this version to its stored form.
    pub(crate) fn to_storage(&self, mut object: Value) -> Value {
        self.behaviour.to_storage(self, &mut object);
        object
    }

    /// Sets the initial status of a new object.
    pub(crate) fn begin_status(&self, object: &mut Value) {
        let Value::Object(map) = object else { return };
        match self.status {
            InitialStatus::None | InitialStatus::AsSent => {}
            InitialStatus::Fixed("") => {
                map.remove("status");
            }
            InitialStatus::Fixed(json) => {
                let fixed: Value = serde_json::from_str(json).unwrap_or_default();
                let mut status = self.blank().get("status").cloned().unwrap_or_else(|| json!({}));
                for (field, value) in fixed.as_object().into_iter().flatten() {
                    status[field] = value.clone();
                }
                map.insert("status".to_owned(), status);
            }
        }
    }

    pub(crate) fn verbs(&self) -> Vec<&'static str> {
        if self.custom.is_some() {
            return vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
        }
        if self.behaviour.computed().is_some() {
            return vec!["get", "list"];
        }
        let mut verbs =
            vec!["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        if !self.delete_collection {
            verbs.retain(|verb| *verb != "deletecollection");
        }
        verbs
    }
}

/// `name` for the core group, else `name.group`.
pub(super) fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

/// `version` for the core group, else `group/version`.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
