//! Validation of a value against a structural schema, with the real server's messages.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::pattern::EFFORT;
use super::{Node, Same, join};
use crate::failure::Cause;

/// The budget for validating an object: values visited, names looked up, choices compared.
const WORK: usize = if cfg!(test) { 100_000 } else { 10_000_000 };

/// The number of characters that cost one unit of work.
const CHARACTERS: usize = 64;

/// The problems found in an object, and the remaining budgets.
#[derive(Debug)]
pub(super) struct Findings {
    causes: Vec<Cause>,
    /// Whether an alternative matches so far; `None` outside of alternatives. The reasons are never reported, so no
    /// causes are built.
    fits: Option<bool>,
    work: usize,
    /// The remaining budget for patterns, see [`EFFORT`].
    effort: usize,
    /// The unchanged parts.
    same: Same,
}

impl Default for Findings {
    fn default() -> Self {
        Self { causes: Vec::new(), fits: None, work: WORK, effort: EFFORT, same: Same::default() }
    }
}

impl Findings {
    fn push(&mut self, cause: impl FnOnce() -> Cause) {
        match &mut self.fits {
            Some(fits) => *fits = false,
            None => self.causes.push(cause()),
        }
    }

    /// Returns whether validation may stop.
    fn is_done(&self) -> bool {
        self.work == 0 || self.fits == Some(false) || Cause::are_enough(&self.causes)
    }

    /// Takes work from the budget; returns whether to do it.
    fn go_on(&mut self, work: usize) -> bool {
        if self.is_done() {
            return false;
        }
        self.work = self.work.saturating_sub(work);
        self.work > 0
    }

    /// Builds the path of a value. Inside of alternatives it is not needed, but must not be empty, as only the root's
    /// is.
    fn path(&self, path: impl FnOnce() -> String) -> Cow<'static, str> {
        if self.fits.is_some() { Cow::Borrowed("*") } else { Cow::Owned(path()) }
    }

    /// Returns whether a value matches an alternative.
    fn fits(&mut self, node: &Node, value: &Value, path: &str) -> bool {
        let outside = self.fits.replace(true);
        node.validate(value, None, path, self);
        mem::replace(&mut self.fits, outside) == Some(true)
    }

    /// Takes all causes.
    pub(super) fn take_causes(&mut self) -> Vec<Cause> {
        if self.work == 0 {
            let problem = "validation failed due to running out of cost budget, no further validation rules will be run";
            self.causes.push(Cause::invalid("<nil>", &Value::Null, problem));
        }
        mem::take(&mut self.causes)
    }
}

/// Returns the work of reading a value with everything in it, beyond visiting it.
fn work_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() / CHARACTERS,
        Value::Array(list) => list.iter().map(|element| 1 + work_of(element)).sum(),
        Value::Object(map) => {
            map.iter().map(|(name, value)| 1 + name.len() / CHARACTERS + work_of(value)).sum()
        }
        _ => 0,
    }
}

impl Node {
    /// Validates `value`. A value equal to `old` is skipped, as the schema may have become stricter since (ratcheting).
    pub(super) fn validate(&self, value: &Value, old: Option<&Value>, path: &str, found: &mut Findings) {
        if !found.go_on(1) || (value.is_null() && self.nullable) {
            return;
        }
        if old.is_some_and(|old| found.same.is(value, old)) {
            return;
        }
        let fits = self.check_type(value, path, found);
        match value {
            _ if !fits => {}
            Value::Object(map) => self.validate_object((value, map), old, path, found),
            Value::Array(list) => self.validate_list((value, list), old, path, found),
            Value::String(text) => self.validate_text((value, text), path, found),
            Value::Number(_) => self.validate_number(value, path, found),
            _ => {}
        }
        self.validate_choices(value, path, found);
        self.validate_alternatives(value, path, found);
    }

    fn validate_choices(&self, value: &Value, path: &str, found: &mut Findings) {
        if self.choices.is_empty() || found.is_done() {
            return;
        }
        let work = work_of(value);
        if !found.go_on(work) {
            return;
        }
        let candidates = self.choices.candidates(value);
        let others = candidates.len().saturating_sub(1);
        if found.go_on(others.saturating_mul(1 + work)) && !candidates.contains(value) {
            found.push(|| Cause::not_among(path, value, self.choices.listed()));
        }
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
        let is = |wanted: &str| wanted == own || (wanted == "number" && own == "integer");
        let (wanted, fits) = if self.int_or_string {
            ("integer,string", is("integer") || is("string"))
        } else {
            (self.kind.as_str(), self.kind.is_empty() || is(&self.kind))
        };
        if !fits {
            found.push(|| {
                let detail = format!("{path} in body must be of type {wanted}: \"{own}\"");
                Cause::wrong_type(path, own, &detail)
            });
        }
        fits
    }

    fn validate_object(
        &self,
        (whole, map): (&Value, &Map<String, Value>),
        old: Option<&Value>,
        path: &str,
        found: &mut Findings,
    ) {
        for name in &self.required {
            if !found.go_on(1 + name.len() / CHARACTERS) {
                return;
            }
            if !map.contains_key(name) {
                found.push(|| Cause::required(&join(path, name), ""));
            }
        }
        let fields = map.iter().filter(|_| !self.properties.is_empty() || self.additional.is_some());
        for (name, value) in fields {
            // The metadata of the root is validated elsewhere.
            if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
                continue;
            }
            if !found.go_on(name.len() / CHARACTERS) {
                return;
            }
            if let Some(property) = self.property(name) {
                let path = found.path(|| join(path, name));
                property.validate(value, old.and_then(|old| old.get(name)), &path, found);
            } else {
                found.go_on(1);
            }
        }
        if let Some(least) = self.min_properties.filter(|least| map.len() < *least) {
            let detail = || format!("{path} in body should have at least {least} properties");
            found.push(|| Cause::invalid(path, whole, &detail()));
        }
        if let Some(most) = self.max_properties.filter(|most| map.len() > *most) {
            found.push(|| too_many(path, map.len(), most));
        }
    }

    fn validate_list(
        &self,
        (whole, list): (&Value, &[Value]),
        old: Option<&Value>,
        path: &str,
        found: &mut Findings,
    ) {
        // Identities of elements are computed below.
        let distinct = match self.list_type.as_str() {
            "set" => work_of(whole),
            // A key may be listed more than once.
            "map" => work_of(whole).saturating_mul(self.list_keys.len()),
            _ => 0,
        };
        if !found.go_on(distinct) {
            return;
        }
        if let Some(items) = &self.items {
            let before = self.by_keys(old);
            for (at, value) in list.iter().enumerate() {
                if found.is_done() {
                    return;
                }
                let path = found.path(|| format!("{path}[{at}]"));
                items.validate(value, before(value), &path, found);
            }
        }
        if let Some(least) = self.min_items.filter(|least| list.len() < *least) {
            let detail = || format!("{path} in body should have at least {least} items");
            found.push(|| Cause::invalid(path, whole, &detail()));
        }
        if let Some(most) = self.max_items.filter(|most| list.len() > *most) {
            found.push(|| too_many(path, list.len(), most));
        }
        let before = old.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if self.twins(before).next().is_none() {
            for (at, id) in self.twins(list) {
                if found.is_done() {
                    return;
                }
                found.push(|| Cause::duplicate(&format!("{path}[{at}]"), &id));
            }
        }
    }

    /// Returns the identity of a list element; `None` if elements may be equal.
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

    /// Returns a lookup for the old state of list elements by their keys.
    pub(crate) fn by_keys<'a>(&self, old: Option<&'a Value>) -> impl Fn(&Value) -> Option<&'a Value> {
        let old = old.and_then(Value::as_array).filter(|_| self.list_type == "map").into_iter().flatten();
        let key = |value: &Value| self.id(value).map(|id| id.to_string());
        // Of elements with equal keys the first counts.
        let known: BTreeMap<_, _> = old.rev().filter_map(|value| Some((key(value)?, value))).collect();
        move |value| if known.is_empty() { None } else { known.get(&key(value)?).copied() }
    }

    /// Returns the elements that repeat an earlier one, with their identity.
    fn twins(&self, list: &[Value]) -> impl Iterator<Item = (usize, Value)> {
        let mut seen = BTreeSet::new();
        let ids = list.iter().enumerate().filter_map(|(at, value)| Some((at, self.id(value)?)));
        ids.filter(move |(_, id)| !seen.insert(id.to_string()))
    }

    fn validate_text(&self, (value, text): (&Value, &str), path: &str, found: &mut Findings) {
        if (self.min_length.is_some() || self.max_length.is_some()) && !found.go_on(text.len() / CHARACTERS) {
            return;
        }
        let length = || text.chars().count();
        let invalid = |found: &mut Findings, detail: &dyn Fn() -> String| {
            found.push(|| Cause::invalid(path, value, &detail()));
        };
        if let Some(least) = self.min_length.filter(|least| length() < *least) {
            invalid(found, &|| format!("{path} in body should be at least {least} chars long"));
        }
        if let Some(pattern) = self.pattern.as_ref().filter(|_| !found.is_done()) {
            let left = found.effort.checked_sub(pattern.effort(text));
            found.effort = left.unwrap_or(found.effort);
            if left.is_none() {
                invalid(found, &|| format!("{path} in body is too long to be matched with '{pattern}'"));
            } else if !pattern.is_match(text) {
                invalid(found, &|| format!("{path} in body should match '{pattern}'"));
            }
        }
        if self.format == "date-time" && text.parse::<Timestamp>().is_err() {
            let shown = || crate::failure::quoted(text);
            invalid(found, &|| format!("{path} in body must be of type date-time: {}", shown()));
        }
        if let Some(most) = self.max_length.filter(|most| length() > *most) {
            found.push(|| Cause::too_long(path, most, "bytes"));
        }
    }

    fn validate_number(&self, value: &Value, path: &str, found: &mut Findings) {
        let number = value.as_f64().unwrap_or(0.0);
        let mut invalid = |detail: &dyn Fn() -> String| found.push(|| Cause::invalid(path, value, &detail()));
        if let Some(bound) = self.minimum {
            if self.exclusive_minimum && number <= bound {
                invalid(&|| format!("{path} in body should be greater than {bound}"));
            } else if number < bound {
                invalid(&|| format!("{path} in body should be greater than or equal to {bound}"));
            }
        }
        if let Some(bound) = self.maximum {
            if self.exclusive_maximum && number >= bound {
                invalid(&|| format!("{path} in body should be less than {bound}"));
            } else if number > bound {
                invalid(&|| format!("{path} in body should be less than or equal to {bound}"));
            }
        }
        if let Some(factor) = self.multiple_of.filter(|factor| *factor != 0.0 && number % factor != 0.0) {
            invalid(&|| format!("{path} in body should be a multiple of {factor}"));
        }
        let fits = match self.format.as_str() {
            "int32" => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
            "int64" => value.as_i64().is_some(),
            _ => true,
        };
        if !fits {
            invalid(&|| format!("{path} in body must be of type {}: \"integer\"", self.format));
        }
    }

    fn validate_alternatives(&self, value: &Value, path: &str, found: &mut Findings) {
        if found.is_done() {
            return;
        }
        let mut valid = |node: &Self| found.fits(node, value, path);
        let all = self.all_of.iter().all(&mut valid);
        let any = self.any_of.is_empty() || self.any_of.iter().any(&mut valid);
        let one = self.one_of.iter().filter(|node| valid(node)).count();
        let not = self.not.as_ref().is_some_and(|node| valid(node));
        let shown = if path.is_empty() { "<nil>" } else { path };
        let mut invalid = |problem: &str| {
            found.push(|| Cause::invalid(shown, &"".into(), &format!("{:?} {problem}", path)));
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::schema::Schema;

    /// Returns the work of validating `{"x": value}`, where `x` has this schema.
    fn spent(schema: &Value, value: &Value) -> usize {
        let schema = json!({"type": "object", "properties": {"x": schema}});
        let (schema, _) = Schema::compile(&schema, "");
        let mut found = Findings::default();
        schema.root().validate(&json!({"x": value}), None, "", &mut found);
        WORK - found.work
    }

    #[test]
    fn every_alternative_is_charged_with_what_it_reads() {
        let text = json!("x".repeat(100 * CHARACTERS));
        let list = json!(vec![1; 100]);
        let keys: Vec<_> = (0..100).map(|n| format!("key-{n}")).collect();
        let map: Map<_, _> = keys.iter().map(|key| (key.clone(), json!(1))).collect();
        let map = Value::Object(map);
        for (alternative, value) in [
            (json!({"minLength": 1}), &text),
            (json!({"maxLength": 1}), &text),
            (json!({"enum": [text]}), &text),
            (json!({"enum": [list]}), &list),
            (json!({"enum": [map]}), &map),
            (json!({"x-kubernetes-list-type": "set"}), &list),
            (json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}), &list),
            (json!({"required": keys}), &map),
            (json!({"properties": {"other": {}}}), &map),
        ] {
            let schema = json!({"not": {"not": {"allOf": [{"oneOf": [alternative, {"enum": [0]}]}]}}});
            let spent = spent(&schema, value);
            assert!((100..300).contains(&spent), "{alternative}: {spent}");
        }
    }

    #[test]
    fn a_choice_among_many_is_found_at_once_and_a_failed_alternative_is_left_at_once() {
        let choices: Vec<_> = (0..50_000).map(|n| format!("choice-{n}")).collect();
        let items = json!({"anyOf": [{"enum": choices}, {}]});
        let schema = json!({"type": "array", "items": items});
        assert_eq!(spent(&schema, &json!(vec!["none"; 1_000])), 3_002);
        assert_eq!(spent(&schema, &json!(vec!["choice-49999"; 1_000])), 2_002);
        let list = json!({"anyOf": [{"items": {"enum": choices}}, {}]});
        assert_eq!(spent(&list, &json!(vec!["none"; 1_000])), 5);
        assert_eq!(super::super::Choices::new(&[json!(0.0)]).candidates(&json!(-0.0)), [json!(0.0)]);
    }

    #[test]
    fn no_cause_is_built_inside_of_alternatives() {
        let mut found = Findings { fits: Some(true), ..Findings::default() };
        found.push(|| unreachable!("the cause is not reported"));
        assert!(found.is_done());
        assert_eq!(found.take_causes(), []);
    }

    #[test]
    fn a_long_text_under_many_alternatives_runs_out_of_the_budget() {
        let alternatives: Vec<_> = (0..200).map(|n| json!({"maxLength": n})).collect();
        let schema =
            json!({"type": "object", "properties": {"x": {"type": "string", "anyOf": alternatives}}});
        let (schema, _) = Schema::compile(&schema, "");
        let causes = schema.validate(&json!({"x": "x".repeat(WORK)}), None);
        assert!(
            causes.iter().any(|cause| cause.message.contains("running out of cost budget")),
            "{causes:?}"
        );
    }
}
