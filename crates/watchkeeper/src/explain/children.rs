//! The objects that an object controls, as a tree with their own state.

use std::sync::Arc;

use super::explained::Known;
use super::key_view::{ChildView, ViewRelation};
use super::view::KindView;
use crate::object::ObjectName;
use crate::workqueue::KeyState;

/// The number of children that are shown.
const CHILDREN: usize = 100;
/// The number of levels of children.
const LEVELS: usize = 4;

/// The objects that an object controls.
#[derive(Default)]
pub(super) struct Children {
    pub(super) tree: Vec<ChildView>,
    /// The number of those that were left off.
    pub(super) left_off: usize,
    /// The kinds whose caches were not searched, as they are too large.
    pub(super) unknown: Vec<String>,
}

/// Returns the first objects that an object controls.
pub(super) fn children(known: &Known, uid: &str, controllers: &[Arc<Known>]) -> Children {
    let mut tree = Tree { controllers, left: CHILDREN, left_off: 0, unknown: Vec::new() };
    let branch = tree.branch(known, uid, LEVELS);
    Children { tree: branch, left_off: tree.left_off, unknown: tree.unknown }
}

/// A tree that grows until it is large enough.
struct Tree<'a> {
    controllers: &'a [Arc<Known>],
    left: usize,
    left_off: usize,
    unknown: Vec<String>,
}

impl Tree<'_> {
    /// Returns the children of the object with this uid, which `known` reconciles.
    fn branch(&mut self, known: &Known, uid: &str, levels: usize) -> Vec<ChildView> {
        let (mut children, controllers) = (Vec::new(), self.controllers);
        if levels == 0 || uid.is_empty() {
            return children;
        }
        for (_, watched) in known.related.iter().filter(|(relation, _)| *relation == ViewRelation::Owner) {
            let kind = watched.kind();
            let own = controllers.iter().find(|other| other.kind.is_same(&kind));
            let Some(mut found) = watched.children(uid) else {
                if !self.unknown.contains(&kind.kind) {
                    self.unknown.push(kind.kind);
                }
                continue;
            };
            found.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            for (key, facts) in found {
                if self.left == 0 {
                    self.left_off += 1;
                    continue;
                }
                self.left -= 1;
                children.push(ChildView {
                    kind: kind.kind.clone(),
                    group: kind.group.clone(),
                    key: key.to_string(),
                    version: facts.version.to_string(),
                    deleting: facts.deleting,
                    controller: own.map(|own| own.name.clone()),
                    state: own.map(|own| state(own, &key)),
                    children: own.map(|own| self.branch(own, &facts.uid, levels - 1)).unwrap_or_default(),
                });
            }
        }
        children
    }
}

/// The state of a cached object in the controller that reconciles it.
fn state(own: &Known, key: &ObjectName) -> KeyState {
    own.queue.state(key).unwrap_or(KeyState::Cached)
}

impl KindView {
    /// Returns whether both are the same kind, in any version.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.group == other.group
    }
}
