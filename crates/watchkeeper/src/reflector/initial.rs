//! The objects of a streamed list, collected until the list is complete.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::object::{Object, ObjectName};
use crate::wire::WatchEventType;

/// Objects in the order of arrival; later events about an object replace or remove it.
#[derive(Debug)]
pub(super) struct Initial<K> {
    objects: Vec<Option<Object<K>>>,
    places: HashMap<ObjectName, usize, FixedState>,
}

impl<K> Initial<K> {
    pub(super) fn new(hasher: FixedState) -> Self {
        Self { objects: Vec::new(), places: HashMap::with_hasher(hasher) }
    }

    pub(super) fn apply(&mut self, event: &WatchEventType, object: Object<K>) {
        let key = object.key();
        let place = self.places.get(&key).copied();
        match (event, place) {
            (WatchEventType::Deleted, _) => self.remove(&key),
            (_, Some(place)) => self.objects[place] = Some(object),
            (_, None) => {
                self.places.insert(key, self.objects.len());
                self.objects.push(Some(object));
            }
        }
    }

    /// Keeps an older state of an object whose new one is unusable, unless the list already contains one.
    pub(super) fn keep(&mut self, object: Object<K>) {
        if !self.places.contains_key(&object.key()) {
            self.apply(&WatchEventType::Added, object);
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectName) {
        if let Some(place) = self.places.remove(key) {
            self.objects[place] = None;
        }
    }

    pub(super) fn into_objects(self) -> Vec<Object<K>> {
        self.objects.into_iter().flatten().collect()
    }
}
