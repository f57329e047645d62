//! Comparison of the store with a naive model of it, including keys with the same hash.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::env::Env;
use crate::object::{Object, ObjectName, ResourceVersion};

type Obj = Object<()>;

fn obj(key: &ObjectName, version: u64, node: &str) -> Obj {
    let (namespace, name) = (key.namespace().unwrap(), key.name());
    let json = format!(
        r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}","uid":"{name}","resourceVersion":"{version}"}},"spec":{{"node":"{node}"}}}}"#
    );
    Object::from_json(json.as_bytes()).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Change(Vec<Change>),
    Replace(Vec<Change>),
    AddIndex,
    Snapshot,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Put(u8, u8, u8),
    /// Removes an object; in a list it stands for the current state.
    Drop(u8, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = prop_oneof![
        2 => (0..3_u8, 0..20_u8, 0..5_u8).prop_map(|(ns, name, node)| Change::Put(ns, name, node)),
        1 => (0..3_u8, 0..20_u8).prop_map(|(ns, name)| Change::Drop(ns, name)),
    ];
    let step = prop_oneof![
        12 => prop::collection::vec(change.clone(), 1..3).prop_map(Step::Change),
        2 => prop::collection::vec(change, 0..40).prop_map(Step::Replace),
        1 => Just(Step::AddIndex),
        2 => Just(Step::Snapshot),
    ];
    prop::collection::vec(step, 0..40)
}

const NODES: [&str; 5] = ["n1", "n2", "both", "twice", "none"];

/// An object on `both` has two values, one on `twice` has one value given twice, one on `none` has no value.
fn values_of(node: &str) -> Vec<String> {
    let values: &[&str] = match node {
        "both" => &["n1", "n2"],
        "twice" => &["n1", "n1"],
        "none" => &[],
        node => &[node],
    };
    values.iter().map(|value| (*value).to_owned()).collect()
}

fn by_node() -> Index<()> {
    let field = Index::<()>::field("spec", "spec.node").unwrap();
    Index::new("node", move |object: &Obj| {
        let mut node = String::new();
        field.each(object, &mut |value| value.clone_into(&mut node));
        values_of(&node)
    })
}

fn key(ns: u8, name: u8) -> ObjectName {
    ObjectName::namespaced(&format!("ns{ns}"), &format!("o{name}"))
}

#[derive(Clone, Default)]
struct Model {
    items: BTreeMap<ObjectName, (Obj, &'static str)>,
    version: u64,
    has_late_index: bool,
}

impl Model {
    /// Returns the next state of an object.
    fn next(&mut self, ns: u8, name: u8, node: u8) -> (ObjectName, Obj, &'static str) {
        self.version += 1;
        let (key, node) = (key(ns, name), NODES[node as usize]);
        (key.clone(), obj(&key, self.version, node), node)
    }

    fn change(&mut self, change: Change, batch: &mut Batch<'_, ()>) {
        let (was, old) = match change {
            Change::Put(ns, name, node) => {
                let (key, object, node) = self.next(ns, name, node);
                (batch.put(&object), self.items.insert(key, (object, node)))
            }
            Change::Drop(ns, name) => (batch.remove(&key(ns, name)), self.items.remove(&key(ns, name))),
        };
        assert_eq!(was.map(|was| was.json().as_ptr()), old.map(|(old, _)| old.json().as_ptr()));
        assert_eq!(batch.iter().len(), self.items.len());
    }

    /// Returns the items of a list; objects in an unchanged state keep their allocations.
    fn replace(&mut self, changes: Vec<Change>) -> Vec<Obj> {
        let before = std::mem::take(&mut self.items);
        let mut items = Vec::new();
        for change in changes {
            let (key, object, node) = match change {
                Change::Put(ns, name, node) => self.next(ns, name, node),
                Change::Drop(ns, name) => {
                    let Some((there, node)) = before.get(&key(ns, name)) else { continue };
                    (there.key(), Object::from_json(there.json()).unwrap(), *node)
                }
            };
            let there = self.items.get(&key).or(before.get(&key)).map(|(there, _)| there);
            let kept = there.filter(|there| there.same_state(&object)).unwrap_or(&object).clone();
            self.items.insert(key, (kept, node));
            items.push(object);
        }
        items
    }

    /// Returns the expected contents of each index: keys by value.
    fn index(
        &self,
        values: impl Fn(&ObjectName, &str) -> Vec<String>,
    ) -> BTreeMap<String, BTreeSet<ObjectName>> {
        let mut index = BTreeMap::<_, BTreeSet<_>>::new();
        for (key, (_, node)) in &self.items {
            for value in values(key, node) {
                index.entry(value).or_default().insert(key.clone());
            }
        }
        index
    }

    fn assert_equals(&self, snapshot: &Snapshot<()>) {
        let is_same = |a: &Obj, b: &Obj| std::ptr::eq(a.json(), b.json());
        assert_eq!((snapshot.len(), snapshot.iter().len()), (self.items.len(), self.items.len()));
        assert_eq!(snapshot.keys().collect::<BTreeSet<_>>(), self.items.keys().cloned().collect());
        assert_eq!(snapshot.bytes(), self.items.values().map(|(object, _)| object.size()).sum::<usize>());
        assert_eq!(snapshot.version().as_number().unwrap_or_default(), self.version);
        for (key, (object, _)) in &self.items {
            assert!(
                is_same(snapshot.get(key).unwrap(), object)
                    && is_same(snapshot.get_like(object).unwrap(), object)
            );
        }
        self.assert_index(snapshot, "node", self.index(|_, node| values_of(node)));
        self.assert_index(
            snapshot,
            NAMESPACE_INDEX,
            self.index(|key, _| vec![key.namespace().unwrap().to_owned()]),
        );
        if self.has_late_index {
            self.assert_index(snapshot, "late", self.index(|_, node| vec![node.to_owned()]));
        }
        assert_eq!(snapshot.indexes().len(), 2 + usize::from(self.has_late_index));
    }

    fn assert_index(
        &self,
        snapshot: &Snapshot<()>,
        name: &str,
        expected: BTreeMap<String, BTreeSet<ObjectName>>,
    ) {
        let values: Vec<_> = snapshot.index_values(name).unwrap().map(str::to_owned).collect();
        assert_eq!(values.len(), expected.len());
        assert_eq!(values.into_iter().collect::<BTreeSet<_>>(), expected.keys().cloned().collect());
        for (value, keys) in &expected {
            let found: Vec<_> = snapshot.by_index(name, value).unwrap().collect();
            assert!(
                found.iter().all(|object| std::ptr::eq(object.json(), self.items[&object.key()].0.json()))
            );
            assert_eq!(snapshot.index_keys(name, value).unwrap(), keys.iter().cloned().collect::<Vec<_>>());
            assert_eq!(found.len(), keys.len());
        }
        for (key, (object, _)) in &self.items {
            let shared = expected
                .values()
                .filter(|keys| keys.contains(key))
                .flatten()
                .cloned()
                .collect::<BTreeSet<_>>();
            let found: Vec<_> = snapshot.index(name, object).unwrap().into_iter().map(Object::key).collect();
            assert_eq!(found, shared.into_iter().collect::<Vec<_>>());
        }
    }
}

/// Applies all steps to a store and to its model; old snapshots must not change.
fn run(store: &Indexer<()>, steps: Vec<Step>) {
    let (mut model, mut kept) = (Model::default(), Vec::new());
    for step in steps {
        match step {
            Step::Change(changes) => store.write(|batch| {
                changes.into_iter().for_each(|change| model.change(change, batch));
                batch.set_version(model.version.into());
            }),
            Step::Replace(changes) => {
                let (before, items) = (model.clone(), model.replace(changes));
                before.assert_equals(&store.replace(items, model.version.into()));
            }
            Step::AddIndex => {
                let late = Index::field("late", "spec.node").unwrap();
                assert_eq!(store.add_indexes([late]).is_ok(), !model.has_late_index);
                model.has_late_index = true;
            }
            Step::Snapshot => kept.push((store.snapshot(), model.clone())),
        }
        assert_eq!(store.version().as_number().unwrap_or_default(), model.version);
    }
    kept.push((store.snapshot(), model));
    kept.iter().for_each(|(snapshot, model)| model.assert_equals(snapshot));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_operations_equal_those_of_a_naive_model_and_snapshots_stay(steps in steps()) {
        run(&Indexer::new(&Env::simulated(7), [namespace_index(), by_node()]), steps);
    }

    #[test]
    fn the_same_holds_where_many_keys_and_values_have_one_hash(steps in steps()) {
        run(&Indexer::with_mask(&Env::simulated(7), [namespace_index(), by_node()], 0b11), steps);
    }
}

#[test]
fn an_object_that_shares_a_hash_with_one_whose_index_panics_is_found_alone() {
    let bad = Index::new("bad", |object: &Obj| match object.name() {
        "o1" => panic!("no value"),
        _ => Some("v".to_owned()),
    });
    let env = Env::simulated(1);
    let store = Indexer::with_mask(&env, [bad], 0);
    for name in [1, 2, 3] {
        store.add(obj(&key(0, name), 1, "n1"));
    }
    assert_eq!(env.reporter.panics(), 1);
    let found = || store.snapshot().index_keys("bad", "v").unwrap();
    assert_eq!(found(), [key(0, 2), key(0, 3)]);
    store.delete(&key(0, 3));
    store.delete(&key(0, 1));
    assert_eq!(found(), [key(0, 2)]);
    store.delete(&key(0, 2));
    assert_eq!(store.snapshot().index_values("bad").unwrap().len(), 0);
    assert_eq!((env.reporter.panics(), store.version()), (1, ResourceVersion::UNSET));
}
