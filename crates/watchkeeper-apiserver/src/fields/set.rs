//! Sets of field paths, encoded as `fieldsV1`: `f:name` is a field, `k:{..}` a list element by key, `v:..` by value.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::kinds::merge_type::MergeType;

/// A set of paths, as a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set(BTreeMap<String, Node>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    /// The path that ends here is a member.
    member: bool,
    below: Set,
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl Set {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn insert(&mut self, path: &[String]) {
        if let Some((first, rest)) = path.split_first() {
            let node = self.0.entry(first.clone()).or_default();
            if rest.is_empty() {
                node.member = true;
            } else {
                node.below.insert(rest);
            }
        }
    }

    /// Returns whether the path of one step is a member.
    pub(crate) fn has(&self, step: &str) -> bool {
        self.0.get(step).is_some_and(|node| node.member)
    }

    /// Returns the subtree below a step.
    pub(crate) fn below(&self, step: &str) -> Option<&Self> {
        self.0.get(step).map(|node| &node.below).filter(|below| !below.is_empty())
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(crate) fn union(&mut self, other: &Self) {
        for (step, node) in &other.0 {
            let own = self.0.entry(step.clone()).or_default();
            own.member |= node.member;
            own.below.union(&node.below);
        }
    }

    /// Returns the members of this set that are not in `other`.
    pub(crate) fn minus(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.subtract(other);
        rest
    }

    /// Removes the members of `other`.
    pub(crate) fn subtract(&mut self, other: &Self) {
        for (step, theirs) in &other.0 {
            if let Some(node) = self.0.get_mut(step) {
                node.member &= !theirs.member;
                node.below.subtract(&theirs.below);
                if node.is_empty() {
                    self.0.remove(step);
                }
            }
        }
    }

    /// Returns the members of both sets.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let nodes = self.0.iter().filter_map(|(step, node)| {
            let theirs = other.0.get(step)?;
            let node = Node { member: node.member && theirs.member, below: node.below.and(&theirs.below) };
            (!node.is_empty()).then(|| (step.clone(), node))
        });
        Self(nodes.collect())
    }

    /// Removes a path and everything below it.
    pub(crate) fn cut(&mut self, path: &[&str]) {
        match path {
            [] => {}
            [last] => drop(self.0.remove(*last)),
            [first, rest @ ..] => {
                if let Some(node) = self.0.get_mut(*first) {
                    node.below.cut(rest);
                    if node.is_empty() {
                        self.0.remove(*first);
                    }
                }
            }
        }
    }

    /// Removes a single path.
    pub(crate) fn remove(&mut self, path: &[&str]) {
        if let [first, rest @ ..] = path
            && let Some(node) = self.0.get_mut(*first)
        {
            if rest.is_empty() {
                node.member = false;
            } else {
                node.below.remove(rest);
            }
            if node.is_empty() {
                self.0.remove(*first);
            }
        }
    }

    /// Returns the set with every named field on the path to a member; map entries and list elements are not named.
    pub(crate) fn with_fields(&self, merge_type: MergeType<'_>) -> Self {
        let nodes = self.0.iter().map(|(step, node)| {
            let (inner, named) = match step.strip_prefix("f:") {
                Some(name) => merge_type.field(name).unwrap_or((MergeType::Whole, false)),
                None => (merge_type.item(), false),
            };
            let member = node.member || (named && !node.below.is_empty());
            (step.clone(), Node { member, below: node.below.with_fields(inner) })
        });
        Self(nodes.collect())
    }

    /// Returns every member as messages name it: `.spec.containers[name="c"].image`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        for (step, node) in &self.0 {
            let name = shown(step);
            if node.member {
                paths.push(name.clone());
            }
            paths.extend(node.below.paths().into_iter().map(|rest| format!("{name}{rest}")));
        }
        paths
    }

    /// Parses `fieldsV1`.
    pub(crate) fn read(value: &Value) -> Self {
        let fields = value.as_object().into_iter().flatten().filter(|(step, _)| *step != ".");
        let nodes = fields
            .map(|(step, inner)| (step.clone(), Node { member: is_member(inner), below: Self::read(inner) }));
        Self(nodes.collect())
    }

    /// Encodes the set as `fieldsV1`.
    pub(crate) fn write(self) -> Value {
        let steps = self.0.into_iter().map(|(step, node)| {
            let is_inner = node.member && !node.below.is_empty();
            let mut inner = node.below.write();
            if is_inner {
                inner["."] = Value::Object(Map::new());
            }
            (step, inner)
        });
        Value::Object(steps.collect())
    }

    /// Returns whether every member is one of the encoded set.
    pub(super) fn is_within(&self, encoded: &Value) -> bool {
        self.0.iter().all(|(step, node)| {
            encoded
                .get(step)
                .is_some_and(|inner| (!node.member || is_member(inner)) && node.below.is_within(inner))
        })
    }

    /// Returns whether any member is one of the encoded set.
    pub(super) fn meets(&self, encoded: &Value) -> bool {
        self.0.iter().any(|(step, node)| {
            encoded
                .get(step)
                .is_some_and(|inner| (node.member && is_member(inner)) || node.below.meets(inner))
        })
    }
}

/// Returns whether the path to an encoded node is a member.
fn is_member(inner: &Value) -> bool {
    inner.as_object().is_none_or(|inner| inner.is_empty() || inner.contains_key("."))
}

fn shown(step: &str) -> String {
    match step.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<_> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        Some(("v", value)) => format!("[={value}]"),
        _ => format!("[{step}]"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(value: Value) -> Set {
        Set::read(&value)
    }

    #[test]
    fn a_set_is_written_as_it_was_read() {
        let value = json!({"f:data": {".": {}, "f:a": {}}, "f:spec": {"f:list": {"k:{\"name\":\"c\"}": {".": {}, "f:x": {}}}}});
        assert_eq!(set(value.clone()).write(), value);
        assert_eq!(
            set(value).paths(),
            [".data", ".data.a", r#".spec.list[name="c"]"#, r#".spec.list[name="c"].x"#]
        );
    }

    #[test]
    fn sets_are_added_cut_and_compared() {
        let a = set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
        let b = set(json!({"f:a": {"f:b": {}}}));
        assert_eq!(a.minus(&b).write(), json!({"f:a": {}, "f:c": {}}));
        assert_eq!(a.and(&b), b);
        assert_eq!(b.with_fields(MergeType::Any), b);
        let mut c = a.clone();
        c.cut(&["f:a"]);
        assert_eq!(c.clone().write(), json!({"f:c": {}}));
        c.union(&b);
        c.remove(&["f:a", "f:b"]);
        assert_eq!(c.write(), json!({"f:c": {}}));
    }

    #[test]
    fn a_set_is_compared_with_an_encoded_one() {
        let encoded = json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}});
        for (part, is_within, meets) in [
            (json!({"f:a": {}}), true, true),
            (json!({"f:a": {"f:b": {}}, "f:c": {"f:d": {}}}), true, true),
            (json!({"f:a": {}, "f:x": {}}), false, true),
            // The parent of a member need not be one.
            (json!({"f:c": {}}), false, false),
            (json!({"f:c": {"f:e": {}}}), false, false),
            (json!({"f:a": {"f:b": {"f:c": {}}}}), false, false),
            (json!({}), true, false),
        ] {
            let (part, whole) = (set(part), set(encoded.clone()));
            assert_eq!((part.is_within(&encoded), part.meets(&encoded)), (is_within, meets), "{part:?}");
            assert_eq!((part.minus(&whole).is_empty(), !part.and(&whole).is_empty()), (is_within, meets));
        }
    }
}
