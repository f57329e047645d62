//! Finds where a new schema refuses or drops what an old one accepts. Pure.

use serde_json::{Map, Value};

use super::schema::equal;

/// A place where a new definition allows less than the old one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Narrowing {
    /// The field of the definition, such as `spec.versions[v1].schema.openAPIV3Schema.properties.spec.properties.size`.
    pub(crate) path: String,
    /// What is no longer allowed there.
    pub(crate) what: String,
}

/// The first place below `path` where `new` allows less than `old`; both are normal schemas. `None` where objects that `old` accepts are
/// accepted by `new`, and keep all their fields.
///
/// What cannot be judged counts as narrower: another pattern, or another rule in CEL.
pub(super) fn narrowing(old: &Value, new: &Value, path: &str) -> Option<Narrowing> {
    check(old, new, path, true).err()
}

fn check(old: &Value, new: &Value, path: &str, is_root: bool) -> Checked {
    let empty = Map::new();
    let [old, new] = [old, new].map(|schema| schema.as_object().unwrap_or(&empty));
    Node { old, new, path, is_root }.check()
}

/// The same place in both schemas.
struct Node<'a> {
    old: &'a Map<String, Value>,
    new: &'a Map<String, Value>,
    path: &'a str,
    is_root: bool,
}

type Checked = Result<(), Narrowing>;

/// Integer formats, each with the range of its values as powers of two.
const INTEGERS: [(&str, i32, i32); 8] = [
    ("int8", -7, 7),
    ("int16", -15, 15),
    ("int32", -31, 31),
    ("int64", -63, 63),
    ("uint8", 0, 8),
    ("uint16", 0, 16),
    ("uint32", 0, 32),
    ("uint64", 0, 64),
];

/// Lower bounds that are 0 where they are absent, and their upper bounds.
const SIZES: [(&str, &str); 3] =
    [("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties")];

impl<'a> Node<'a> {
    fn check(&self) -> Checked {
        self.types()?;
        self.values()?;
        self.range()?;
        self.sizes()?;
        self.alternatives()?;
        self.rules()?;
        self.lists()?;
        self.properties()?;
        self.required()?;
        self.additional_properties()?;
        self.items()
    }

    fn refuse(&self, what: impl Into<String>) -> Checked {
        Err(Narrowing { path: self.path.to_owned(), what: what.into() })
    }

    fn below(&self, member: &str, old: &Value, new: &Value) -> Checked {
        check(old, new, &format!("{}.{member}", self.path), false)
    }

    fn preserves_unknown(members: &Map<String, Value>) -> bool {
        is_true(members, "x-kubernetes-preserve-unknown-fields")
    }

    fn types(&self) -> Checked {
        if is_true(self.old, "nullable") && !is_true(self.new, "nullable") {
            return self.refuse("null is no longer allowed");
        }
        if !is_true(self.old, "x-kubernetes-embedded-resource")
            && is_true(self.new, "x-kubernetes-embedded-resource")
        {
            return self.refuse("only whole resources are allowed now");
        }
        let int_or_string = |members| is_true(members, "x-kubernetes-int-or-string");
        let shown = |members: &'a Map<String, Value>| match text(members, "type") {
            "" if int_or_string(members) => "integer or string",
            "" => "any",
            name => name,
        };
        match (shown(self.old), shown(self.new)) {
            (old, new) if old == new => Ok(()),
            (_, "any") | ("integer", "number") | ("integer" | "string", "integer or string") => Ok(()),
            (old, new) => self.refuse(format!("the type {old} has become {new}")),
        }?;
        let formats = (text(self.old, "format"), text(self.new, "format"));
        match formats {
            (_, "") => Ok(()),
            (old, new) if old == new || is_wider(old, new) => Ok(()),
            ("", new) => self.refuse(format!("the format must be {new} now")),
            (old, new) => self.refuse(format!("the format {old} has become {new}")),
        }
    }

    fn values(&self) -> Checked {
        if let Some(Value::Array(allowed)) = self.new.get("enum") {
            let Some(Value::Array(before)) = self.old.get("enum") else {
                return self.refuse("only some values are allowed now");
            };
            let lost = before.iter().filter(|old| !allowed.iter().any(|new| equal(old, new)));
            let lost: Vec<_> = lost.map(ToString::to_string).collect();
            if !lost.is_empty() {
                return self.refuse(format!("the values {} are no longer allowed", lost.join(", ")));
            }
        }
        for (key, shown) in [("pattern", "pattern"), ("multipleOf", "divisor")] {
            match (self.old.get(key), self.new.get(key)) {
                (Some(old), Some(new)) if !equal(old, new) => {
                    return self.refuse(format!("the {shown} {old} has become {new}"));
                }
                (None, Some(new)) => return self.refuse(format!("there is a {shown} now: {new}")),
                _ => {}
            }
        }
        Ok(())
    }

    fn range(&self) -> Checked {
        for (key, exclusive, sign) in
            [("minimum", "exclusiveMinimum", 1.0), ("maximum", "exclusiveMaximum", -1.0)]
        {
            let bound = |members| Some((number(members, key)? * sign, is_true(members, exclusive)));
            let Some(new) = bound(self.new) else { continue };
            // Of two equal bounds, the exclusive one allows less.
            if bound(self.old).is_none_or(|old| new > old) {
                let exclusive = if new.1 { " exclusively" } else { "" };
                return self.refuse(format!("the {key} is {}{exclusive} now", new.0 * sign));
            }
        }
        Ok(())
    }

    fn sizes(&self) -> Checked {
        for (least, most) in SIZES {
            let new = number(self.new, least).unwrap_or(0.0);
            if new > number(self.old, least).unwrap_or(0.0) {
                return self.refuse(format!("{least} is {new} now"));
            }
            let Some(new) = number(self.new, most) else { continue };
            if number(self.old, most).is_none_or(|old| new < old) {
                return self.refuse(format!("{most} is {new} now"));
            }
        }
        Ok(())
    }

    fn alternatives(&self) -> Checked {
        let list = |members: &'a Map<String, Value>, key| members.get(key).and_then(Value::as_array);
        for key in ["anyOf", "oneOf"] {
            let Some(new) = list(self.new, key) else { continue };
            let kept = |old: &Value| new.iter().any(|new| equal(old, new));
            if !list(self.old, key).is_some_and(|old| old.iter().all(kept)) {
                return self.refuse(format!("{key} has other alternatives"));
            }
        }
        if let Some(new) = list(self.new, "allOf") {
            let old = list(self.old, "allOf").map_or(&[][..], Vec::as_slice);
            if !new.iter().all(|new| old.iter().any(|old| equal(old, new))) {
                return self.refuse("allOf has other conditions");
            }
        }
        match (self.old.get("not"), self.new.get("not")) {
            (Some(old), Some(new)) if equal(old, new) => Ok(()),
            (_, None) => Ok(()),
            _ => self.refuse("not has another condition"),
        }
    }

    fn rules(&self) -> Checked {
        let rules = |members: &'a Map<String, Value>| {
            let rules = members.get("x-kubernetes-validations").and_then(Value::as_array);
            rules.into_iter().flatten().filter_map(|rule| rule.get("rule")?.as_str())
        };
        match rules(self.new).find(|new| rules(self.old).all(|old| old != *new)) {
            Some(rule) => self.refuse(format!("there is a new rule: {rule}")),
            None => Ok(()),
        }
    }

    /// Elements that may not repeat, or that are merged by other keys.
    fn lists(&self) -> Checked {
        if is_true(self.new, "uniqueItems") && !is_true(self.old, "uniqueItems") {
            return self.refuse("elements may not repeat now");
        }
        let [old, new] = [self.old, self.new].map(|members| {
            (text(members, "x-kubernetes-list-type"), members.get("x-kubernetes-list-map-keys"))
        });
        if old != new && matches!(new.0, "set" | "map") {
            return self.refuse(format!("the list is a {} of other elements now", new.0));
        }
        Ok(())
    }

    fn properties(&self) -> Checked {
        let (old, new) = (self.old.get("properties"), self.new.get("properties"));
        for (name, before) in old.and_then(Value::as_object).into_iter().flatten() {
            let member = format!("properties.{name}");
            if let Some(after) = new.and_then(|new| new.get(name)) {
                self.below(&member, before, after)?;
            } else if let Some(after @ Value::Object(_)) = self.new.get("additionalProperties") {
                self.below(&member, before, after)?;
            } else if !self.keeps(name) {
                let path = format!("{}.{member}", self.path);
                return Err(Narrowing { path, what: "the field is gone".to_owned() });
            }
        }
        if Self::preserves_unknown(self.old) && !Self::preserves_unknown(self.new) {
            return self.refuse("unknown fields are no longer preserved");
        }
        Ok(())
    }

    /// Whether a field that the new schema does not name stays in stored objects.
    fn keeps(&self, name: &str) -> bool {
        let always = self.is_root && matches!(name, "apiVersion" | "kind" | "metadata");
        let any = self.new.get("additionalProperties") == Some(&Value::Bool(true));
        always || any || Self::preserves_unknown(self.new)
    }

    fn required(&self) -> Checked {
        let is_required = |members: &Map<String, Value>, field: &Value| {
            members.get("required").and_then(Value::as_array).is_some_and(|fields| fields.contains(field))
        };
        let has_default = |members: &Map<String, Value>, field: &str| {
            let schema = members.get("properties").and_then(|properties| properties.get(field));
            schema.is_some_and(|schema| schema.get("default").is_some())
        };
        for field in self.new.get("required").and_then(Value::as_array).into_iter().flatten() {
            let name = field.as_str().unwrap_or_default();
            if has_default(self.new, name) {
                continue;
            }
            let what = if !is_required(self.old, field) {
                "the field is required now and has no default"
            } else if has_default(self.old, name) {
                "the required field has lost its default"
            } else {
                continue;
            };
            return Err(Narrowing {
                path: format!("{}.properties.{name}", self.path),
                what: what.to_owned(),
            });
        }
        Ok(())
    }

    fn additional_properties(&self) -> Checked {
        let is_none = |value: &Value| *value == Value::Bool(false);
        let [old, new] = [self.old, self.new]
            .map(|members| members.get("additionalProperties").filter(|value| !is_none(value)));
        match (old, new) {
            (Some(old @ Value::Object(_)), Some(new @ Value::Object(_))) => {
                self.below("additionalProperties", old, new)
            }
            (Some(_), Some(Value::Bool(_))) | (None, _) => Ok(()),
            (Some(_), None) if Self::preserves_unknown(self.new) => Ok(()),
            (Some(Value::Bool(_)), Some(new)) => self.below("additionalProperties", &Value::Null, new),
            (Some(_), _) => self.refuse("additional properties are no longer allowed"),
        }
    }

    fn items(&self) -> Checked {
        match (self.old.get("items"), self.new.get("items")) {
            (Some(old), Some(new)) => self.below("items", old, new),
            _ => Ok(()),
        }
    }
}

fn is_true(members: &Map<String, Value>, key: &str) -> bool {
    members.get(key) == Some(&Value::Bool(true))
}

fn text<'a>(members: &'a Map<String, Value>, key: &str) -> &'a str {
    members.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn number(members: &Map<String, Value>, key: &str) -> Option<f64> {
    members.get(key)?.as_f64()
}

/// Whether every number of the format `old` is one of `new`.
fn is_wider(old: &str, new: &str) -> bool {
    let range = |format| INTEGERS.iter().find(|(name, ..)| *name == format);
    match (range(old), range(new)) {
        (Some((_, old_least, old_most)), Some((_, least, most))) => least <= old_least && most >= old_most,
        _ => (old, new) == ("float", "double"),
    }
}

#[cfg(test)]
mod tests;
