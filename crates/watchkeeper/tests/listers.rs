//! Does a lister find what is selected, and say what is missing?
#![allow(clippy::unwrap_used, reason = "a test may")]

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube_core::{Expression, Selector};
use serde_json::json;
use watchkeeper::informer::{Lister, LookupError};
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
    Lister::of(store)
}

fn web() -> Selector {
    Selector::from_iter([("app", "web")])
}

// client-go: TestListAll
#[test]
fn a_selector_finds_some_all_or_none() {
    let maps = maps([namespace_index()]);
    assert_eq!(maps.list(&web()).unwrap().len(), 100);
    assert_eq!(maps.list(&Selector::default()).unwrap().len(), 1000);
    assert_eq!(maps.list(&Selector::from_iter([("app", "cache")])).unwrap().len(), 0);
    let in_set = Expression::In("number".into(), ["1".into(), "2".into()].into());
    assert_eq!(maps.objects(&Selector::from_iter([in_set])).len(), 2);
}

#[test]
fn a_namespace_is_found_with_its_index_and_without() {
    for maps in [maps([namespace_index()]), maps([])] {
        let here = maps.namespace("ns3");
        assert_eq!(here.list(&Selector::default()).unwrap().len(), 100);
        assert_eq!(here.objects(&web()).len(), 10);
        assert_eq!(maps.namespace("other").list(&Selector::default()).unwrap().len(), 0);
        assert!(here.get("m13").is_ok());
        assert_eq!(here.object("m13").unwrap().namespace(), Some("ns3"));
    }
}

#[test]
fn the_empty_namespace_is_all_of_them() {
    for maps in [maps([namespace_index()]), maps([])] {
        assert_eq!(maps.namespace("").list(&Selector::default()).unwrap().len(), 1000);
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
    let maps = Lister::of(store);
    let key = ObjectName::namespaced("ns", "bad");
    assert!(maps.contains(&key) && maps.object(&key).is_ok());
    let error = maps.get(&key).unwrap_err();
    assert!(matches!(error, LookupError::Undecodable(_)) && !error.is_not_found());
    assert!(error.to_string().contains("ns/bad"), "{error}");
    assert!(maps.list(&Selector::default()).is_err());
    assert_eq!(maps.objects(&Selector::default()).len(), 1);
}

#[test]
fn kinds_without_namespaces_are_found_by_name_alone() {
    let store = Indexer::<Node>::new(&Env::simulated(1), [namespace_index()]);
    store.add(Object::from_json(br#"{"metadata":{"name":"n1"}}"#).unwrap());
    let nodes = Lister::of(store);
    assert_eq!(nodes.get(&ObjectName::cluster("n1")).unwrap().metadata.name.as_deref(), Some("n1"));
    assert_eq!(nodes.list(&Selector::default()).unwrap().len(), 1);
    assert_eq!(nodes.get(&ObjectName::cluster("n2")).unwrap_err().to_string(), r#"nodes "n2" not found"#);
}
