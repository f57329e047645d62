//! Compilation of schemas when a definition is written, with their problems.

use std::collections::BTreeMap;

use serde_json::Value;

use super::choices::Choices;
use super::{Node, Patterns, Schema};
use crate::codec::json;
use crate::failure::Cause;
use crate::kinds::size;

impl Schema {
    /// Compiles a schema on its own.
    #[cfg(test)]
    pub(crate) fn compile(schema: &Value, at: &str) -> (Self, Vec<Cause>) {
        Self::compile_with(schema, at, &mut Patterns::default())
    }

    /// Compiles an `openAPIV3Schema` as far as possible, and returns its problems; `at` is its path in the definition.
    pub(crate) fn compile_with(schema: &Value, at: &str, patterns: &mut Patterns) -> (Self, Vec<Cause>) {
        #[cfg(test)]
        COMPILED.with(|compiled| compiled.set(compiled.get() + 1));
        let mut compiler = Compiler { untyped: Vec::new(), causes: Vec::new(), patterns };
        if let Some(other) = schema.get("type").filter(|sort| *sort != "object") {
            compiler.untyped.push(Cause::invalid(&format!("{at}.type"), other, "must be object at the root"));
        }
        let node = Node::compile(schema, at, Level::Root, &mut compiler);
        compiler.untyped.sort_by_cached_key(|cause| format!("{}: {}", cause.field, cause.message));
        compiler.untyped.append(&mut compiler.causes);
        (Self(node), compiler.untyped)
    }
}

/// The state shared by the nodes of a schema during compilation.
struct Compiler<'a> {
    /// Places without a type. The real server sorts these and reports them first.
    untyped: Vec<Cause>,
    causes: Vec<Cause>,
    patterns: &'a mut Patterns,
}

#[cfg(test)]
thread_local! {
    /// The number of schemas that this thread has compiled.
    pub(crate) static COMPILED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The position of a node in its schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Items,
    Field,
    /// Inside of `allOf` and the like, where no type is needed.
    Alternative,
}

impl Level {
    /// Returns the position of a child.
    fn then(self, inner: Self) -> Self {
        if self == Self::Alternative { self } else { inner }
    }

    fn missing_type(self) -> Option<&'static str> {
        match self {
            Self::Root => Some("must not be empty at the root"),
            Self::Items => Some("must not be empty for specified array items"),
            Self::Field => Some("must not be empty for specified object fields"),
            Self::Alternative => None,
        }
    }
}

impl Node {
    fn compile(schema: &Value, at: &str, level: Level, compiler: &mut Compiler<'_>) -> Self {
        let text = |field: &str| schema[field].as_str().unwrap_or_default().to_owned();
        let flag = |field: &str| schema[field].as_bool().unwrap_or(false);
        let count = |field: &str| schema[field].as_u64().and_then(|number| usize::try_from(number).ok());
        let texts = |field: &str| -> Vec<String> {
            let list = schema[field].as_array().into_iter().flatten();
            list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        let untyped = schema.get("type").is_none()
            && !flag("x-kubernetes-int-or-string")
            && !flag("x-kubernetes-preserve-unknown-fields");
        if let Some(problem) = level.missing_type().filter(|_| untyped) {
            compiler.untyped.push(Cause::required(&format!("{at}.type"), problem));
        }
        let sorts = ["array", "boolean", "integer", "number", "object", "string"];
        if let Some(other) =
            schema["type"].as_str().filter(|sort| level != Level::Alternative && !sorts.contains(sort))
        {
            compiler.causes.push(Cause::not_supported(&format!("{at}.type"), &other.into(), &sorts));
        }
        if level != Level::Alternative && schema["type"] == "array" && !schema["items"].is_object() {
            compiler.untyped.push(Cause::required(&format!("{at}.items"), "must be specified"));
        }
        let mut properties = BTreeMap::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let at = format!("{at}.properties[{name}]");
            properties.insert(name.clone(), Self::compile(property, &at, level.then(Level::Field), compiler));
        }
        let pattern = schema["pattern"].as_str().and_then(|pattern| {
            let compiled = compiler.patterns.compile(pattern);
            compiled
                .map_err(|problem| {
                    let field = format!("{at}.pattern");
                    compiler.causes.push(Cause::invalid(&field, &pattern.into(), problem));
                })
                .ok()
        });
        let additional = schema["additionalProperties"].is_object().then(|| {
            let at = format!("{at}.additionalProperties");
            Box::new(Self::compile(&schema["additionalProperties"], &at, level.then(Level::Field), compiler))
        });
        let items = schema["items"].is_object().then(|| {
            Box::new(Self::compile(
                &schema["items"],
                &format!("{at}.items"),
                level.then(Level::Items),
                compiler,
            ))
        });
        let not = schema["not"].is_object().then(|| {
            Box::new(Self::compile(&schema["not"], &format!("{at}.not"), Level::Alternative, compiler))
        });
        let mut alternatives = |field: &str| -> Vec<Self> {
            let list = schema[field].as_array().into_iter().flatten().enumerate();
            list.map(|(i, s)| Self::compile(s, &format!("{at}.{field}[{i}]"), Level::Alternative, compiler))
                .collect()
        };
        let (all_of, any_of, one_of) = (alternatives("allOf"), alternatives("anyOf"), alternatives("oneOf"));
        Self {
            kind: text("type"),
            properties,
            additional,
            additional_any: schema["additionalProperties"] == true,
            items,
            required: texts("required"),
            choices: schema["enum"].as_array().map(|choices| Choices::new(choices)).unwrap_or_default(),
            minimum: schema["minimum"].as_f64(),
            maximum: schema["maximum"].as_f64(),
            exclusive_minimum: flag("exclusiveMinimum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: schema["multipleOf"].as_f64(),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            pattern,
            format: text("format"),
            nullable: flag("nullable"),
            default: schema.get("default").cloned().map(|mut default| {
                json::plain_numbers(&mut default);
                default
            }),
            default_size: schema.get("default").map_or(0, size::text),
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            list_type: text("x-kubernetes-list-type"),
            list_keys: texts("x-kubernetes-list-map-keys"),
            atomic_map: schema["x-kubernetes-map-type"] == "atomic",
            all_of,
            any_of,
            one_of,
            not,
        }
    }
}
