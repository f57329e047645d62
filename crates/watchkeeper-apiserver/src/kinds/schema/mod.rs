//! Structural schemas of custom resources: pruning and defaulting of objects. Compilation and validation have files of
//! their own.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::failure::{Cause, Result};
use crate::kinds::merge_type::{MergeType, Treatment};
use crate::kinds::size;

mod choices;
mod compile;
mod pattern;
mod same;
mod validate;

use choices::Choices;
#[cfg(test)]
pub(crate) use compile::COMPILED;
use pattern::Pattern;
pub(crate) use pattern::Patterns;
pub(crate) use same::Same;
use validate::Findings;

/// A compiled schema of one version of a custom resource.
///
/// Validation rules in CEL (`x-kubernetes-validations`) are in `rules.rs`.
#[derive(Debug)]
pub(crate) struct Schema(Node);

/// A node of a schema.
#[derive(Debug, Default)]
pub(crate) struct Node {
    kind: String,
    properties: BTreeMap<String, Node>,
    additional: Option<Box<Node>>,
    /// `additionalProperties: true`: any value is kept.
    additional_any: bool,
    items: Option<Box<Node>>,
    required: Vec<String>,
    choices: Choices,
    minimum: Option<f64>,
    maximum: Option<f64>,
    exclusive_minimum: bool,
    exclusive_maximum: bool,
    multiple_of: Option<f64>,
    min_length: Option<usize>,
    max_length: Option<usize>,
    min_items: Option<usize>,
    max_items: Option<usize>,
    min_properties: Option<usize>,
    max_properties: Option<usize>,
    pattern: Option<Pattern>,
    format: String,
    nullable: bool,
    default: Option<Value>,
    /// The length of the default as JSON.
    default_size: usize,
    int_or_string: bool,
    preserve: bool,
    embedded: bool,
    list_type: String,
    list_keys: Vec<String>,
    atomic_map: bool,
    all_of: Vec<Node>,
    any_of: Vec<Node>,
    one_of: Vec<Node>,
    not: Option<Box<Node>>,
}

impl Schema {
    pub(crate) fn root(&self) -> &Node {
        &self.0
    }

    /// Prunes unknown fields and, unless `nulls` is set, nulls that are not allowed. Returns the paths of unknown
    /// fields.
    pub(crate) fn prune(&self, value: &mut Value, nulls: bool) -> Vec<String> {
        let mut removed = Vec::new();
        self.0.prune(value, "", (true, nulls), &mut removed);
        removed
    }

    /// Validates the defaults; `at` is the path of the schema in the definition.
    pub(crate) fn check_defaults(&self, at: &str) -> Vec<Cause> {
        let mut causes = Vec::new();
        self.0.check_defaults(at, &mut Findings::default(), &mut causes);
        causes
    }

    /// Applies the defaults; fails once they exceed what can be stored.
    pub(crate) fn default(&self, value: &mut Value) -> Result<()> {
        let mut added = 0;
        self.0.fill(value, &mut added)
    }

    /// Validates an object. Values that are unchanged from `old` are not validated again (ratcheting).
    pub(crate) fn validate(&self, value: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut found = Findings::default();
        self.0.validate(value, old, "", &mut found);
        found.take_causes()
    }

    /// Validates the status of an object alone: messages name paths within the status, `field` the whole path.
    pub(crate) fn validate_status(&self, value: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut found = Findings::default();
        if let Some((schema, status)) = self.0.property("status").zip(value.get("status")) {
            schema.validate(status, old.and_then(|old| old.get("status")), "", &mut found);
        }
        let mut causes = found.take_causes();
        for cause in &mut causes {
            cause.field = join("status", &cause.field).trim_end_matches('.').to_owned();
        }
        causes
    }
}

impl Node {
    /// Returns the type of the schema, or an empty string.
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns how a value merges in server-side apply.
    pub(crate) fn treatment(&self, value: &Value) -> Treatment<'_> {
        match (self.kind.as_str(), self.list_type.as_str()) {
            ("object", _) if self.atomic_map => Treatment::Leaf,
            ("object", _) => Treatment::Map,
            ("array", "set") => Treatment::Set,
            ("array", "map") => Treatment::Keys(self.list_keys.iter().map(String::as_str).collect()),
            ("", _) if self.preserve && value.is_object() => Treatment::Map,
            _ => Treatment::Leaf,
        }
    }

    /// Returns the merge type of a field, and whether the schema names the field.
    pub(crate) fn merge_type_of(&self, name: &str) -> Option<(MergeType<'_>, bool)> {
        match (self.properties.get(name), &self.additional) {
            (Some(property), _) => Some((MergeType::Node(property), true)),
            (None, Some(additional)) => Some((MergeType::Node(additional), false)),
            (None, None) if self.preserve || self.additional_any => Some((MergeType::Any, false)),
            (None, None) if self.embedded => Some((MergeType::Any, false)),
            (None, None) => None,
        }
    }

    /// Returns the schema of a list's elements.
    pub(crate) fn item(&self) -> Option<&Self> {
        self.items.as_deref()
    }

    /// Returns the default of a field.
    pub(crate) fn default_of(&self, name: &str) -> Option<&Value> {
        self.properties.get(name)?.default.as_ref()
    }

    pub(crate) fn property(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(self.additional.as_deref())
    }

    fn prune(
        &self,
        value: &mut Value,
        path: &str,
        (object_root, nulls): (bool, bool),
        removed: &mut Vec<String>,
    ) {
        match value {
            Value::Object(map) => {
                let keeps_identity = object_root || self.embedded;
                let identity =
                    |name: &str| keeps_identity && ["apiVersion", "kind", "metadata"].contains(&name);
                map.retain(|name, value| {
                    if identity(name) {
                        return true;
                    }
                    match self.property(name) {
                        Some(property) => {
                            nulls || !value.is_null() || property.nullable || property.default.is_some()
                        }
                        None if self.preserve || self.additional_any => true,
                        None => {
                            removed.push(join(path, name));
                            false
                        }
                    }
                });
                for (name, value) in map.iter_mut().filter(|(name, _)| !identity(name)) {
                    if let Some(property) = self.property(name) {
                        property.prune(value, &join(path, name), (false, nulls), removed);
                    }
                }
            }
            Value::Array(list) => {
                if let Some(items) = &self.items {
                    for (at, value) in list.iter_mut().enumerate() {
                        items.prune(value, &format!("{path}[{at}]"), (false, nulls), removed);
                    }
                }
            }
            _ => {}
        }
    }

    /// Validates the defaults; all defaults of a schema share the budget of `misfits`.
    fn check_defaults(&self, at: &str, misfits: &mut Findings, causes: &mut Vec<Cause>) {
        if let Some(default) = self.default.as_ref().filter(|default| !default.is_null()) {
            let field = format!("{at}.default");
            let mut unknown = Vec::new();
            self.prune(&mut default.clone(), "", (self.embedded, true), &mut unknown);
            if !unknown.is_empty() {
                causes.push(Cause::invalid(&field, default, "must not have unknown fields"));
            }
            self.validate(default, None, "", misfits);
            causes.extend(misfits.take_causes().into_iter().map(|cause| {
                let inside = if cause.field.is_empty() { field.clone() } else { join(&field, &cause.field) };
                Cause { field: inside, ..cause }
            }));
        }
        if let Some(items) = &self.items {
            items.check_defaults(&format!("{at}.items"), misfits, causes);
        }
        for (name, property) in &self.properties {
            property.check_defaults(&format!("{at}.properties[{name}]"), misfits, causes);
        }
    }

    /// Applies the defaults; `added` is the size added so far.
    fn fill(&self, value: &mut Value, added: &mut usize) -> Result<()> {
        match value {
            Value::Object(map) => {
                for (name, property) in &self.properties {
                    if let Some(default) = &property.default {
                        let null = map.get(name).is_some_and(|v| v.is_null() && !property.nullable);
                        if null || !map.contains_key(name) {
                            *added += name.len() + property.default_size + 4;
                            if *added > size::DEFAULTS_LIMIT {
                                return Err(size::too_large(*added));
                            }
                            map.insert(name.clone(), default.clone());
                        }
                    }
                    if let Some(value) = map.get_mut(name) {
                        property.fill(value, added)?;
                    }
                }
                if let Some(additional) = &self.additional {
                    for (_, value) in map.iter_mut().filter(|(name, _)| !self.properties.contains_key(*name))
                    {
                        additional.fill(value, added)?;
                    }
                }
            }
            Value::Array(list) => {
                if let Some(items) = &self.items {
                    for value in list {
                        items.fill(value, added)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns the path of a field.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Schema {
        let schema = json!({"type": "object", "required": ["spec"], "properties": {"spec": {
            "type": "object", "required": ["name"], "properties": {
                "name": {"type": "string", "maxLength": 10, "pattern": "^[a-z]+$"},
                "replicas": {"type": "integer", "default": 1, "minimum": 0, "maximum": 100},
                "mode": {"type": "string", "enum": ["A", "B"], "default": "A"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "ios": {"x-kubernetes-int-or-string": true},
                "nul": {"type": "string", "nullable": true},
                "nested": {"type": "object", "default": {}, "properties": {"x": {"type": "integer", "default": 5}}},
                "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}}}});
        let (schema, causes) = Schema::compile(&schema, "schema");
        assert_eq!(causes, []);
        schema
    }

    #[test]
    fn unknown_fields_go_and_defaults_come() {
        let mut value = json!({"apiVersion": "v", "kind": "K", "metadata": {"name": "x"}, "extra": 1,
            "spec": {"name": "abc", "unknown": 1, "free": {"any": [1]}, "nul": null, "replicas": null}});
        assert_eq!(schema().prune(&mut value, false), ["extra", "spec.unknown"]);
        schema().default(&mut value).unwrap();
        assert_eq!(
            value["spec"],
            json!({"name": "abc", "free": {"any": [1]}, "nul": null, "replicas": 1, "mode": "A", "nested": {"x": 5}})
        );
        assert_eq!(schema().validate(&value, None), []);
    }

    #[test]
    fn defaults_are_filled_in_no_further_than_can_be_stored() {
        let schema = json!({"type": "object", "properties": {"list": {"type": "array", "items": {"type": "object",
            "properties": {"text": {"type": "string", "default": "x".repeat(10_000)}}}}}});
        let (schema, _) = Schema::compile(&schema, "");
        let with = |items: usize| json!({"list": vec![json!({}); items]});
        let mut fits = with(100);
        schema.default(&mut fits).unwrap();
        assert_eq!(fits["list"][99]["text"].as_str().map(str::len), Some(10_000));
        let mut large = with(20_000);
        assert!(schema.default(&mut large).unwrap_err().message.contains("larger than max"));
        assert_eq!(large["list"][419], json!({}), "it has stopped long before the end");
    }

    #[test]
    fn mistakes_are_reported_in_the_words_of_the_real_server() {
        let value = json!({"spec": {"name": "ABC", "replicas": 200, "mode": "Z", "ios": true,
            "list": [{"k": "a"}, {"k": "a"}]}});
        let problems: Vec<_> =
            schema().validate(&value, None).iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        for expected in [
            r#"spec.name: Invalid value: "ABC": spec.name in body should match '^[a-z]+$'"#,
            "spec.replicas: Invalid value: 200: spec.replicas in body should be less than or equal to 100",
            r#"spec.mode: Unsupported value: "Z": supported values: "A", "B""#,
            r#"spec.ios: Invalid value: "boolean": spec.ios in body must be of type integer,string: "boolean""#,
            r#"spec.list[1]: Duplicate value: {"k":"a"}"#,
        ] {
            assert!(problems.iter().any(|problem| problem == expected), "{expected} not in {problems:?}");
        }
        assert_eq!(problems.len(), 5);
    }

    #[test]
    fn an_object_with_all_its_texts_and_alternatives_has_one_budget() {
        let pattern = format!("^({}){{0,900}}$", "[a-z]{1,9}");
        let schema = json!({"type": "object", "properties": {"list": {"type": "array", "items": {"type": "string",
            "pattern": pattern}}}});
        let (schema, problems) = Schema::compile(&schema, "");
        assert_eq!(problems, []);
        let texts = |count: usize| json!({"list": vec!["ab"; count]});
        assert_eq!(schema.validate(&texts(100), None), []);
        let causes = schema.validate(&texts(100_000), None);
        assert!(causes[0].message.contains("too long to be matched"), "{:?}", causes.first());
        let branches: Vec<_> = (0..2_000).map(|n| json!({"enum": [n]})).collect();
        let schema = json!({"type": "object", "properties": {"list": {"type": "array", "items": {"type": "integer",
            "anyOf": branches}}}});
        let (schema, _) = Schema::compile(&schema, "");
        let causes = schema.validate(&json!({"list": vec![1_999; 100_000]}), None);
        assert_eq!(causes.len(), 1);
        assert!(causes[0].message.contains("running out of cost budget"), "{:?}", causes[0]);
    }

    #[test]
    fn a_missing_field_and_a_wrong_type_are_named() {
        let causes = schema().validate(&json!({"spec": {"replicas": "x"}}), None);
        assert_eq!(causes[0], Cause::required("spec.name", ""));
        assert_eq!(causes[1].reason, "FieldValueTypeInvalid");
        assert_eq!(schema().validate(&json!({}), None)[0], Cause::required("spec", ""));
    }

    #[test]
    fn a_schema_that_is_not_structural_is_refused() {
        let (_, causes) = Schema::compile(&json!({"properties": {"a": {}}}), "s");
        assert_eq!(causes.len(), 2);
        assert_eq!(causes[0].field, "s.properties[a].type");
        let bad = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}});
        assert_eq!(Schema::compile(&bad, "s").1[0].field, "s.properties[a].pattern");
    }
}
