//! Elements of merged lists: their identity and order.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Result;
use super::error::StrategicError;

const MAP: &str = "map[string]interface {}";

/// Returns the identity of an element: its merge key, or the whole value. Encoded as JSON, so that values of different
/// types differ.
pub(super) fn id_of(element: &Value, key: Option<&'static str>) -> Result<String> {
    let Some(key) = key else { return Ok(element.to_string()) };
    match element {
        Value::Object(map) => key_of(map, key),
        other => Err(StrategicError::WrongType { wanted: MAP, found: other.clone() }),
    }
}

pub(super) fn key_of(element: &Map<String, Value>, key: &'static str) -> Result<String> {
    match element.get(key) {
        Some(value) => Ok(value.to_string()),
        None => Err(StrategicError::NoMergeKey { element: element.clone(), key }),
    }
}

/// The first position of each element.
#[derive(Debug, Default)]
pub(super) struct Ranks(BTreeMap<String, usize>);

impl Ranks {
    pub(super) fn of(list: &[Value], key: Option<&'static str>) -> Result<Self> {
        let mut ranks = Self::default();
        for (at, element) in list.iter().enumerate() {
            ranks.add(id_of(element, key)?, at);
        }
        Ok(ranks)
    }

    pub(super) fn get(&self, id: &str) -> Option<usize> {
        self.0.get(id).copied()
    }

    /// Adds an element; returns false if its identity exists.
    pub(super) fn add(&mut self, id: String, at: usize) -> bool {
        let new = !self.0.contains_key(&id);
        self.0.entry(id).or_insert(at);
        new
    }
}

/// Orders the elements by `order`; others keep their position relative to those that were there `before`.
pub(super) fn arrange(
    merged: Vec<Value>,
    key: Option<&'static str>,
    order: &Ranks,
    before: &Ranks,
) -> Result<Vec<Value>> {
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for element in merged {
        let id = id_of(&element, key)?;
        let place = before.get(&id);
        match order.get(&id) {
            Some(rank) => named.push((rank, place, element)),
            None => others.push((place, element)),
        }
    }
    named.sort_by_key(|(rank, ..)| *rank);
    others.sort_by_key(|(place, _)| place.unwrap_or(usize::MAX));
    let mut result = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, place, element) in named {
        while let (Some(place), Some((Some(other), _))) = (place, others.peek())
            && *other < place
        {
            result.extend(others.next().map(|(_, element)| element));
        }
        result.push(element);
    }
    result.extend(others.map(|(_, element)| element));
    Ok(result)
}

/// Refuses a patch whose elements are in another order than its `$setElementOrder`.
pub(super) fn check_order(patch: &[Value], order: &[Value], key: Option<&'static str>) -> Result<()> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    if let (Some(_), Some(found)) = (key, patch.iter().find(|element| !element.is_object())) {
        return Err(StrategicError::WrongType { wanted: MAP, found: found.clone() });
    }
    let directive = |element: &Value| element.get("$patch").cloned();
    let mut elements =
        patch.iter().filter(|element| directive(element).is_none_or(|found| found != "delete")).peekable();
    let mut wanted = order.iter();
    while let Some(element) = elements.peek() {
        if wanted.len() > 0 && directive(element).is_some() {
            elements.next();
            continue;
        }
        let Some(next) = wanted.next() else {
            return Err(StrategicError::Order { patch: patch.to_vec(), order: order.to_vec() });
        };
        if id_of(element, key)? == id_of(next, key)? {
            elements.next();
        }
    }
    Ok(())
}

/// Returns whether the elements are objects; all must have one type.
pub(super) fn are_objects(current: &[Value], patch: &[Value]) -> Result<bool> {
    let mut elements = current.iter().chain(patch);
    let first = elements.next().ok_or(StrategicError::NoElements)?;
    if first.is_array() {
        return Err(StrategicError::ListOfLists);
    }
    if elements.any(|element| std::mem::discriminant(element) != std::mem::discriminant(first)) {
        return Err(StrategicError::Mixed(current.to_vec(), patch.to_vec()));
    }
    Ok(first.is_object())
}
