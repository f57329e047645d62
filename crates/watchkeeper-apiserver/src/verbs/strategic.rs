//! Strategic merge patch: maps merge, lists with a merge key merge by key, other lists are replaced, and directives
//! modify this.
//!
//! Elements are found through an index of their keys, so the cost is linear in the patch and the values it touches.

mod error;
mod lists;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::kinds::kind::Kind;
use crate::types::{self, Field, Id, Patch, ValueType};
use error::StrategicError;
use lists::{Ranks, are_objects, arrange, check_order, id_of, key_of};

type Result<T> = std::result::Result<T, StrategicError>;

const DIRECTIVE: &str = "$patch";
const ORDER: &str = "$setElementOrder";
const REMOVAL: &str = "$deleteFromPrimitiveList";

/// Applies `patch` to `object`, a built-in object of `kind`.
pub(crate) fn apply(kind: &Kind, object: &mut Value, patch: Value) -> Result<()> {
    if let (Value::Object(object), Value::Object(patch)) = (object, patch) {
        Place { id: kind.schema }.merge_map(object, patch)?;
    }
    Ok(())
}

/// The type of the current object. It determines how its lists merge.
#[derive(Clone, Copy)]
struct Place {
    /// `None` for a plain map or a type that is not in the table.
    id: Option<Id>,
}

impl Place {
    fn field(self, name: &str) -> Option<&'static Field> {
        types::get(self.id?).field(name)
    }

    /// Returns the type of a field's struct, or of the elements of its list or map.
    fn inside(field: Option<&'static Field>) -> Self {
        let mut ty = field.map(|field| &field.ty);
        while let Some(ValueType::List(inner) | ValueType::Map(inner)) = ty {
            ty = Some(&**inner);
        }
        Self { id: if let Some(ValueType::Message(id)) = ty { Some(*id) } else { None } }
    }

    /// Returns the type's name for messages.
    fn name(self) -> &'static str {
        self.id.map_or("", |id| types::get(id).name.rsplit('.').next().unwrap_or_default())
    }

    fn merge_map(self, target: &mut Map<String, Value>, mut patch: Map<String, Value>) -> Result<()> {
        if let Some(directive) = patch.get(DIRECTIVE) {
            match directive.as_str() {
                Some("replace") => {
                    patch.remove(DIRECTIVE);
                    *target = patch;
                }
                Some("delete") => target.clear(),
                _ => return Err(StrategicError::UnknownDirective(directive.clone(), patch)),
            }
            return Ok(());
        }
        retain_keys(target, &mut patch)?;
        self.merge_ordered(target, &mut patch)?;
        remove_values(target, &mut patch)?;
        for (name, value) in patch {
            self.merge_field(target, name, value)?;
        }
        Ok(())
    }

    /// Merges lists that come with `$setElementOrder`, which may reorder a list without changing its elements.
    fn merge_ordered(self, target: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<()> {
        for (name, order) in take_directives(patch, ORDER, StrategicError::OrderFormat)? {
            let list = |value: Value| match value {
                Value::Array(list) => Ok(list),
                found => Err(StrategicError::WrongType { wanted: "[]interface {}", found }),
            };
            let order = list(order)?;
            let current = target.remove(&name).map(list).transpose()?;
            let changed = patch.remove(&name).map(list).transpose()?;
            let known = self.field(&name);
            if known.is_none() && self.id.is_some() {
                return Err(StrategicError::UnknownField { holder: self.name(), field: name });
            }
            let key = merge_key(known);
            check_order(changed.as_deref().unwrap_or_default(), &order, key)?;
            let (merged, before) = match (current, changed) {
                (None, None) => continue,
                (Some(current), None) => {
                    let before = Ranks::of(&current, key)?;
                    (current, before)
                }
                (None, Some(changed)) => (fresh_elements(changed), Ranks::default()),
                (Some(current), Some(changed)) => Self::merge_list(known, current, changed)?,
            };
            if are_objects(&merged, &[])?
                && let Some(at) = order.iter().position(|element| !element.is_object())
            {
                return Err(StrategicError::NotAMap(at));
            }
            let merged = arrange(merged, key, &Ranks::of(&order, key)?, &before)?;
            target.insert(name, Value::Array(merged));
        }
        Ok(())
    }

    fn merge_field(self, target: &mut Map<String, Value>, name: String, value: Value) -> Result<()> {
        let known = self.field(&name);
        match (target.get_mut(&name), value) {
            (_, Value::Null) => {
                target.remove(&name);
            }
            (Some(Value::Object(current)), Value::Object(patch)) => match known.map(|known| &known.ty) {
                _ if known.is_some_and(|known| known.patch == Some(Patch::Replace)) => *current = patch,
                // The values of a map are one level deeper.
                Some(ValueType::Map(_)) => Self { id: None }.merge_map(current, patch)?,
                _ => Self::inside(known).merge_map(current, patch)?,
            },
            (Some(Value::Array(current)), Value::Array(patch)) => {
                *current = Self::merge_list(known, std::mem::take(current), patch)?.0;
            }
            (_, value) => match fresh(value) {
                Some(value) => {
                    target.insert(name, value);
                }
                // Without a current value, elements with directives are dropped.
                None => {
                    target.remove(&name);
                }
            },
        }
        Ok(())
    }

    /// Merges the list of a field; also returns the positions of elements that existed before and were not deleted.
    fn merge_list(
        field: Option<&'static Field>,
        current: Vec<Value>,
        patch: Vec<Value>,
    ) -> Result<(Vec<Value>, Ranks)> {
        let key = merge_key(field);
        let Some(Patch::Merge(_)) = field.and_then(|field| field.patch) else {
            return Ok((patch, Ranks::of(&current, None)?));
        };
        if current.is_empty() && patch.is_empty() {
            return Ok((current, Ranks::default()));
        }
        match (are_objects(&current, &patch)?, key) {
            (true, Some(key)) => Self::inside(field).merge_by_key(key, current, patch),
            (true, None) => Err(StrategicError::NotMerged(Self::inside(field).name().to_owned())),
            (false, _) => {
                let (before, order) = (Ranks::of(&current, key)?, Ranks::of(&patch, key)?);
                let mut seen = BTreeSet::new();
                let both = current.into_iter().chain(patch);
                let merged = both.filter(|value| seen.insert(value.to_string())).collect();
                Ok((arrange(merged, key, &order, &before)?, before))
            }
        }
    }

    fn merge_by_key(
        self,
        key: &'static str,
        mut current: Vec<Value>,
        patch: Vec<Value>,
    ) -> Result<(Vec<Value>, Ranks)> {
        let (mut changes, mut deleted, mut replace) = (Vec::new(), BTreeSet::new(), false);
        for element in patch {
            let Value::Object(element) = element else { continue };
            match element.get(DIRECTIVE).map(|directive| directive.as_str().unwrap_or_default()) {
                None => changes.push(element),
                Some("delete") => {
                    deleted.insert(key_of(&element, key)?);
                }
                Some("replace") => replace = true,
                Some("merge") => return Err(StrategicError::MergeDirective),
                Some(_) => return Err(StrategicError::UnknownDirective(element[DIRECTIVE].clone(), element)),
            }
        }
        if replace {
            current = changes.drain(..).map(Value::Object).collect();
        } else if !deleted.is_empty() {
            let kept = |element: &Value| id_of(element, Some(key)).is_ok_and(|id| deleted.contains(&id));
            current.retain(|element| !kept(element));
        }
        let before = Ranks::of(&current, Some(key))?;
        let (mut added, mut order) = (Ranks::default(), Ranks::default());
        for (rank, element) in changes.into_iter().enumerate() {
            let id = key_of(&element, key)?;
            let found = before.get(&id).or_else(|| added.get(&id));
            match found.and_then(|at| current[at].as_object_mut()) {
                Some(target) => self.merge_map(target, element)?,
                None => {
                    added.add(id.clone(), current.len());
                    current.push(Value::Object(element));
                }
            }
            order.add(id, rank);
        }
        Ok((arrange(current, Some(key), &order, &before)?, before))
    }
}

fn merge_key(field: Option<&'static Field>) -> Option<&'static str> {
    match field?.patch? {
        Patch::Merge(key) => key,
        Patch::Replace => None,
    }
}

/// Removes the directives with `prefix` from a patch and returns them by field.
fn take_directives(
    patch: &mut Map<String, Value>,
    prefix: &str,
    malformed: StrategicError,
) -> Result<Vec<(String, Value)>> {
    let names: Vec<_> = patch.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
    let taken = names.into_iter().map(|name| {
        let value = patch.remove(&name).unwrap_or_default();
        let field = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/'));
        field.map(|field| (field.to_owned(), value)).ok_or_else(|| malformed.clone())
    });
    taken.collect()
}

fn retain_keys(target: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<()> {
    let Some(retained) = patch.remove("$retainKeys") else { return Ok(()) };
    let Value::Array(retained) = retained else { return Err(StrategicError::RetainKeys) };
    let retained: BTreeSet<_> = retained.iter().filter_map(Value::as_str).collect();
    let fits = |(name, value): (&String, &Value)| {
        value.is_null()
            || name.starts_with(REMOVAL)
            || name.starts_with(ORDER)
            || retained.contains(name.as_str())
    };
    if !patch.iter().all(fits) {
        return Err(StrategicError::RetainKeys);
    }
    target.retain(|name, _| retained.contains(name.as_str()));
    Ok(())
}

/// Handles `$deleteFromPrimitiveList`: removes scalars from lists.
fn remove_values(target: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<()> {
    for (name, values) in take_directives(patch, REMOVAL, StrategicError::PrimitiveList)? {
        match (target.get_mut(&name), values) {
            (_, Value::Null) => {
                target.remove(&name);
            }
            (Some(Value::Array(list)), Value::Array(values)) if !(list.is_empty() && values.is_empty()) => {
                are_objects(list, &values)?;
                let values: BTreeSet<_> = values.iter().map(Value::to_string).collect();
                list.retain(|value| !values.contains(&value.to_string()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns a patch value for a place without a current value: without nulls and directives.
fn fresh(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let fields = map.into_iter().filter(|(_, value)| !value.is_null());
            Some(fields.filter_map(|(name, value)| Some((name, fresh(value)?))).collect())
        }
        Value::Array(list) => Some(Value::Array(fresh_elements(list))),
        scalar => Some(scalar),
    }
}

fn fresh_elements(list: Vec<Value>) -> Vec<Value> {
    list.into_iter().filter_map(fresh).collect()
}

#[cfg(test)]
mod tests;
