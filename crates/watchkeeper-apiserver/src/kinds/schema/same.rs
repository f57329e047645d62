//! Comparison of an object with its previous state. Results are remembered, so nested parts are compared once.

use std::collections::BTreeMap;
use std::ptr;

use serde_json::Value;

/// Smaller parts are compared again, which is faster than remembering them.
const SMALL: usize = 32;

/// The number of characters that count as one value.
const CHARACTERS: usize = 64;

/// The results of comparing two objects, which must not change meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Same {
    known: BTreeMap<(usize, usize), bool>,
    #[cfg(test)]
    compared: usize,
}

impl Same {
    /// Returns whether a part is unchanged.
    pub(crate) fn is(&mut self, value: &Value, old: &Value) -> bool {
        self.compare(value, old).0
    }

    /// Returns whether a part is unchanged, and the number of values compared.
    fn compare(&mut self, value: &Value, old: &Value) -> (bool, usize) {
        #[cfg(test)]
        {
            self.compared += 1;
        }
        let key = (ptr::from_ref(value) as usize, ptr::from_ref(old) as usize);
        let mut work = 1;
        let same = match (value, old) {
            (Value::String(text), Value::String(before)) => {
                return (text == before, 1 + text.len() / CHARACTERS);
            }
            (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_))
                if let Some(known) = self.known.get(&key) =>
            {
                return (*known, 1);
            }
            (Value::Array(list), Value::Array(before)) => {
                let mut pairs = list.iter().zip(before);
                list.len() == before.len() && pairs.all(|(one, other)| self.add(one, other, &mut work))
            }
            (Value::Object(map), Value::Object(before)) => {
                let mut parts = map.iter();
                map.len() == before.len()
                    && parts.all(|(name, part)| {
                        before.get(name).is_some_and(|other| self.add(part, other, &mut work))
                    })
            }
            _ => return (value == old, 1),
        };
        if work >= SMALL {
            self.known.insert(key, same);
        }
        (same, work)
    }

    fn add(&mut self, value: &Value, old: &Value, work: &mut usize) -> bool {
        let (same, more) = self.compare(value, old);
        *work += more;
        same
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_are_compared_once_however_deep_they_are() {
        const DEPTH: usize = 80;
        const LENGTH: usize = 100;
        let nested =
            |last: i32| (0..DEPTH).fold(json!(last), |inner, _| json!({"a": vec![1; LENGTH], "z": inner}));
        let (value, old) = (nested(1), nested(2));
        let (mut same, mut at) = (Same::default(), (&value, &old));
        while at.0.is_object() {
            assert!(!same.is(at.0, at.1));
            assert!(same.is(&at.0["a"], &at.1["a"]));
            at = (&at.0["z"], &at.1["z"]);
        }
        assert!(same.compared < 3 * DEPTH * LENGTH, "{} values were compared", same.compared);
    }

    #[test]
    fn parts_are_the_same_if_they_are_equal() {
        let values = [
            json!(null),
            json!(1),
            json!(1.0),
            json!("a"),
            json!([]),
            json!({}),
            json!([1, 2]),
            json!([2, 1]),
            json!({"a": 1}),
            json!({"b": 1}),
            json!({"a": 1, "b": [1, {"c": "d"}]}),
        ];
        for value in &values {
            for old in &values {
                assert_eq!(Same::default().is(value, old), value == old, "{value} {old}");
            }
        }
    }
}
