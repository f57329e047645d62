use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use k8s_openapi::api::apps::v1::Deployment;
use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{hash_of, hash_of_answer};

fn hasher() -> FixedState {
    FixedState::with_seed(7)
}

fn hashed<T: Serialize + ?Sized>(value: &T) -> u64 {
    hash_of(value, &hasher()).unwrap()
}

fn answered(text: &str) -> u64 {
    hash_of_answer(text.as_bytes(), &hasher()).unwrap()
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c\"\\\\é\u{1}]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c\"é]{0,2}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A value whose members are written last first.
struct Reversed<'a>(&'a Value);

impl Serialize for Reversed<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(members) => {
                serializer.collect_map(members.iter().rev().map(|(key, value)| (key, Reversed(value))))
            }
            Value::Array(elements) => serializer.collect_seq(elements.iter().map(Reversed)),
            leaf => leaf.serialize(serializer),
        }
    }
}

/// `value` without the members that are null, at any depth.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let present = members.iter().filter(|(_, value)| !value.is_null());
            Value::Object(present.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        Value::Array(elements) => elements.iter().map(without_nulls).collect(),
        leaf => leaf.clone(),
    }
}

/// Every value that differs from `value` in one place: a leaf, a key, an element more or less or moved.
fn neighbours(value: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    match value {
        Value::Null => found.extend([json!(0), json!(false), json!("")]),
        Value::Bool(value) => found.extend([json!(!value), json!(u8::from(*value))]),
        Value::Number(number) => {
            found.extend([json!(number.to_string()), json!(number.as_f64().unwrap_or(0.0) + 0.5)]);
            found.extend(number.as_i64().map(|number| json!(number.wrapping_neg().wrapping_sub(1))));
        }
        Value::String(text) => found.extend([json!(format!("{text}x")), json!([text])]),
        Value::Array(elements) => {
            found.push(Value::Object(Map::new()));
            for (at, element) in elements.iter().enumerate() {
                found.extend(neighbours(element).into_iter().map(|changed| {
                    let mut elements = elements.clone();
                    elements[at] = changed;
                    Value::Array(elements)
                }));
                let mut moved = elements.clone();
                moved.swap(0, at);
                let mut removed = elements.clone();
                let element = removed.remove(at);
                let mut doubled = elements.clone();
                doubled.push(element);
                found.extend([moved, removed, doubled].map(Value::Array));
            }
        }
        Value::Object(members) => {
            found.push(json!([]));
            for (key, value) in members {
                let with = |key: &str, value: Value| {
                    let mut members = members.clone();
                    members.insert(key.to_owned(), value);
                    Value::Object(members)
                };
                found.extend(neighbours(value).into_iter().map(|changed| with(key, changed)));
                found.push(with(&format!("{key}x"), value.clone()));
                let mut renamed = members.clone();
                renamed.remove(key);
                found.push(Value::Object(renamed.clone()));
                renamed.insert(format!("{key}y"), value.clone());
                found.push(Value::Object(renamed));
            }
        }
    }
    found
}

/// A value in which every float is one that JSON text can hold, as an object that nothing is left out of.
fn wrapped(value: &Value) -> Value {
    json!({ "spec": value })
}

proptest! {
    #[test]
    fn the_order_of_members_does_not_count(value in values()) {
        prop_assert_eq!(hashed(&value), hashed(&Reversed(&value)));
        let text = serde_json::to_string(&Reversed(&wrapped(&value))).unwrap();
        prop_assert_eq!(answered(&text), answered(&wrapped(&value).to_string()));
    }

    #[test]
    fn formatting_does_not_count_and_text_hashes_as_the_value_does(value in values()) {
        let value = wrapped(&value);
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        prop_assert_eq!(answered(&pretty), answered(&value.to_string()));
        let read: Value = serde_json::from_str(&pretty).unwrap();
        prop_assert_eq!(answered(&pretty), hashed(&read));
    }

    #[test]
    fn whatever_else_changes_changes_the_hash(value in values()) {
        let same = without_nulls(&value);
        for other in neighbours(&value) {
            if without_nulls(&other) == same {
                continue;
            }
            prop_assert_ne!(hashed(&value), hashed(&other), "{} {}", value, other);
            let texts = [&value, &other].map(|value| wrapped(value).to_string());
            let read = texts.each_ref().map(|text| serde_json::from_str::<Value>(text).unwrap());
            // A reader of JSON rounds a number of many digits, and two neighbours may become one.
            if read[0] != read[1] {
                prop_assert_ne!(answered(&texts[0]), answered(&texts[1]), "{} {}", value, other);
            }
        }
    }

    #[test]
    fn a_member_that_is_null_counts_as_absent(value in values()) {
        prop_assert_eq!(hashed(&value), hashed(&without_nulls(&value)));
        let texts = [wrapped(&value), without_nulls(&wrapped(&value))].map(|value| answered(&value.to_string()));
        prop_assert_eq!(texts[0], texts[1]);
    }
}

#[test]
fn what_the_server_sets_by_itself_does_not_count_and_everything_else_does() {
    let answer = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "a", "uid": "u", "labels": {"generation": "1", "kind": "k"}, "generation": 3,
            "resourceVersion": "5", "managedFields": [{"manager": "m"}]},
        "spec": {"replicas": 1, "metadata": {"generation": 1}, "status": 1, "kind": 1, "apiVersion": 1},
        "status": {"replicas": 1},
        "generation": 1, "resourceVersion": 1, "managedFields": 1,
    });
    let changed = |pointer: &str| {
        let mut changed = answer.clone();
        *changed.pointer_mut(pointer).unwrap() = json!("changed");
        answered(&changed.to_string())
    };
    for pointer in [
        "/apiVersion",
        "/kind",
        "/status",
        "/status/replicas",
        "/metadata/generation",
        "/metadata/resourceVersion",
        "/metadata/managedFields",
    ] {
        assert_eq!(changed(pointer), answered(&answer.to_string()), "{pointer}");
    }
    for pointer in [
        "/metadata/name",
        "/metadata/uid",
        "/metadata/labels/generation",
        "/metadata/labels/kind",
        "/spec/metadata/generation",
        "/spec/status",
        "/spec/kind",
        "/spec/apiVersion",
        "/generation",
        "/resourceVersion",
        "/managedFields",
    ] {
        assert_ne!(changed(pointer), answered(&answer.to_string()), "{pointer}");
    }
    let mut left = answer.clone();
    left.as_object_mut().unwrap().retain(|key, _| !["apiVersion", "kind", "status"].contains(&key.as_str()));
    let metadata = left["metadata"].as_object_mut().unwrap();
    metadata.retain(|key, _| !["generation", "resourceVersion", "managedFields"].contains(&key.as_str()));
    assert_eq!(answered(&answer.to_string()), hashed(&left));
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Shape {
    Point,
    Circle(u8),
    Line(u8, Option<i8>),
    Box { width: u64, depth: Option<u64>, r#type: &'static str },
}

#[derive(Serialize)]
struct Unit;

#[derive(Serialize)]
struct Pair(char, f32);

/// Everything that serde's model has.
#[derive(Serialize)]
struct Everything {
    shapes: Vec<Shape>,
    numbers: (i8, i16, i32, i64, u8, u16, u32, u64, i128, u128),
    floats: (f32, f64, f64),
    flag: bool,
    nothing: Option<bool>,
    something: Option<bool>,
    unit: (),
    units: [Unit; 1],
    pair: Pair,
    by_number: BTreeMap<i32, u8>,
    by_flag: BTreeMap<bool, u8>,
    by_letter: BTreeMap<char, u8>,
}

#[test]
fn a_typed_value_hashes_as_the_json_that_it_is_encoded_to() {
    let everything = Everything {
        shapes: vec![
            Shape::Point,
            Shape::Circle(1),
            Shape::Line(1, None),
            Shape::Box { width: 1, depth: None, r#type: "b" },
        ],
        numbers: (-1, -2, -3, i64::MIN, 1, 2, 3, u64::MAX, -9, 9),
        floats: (0.5, -1.0, f64::NAN),
        flag: true,
        nothing: None,
        something: Some(false),
        unit: (),
        units: [Unit],
        pair: Pair('é', 1.5),
        by_number: BTreeMap::from([(-1, 1), (2, 2)]),
        by_flag: BTreeMap::from([(true, 1)]),
        by_letter: BTreeMap::from([('a', 1)]),
    };
    let text = serde_json::to_string(&everything).unwrap();
    assert_eq!(hashed(&everything), answered(&text));
    let bytes = serde_json::to_string(&[1_u8, 2]).unwrap();
    struct Bytes;
    impl Serialize for Bytes {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(&[1, 2])
        }
    }
    assert_eq!(hashed(&Bytes), answered(&bytes));
    let deployment = json!({"metadata": {"name": "a"}, "spec": {"selector": {}, "template": {}}});
    let typed: Deployment = serde_json::from_value(deployment).unwrap();
    let value = serde_json::to_value(&typed).unwrap();
    assert_eq!(hashed(&typed), hashed(&value));
}

#[test]
fn numbers_beyond_64_bits_count_in_full() {
    let wide = [i128::MAX, i128::MAX - 1, i128::MAX ^ 1 << 100, i128::MIN, i128::from(u64::MAX) + 1];
    for (at, number) in wide.iter().enumerate() {
        assert!(wide[at + 1..].iter().all(|other| hashed(number) != hashed(other)));
    }
    assert!(hash_of(&u128::MAX, &hasher()).is_err());
}

#[test]
fn another_seed_gives_another_hash() {
    let other = hash_of(&json!({"a": 1}), &FixedState::with_seed(8)).unwrap();
    assert_ne!(other, hashed(&json!({"a": 1})));
}

#[test]
fn what_is_no_json_is_an_error_without_its_values() {
    for text in ["", "{", r#"{"a": hunter2}"#, "{} hunter2", r#"{"a":}"#, "[1,]"] {
        let error = hash_of_answer(text.as_bytes(), &hasher()).unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    let no_key = BTreeMap::from([(vec!["hunter2"], 1)]);
    let error = hash_of(&no_key, &hasher()).unwrap_err();
    assert!(!error.to_string().contains("hunter2"), "{error}");
    assert!(hash_of(&BTreeMap::from([(None::<u8>, 1)]), &hasher()).is_err());
    assert!(hash_of(&BTreeMap::from([((), 1)]), &hasher()).is_err());
}
