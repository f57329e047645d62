//! The guarantees of an Indexer when objects are added, removed and looked up.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use watchkeeper::queue::KnownObjects;
use watchkeeper::report::Incident;
use watchkeeper::store::{
    Index, IndexConflict, Indexer, NAMESPACE_INDEX, NotFresh, Snapshot, namespace_index,
};
use watchkeeper::{Env, Object, ObjectName, ResourceVersion};

type Obj = Object<Pod>;

/// A Pod `namespace/name`, owned by nobody, with `users` in an annotation.
fn pod(key: &str, version: u64, node: &str, users: &str) -> Obj {
    let key: ObjectName = key.parse().unwrap();
    let (namespace, name) = (key.namespace().unwrap(), key.name());
    let json = format!(
        r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}","uid":"{name}","resourceVersion":"{version}",
            "annotations":{{"users":"{users}"}}}},"spec":{{"nodeName":"{node}","containers":[]}}}}"#
    );
    Object::from_json(json.as_bytes()).unwrap()
}

fn by_node() -> Index<Pod> {
    Index::field("node", "spec.nodeName").unwrap()
}

/// As many values as there are words in the annotation.
fn by_users() -> Index<Pod> {
    Index::new("users", |pod: &Obj| {
        let users = pod.annotations().get("users").unwrap_or_default();
        users.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    })
}

fn key(text: &str) -> ObjectName {
    text.parse().unwrap()
}

/// The keys under one value of an index.
fn found(store: &Indexer<Pod>, index: &str, value: &str) -> Vec<String> {
    store.snapshot().index_keys(index, value).unwrap().iter().map(ToString::to_string).collect()
}

fn values(store: &Indexer<Pod>, index: &str) -> Vec<String> {
    let mut values: Vec<_> = store.snapshot().index_values(index).unwrap().map(str::to_owned).collect();
    values.sort();
    values
}

fn listed(snapshot: &Snapshot<Pod>) -> Vec<String> {
    let mut all: Vec<_> = snapshot.iter().map(|pod| format!("{}@{}", pod.key(), pod.version())).collect();
    all.sort();
    all
}

// client-go: TestCache
#[test]
fn objects_come_change_and_go_and_a_replace_takes_the_place_of_all() {
    let store = Indexer::new(&Env::simulated(1), []);
    store.add(pod("a/x", 1, "", ""));
    store.add(pod("a/x", 2, "", ""));
    store.add(pod("b/x", 3, "", ""));
    assert_eq!(store.get(&key("a/x")).unwrap().version(), &2.into());
    assert_eq!(store.get_like(&pod("b/x", 9, "", "")).unwrap().version(), &3.into());
    assert!(store.get(&key("c/x")).is_none() && store.get(&ObjectName::cluster("x")).is_none());
    assert!(store.delete(&key("c/x")).is_none());
    assert_eq!(store.delete(&key("a/x")).unwrap().version(), &2.into());
    assert_eq!(listed(&store.snapshot()), ["b/x@3"]);
    assert_eq!(store.snapshot().keys().collect::<Vec<_>>(), [key("b/x")]);

    let before =
        store.replace(vec![pod("c/x", 4, "", ""), pod("d/x", 5, "", ""), pod("c/x", 6, "", "")], 7.into());
    // Of two with one key the last counts.
    assert_eq!(listed(&store.snapshot()), ["c/x@6", "d/x@5"]);
    assert_eq!((listed(&before), before.version()), (vec!["b/x@3".to_owned()], &ResourceVersion::UNSET));
    assert!(!store.snapshot().is_empty() && store.snapshot().bytes() > 0);
    store.replace(vec![], 8.into());
    assert!(store.snapshot().is_empty() && store.snapshot().bytes() == 0);
}

// client-go: TestIndex
#[test]
fn objects_that_share_a_value_are_found_by_it_or_by_one_of_them() {
    let store = Indexer::new(&Env::simulated(1), [by_node(), namespace_index()]);
    for (pod_key, node) in [("a/x", "n1"), ("a/y", "n2"), ("b/x", "n1")] {
        store.add(pod(pod_key, 1, node, ""));
    }
    assert_eq!(found(&store, "node", "n1"), ["a/x", "b/x"]);
    assert_eq!(found(&store, NAMESPACE_INDEX, "a"), ["a/x", "a/y"]);
    assert_eq!(found(&store, "node", "n3"), [""; 0]);
    // The object asked about need not be in the store.
    let (now, stranger) = (store.snapshot(), pod("z/z", 1, "n1", ""));
    let shared = now.index("node", &stranger).unwrap();
    assert_eq!(shared.iter().map(|pod| pod.key()).collect::<Vec<_>>(), [key("a/x"), key("b/x")]);
    assert_eq!(now.indexes().map(Index::name).collect::<Vec<_>>(), ["node", NAMESPACE_INDEX]);
}

#[test]
fn what_is_printed_of_a_store_says_how_much_is_in_it_and_nothing_of_what() {
    let store = Indexer::new(&Env::simulated(1), [by_node()]);
    store.replace(vec![pod("a/x", 1, "n1", "secret")], 3.into());
    let text = r#"Snapshot { len: 1, version: "3" }"#;
    assert_eq!((format!("{store:?}"), format!("{:?}", store.snapshot().clone())), (text.into(), text.into()));
    assert_eq!(format!("{:?}", store.snapshot().indexes().collect::<Vec<_>>()), r#"[Index("node")]"#);
}

#[test]
fn an_index_that_there_is_not_is_an_error_that_names_those_there_are() {
    let now = Indexer::new(&Env::simulated(1), [by_node(), namespace_index()]).snapshot();
    let error = now.by_index("nodes", "n1").err().unwrap();
    assert_eq!(error.to_string(), r#"there is no index "nodes"; there are ["node", "namespace"]"#);
    assert_eq!(now.index("nodes", &pod("a/x", 1, "", "")).unwrap_err(), error);
    assert_eq!(now.index_keys("nodes", "n1").unwrap_err(), error);
    assert_eq!(now.index_values("nodes").err().unwrap(), error);
}

// client-go: TestGetIndexFuncValues
#[test]
fn the_values_of_an_index_are_listed_once_each() {
    let store = Indexer::new(&Env::simulated(1), [by_users()]);
    store.add(pod("a/x", 1, "", "ernie bert"));
    store.add(pod("a/y", 1, "", "bert oscar"));
    store.add(pod("a/z", 1, "", ""));
    assert_eq!(values(&store, "users"), ["bert", "ernie", "oscar"]);
}

// client-go: TestMultiIndexKeys
#[test]
fn an_object_with_several_values_is_found_under_each_until_it_loses_them() {
    let store = Indexer::new(&Env::simulated(1), [by_users(), namespace_index()]);
    store.add(pod("a/one", 1, "", "ernie bert"));
    store.add(pod("a/two", 1, "", "bert oscar"));
    store.add(pod("a/three", 1, "", "ernie bert elmo"));
    assert_eq!(found(&store, "users", "ernie"), ["a/one", "a/three"]);
    assert_eq!(found(&store, "users", "bert"), ["a/one", "a/three", "a/two"]);
    assert_eq!(found(&store, "users", "elmo"), ["a/three"]);
    assert_eq!(found(&store, "users", "nobody"), [""; 0]);
    let shared = store.snapshot();
    let shared = shared.index("users", &pod("z/z", 1, "", "elmo ernie elmo")).unwrap();
    assert_eq!(shared.iter().map(|pod| pod.name()).collect::<Vec<_>>(), ["one", "three"]);

    store.delete(&key("a/three"));
    assert_eq!(found(&store, "users", "ernie"), ["a/one"]);
    assert_eq!(found(&store, "users", "elmo"), [""; 0]);
    store.add(pod("a/two", 2, "", "bert elmo"));
    assert_eq!(found(&store, "users", "bert"), ["a/one", "a/two"]);
    assert_eq!(found(&store, "users", "elmo"), ["a/two"]);
    assert_eq!(found(&store, "users", "oscar"), [""; 0]);
    assert_eq!(found(&store, NAMESPACE_INDEX, "a"), ["a/one", "a/two"]);
}

// client-go: TestThreadSafeStoreIndexingFunctionsWithMultipleValues
#[test]
fn an_index_follows_every_change_of_an_objects_values() {
    let store = Indexer::new(&Env::simulated(1), [by_users()]);
    for (version, users) in
        (1..).zip(["foo", "foo bar", "bar", "foo bar", "foo", "foo foo", "", "bar", "bar baz"])
    {
        store.add(pod("a/x", version, "", users));
        let mut expected: Vec<_> = users.split_whitespace().collect();
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(values(&store, "users"), expected);
        for value in expected {
            let now = store.snapshot();
            let versions: Vec<_> =
                now.by_index("users", value).unwrap().map(|pod| pod.version().clone()).collect();
            assert_eq!(versions, [version.into()], "{users:?}");
        }
    }
}

// client-go: TestThreadSafeStoreDeleteRemovesEmptySetsFromIndex
#[test]
fn a_value_that_no_object_has_any_more_is_gone() {
    let store = Indexer::new(&Env::simulated(1), [by_node()]);
    store.add(pod("a/x", 1, "n1", ""));
    assert_eq!(values(&store, "node"), ["n1"]);
    store.delete(&key("a/x"));
    assert_eq!(values(&store, "node"), [""; 0]);
}

// client-go: TestThreadSafeStoreAddKeepsNonEmptySetPostDeleteFromIndex
#[test]
fn a_value_that_another_object_has_stays() {
    let store = Indexer::new(&Env::simulated(1), [by_node()]);
    store.add(pod("a/x", 1, "n1", ""));
    store.add(pod("a/y", 1, "n1", ""));
    store.delete(&key("a/x"));
    store.add(pod("a/z", 1, "n1", ""));
    store.delete(&key("a/z"));
    assert_eq!(found(&store, "node", "n1"), ["a/y"]);
}

// client-go: TestIndexer
#[test]
fn an_index_added_later_is_filled_and_a_taken_name_is_refused_as_a_whole() {
    let store = Indexer::new(&Env::simulated(1), [namespace_index()]);
    store.add(pod("a/x", 1, "n1", ""));
    let before = store.snapshot();
    store.add_indexes([by_node()]).unwrap();
    assert_eq!(found(&store, "node", "n1"), ["a/x"]);
    store.add(pod("a/x", 2, "n2", ""));
    assert_eq!(found(&store, "node", "n2"), ["a/x"]);

    let conflict = Err(IndexConflict("node".to_owned()));
    assert_eq!(store.add_indexes([by_users(), by_node()]), conflict);
    assert_eq!(store.add_indexes([by_users(), by_users()]), Err(IndexConflict("users".to_owned())));
    assert_eq!(store.snapshot().indexes().map(Index::name).collect::<Vec<_>>(), [NAMESPACE_INDEX, "node"]);
    assert!(before.by_index("node", "n1").is_err());
}

#[test]
fn of_two_indexes_with_one_name_a_new_store_refuses_the_second_and_says_so() {
    let (env, told) = (Env::simulated(1), Arc::new(Mutex::new(Vec::new())));
    let into = told.clone();
    env.reporter.add_hook(move |report| into.lock().push(format!("{} {}", report.part, report.incident)));
    let other = Index::new("node", |_: &Obj| Some("other".to_owned()));
    let store = Indexer::new(&env, [by_node(), other, namespace_index()]);
    store.add(pod("a/x", 1, "n1", ""));
    assert_eq!((values(&store, "node"), store.snapshot().indexes().len()), (vec!["n1".to_owned()], 2));
    assert_eq!(
        *told.lock(),
        [r#"indexer indexer conflict: there is an index "node" already; give the other one another name"#]
    );
}

#[test]
fn an_index_function_that_panics_is_reported_once_and_its_object_stays_in_no_bucket() {
    let (env, told) = (Env::simulated(1), Arc::new(Mutex::new(Vec::new())));
    let into = told.clone();
    env.reporter.add_hook(move |report| {
        if let Incident::Panic(message) = report.incident {
            into.lock().push(format!("{} {} {message}", report.part, report.subject));
        }
    });
    // It has given a value before it panics: that does not count either.
    let bad = Index::visit("bad", |pod: &Obj, each| {
        each("before");
        assert!(pod.annotations().get("users").as_deref() != Some("bad"), "no users");
    });
    let store = Indexer::new(&env, [bad.clone(), namespace_index()]);
    store.add(pod("a/x", 1, "n1", "bad"));
    assert_eq!(*told.lock(), [r#"indexer index "bad" of a/x no users"#]);
    assert_eq!(listed(&store.snapshot()), ["a/x@1"]);
    assert_eq!(
        (values(&store, "bad").len(), found(&store, NAMESPACE_INDEX, "a")),
        (0, vec!["a/x".to_owned()])
    );
    // A later state for which it works is found, and lost again.
    store.add(pod("a/x", 2, "n1", "good"));
    assert_eq!((found(&store, "bad", "before"), told.lock().len()), (vec!["a/x".to_owned()], 1));
    store.add(pod("a/x", 3, "n1", "bad"));
    assert_eq!((values(&store, "bad").len(), told.lock().len()), (0, 2));
    store.delete(&key("a/x"));
    assert!(store.snapshot().is_empty() && told.lock().len() == 2);
    // So it is with an index that comes later, and with an object that is only asked about.
    store.add(pod("a/y", 4, "n1", "bad"));
    let other = Indexer::new(&env, []);
    other.add(pod("a/y", 4, "n1", "bad"));
    other.add_indexes([bad]).unwrap();
    assert_eq!((values(&other, "bad").len(), told.lock().len()), (0, 4));
    assert!(other.snapshot().index("bad", &pod("a/z", 4, "n1", "bad")).unwrap().is_empty());
    assert_eq!(told.lock().len(), 5);
}

#[test]
fn a_batch_is_seen_as_a_whole_or_not_at_all() {
    let store = Indexer::new(&Env::simulated(1), [by_node()]);
    store.add(pod("a/x", 1, "n1", ""));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        store.write(|batch| {
            batch.put(&pod("a/y", 2, "n1", ""));
            batch.remove(&key("a/x"));
            batch.set_version(2.into());
            assert_eq!(store.snapshot().len(), 1, "readers do not wait, and see nothing yet");
            assert_eq!(store.version(), ResourceVersion::UNSET);
            panic!("in the middle");
        })
    }));
    assert!(outcome.is_err());
    assert_eq!((listed(&store.snapshot()), found(&store, "node", "n1").len()), (vec!["a/x@1".to_owned()], 1));
    let was = store.write(|batch| {
        batch.put(&pod("a/y", 2, "n1", ""));
        assert_eq!(batch.get(&key("a/y")).unwrap().version(), &2.into());
        assert!(batch.get_like(&pod("a/x", 9, "", "")).is_some() && batch.iter().len() == 2);
        assert_eq!(format!("{batch:?}"), r#"Batch { len: 2, version: "" }"#);
        batch.remove(&key("a/x"))
    });
    assert_eq!((was.unwrap().version(), listed(&store.snapshot())), (&1.into(), vec!["a/y@2".to_owned()]));
}

#[test]
fn a_replace_keeps_the_allocation_and_the_decoded_value_of_what_has_not_changed() {
    let calls = Arc::new(AtomicU64::new(0));
    let count = calls.clone();
    let counting = Index::visit("count", move |_: &Obj, each| {
        count.fetch_add(1, Ordering::Relaxed);
        each("all");
    });
    let store = Indexer::new(&Env::simulated(1), [counting]);
    store.replace(vec![pod("a/x", 1, "n1", ""), pod("a/y", 2, "n1", "")], 2.into());
    let (old, decoded) = (store.get(&key("a/x")).unwrap(), store.get(&key("a/x")).unwrap().get().unwrap());
    assert_eq!(calls.load(Ordering::Relaxed), 2);

    store.replace(vec![pod("a/x", 1, "n1", ""), pod("a/y", 3, "n1", "")], 3.into());
    let kept = store.get(&key("a/x")).unwrap();
    assert!(std::ptr::eq(kept.json(), old.json()) && Arc::ptr_eq(&kept.get().unwrap(), &decoded));
    assert_eq!(listed(&store.snapshot()), ["a/x@1", "a/y@3"]);
    // Asked about both states of what has changed, and about nothing else.
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    assert_eq!(found(&store, "count", "all"), ["a/x", "a/y"]);

    // The same version under another uid is another object; without a version, states are not equal.
    let reborn =
        Object::from_json(br#"{"metadata":{"namespace":"a","name":"x","uid":"new","resourceVersion":"1"}}"#)
            .unwrap();
    store.replace(vec![reborn], 4.into());
    assert_eq!(store.get(&key("a/x")).unwrap().uid(), "new");
    let unversioned = || Object::from_json(br#"{"metadata":{"namespace":"a","name":"x"}}"#).unwrap();
    let second: Obj = unversioned();
    store.replace(vec![unversioned()], 5.into());
    store.replace(vec![second.clone()], 6.into());
    assert!(std::ptr::eq(store.get(&key("a/x")).unwrap().json(), second.json()));
}

// client-go: TestThreadSafeStoreRV
#[test]
fn the_stores_version_is_what_lists_and_batches_say_and_no_single_object_moves_it() {
    let store = Indexer::new(&Env::simulated(1), []);
    assert!(store.version().is_unset());
    store.add(pod("a/x", 5, "", ""));
    store.delete(&key("a/x"));
    assert!(store.version().is_unset());
    store.write(|batch| {
        batch.put(&pod("a/x", 6, "", ""));
        batch.set_version(6.into());
    });
    assert_eq!(store.version(), 6.into());
    // A bookmark: nothing but a version.
    store.write(|batch| batch.set_version(8.into()));
    assert_eq!((store.version(), store.snapshot().version().clone()), (8.into(), 8.into()));
    // The last word counts, also where a server was set back.
    store.replace(vec![], 7.into());
    assert_eq!(store.version(), 7.into());
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_version_ends_when_the_store_has_reached_it_or_the_time_is_up() {
    let store = Indexer::<Pod>::new(&Env::simulated(1), []);
    let patience = Duration::from_secs(5);
    let wait = |wanted: &str| {
        let (store, wanted) = (store.clone(), ResourceVersion::from(wanted));
        async move { store.wait_until_fresh_within(&wanted, patience).await }
    };
    // An unset version is reflected by anything.
    assert_eq!(wait("").await, Ok(()));
    let moves = async {
        store.replace(vec![], 4.into());
        tokio::task::yield_now().await;
        store.write(|batch| batch.set_version(6.into()));
    };
    let (reached, passed, ()) = tokio::join!(wait("6"), wait("5"), moves);
    assert_eq!((reached, passed), (Ok(()), Ok(())));
    assert_eq!(wait("6").await, Ok(()));

    let clock = Env::simulated(1).clock;
    let began = clock.now();
    let error = wait("7").await.unwrap_err();
    assert_eq!(clock.now() - began, patience);
    assert_eq!(error, NotFresh { wanted: 7.into(), reached: 6.into(), waited: patience });
    assert_eq!(error.to_string(), r#"the store has not reached version "7" within 5s: it is at "6""#);
    // What cannot be compared is waited for by equality.
    assert!(wait("x").await.is_err());
    store.write(|batch| batch.set_version("x".into()));
    assert_eq!(wait("x").await, Ok(()));
}

#[test]
fn many_writers_and_readers_agree_in_the_end_and_all_along() {
    let store = Indexer::new(&Env::simulated(1), [by_node()]);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                for turn in 0..200 {
                    // A pair that is only ever together, on one node or the other.
                    let node = if turn % 2 == 0 { "n1" } else { "n2" };
                    store.write(|batch| {
                        batch.put(&pod(&format!("a/left-{writer}"), turn, node, ""));
                        batch.put(&pod(&format!("a/right-{writer}"), turn, node, ""));
                        let version = batch.iter().filter_map(|pod| pod.version().as_number()).sum::<u64>();
                        batch.set_version(version.into());
                    });
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                while done.load(Ordering::Relaxed) < 3 {
                    let now = store.snapshot();
                    let sum: u64 = now.iter().filter_map(|pod| pod.version().as_number()).sum();
                    assert_eq!(now.version().as_number().unwrap_or_default(), sum);
                    let on = |node| now.by_index("node", node).unwrap().count();
                    assert_eq!((on("n1") % 2, on("n2") % 2, on("n1") + on("n2")), (0, 0, now.len()));
                }
            });
        }
    });
    assert_eq!(store.snapshot().len(), 6);
}

#[test]
fn a_queue_learns_from_a_store_what_is_known() {
    let store = Indexer::new(&Env::simulated(1), []);
    store.add(pod("ns/a", 1, "n1", ""));
    store.add(pod("ns/b", 2, "n1", ""));
    let known = |name: &str| KnownObjects::known(&store, &key(name)).map(|pod| pod.key().to_string());
    assert_eq!((known("ns/a"), known("ns/c")), (Some("ns/a".to_owned()), None));
    let mut names = Vec::new();
    KnownObjects::each_known(&store, &mut |pod: &Obj| names.push(pod.name().to_owned()));
    names.sort();
    assert_eq!(names, ["a", "b"]);
}
