//! Does the store agree with a naive model of itself?

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::env::Env;
use crate::object::{Object, ObjectName, ResourceVersion};

type Obj = Object<()>;

fn obj(namespace: &str, name: &str, version: u64, node: &str) -> Obj {
    let json = format!(
        r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}","uid":"{name}","resourceVersion":"{version}","labels":{{"node":"{node}"}}}}}}"#
    );
    Object::from_json(json.as_bytes()).unwrap()
}

fn by_node() -> Index<()> {
    Index::new("node", |object: &Obj| {
        // An object on `both` stands under two values, one on `none` under no value.
        match object.labels().get("node").as_deref() {
            Some("both") => vec!["n1".into(), "n2".into()],
            Some("none") | None => vec![],
            Some(node) => vec![node.to_owned()],
        }
    })
}

fn keys<'a>(objects: impl Iterator<Item = &'a Obj>) -> Vec<String> {
    let mut keys: Vec<_> = objects.map(|object| format!("{}@{}", object.key(), object.version())).collect();
    keys.sort();
    keys
}

#[test]
fn objects_are_found_by_key_and_by_index() {
    let store = Indexer::new(&Env::simulated(1), [namespace_index(), by_node()]);
    store.add(obj("a", "x", 1, "n1"));
    store.add(obj("b", "x", 2, "n2"));
    store.update(obj("a", "x", 3, "n2"));
    let now = store.snapshot();
    assert_eq!(now.get(&ObjectName::namespaced("a", "x")).unwrap().version(), &ResourceVersion::from(3));
    assert!(now.get(&ObjectName::cluster("x")).is_none());
    assert_eq!(keys(now.by_index("node", "n2")), ["a/x@3", "b/x@2"]);
    assert_eq!(keys(now.by_index(NAMESPACE_INDEX, "b")), ["b/x@2"]);
    assert_eq!(now.by_index("node", "n1").count() + now.by_index("nothing", "n1").count(), 0);
    // client-go: TestThreadSafeStoreDeleteRemovesEmptySetsFromIndex
    assert_eq!(now.index_values("node").collect::<Vec<_>>(), ["n2"]);
    assert!(store.delete(&ObjectName::namespaced("a", "x")).is_some());
    assert!(store.delete(&ObjectName::namespaced("a", "x")).is_none());
    assert_eq!((now.len(), store.snapshot().len()), (2, 1));
}

// client-go: TestIndexer
#[test]
fn an_index_added_later_is_filled_and_a_taken_name_is_refused() {
    let store = Indexer::new(&Env::simulated(1), [namespace_index()]);
    store.add(obj("a", "x", 1, "n1"));
    store.add_indexes([by_node()]).unwrap();
    assert_eq!(keys(store.snapshot().by_index("node", "n1")), ["a/x@1"]);
    let other = Index::new("other", |_: &Obj| vec![]);
    assert_eq!(store.add_indexes([other, by_node()]), Err(IndexConflict("node".into())));
    assert_eq!(store.snapshot().index_names().collect::<Vec<_>>(), ["namespace", "node"]);
}

#[test]
fn an_index_function_that_panics_is_reported_and_gives_no_values() {
    let env = Env::simulated(1);
    let store = Indexer::new(&env, [Index::new("bad", |_: &Obj| panic!("oh")), namespace_index()]);
    store.add(obj("a", "x", 1, "n1"));
    assert_eq!((store.snapshot().len(), env.reporter.panics()), (1, 1));
    assert_eq!(store.snapshot().by_index(NAMESPACE_INDEX, "a").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_version_ends_when_the_store_has_reached_it() {
    let (env, store) = (Env::simulated(1), Indexer::<()>::new(&Env::simulated(1), []));
    let patience = Duration::from_secs(1);
    assert!(env.clock.timeout(patience, store.wait_until_fresh(&5.into())).await.is_err());
    let later = store.clone();
    let wait = env.clock.timeout(patience, async { later.wait_until_fresh(&5.into()).await });
    let (waited, ()) = tokio::join!(wait, async {
        store.replace(vec![], 4.into());
        store.replace(vec![], 6.into());
    });
    assert!(waited.is_ok());
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8, u8, u8),
    Delete(u8, u8),
    Replace(Vec<(u8, u8, u8)>),
    Snapshot,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let object = (0..3_u8, 0..20_u8, 0..4_u8);
    let step = prop_oneof![
        6 => object.clone().prop_map(|(ns, name, node)| Step::Add(ns, name, node)),
        3 => (0..3_u8, 0..20_u8).prop_map(|(ns, name)| Step::Delete(ns, name)),
        1 => prop::collection::vec(object, 0..30).prop_map(Step::Replace),
        1 => Just(Step::Snapshot),
    ];
    prop::collection::vec(step, 0..80)
}

const NODES: [&str; 4] = ["n1", "n2", "both", "none"];
type Model = BTreeMap<ObjectName, (u64, &'static str)>;

fn assert_equal(snapshot: &Snapshot<()>, model: &Model) {
    let all: Vec<_> = model.iter().map(|(key, (version, _))| format!("{key}@{version}")).collect();
    let sorted = |mut list: Vec<String>| {
        list.sort();
        list
    };
    assert_eq!(keys(snapshot.iter()), sorted(all));
    assert_eq!(snapshot.bytes(), snapshot.iter().map(Object::size).sum::<usize>());
    for value in ["n1", "n2"] {
        let expected = model.iter().filter(|(_, (_, node))| *node == value || *node == "both");
        let expected = expected.map(|(key, (version, _))| format!("{key}@{version}")).collect();
        assert_eq!(keys(snapshot.by_index("node", value)), sorted(expected));
    }
    for namespace in ["ns0", "ns1", "ns2"] {
        let expected = model.iter().filter(|(key, _)| key.namespace() == Some(namespace));
        let expected = expected.map(|(key, (version, _))| format!("{key}@{version}")).collect();
        assert_eq!(keys(snapshot.by_index(NAMESPACE_INDEX, namespace)), sorted(expected));
    }
}

proptest! {
    #[test]
    fn any_operations_equal_those_of_a_naive_model_and_snapshots_stay(steps in steps()) {
        let store = Indexer::new(&Env::simulated(7), [namespace_index(), by_node()]);
        let (mut model, mut kept) = (Model::new(), Vec::new());
        let key = |ns: u8, name: u8| ObjectName::namespaced(&format!("ns{ns}"), &format!("o{name}"));
        for (version, step) in (1..).zip(steps) {
            match step {
                Step::Add(ns, name, node) => {
                    let node = NODES[node as usize];
                    store.add(obj(&format!("ns{ns}"), &format!("o{name}"), version, node));
                    model.insert(key(ns, name), (version, node));
                }
                Step::Delete(ns, name) => {
                    prop_assert_eq!(store.delete(&key(ns, name)).is_some(), model.remove(&key(ns, name)).is_some());
                }
                Step::Replace(objects) => {
                    model.clear();
                    let mut items = Vec::new();
                    for (ns, name, node) in objects {
                        let node = NODES[node as usize];
                        items.push(obj(&format!("ns{ns}"), &format!("o{name}"), version, node));
                        model.insert(key(ns, name), (version, node));
                    }
                    store.replace(items, version.into());
                    prop_assert_eq!(store.version(), ResourceVersion::from(version));
                }
                Step::Snapshot => kept.push((store.snapshot(), model.clone())),
            }
        }
        kept.push((store.snapshot(), model));
        for (snapshot, model) in kept {
            assert_equal(&snapshot, &model);
        }
    }
}
