//! The events of the benchmark; each is a function of its number, so that a handler can check it.

use watchkeeper::informer::Change;

use crate::serve::{Version, World, small_pod};

/// A sequence of events over small Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Changes of the same objects, in turn.
    Changes { objects: u32, events: u64 },
    /// Objects that are created and deleted under their own names, at most `at_once` at a time.
    ShortLived { at_once: u32, objects: u32 },
}

/// What an event does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Added,
    Modified,
    Deleted,
}

/// One event, as it is sent and as it must be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    kind: Kind,
    /// `namespace/name`.
    key: String,
    version: u64,
}

impl Event {
    /// The event behind a change; none for an object whose last state is not known.
    pub(super) fn of<K>(change: &Change<'_, K>) -> Option<Self> {
        let kind = match change {
            Change::Added { .. } => Kind::Added,
            Change::Updated { .. } => Kind::Modified,
            Change::Deleted(_) => Kind::Deleted,
        };
        let object = change.last_known()?;
        Some(Self { kind, key: object.key().to_string(), version: object.version().as_number()? })
    }
}

const SEED: u64 = 1;

impl Load {
    pub(super) fn changes(objects: u32, events: u64) -> Self {
        Self::Changes { objects, events }
    }

    pub(super) fn short_lived(at_once: u32, objects: u32) -> Self {
        Self::ShortLived { at_once: at_once.min(objects), objects }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Changes { .. } => "changes",
            Self::ShortLived { .. } => "short-lived",
        }
    }

    /// The number of events.
    pub(super) fn events(&self) -> u64 {
        match *self {
            Self::Changes { events, .. } => events,
            Self::ShortLived { objects, .. } => 2 * u64::from(objects),
        }
    }

    /// The list before the first event.
    pub(super) fn list(&self) -> Vec<u8> {
        let head = format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{}"}},"items":["#,
            World::BEFORE
        );
        let mut list = head.into_bytes();
        let initial = match *self {
            Self::Changes { objects, .. } => objects,
            Self::ShortLived { .. } => 0,
        };
        for index in 0..initial {
            if index > 0 {
                list.push(b',');
            }
            small_pod(SEED, index, self.names()).1.write_item(&mut list, &Version::default(), SEED);
        }
        list.extend_from_slice(b"]}");
        list
    }

    /// Appends the watch line of event `number`, counted from 1.
    pub(super) fn write(&self, out: &mut Vec<u8>, number: u64) -> Event {
        let (kind, index) = self.event(number);
        let head = match kind {
            Kind::Added => r#"{"type":"ADDED","object":"#,
            Kind::Modified => r#"{"type":"MODIFIED","object":"#,
            Kind::Deleted => r#"{"type":"DELETED","object":"#,
        };
        let (key, pod) = small_pod(SEED, index, self.names());
        let event = u32::try_from(number).unwrap_or(u32::MAX);
        let status = if kind == Kind::Modified { event } else { 0 };
        out.extend_from_slice(head.as_bytes());
        pod.write_whole(out, &Version { event, status, ..Version::default() }, SEED);
        out.extend_from_slice(b"}\n");
        Event { kind, key, version: World::BEFORE + u64::from(event) }
    }

    /// What event `number` does, and to which object.
    fn event(&self, number: u64) -> (Kind, u32) {
        let place = number.saturating_sub(1);
        let (kind, index) = match *self {
            Self::Changes { objects, .. } => (Kind::Modified, place % u64::from(objects)),
            Self::ShortLived { at_once, objects } => {
                let (at_once, objects) = (u64::from(at_once), u64::from(objects));
                // The first ones come, then one comes and one goes in turn, then the last ones go.
                let turn = place.saturating_sub(at_once);
                if place < at_once {
                    (Kind::Added, place)
                } else if turn >= 2 * (objects - at_once) {
                    (Kind::Deleted, place - objects)
                } else if turn % 2 == 0 {
                    (Kind::Deleted, turn / 2)
                } else {
                    (Kind::Added, at_once + turn / 2)
                }
            }
        };
        (kind, index as u32)
    }

    /// The total number of objects.
    fn names(&self) -> u32 {
        match *self {
            Self::Changes { objects, .. } | Self::ShortLived { objects, .. } => objects,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn changes_go_over_all_objects_in_turn() {
        let load = Load::changes(3, 7);
        let indexes: Vec<_> = (1..=load.events()).map(|number| load.event(number)).collect();
        assert_eq!(indexes, [0, 1, 2, 0, 1, 2, 0].map(|index| (Kind::Modified, index)));
        let list: serde_json::Value = serde_json::from_slice(&load.list()).unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn short_lived_objects_come_and_go_once_each_and_few_at_one_time() {
        for (at_once, objects) in [(3, 10), (1, 5), (5, 5), (100, 4)] {
            let load = Load::short_lived(at_once, objects);
            let (mut there, mut come) = (BTreeSet::new(), BTreeSet::new());
            for number in 1..=load.events() {
                match load.event(number) {
                    (Kind::Added, index) => assert!(come.insert(index) && there.insert(index)),
                    (Kind::Deleted, index) => assert!(there.remove(&index)),
                    (Kind::Modified, _) => panic!("nothing is modified"),
                }
                assert!(there.len() <= at_once as usize);
            }
            assert_eq!((there.len(), come.len()), (0, objects as usize));
        }
    }

    #[test]
    fn an_event_is_a_line_with_the_version_and_name_that_it_must_be_told_with() {
        let (load, mut line) = (Load::short_lived(2, 4), Vec::new());
        let event = load.write(&mut line, 3);
        let read: serde_json::Value = serde_json::from_slice(&line).unwrap();
        let metadata = &read["object"]["metadata"];
        assert_eq!((event.kind, &read["type"]), (Kind::Deleted, &"DELETED".into()));
        assert_eq!(metadata["resourceVersion"], event.version.to_string());
        assert_eq!(
            event.key,
            format!("{}/{}", metadata["namespace"].as_str().unwrap(), metadata["name"].as_str().unwrap())
        );
    }
}
