//! The Pods and events, as functions of the seed: events are not stored, only what they change.

use std::collections::{BTreeSet, VecDeque};

use watchkeeper::clock::{Generator, Instant};

use super::pod::{BASE, Pod, Version};

/// All Pods, and all events that change them.
///
/// It has two states: before the events, at version [`World::BEFORE`], and after all of them. Watches may stand anywhere in between. After the
/// events it can be made to forget its history, and every Pod can change while nobody may watch.
#[derive(Debug)]
pub struct World {
    // By namespace, then name.
    pods: Vec<Pod>,
    // Event n is the entry n - 1.
    events: Vec<Event>,
    // Each Pod's version after all events.
    after: Vec<Version>,
    salt: u64,
}

/// What has happened to a world; nothing at first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stage {
    /// When the events began; lists show the state after all of them from then on.
    pub(super) started: Option<Instant>,
    /// How often all versions so far were forgotten.
    pub(super) forgotten: u32,
    /// At which of those times every Pod changed last; 0 is at none.
    pub(super) changed: u32,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    kind: Kind,
    pod: u32,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Added,
    Modified,
    Deleted,
}

/// A Pod under `namespace/name`.
pub(crate) type NamedPod = (String, Pod);

impl World {
    /// The version of the first list.
    pub const BEFORE: u64 = BASE;

    /// A world of `pods`, to which `events` events happen as `generator` says.
    pub(crate) fn new(mut pods: Vec<NamedPod>, events: u32, generator: &Generator) -> Self {
        pods.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let pods: Vec<Pod> = pods.into_iter().map(|(_, pod)| pod).collect();
        let generator = generator.fork("events");
        let mut plan = Plan { versions: vec![Version::default(); pods.len()], ..Plan::default() };
        let count = if pods.is_empty() { 0 } else { events };
        let events = (1..=count).map(|number| plan.next(number, count, &generator)).collect();
        Self { pods, events, after: plan.versions, salt: generator.next_u64() }
    }

    /// How many Pods there are, before the events as after them.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Whether there is no Pod at all.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// The bytes of all Pods before the events, as items of a list.
    pub fn json_bytes(&self) -> usize {
        self.pods.iter().map(Pod::len).sum()
    }

    /// The number of events.
    pub fn events(&self) -> u32 {
        self.events.len() as u32
    }

    /// The version of a list at that stage.
    pub(super) fn list_version(&self, stage: &Stage) -> u64 {
        Self::BEFORE
            + match stage {
                Stage { started: None, forgotten: 0, .. } => 0,
                _ => u64::from(self.changes_before(stage.forgotten)),
            }
    }

    /// Appends Pod `index` as it is before the events, without `kind` and `apiVersion`.
    pub(crate) fn write_first(&self, out: &mut Vec<u8>, index: usize) {
        self.write_item(out, index, &Stage::default());
    }

    /// Appends Pod `index` as an item of a list, without `kind` and `apiVersion`.
    pub(super) fn write_item(&self, out: &mut Vec<u8>, index: usize, stage: &Stage) {
        self.pods[index].write_item(out, &self.version(index, stage), self.salt);
    }

    /// Appends the watch line that shows Pod `index` to a watch that starts without a version.
    pub(super) fn write_initial(&self, out: &mut Vec<u8>, index: usize, stage: &Stage) {
        self.write_line(out, Kind::Added, index, &self.version(index, stage));
    }

    /// Appends the watch line of event `number`, counted from 1.
    pub(crate) fn write_event(&self, out: &mut Vec<u8>, number: u32) {
        let event = &self.events[number as usize - 1];
        self.write_line(out, event.kind, event.pod as usize, &event.version);
    }

    fn write_line(&self, out: &mut Vec<u8>, kind: Kind, index: usize, version: &Version) {
        let head = match kind {
            Kind::Added => r#"{"type":"ADDED","object":"#,
            Kind::Modified => r#"{"type":"MODIFIED","object":"#,
            Kind::Deleted => r#"{"type":"DELETED","object":"#,
        };
        out.extend_from_slice(head.as_bytes());
        self.pods[index].write_whole(out, version, self.salt);
        out.extend_from_slice(b"}\n");
    }

    /// The events, and then, each time that history is forgotten, a change of each Pod and one of something else.
    fn changes_before(&self, forgotten: u32) -> u32 {
        self.events() + forgotten * (self.pods.len() as u32 + 1)
    }

    fn version(&self, index: usize, stage: &Stage) -> Version {
        let version = if stage.started.is_some() { self.after[index] } else { Version::default() };
        match stage.changed {
            0 => version,
            changed => {
                let number = self.changes_before(changed - 1) + 1 + index as u32;
                Version { event: number, status: number, labels: number, annotations: number, ..version }
            }
        }
    }
}

/// The events being drawn, one after the other.
#[derive(Default)]
struct Plan {
    versions: Vec<Version>,
    // Deleted Pods that come back, and the event at which each is due.
    gone: VecDeque<(u32, u32)>,
    // The same Pods: nothing else may happen to them.
    absent: BTreeSet<u32>,
}

impl Plan {
    fn next(&mut self, number: u32, count: u32, generator: &Generator) -> Event {
        // Every deleted Pod is back at the end, so that the number of Pods is the same before and after.
        let left = (count - number) as usize + 1;
        if let Some(&(due, pod)) = self.gone.front()
            && (due <= number || left <= self.gone.len() || self.absent.len() == self.versions.len())
        {
            self.gone.pop_front();
            self.absent.remove(&pod);
            // A new object under the old name, as a StatefulSet makes it.
            let version = Version { event: number, born: number, status: number, labels: 0, annotations: 0 };
            return self.event(Kind::Added, pod, version);
        }
        let pod = loop {
            let pod = generator.below(self.versions.len() as u64) as u32;
            if !self.absent.contains(&pod) {
                break pod;
            }
        };
        let mut version = Version { event: number, ..self.versions[pod as usize] };
        // Two events in a hundred delete, and two in a hundred bring back; kubelets writing status make most of the rest.
        match generator.below(100) {
            0..=1 if left >= self.gone.len() + 2 => {
                self.gone.push_back((number + 1 + generator.below(8) as u32, pod));
                self.absent.insert(pod);
                return self.event(Kind::Deleted, pod, version);
            }
            2..=11 => version.labels = number,
            12..=24 => version.annotations = number,
            _ => version.status = number,
        }
        self.event(Kind::Modified, pod, version)
    }

    fn event(&mut self, kind: Kind, pod: u32, version: Version) -> Event {
        self.versions[pod as usize] = version;
        Event { kind, pod, version }
    }
}
