//! The last events, for those who ask what was said about an object.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::occurrence::Occurrence;
use crate::object::ObjectName;

/// The number of events that are remembered.
const KEPT: usize = 512;

/// The last 512 events of a broadcaster, of all objects together, which it does not keep alive. Clones share them.
#[derive(Clone, Default)]
pub struct RecentEvents(Arc<Mutex<VecDeque<Arc<Occurrence>>>>);

impl RecentEvents {
    pub(super) fn push(&self, event: Arc<Occurrence>) {
        let mut events = self.0.lock();
        let displaced = (events.len() == KEPT).then(|| events.pop_front());
        events.push_back(event);
        // An event may be large, and is dropped without the lock.
        drop(events);
        drop(displaced);
    }

    /// Returns those about an object, the oldest first.
    pub fn about(&self, kind: &str, object: &ObjectName) -> Vec<Arc<Occurrence>> {
        let events = self.0.lock();
        let is_meant = |event: &&Arc<Occurrence>| {
            let regarding = &event.regarding;
            regarding.name.as_deref() == Some(object.name())
                && regarding.kind.as_deref() == Some(kind)
                && regarding.namespace.as_deref().unwrap_or_default()
                    == object.namespace().unwrap_or_default()
        };
        events.iter().filter(is_meant).cloned().collect()
    }
}

impl fmt::Debug for RecentEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecentEvents").field("events", &self.0.lock().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};

    use super::*;
    use crate::env::Env;
    use crate::record::{EventBroadcaster, EventType};

    fn named<K: kube_core::Resource<DynamicType = ()> + Default>(name: &str) -> K {
        let mut object = K::default();
        object.meta_mut().name = Some(name.to_owned());
        object.meta_mut().namespace = Some("default".to_owned());
        object
    }

    #[test]
    fn the_events_about_an_object_are_found_and_bounded() {
        let recorder = EventBroadcaster::new(&Env::simulated(1)).recorder("tester");
        let about = |kind: &str, name: &str| {
            let events = recorder.recent().about(kind, &ObjectName::namespaced("default", name));
            events.iter().map(|event| event.message.clone()).collect::<Vec<_>>()
        };
        recorder.event(&named::<ConfigMap>("a"), EventType::Normal, "Synced", "first");
        recorder.event(&named::<Secret>("a"), EventType::Normal, "Synced", "of another kind");
        recorder.event(&named::<ConfigMap>("b"), EventType::Normal, "Synced", "of another object");
        recorder.event(&named::<ConfigMap>("a"), EventType::Warning, "Failed", "second");
        assert_eq!(about("ConfigMap", "a"), ["first", "second"]);
        for _ in 0..KEPT {
            recorder.event(&named::<ConfigMap>("c"), EventType::Normal, "Synced", "flood");
        }
        assert_eq!((about("ConfigMap", "a").len(), about("ConfigMap", "c").len()), (0, KEPT));
    }
}
