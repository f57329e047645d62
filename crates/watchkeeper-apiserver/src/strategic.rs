//! How is a strategic merge patch applied? Maps merge, lists of known keys merge by key, other lists are replaced, directives steer it.

use serde_json::{Map, Value};

use crate::registry::Kind;
use crate::types::{self, Field, Form, Id, Patch};

/// Why a patch could not be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StrategicError {
    #[error("Unknown patch type found: {0}")]
    UnknownDirective(String),
    #[error("map does not contain declared merge key: {0}")]
    NoMergeKey(&'static str),
    #[error("delete patch type with no merge key defined")]
    DeleteWithoutKey,
    #[error("expected a list in the directive {0}")]
    DirectiveNeedsList(String),
    #[error("expected an object in a patch of the list {0}")]
    NotAnObject(String),
}

type Result<T> = std::result::Result<T, StrategicError>;

/// Applies `patch` to `object`, a built-in object of `kind`.
pub(crate) fn apply(kind: &Kind, object: &mut Value, patch: Value) -> Result<()> {
    let Value::Object(patch) = patch else { return Err(StrategicError::NotAnObject(String::new())) };
    if let Value::Object(map) = object {
        Place { id: kind.schema }.merge_map(map, patch)?;
    }
    Ok(())
}

/// The type of the object we are in: it decides how its lists are merged.
#[derive(Clone, Copy)]
struct Place {
    /// None: a plain map, or nothing that the table knows.
    id: Option<Id>,
}

impl Place {
    fn field(self, name: &str) -> Option<&'static Field> {
        types::get(self.id?).field(name)
    }

    /// The type of what is in a field: of the struct, or of the elements of the list or map.
    fn inside(field: Option<&'static Field>) -> Self {
        let mut form = field.map(|field| &field.form);
        while let Some(Form::List(inner) | Form::Map(inner)) = form {
            form = Some(&**inner);
        }
        Self { id: if let Some(Form::Message(id)) = form { Some(*id) } else { None } }
    }

    fn merge_map(self, target: &mut Map<String, Value>, mut patch: Map<String, Value>) -> Result<()> {
        match patch.remove("$patch").as_ref().map(directive) {
            None | Some("merge") => {}
            Some("replace") => {
                *target = patch;
                return Ok(());
            }
            Some("delete") => {
                target.clear();
                return Ok(());
            }
            Some(other) => return Err(StrategicError::UnknownDirective(other.to_owned())),
        }
        if let Some(retained) = patch.remove("$retainKeys") {
            let retained = list_of("$retainKeys", retained)?;
            target.retain(|key, _| retained.iter().any(|kept| kept == key));
        }
        let mut orders = Map::new();
        let mut removals = Map::new();
        let mut fields = Map::new();
        for (key, value) in patch {
            if let Some(field) = key.strip_prefix("$setElementOrder/") {
                orders.insert(field.to_owned(), value);
            } else if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/") {
                removals.insert(field.to_owned(), value);
            } else {
                fields.insert(key, value);
            }
        }
        for (field, values) in removals {
            let values = list_of(&format!("$deleteFromPrimitiveList/{field}"), values)?;
            if let Some(Value::Array(list)) = target.get_mut(&field) {
                list.retain(|value| !values.contains(value));
            }
        }
        // A list may be put in order without being changed.
        for field in orders.keys() {
            if !fields.contains_key(field) && target.get(field).is_some_and(Value::is_array) {
                fields.insert(field.clone(), Value::Array(Vec::new()));
            }
        }
        for (field, value) in fields {
            let order = match orders.remove(&field) {
                Some(order) => Some(list_of(&format!("$setElementOrder/{field}"), order)?),
                None => None,
            };
            self.merge_field(target, field, value, order)?;
        }
        Ok(())
    }

    fn merge_field(
        self,
        target: &mut Map<String, Value>,
        field: String,
        value: Value,
        order: Option<Vec<Value>>,
    ) -> Result<()> {
        let known = self.field(&field);
        match value {
            Value::Null => {
                target.remove(&field);
            }
            // Of what is not there the real server keeps nothing that comes with a directive.
            Value::Object(patch) if patch.contains_key("$patch") && !target.contains_key(&field) => {}
            Value::Object(patch) if known.is_none_or(|known| known.patch != Some(Patch::Replace)) => {
                let mut inner = match target.remove(&field) {
                    Some(Value::Object(map)) => map,
                    _ => Map::new(),
                };
                let place = match known.map(|known| &known.form) {
                    // The values of a map are a level further down.
                    Some(Form::Map(_)) => Self { id: None },
                    _ => Self::inside(known),
                };
                place.merge_map(&mut inner, patch)?;
                target.insert(field, Value::Object(inner));
            }
            Value::Array(patch) => {
                let current = match target.remove(&field) {
                    Some(Value::Array(list)) => list,
                    _ => Vec::new(),
                };
                let merged = match known.and_then(|known| known.patch) {
                    None | Some(Patch::Replace) => split_replace(patch).0,
                    Some(Patch::Merge(None)) => merge_values(&current, patch, order),
                    Some(Patch::Merge(Some(key))) => {
                        Self::inside(known).merge_by_key(&field, key, &current, patch, order)?
                    }
                };
                target.insert(field, Value::Array(merged));
            }
            scalar => {
                target.insert(field, scalar);
            }
        }
        Ok(())
    }

    fn merge_by_key(
        self,
        list: &str,
        key: &'static str,
        current: &[Value],
        patch: Vec<Value>,
        order: Option<Vec<Value>>,
    ) -> Result<Vec<Value>> {
        let (patch, replace) = split_replace(patch);
        if replace {
            return Ok(patch);
        }
        let mut merged = current.to_vec();
        let mut touched = Vec::new();
        for element in patch {
            let Value::Object(mut element) = element else {
                return Err(StrategicError::NotAnObject(list.to_owned()));
            };
            let id = element.get(key).cloned();
            let found =
                |list: &[Value]| list.iter().position(|e| id.as_ref().is_some_and(|id| same(&e[key], id)));
            match element.get("$patch").map(directive) {
                Some("delete") => {
                    if id.is_none() {
                        return Err(StrategicError::DeleteWithoutKey);
                    }
                    while let Some(at) = found(&merged) {
                        merged.remove(at);
                    }
                    continue;
                }
                None | Some("merge" | "replace") => {}
                Some(other) => return Err(StrategicError::UnknownDirective(other.to_owned())),
            }
            let Some(id) = id.clone() else { return Err(StrategicError::NoMergeKey(key)) };
            touched.push(id);
            match found(&merged) {
                Some(at) => {
                    if let Value::Object(target) = &mut merged[at] {
                        self.merge_map(target, element)?;
                    }
                }
                None => {
                    let mut fresh = Map::new();
                    element.remove("$patch");
                    self.merge_map(&mut fresh, element)?;
                    merged.push(Value::Object(fresh));
                }
            }
        }
        let order = match order {
            Some(order) => order.iter().map(|entry| entry[key].clone()).collect(),
            None => touched,
        };
        Ok(arrange(merged, current, &order, |element| element[key].clone()))
    }
}

/// A list of plain values: all of both.
fn merge_values(current: &[Value], patch: Vec<Value>, order: Option<Vec<Value>>) -> Vec<Value> {
    let mut merged = current.to_vec();
    for value in &patch {
        if !merged.contains(value) {
            merged.push(value.clone());
        }
    }
    arrange(merged, current, &order.unwrap_or(patch), Clone::clone)
}

fn directive(value: &Value) -> &str {
    value.as_str().unwrap_or("(not a string)")
}

fn list_of(name: &str, value: Value) -> Result<Vec<Value>> {
    match value {
        Value::Array(list) => Ok(list),
        _ => Err(StrategicError::DirectiveNeedsList(name.to_owned())),
    }
}

/// Takes out an element that only says `$patch: replace`: the rest is then the whole list.
fn split_replace(mut patch: Vec<Value>) -> (Vec<Value>, bool) {
    let before = patch.len();
    patch.retain(|element| {
        element
            .as_object()
            .is_none_or(|map| map.len() != 1 || map.get("$patch").is_none_or(|d| d != "replace"))
    });
    let replace = patch.len() < before;
    (patch, replace)
}

/// Numbers compare by value, however they were written.
fn same(a: &Value, b: &Value) -> bool {
    a == b || matches!((a.as_f64(), b.as_f64()), (Some(a), Some(b)) if a == b)
}

/// Elements that the patch names come in its order; the others keep their place relative to those that were there before.
fn arrange(
    merged: Vec<Value>,
    before: &[Value],
    order: &[Value],
    id: impl Fn(&Value) -> Value,
) -> Vec<Value> {
    let rank = |element: &Value| order.iter().position(|wanted| same(wanted, &id(element)));
    let (mut named, others): (Vec<_>, Vec<_>) =
        merged.into_iter().partition(|element| rank(element).is_some());
    named.sort_by_key(|element| rank(element));
    let place = |element: &Value| before.iter().position(|old| same(&id(old), &id(element)));
    let mut result = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    while let (Some(left), Some(right)) = (named.peek(), others.peek()) {
        let right_first = matches!((place(left), place(right)), (Some(left), Some(right)) if right < left);
        result.extend(if right_first { others.next() } else { named.next() });
    }
    result.extend(named);
    result.extend(others);
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::Registry;

    fn patched(plural: &str, mut object: Value, patch: Value) -> Result<Value> {
        let registry = Registry::new();
        let kind = registry.find("apps", "v1", plural).or_else(|| registry.find("", "v1", plural)).unwrap();
        apply(kind, &mut object, patch)?;
        Ok(object)
    }

    fn containers(names: &[&str]) -> Value {
        let list: Vec<_> = names.iter().map(|name| json!({"name": name, "image": "old"})).collect();
        json!({"spec": {"containers": list}})
    }

    fn names(value: &Value) -> Vec<&str> {
        value["spec"]["containers"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn containers_merge_by_name() {
        let patch = json!({"spec": {"containers": [{"name": "b", "image": "new"}]}});
        let result = patched("pods", containers(&["a", "b"]), patch).unwrap();
        assert_eq!(names(&result), ["a", "b"]);
        assert_eq!(result["spec"]["containers"][1]["image"], "new");
    }

    #[test]
    fn a_new_element_comes_first_unless_an_order_is_set() {
        let patch = json!({"spec": {"containers": [{"name": "x"}]}});
        assert_eq!(names(&patched("pods", containers(&["a"]), patch).unwrap()), ["x", "a"]);
        let patch = json!({"spec": {
            "$setElementOrder/containers": [{"name": "a"}, {"name": "x"}], "containers": [{"name": "x"}]}});
        assert_eq!(names(&patched("pods", containers(&["a"]), patch).unwrap()), ["a", "x"]);
        let patch = json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}});
        assert_eq!(names(&patched("pods", containers(&["a", "b"]), patch).unwrap()), ["b", "a"]);
    }

    #[test]
    fn directives_delete_replace_and_retain() {
        let patch = json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}});
        assert_eq!(names(&patched("pods", containers(&["a", "b"]), patch).unwrap()), ["b"]);
        let patch = json!({"spec": {"containers": [{"name": "z"}, {"$patch": "replace"}]}});
        assert_eq!(names(&patched("pods", containers(&["a", "b"]), patch).unwrap()), ["z"]);
        let object =
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
        let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
        assert_eq!(
            patched("deployments", object.clone(), patch).unwrap(),
            json!({"spec": {"strategy": {"type": "Recreate"}}})
        );
        let patch = json!({"spec": {"strategy": {"$patch": "replace", "type": "X"}}});
        assert_eq!(
            patched("deployments", object, patch).unwrap(),
            json!({"spec": {"strategy": {"type": "X"}}})
        );
    }

    #[test]
    fn finalizers_are_a_set() {
        let object = json!({"metadata": {"finalizers": ["a/x", "a/y"]}});
        let patch =
            json!({"metadata": {"finalizers": ["a/z"], "$deleteFromPrimitiveList/finalizers": ["a/x"]}});
        let result = patched("pods", object, patch).unwrap();
        let mut list: Vec<_> = result["metadata"]["finalizers"].as_array().unwrap().clone();
        list.sort_by_key(ToString::to_string);
        assert_eq!(list, ["a/y", "a/z"]);
    }

    #[test]
    fn ports_are_keyed_by_what_they_belong_to() {
        let object = json!({"spec": {"ports": [{"port": 80, "name": "a"}]}});
        let patch = json!({"spec": {"ports": [{"port": 80, "name": "b"}]}});
        assert_eq!(
            patched("services", object, patch).unwrap(),
            json!({"spec": {"ports": [{"port": 80, "name": "b"}]}})
        );
        let object = json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 1}, {"containerPort": 2}]}]}});
        let patch =
            json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 2, "name": "n"}]}]}});
        let result = patched("pods", object, patch).unwrap();
        assert_eq!(
            result["spec"]["containers"][0]["ports"],
            json!([{"containerPort": 1}, {"containerPort": 2, "name": "n"}])
        );
    }

    #[test]
    fn other_lists_are_replaced_and_null_deletes() {
        let object = json!({"spec": {"tolerations": [{"key": "a"}], "x": 1}});
        let patch = json!({"spec": {"tolerations": [{"key": "b"}], "x": null}});
        assert_eq!(patched("pods", object, patch).unwrap(), json!({"spec": {"tolerations": [{"key": "b"}]}}));
    }

    #[test]
    fn mistakes_are_named() {
        let patch = json!({"spec": {"containers": [{"image": "x"}]}});
        assert_eq!(patched("pods", containers(&["a"]), patch), Err(StrategicError::NoMergeKey("name")));
        let patch = json!({"spec": {"$patch": "explode"}});
        assert!(matches!(
            patched("pods", containers(&["a"]), patch),
            Err(StrategicError::UnknownDirective(_))
        ));
    }
}
