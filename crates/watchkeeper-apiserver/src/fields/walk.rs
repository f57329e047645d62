//! Comparison and merging of two states of an object along their merge type.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::set::Set;
use crate::kinds::merge_type::{MergeType, Treatment};

/// The fields added, modified and removed between two states.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) added: Set,
    pub(crate) modified: Set,
    pub(crate) removed: Set,
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(_) => false,
    }
}

impl Comparison {
    pub(crate) fn of(merge_type: MergeType<'_>, old: &Value, new: &Value) -> Self {
        let mut comparison = Self::default();
        comparison.compare(merge_type, Some(old), Some(new), &mut Vec::new());
        comparison
    }

    fn compare(
        &mut self,
        merge_type: MergeType<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
        path: &mut Vec<String>,
    ) {
        let Some(some) = new.filter(|new| !new.is_null()).or(old).or(new) else { return };
        if old == new {
            return;
        }
        let treatment = merge_type.treatment(some);
        let leaf = treatment == Treatment::Leaf || (is_empty(old) && is_empty(new)) || some.is_null();
        if !leaf {
            match (&treatment, some) {
                (Treatment::Map, Value::Object(_)) => self.compare_maps(merge_type, old, new, path),
                (_, Value::Array(_)) => self.compare_lists(merge_type, &treatment, old, new, path),
                // A value that does not have its declared type is compared as a whole.
                _ => return self.note(old, new, path),
            }
        }
        if leaf || old.is_none() || new.is_none() {
            self.note(old, new, path);
        }
    }

    fn note(&mut self, old: Option<&Value>, new: Option<&Value>, path: &[String]) {
        match (old, new) {
            (None, _) => self.added.insert(path),
            (_, None) => self.removed.insert(path),
            _ => self.modified.insert(path),
        }
    }

    fn compare_maps(
        &mut self,
        merge_type: MergeType<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
        path: &mut Vec<String>,
    ) {
        let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
        let in_old = |name: &str| old.and_then(|old| old.get(name));
        let in_new = |name: &str| new.and_then(|new| new.get(name));
        let gone = old.into_iter().flat_map(Map::keys).filter(|name| in_new(name).is_none());
        for name in new.into_iter().flat_map(Map::keys).chain(gone) {
            let (before, after) = (in_old(name), in_new(name));
            // Most fields are equal, and need no path.
            if before == after {
                continue;
            }
            let Some((inner, _)) = merge_type.field(name) else { continue };
            path.push(format!("f:{name}"));
            self.compare(inner, before, after, path);
            path.pop();
        }
    }

    fn compare_lists(
        &mut self,
        merge_type: MergeType<'_>,
        treatment: &Treatment<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
        path: &mut Vec<String>,
    ) {
        let (old, new) = (steps(merge_type, treatment, old), steps(merge_type, treatment, new));
        let (in_old, in_new) = (grouped(&old), grouped(&new));
        let gone = in_old.keys().filter(|step| !in_new.contains_key(*step));
        for step in in_new.keys().chain(gone) {
            let before = in_old.get(step).map_or(&[][..], Vec::as_slice);
            let after = in_new.get(step).map_or(&[][..], Vec::as_slice);
            path.push((*step).to_owned());
            self.compare_elements(merge_type.item(), before, after, path);
            path.pop();
        }
    }

    /// Compares elements with the same key. Duplicates count as one element, which is added or removed as a whole.
    fn compare_elements(
        &mut self,
        merge_type: MergeType<'_>,
        old: &[&Value],
        new: &[&Value],
        path: &mut Vec<String>,
    ) {
        let (first_old, first_new) = (old.first().copied(), new.first().copied());
        match (old, new) {
            ([_, _, ..], [_, _, ..]) if old == new => {}
            ([_, _, ..], [_, _, ..]) => self.modified.insert(path),
            ([_, _, ..], _) => {
                self.compare(merge_type, None, first_new, path);
                self.removed.insert(path);
            }
            (_, [_, _, ..]) => {
                self.compare(merge_type, first_old, None, path);
                self.added.insert(path);
            }
            _ => self.compare(merge_type, first_old, first_new, path),
        }
    }

    /// Filters all three sets, to leave out fields without an owner.
    pub(crate) fn filter(&mut self, filter: impl Fn(&mut Set)) {
        filter(&mut self.added);
        filter(&mut self.modified);
        filter(&mut self.removed);
    }
}

/// List elements with their path steps.
type Steps<'a> = Vec<(String, &'a Value)>;

/// Groups the elements by step.
fn grouped<'s, 'a>(steps: &'s Steps<'a>) -> BTreeMap<&'s str, Vec<&'a Value>> {
    let mut groups = BTreeMap::<_, Vec<_>>::new();
    for (step, value) in steps {
        groups.entry(step.as_str()).or_default().push(*value);
    }
    groups
}

/// Indexes the elements by step; the first of several wins.
fn by_step<'s, 'a>(steps: &'s Steps<'a>) -> BTreeMap<&'s str, &'a Value> {
    steps.iter().rev().map(|(step, value)| (step.as_str(), *value)).collect()
}

fn steps<'a>(merge_type: MergeType<'_>, treatment: &Treatment<'_>, list: Option<&'a Value>) -> Steps<'a> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|value| Some((merge_type.step(treatment, value)?, value))).collect()
}

/// Returns every path of an applied value.
pub(crate) fn set_of(merge_type: MergeType<'_>, value: &Value) -> Set {
    let mut set = Set::default();
    collect(merge_type, value, &mut Vec::new(), &mut set);
    set
}

fn collect(merge_type: MergeType<'_>, value: &Value, path: &mut Vec<String>, set: &mut Set) {
    let treatment = merge_type.treatment(value);
    match (&treatment, value) {
        (Treatment::Map, Value::Object(map)) => {
            for (name, value) in map {
                let Some((inner, named)) = merge_type.field(name) else { continue };
                path.push(format!("f:{name}"));
                collect(inner, value, path, set);
                if !named || value.is_null() || value.as_object().is_some_and(Map::is_empty) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        (Treatment::Set | Treatment::Keys(_), Value::Array(list)) => {
            for value in list {
                let Some(step) = merge_type.step(&treatment, value) else { continue };
                path.push(step);
                collect(merge_type.item(), value, path, set);
                set.insert(path);
                path.pop();
            }
        }
        _ => set.insert(path),
    }
}

/// Merges the applied value into `live`.
pub(crate) fn merge(merge_type: MergeType<'_>, live: Option<&Value>, applied: &Value) -> Value {
    let Some(live) = live.filter(|live| !live.is_null()) else { return applied.clone() };
    let treatment = merge_type.treatment(if applied.is_null() { live } else { applied });
    match (&treatment, live, applied) {
        // An applied null does not remove the parts of a map or associative list.
        (Treatment::Map | Treatment::Set | Treatment::Keys(_), live, Value::Null)
            if !is_empty(Some(live)) =>
        {
            live.clone()
        }
        (Treatment::Map, Value::Object(live), Value::Object(applied)) => {
            let mut merged = live.clone();
            for (name, value) in applied {
                let inner = merge_type.field(name).map_or(MergeType::Whole, |(inner, _)| inner);
                merged.insert(name.clone(), merge(inner, live.get(name), value));
            }
            Value::Object(merged)
        }
        (Treatment::Set | Treatment::Keys(_), Value::Array(_), Value::Array(_)) => {
            merge_lists(merge_type, &treatment, live, applied)
        }
        _ => applied.clone(),
    }
}

/// Merges two lists. Each keeps its own order; elements in both lists align the two orders.
fn merge_lists(merge_type: MergeType<'_>, treatment: &Treatment<'_>, live: &Value, applied: &Value) -> Value {
    let (left, right) =
        (steps(merge_type, treatment, Some(live)), steps(merge_type, treatment, Some(applied)));
    let (in_left, right_steps) = (by_step(&left), by_step(&right));
    let in_right = |step: &str| right_steps.contains_key(step);
    let steps = right.iter().map(|(step, _)| step);
    let mut shared = steps.filter(|step| in_left.contains_key(step.as_str())).peekable();
    let (mut l, mut r, mut merged) = (0, 0, Vec::new());
    while l < left.len() || r < right.len() {
        if let (Some((step, old)), Some((next, new))) = (left.get(l), right.get(r)) {
            if step == next {
                merged.push(merge(merge_type.item(), Some(old), new));
                (l, r) = (l + 1, r + 1);
                shared.next();
                continue;
            }
            if in_right(step) && shared.peek().is_some_and(|wanted| *wanted != step) {
                l += 1;
                continue;
            }
        }
        match (left.get(l), right.get(r)) {
            (Some((step, old)), _) if !in_right(step) => {
                merged.push((*old).clone());
                l += 1;
            }
            (_, Some((step, new))) => {
                merged.push(merge(merge_type.item(), in_left.get(step.as_str()).copied(), new));
                if shared.peek().is_some_and(|wanted| *wanted == step) {
                    shared.next();
                }
                r += 1;
            }
            // The element has been merged already.
            _ => l += 1,
        }
    }
    Value::Array(merged)
}

/// Removes the paths of `set` from `value`.
pub(crate) fn remove(merge_type: MergeType<'_>, value: &mut Value, set: &Set) {
    let treatment = merge_type.treatment(value);
    match (&treatment, value) {
        (Treatment::Map, Value::Object(map)) => {
            for step in set.steps() {
                let Some(name) = step.strip_prefix("f:") else { continue };
                if set.has(step) {
                    map.remove(name);
                } else if let (Some(value), Some((inner, _)), Some(below)) =
                    (map.get_mut(name), merge_type.field(name), set.below(step))
                {
                    remove(inner, value, below);
                    // A value that lost its last part becomes null, which validation refuses where it is not allowed.
                    if is_empty(Some(value)) {
                        *value = Value::Null;
                    }
                }
            }
        }
        (Treatment::Set | Treatment::Keys(_), Value::Array(list)) => {
            list.retain(|element| merge_type.step(&treatment, element).is_none_or(|step| !set.has(&step)));
            for element in list {
                if let Some(below) =
                    merge_type.step(&treatment, element).and_then(|step| set.below(&step).cloned())
                {
                    remove(merge_type.item(), element, &below);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::schema::Schema;

    #[test]
    fn elements_are_found_by_name_in_a_list_of_any_length_and_order() {
        let schema = json!({"type": "object", "properties": {"list": {"type": "array",
            "x-kubernetes-list-type": "set", "items": {"type": "string"}}}});
        let (schema, problems) = Schema::compile(&schema, "");
        assert_eq!(problems, []);
        let merge_type = MergeType::Custom(schema.root());
        // Large enough for a quadratic walk to time out.
        let names: Vec<_> = (0..50_000).map(|n| format!("element-{n}")).collect();
        let live = json!({"list": names});
        let applied = json!({"list": names.iter().rev().collect::<Vec<_>>()});
        assert_eq!(merge(merge_type, Some(&live), &applied), applied);
        let changes = Comparison::of(merge_type, &live, &applied);
        assert!(changes.added.is_empty() && changes.modified.is_empty() && changes.removed.is_empty());
    }
}
