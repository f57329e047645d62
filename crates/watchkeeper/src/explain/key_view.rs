//! The explanation of one object: verdict, record, timeline and children.

use serde::{Deserialize, Serialize};

use super::view::KindView;
use crate::workqueue::KeyState;

/// The answer to "why is this object not reconciled?": `/debug/explain`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Explanation {
    /// The time of this view.
    pub at: String,
    /// The kind of the object.
    pub kind: KindView,
    /// The key: `NAMESPACE/NAME`, or `NAME` if the kind has no namespaces.
    pub key: String,
    /// The most serious of the verdicts of [`views`](Self::views).
    pub verdict: Verdict,
    /// The object as each controller sees it that watches its kind: those that reconcile it first.
    pub views: Vec<KeyView>,
}

/// One or two sentences about an object, with what to do next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Verdict {
    /// How serious it is.
    pub level: Level,
    /// The causes, the most fundamental one first, as stable words such as `failing` or `watchDown`.
    pub causes: Vec<String>,
    /// The sentences.
    pub text: String,
}

/// How serious a verdict is, in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Level {
    /// Nothing is to be done.
    #[default]
    Ok,
    /// A reconcile is under way, or comes by itself.
    Pending,
    /// Nothing is wrong, but the object is not reconciled as one may expect.
    Notice,
    /// Something is wrong.
    Problem,
}

/// An object as one controller sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct KeyView {
    /// The controller.
    pub controller: String,
    /// The relation of the object to the keys of the controller.
    pub relation: ViewRelation,
    /// What is the matter.
    pub verdict: Verdict,
    /// The state of the key; [`KeyState::Unknown`] for a related object, which is no key of the controller.
    pub state: KeyState,
    /// The time since which it is in this state, if that is known.
    pub since: Option<String>,
    /// The time at which it becomes ready, if it is retrying, delayed or parked.
    pub until: Option<String>,
    /// The number of keys that are handed out before it, if it waits.
    pub behind: Option<usize>,
    /// The number of the worker that has it, from 1 on, if it runs and that is known.
    pub worker: Option<usize>,
    /// The number of failures in a row.
    pub failures: u32,
    /// The last error, also if a success came after it.
    pub last_error: Option<ErrorView>,
    /// How the last run ended.
    pub last_outcome: Option<OutcomeView>,
    /// The time of the last success.
    pub last_success: Option<String>,
    /// The versions of the object.
    pub versions: VersionsView,
    /// Whether the object is being deleted.
    pub deleting: bool,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// The writes of the last run that the caches have not seen; at most 100.
    pub waits_for: Vec<PendingWriteView>,
    /// The number of such writes that were left off.
    pub waits_for_left_off: usize,
    /// The keys that a change of a related object reconciles, at most 100; empty for a key of the controller itself.
    pub maps_to: Vec<String>,
    /// The number of such keys that were left off.
    pub maps_to_left_off: usize,
    /// What happened and what will, in the order of time.
    pub timeline: Vec<TimelineEntry>,
    /// The cached objects that it controls.
    pub children: Vec<ChildView>,
    /// The number of children that were left off.
    pub children_left_off: usize,
    /// The kinds of which it is not known whether it has children: their caches have more than 10,000 objects, and no
    /// index of them by controller.
    pub children_unknown: Vec<String>,
}

/// The relation of an object to the keys of a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum ViewRelation {
    /// The controller reconciles it.
    #[default]
    Itself,
    /// The controller reconciles its owner.
    Owner,
    /// A function of the controller says which keys are reconciled after its changes.
    Mapping,
}

/// A failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ErrorView {
    /// The time at which the run ended.
    pub at: String,
    /// The error and its causes; the first 512 bytes of them.
    pub message: String,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct OutcomeView {
    /// `success`, `requeueAfter`, `error`, `terminal`, `panic` or `timeout`.
    pub result: String,
    /// The time at which the run ended.
    pub at: String,
    /// How long the run took.
    pub seconds: f64,
}

/// The versions of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct VersionsView {
    /// The version in the cache; none if the object is not there.
    pub cached: Option<String>,
    /// The version that the last run saw, however it ended; none if no run is remembered.
    pub reconciled: Option<String>,
    /// The version that the last successful run saw; none if none is remembered.
    pub succeeded: Option<String>,
    /// The highest version of any object that its reconciles wrote and a cache has not seen; none if the caches have seen
    /// all of them.
    pub written: Option<String>,
}

/// A write that a cache has not seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct PendingWriteView {
    /// The kind of the written object, if it is known.
    pub kind: String,
    /// The name of the written object.
    pub name: String,
    /// The version that the server answered; none for a delete, or if it is not known.
    pub version: Option<String>,
    /// The version that the cache has.
    pub cached: Option<String>,
    /// Whether the object was deleted.
    pub deleted: bool,
    /// The time of the answer.
    pub at: String,
}

/// Something that happened to a key, or will.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct TimelineEntry {
    /// When; in the future for what is due.
    pub at: String,
    /// What kind of thing.
    pub kind: TimelineKind,
    /// What, as a clause.
    pub text: String,
}

/// The kind of an entry of a timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum TimelineKind {
    /// Something led to a run.
    #[default]
    Trigger,
    /// A run began or ended well.
    Run,
    /// A run failed.
    Error,
    /// A run wrote an object.
    Write,
    /// An event was recorded.
    Event,
    /// A run will be due.
    Due,
}

/// An object that another one controls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ChildView {
    /// Its kind.
    pub kind: String,
    /// The API group of its kind; empty for the core group.
    pub group: String,
    /// Its key: `NAMESPACE/NAME`, or `NAME`.
    pub key: String,
    /// Its cached version.
    pub version: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The controller of this program that reconciles it, if there is one.
    pub controller: Option<String>,
    /// Its state there.
    pub state: Option<KeyState>,
    /// The objects that it controls.
    pub children: Vec<ChildView>,
}
