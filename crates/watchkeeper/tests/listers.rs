//! Listers: selection, and errors for missing objects.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::error::Error;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube_core::{Expression, Selector};
use serde_json::json;
use watchkeeper::informer::{Lister, LookupError};
use watchkeeper::object::Listing;
use watchkeeper::store::{Index, Indexer, namespace_index};
use watchkeeper::{Env, Object, ObjectName};

/// 1,000 ConfigMaps in ten namespaces, one in ten with the label `app: web`, all with a label of their own.
fn maps(indexes: impl IntoIterator<Item = Index<ConfigMap>>) -> Lister<ConfigMap> {
    let store = Indexer::new(&Env::simulated(1), indexes);
    for number in 0..1000 {
        let app = if number / 10 % 10 == 0 { "web" } else { "db" };
        let labels = json!({"app": app, "number": number.to_string()});
        let metadata = json!({"name": format!("m{number}"), "namespace": format!("ns{}", number % 10), "labels": labels});
        store.add(Object::from_json(json!({ "metadata": metadata }).to_string().as_bytes()).unwrap());
    }
    Lister::new(store)
}

fn web() -> Selector {
    Selector::from_iter([("app", "web")])
}

// client-go: TestListAll
#[test]
fn a_selector_finds_some_all_or_none() {
    let maps = maps([namespace_index()]);
    assert_eq!(maps.list(&web()).complete().unwrap().len(), 100);
    assert_eq!(maps.list(&Selector::default()).complete().unwrap().len(), 1000);
    assert_eq!(maps.list(&Selector::from_iter([("app", "cache")])).complete().unwrap().len(), 0);
    let in_set = Expression::In("number".into(), ["1".into(), "2".into()].into());
    assert_eq!(maps.objects(&Selector::from_iter([in_set])).len(), 2);
}

#[test]
fn a_namespace_is_found_with_its_index_and_without() {
    for maps in [maps([namespace_index()]), maps([])] {
        let here = maps.namespace("ns3");
        assert_eq!(here.list(&Selector::default()).complete().unwrap().len(), 100);
        assert_eq!(here.objects(&web()).len(), 10);
        assert_eq!(maps.namespace("other").list(&Selector::default()).complete().unwrap().len(), 0);
        assert!(here.get("m13").is_ok());
        assert_eq!(here.object("m13").unwrap().namespace(), Some("ns3"));
    }
}

#[test]
fn the_empty_namespace_is_all_of_them() {
    for maps in [maps([namespace_index()]), maps([])] {
        assert_eq!(maps.namespace("").list(&Selector::default()).complete().unwrap().len(), 1000);
        assert_eq!(maps.namespace("").objects(&web()).len(), 100);
    }
}

#[test]
fn what_is_missing_is_named_with_its_resource() {
    let maps = maps([]);
    let error = maps.namespace("ns3").get("m14").unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(error.to_string(), r#"configmaps "ns3/m14" not found"#);
    assert!(!maps.contains(&ObjectName::namespaced("ns3", "m14")));
}

#[test]
fn what_does_not_fit_its_type_is_there_but_not_as_a_value() {
    let store = Indexer::<ConfigMap>::new(&Env::simulated(1), []);
    store.add(Object::from_json(br#"{"metadata":{"name":"bad","namespace":"ns"},"data":7}"#).unwrap());
    let maps = Lister::new(store);
    let key = ObjectName::namespaced("ns", "bad");
    assert!(maps.contains(&key) && maps.object(&key).is_ok());
    let error = maps.get(&key).unwrap_err();
    assert!(matches!(error, LookupError::Undecodable(_)) && !error.is_not_found());
    assert!(error.to_string().contains("ns/bad"), "{error}");
    assert_eq!(maps.objects(&Selector::default()).len(), 1);
}

#[test]
fn an_object_that_does_not_fit_its_type_takes_no_other_out_of_a_list() {
    let by_app = Index::field("app", "metadata.labels.app").unwrap();
    let store = Indexer::<ConfigMap>::new(&Env::simulated(1), [namespace_index(), by_app]);
    for (name, data) in [
        ("a", json!({})),
        ("bad", json!("hunter2")),
        ("b", json!({})),
        ("worse", json!({"k": 7})),
        ("c", json!({})),
    ] {
        let metadata = json!({"name": name, "namespace": "ns", "labels": {"app": "web"}});
        let map = json!({"metadata": metadata, "data": data}).to_string();
        store.add(Object::from_json(map.as_bytes()).unwrap());
    }
    let maps = Lister::new(store);
    for listing in [
        &|| maps.list(&Selector::default()),
        &|| maps.namespace("ns").list(&web()),
        &|| maps.by_index("app", "web").unwrap(),
        &|| maps.namespace("ns").by_index("app", "web").unwrap(),
        &|| maps.namespace("").by_index("app", "web").unwrap(),
    ] as [&dyn Fn() -> Listing<Arc<ConfigMap>>; 5]
    {
        let mut names: Vec<_> =
            listing().ignore_unreadable().iter().map(|map| map.metadata.name.clone().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["a", "b", "c"]);
        let (readable, mut unreadable) = listing().into_parts();
        unreadable.sort_by(|a, b| a.key.cmp(&b.key));
        assert_eq!(readable.len(), 3);
        let told: Vec<_> =
            unreadable.iter().map(|error| format!("{}: {}", error.key, error.source)).collect();
        let expected = [
            "ns/bad: data: invalid type, expected a map",
            "ns/worse: data.k: invalid type, expected a string",
        ];
        assert_eq!(told, expected);
        let error = listing().complete().unwrap_err();
        assert_eq!((error.objects.len(), error.listed), (2, 5));
        assert!(error.to_string().starts_with("cannot decode 2 of 5 objects: ns/"), "{error}");
        let source = error.source().unwrap().to_string();
        assert!(source.contains(&error.objects[0].key.to_string()), "{source}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
    assert!(maps.namespace("other").by_index("app", "web").unwrap().complete().unwrap().is_empty());
    assert!(maps.by_index("apps", "web").is_err());
}

#[test]
fn kinds_without_namespaces_are_found_by_name_alone() {
    let store = Indexer::<Node>::new(&Env::simulated(1), [namespace_index()]);
    store.add(Object::from_json(br#"{"metadata":{"name":"n1"}}"#).unwrap());
    let nodes = Lister::new(store);
    assert_eq!(nodes.get(&ObjectName::cluster("n1")).unwrap().metadata.name.as_deref(), Some("n1"));
    assert_eq!(nodes.list(&Selector::default()).complete().unwrap().len(), 1);
    assert_eq!(nodes.get(&ObjectName::cluster("n2")).unwrap_err().to_string(), r#"nodes "n2" not found"#);
}
