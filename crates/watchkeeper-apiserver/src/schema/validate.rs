//! What is wrong with a value? The checks of a structural schema, in the words of the real server.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::pattern::EFFORT;
use super::{Node, join};
use crate::status::Cause;

/// How many values may be looked at, each as often as a schema has alternatives for it.
const VISITS: usize = if cfg!(test) { 100_000 } else { 10_000_000 };

/// What was found wrong with an object, and how much may still be done to find more.
#[derive(Debug)]
pub(super) struct Findings {
    causes: Vec<Cause>,
    visits: usize,
    /// What is left for patterns: size times length of the text, see [`EFFORT`].
    effort: usize,
}

impl Default for Findings {
    fn default() -> Self {
        Self { causes: Vec::new(), visits: VISITS, effort: EFFORT }
    }
}

impl Findings {
    pub(super) fn push(&mut self, cause: Cause) {
        self.causes.push(cause);
    }

    /// Whether to look at one more value.
    fn go_on(&mut self) -> bool {
        let left = self.visits > 0 && !Cause::are_enough(&self.causes);
        self.visits = self.visits.saturating_sub(1);
        left
    }

    /// Everything that was found wrong.
    pub(super) fn into_causes(mut self) -> Vec<Cause> {
        if self.visits == 0 {
            let problem = "validation failed due to running out of cost budget, no further validation rules will be run";
            self.causes.push(Cause::invalid("<nil>", &Value::Null, problem));
        }
        self.causes
    }
}

impl Node {
    /// What is wrong with `value`; nothing, where it is as it was before a change: a schema may have become stricter since.
    pub(super) fn validate(&self, value: &Value, old: Option<&Value>, path: &str, found: &mut Findings) {
        if (value.is_null() && self.nullable) || old == Some(value) || !found.go_on() {
            return;
        }
        let fits = self.check_type(value, path, found);
        match value {
            _ if !fits => {}
            Value::Object(map) => self.validate_object(map, old, path, found),
            Value::Array(list) => self.validate_list(list, old, path, found),
            Value::String(text) => self.validate_text(text, path, found),
            Value::Number(_) => self.validate_number(value, path, found),
            _ => {}
        }
        if !self.choices.is_empty() && !self.choices.contains(value) {
            let choices: Vec<_> = self
                .choices
                .iter()
                .map(|choice| choice.as_str().map_or_else(|| choice.to_string(), str::to_owned))
                .collect();
            let choices: Vec<_> = choices.iter().map(String::as_str).collect();
            found.push(Cause::not_supported(path, value, &choices));
        }
        self.validate_alternatives(value, path, found);
    }

    fn check_type(&self, value: &Value, path: &str, found: &mut Findings) -> bool {
        let own = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
            Value::Number(number) if number.is_i64() => "integer",
            Value::Number(_) => "number",
        };
        let wanted = if self.int_or_string { "integer,string" } else { self.kind.as_str() };
        let fits = wanted.is_empty()
            || wanted.split(',').any(|wanted| wanted == own || (wanted == "number" && own == "integer"));
        if !fits {
            let detail = format!("{path} in body must be of type {wanted}: \"{own}\"");
            found.push(Cause::wrong_type(path, own, &detail));
        }
        fits
    }

    fn validate_object(
        &self,
        map: &Map<String, Value>,
        old: Option<&Value>,
        path: &str,
        found: &mut Findings,
    ) {
        for name in &self.required {
            if !map.contains_key(name) {
                found.push(Cause::required(&join(path, name), ""));
            }
        }
        for (name, value) in map {
            // The metadata of the object itself has rules of its own.
            if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
                continue;
            }
            if let Some(property) = self.property(name) {
                property.validate(value, old.and_then(|old| old.get(name)), &join(path, name), found);
            }
        }
        let whole = || Value::Object(map.clone());
        if let Some(least) = self.min_properties.filter(|least| map.len() < *least) {
            let detail = format!("{path} in body should have at least {least} properties");
            found.push(Cause::invalid(path, &whole(), &detail));
        }
        if let Some(most) = self.max_properties.filter(|most| map.len() > *most) {
            found.push(too_many(path, map.len(), most));
        }
    }

    fn validate_list(&self, list: &[Value], old: Option<&Value>, path: &str, found: &mut Findings) {
        if let Some(items) = &self.items {
            let before = self.by_keys(old);
            for (at, value) in list.iter().enumerate() {
                items.validate(value, before(value), &format!("{path}[{at}]"), found);
            }
        }
        if let Some(least) = self.min_items.filter(|least| list.len() < *least) {
            let detail = format!("{path} in body should have at least {least} items");
            found.push(Cause::invalid(path, &Value::Array(list.to_vec()), &detail));
        }
        if let Some(most) = self.max_items.filter(|most| list.len() > *most) {
            found.push(too_many(path, list.len(), most));
        }
        let before = old.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if self.twins(before).next().is_none() {
            let twins = self.twins(list);
            found.causes.extend(twins.map(|(at, id)| Cause::duplicate(&format!("{path}[{at}]"), &id)));
        }
    }

    /// What tells an element of the list from the others; none where they may be equal.
    fn id(&self, value: &Value) -> Option<Value> {
        match self.list_type.as_str() {
            "set" => Some(value.clone()),
            "map" => {
                let keys = self.list_keys.iter();
                Some(Value::Object(
                    keys.filter_map(|key| value.get(key).map(|value| (key.clone(), value.clone()))).collect(),
                ))
            }
            _ => None,
        }
    }

    /// Finds what an element of the list was before a change, where elements have keys.
    pub(crate) fn by_keys<'a>(&self, old: Option<&'a Value>) -> impl Fn(&Value) -> Option<&'a Value> {
        let old = old.and_then(Value::as_array).filter(|_| self.list_type == "map").into_iter().flatten();
        let key = |value: &Value| self.id(value).map(|id| id.to_string());
        // Of several with one key the first counts.
        let known: BTreeMap<_, _> = old.rev().filter_map(|value| Some((key(value)?, value))).collect();
        move |value| known.get(&key(value)?).copied()
    }

    /// The elements that are there before, with what they have in common.
    fn twins(&self, list: &[Value]) -> impl Iterator<Item = (usize, Value)> {
        let mut seen = BTreeSet::new();
        let ids = list.iter().enumerate().filter_map(|(at, value)| Some((at, self.id(value)?)));
        ids.filter(move |(_, id)| !seen.insert(id.to_string()))
    }

    fn validate_text(&self, text: &str, path: &str, found: &mut Findings) {
        let length = text.chars().count();
        let effort = self.pattern.as_ref().map_or(0, |pattern| pattern.effort(text));
        let left = found.effort.checked_sub(effort);
        found.effort = left.unwrap_or(found.effort);
        let mut invalid = |detail: String| found.push(Cause::invalid(path, &text.into(), &detail));
        if let Some(least) = self.min_length.filter(|least| length < *least) {
            invalid(format!("{path} in body should be at least {least} chars long"));
        }
        if let Some(pattern) = &self.pattern {
            if left.is_none() {
                invalid(format!("{path} in body is too long to be matched with '{pattern}'"));
            } else if !pattern.is_match(text) {
                invalid(format!("{path} in body should match '{pattern}'"));
            }
        }
        if self.format == "date-time" && text.parse::<Timestamp>().is_err() {
            invalid(format!("{path} in body must be of type date-time: {}", crate::status::quoted(text)));
        }
        if let Some(most) = self.max_length.filter(|most| length > *most) {
            found.push(Cause::too_long(path, most, "bytes"));
        }
    }

    fn validate_number(&self, value: &Value, path: &str, found: &mut Findings) {
        let number = value.as_f64().unwrap_or(0.0);
        let mut invalid = |detail: String| found.push(Cause::invalid(path, value, &detail));
        if let Some(bound) = self.minimum {
            if self.exclusive_minimum && number <= bound {
                invalid(format!("{path} in body should be greater than {bound}"));
            } else if number < bound {
                invalid(format!("{path} in body should be greater than or equal to {bound}"));
            }
        }
        if let Some(bound) = self.maximum {
            if self.exclusive_maximum && number >= bound {
                invalid(format!("{path} in body should be less than {bound}"));
            } else if number > bound {
                invalid(format!("{path} in body should be less than or equal to {bound}"));
            }
        }
        if let Some(factor) = self.multiple_of.filter(|factor| *factor != 0.0 && number % factor != 0.0) {
            invalid(format!("{path} in body should be a multiple of {factor}"));
        }
        let fits = match self.format.as_str() {
            "int32" => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
            "int64" => value.as_i64().is_some(),
            _ => true,
        };
        if !fits {
            invalid(format!("{path} in body must be of type {}: \"integer\"", self.format));
        }
    }

    fn validate_alternatives(&self, value: &Value, path: &str, found: &mut Findings) {
        let mut valid = |node: &Self| {
            let before = found.causes.len();
            node.validate(value, None, path, found);
            let valid = found.causes.len() == before;
            found.causes.truncate(before);
            valid
        };
        let all = self.all_of.iter().all(&mut valid);
        let any = self.any_of.is_empty() || self.any_of.iter().any(&mut valid);
        let one = self.one_of.iter().filter(|node| valid(node)).count();
        let not = self.not.as_ref().is_some_and(|node| valid(node));
        let shown = if path.is_empty() { "<nil>" } else { path };
        let mut invalid = |problem: &str| {
            found.push(Cause::invalid(shown, &"".into(), &format!("{:?} {problem}", path)));
        };
        if !all {
            invalid("must validate all the schemas (allOf)");
        }
        if !any {
            invalid("must validate at least one schema (anyOf)");
        }
        match one {
            1 => {}
            0 if self.one_of.is_empty() => {}
            0 => invalid("must validate one and only one schema (oneOf). Found none valid"),
            count => invalid(&format!(
                "must validate one and only one schema (oneOf). Found {count} valid alternatives"
            )),
        }
        if not {
            invalid("must not validate the schema (not)");
        }
    }
}

fn too_many(path: &str, found: usize, most: usize) -> Cause {
    Cause {
        reason: "FieldValueTooMany",
        message: format!("Too many: {found}: must have at most {most} items"),
        field: path.to_owned(),
    }
}
