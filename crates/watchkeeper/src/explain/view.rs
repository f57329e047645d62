//! Views of a program: its controllers, their keys, its informers and its leader.
//!
//! All times are RFC 3339 with milliseconds, in UTC; all durations are seconds. Fields are added in later versions, and
//! none is renamed. No view has contents of objects.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::workqueue::KeyState;

/// The program at one moment: `/debug/controllers`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Overview {
    /// The time of this view.
    pub at: String,
    /// The name of the program: that of its manager.
    pub program: String,
    /// What the program is doing.
    pub phase: ProgramPhase,
    /// The leader election; none if there is no election.
    pub leader: Option<LeaderView>,
    /// The controllers, by name.
    pub controllers: Vec<ControllerView>,
    /// The informers in numbers.
    pub informers: InformerSummary,
}

/// The phase of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum ProgramPhase {
    /// Its controllers have not started: it waits for its caches.
    #[default]
    Starting,
    /// Another replica leads.
    Standby,
    /// Its controllers run.
    Running,
    /// Its controllers start no reconciles any more.
    Stopping,
}

/// The leader election of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct LeaderView {
    /// The name of the Lease.
    pub lease: String,
    /// The identity of this replica.
    pub identity: String,
    /// The identity of the leader as this replica last saw it; empty if there is none.
    pub leader: String,
    /// Whether this replica leads.
    pub is_leader: bool,
}

/// A kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct KindView {
    /// The API group; empty for the core group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The kind, such as `Deployment`.
    pub kind: String,
    /// The plural name, such as `deployments`.
    pub plural: String,
}

/// A controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ControllerView {
    /// The name of the controller.
    pub name: String,
    /// The kind that it reconciles.
    pub kind: KindView,
    /// The other kinds whose changes lead to reconciles.
    pub related: Vec<RelatedView>,
    /// The number of workers.
    pub workers: usize,
    /// The number of workers that reconcile now.
    pub active: usize,
    /// Whether no reconcile starts, as a cache is out of date.
    pub paused: bool,
    /// The number of keys by state.
    pub keys: KeyCounts,
    /// How long the key that has waited longest for a worker has waited; none if no key waits.
    pub oldest_waiting_seconds: Option<f64>,
    /// How long the oldest current reconcile has been running; none if none runs.
    pub longest_running_seconds: Option<f64>,
    /// The number of adds that led to a run of their own, since the start.
    pub adds: u64,
    /// The number of delayed adds, since the start.
    pub retries: u64,
    /// The number of adds by cause (`itself`, `owner`, `mapping`, `initial_list`, `resync`, `retry`, `requeue`,
    /// `own_writes`, `external`, `manual`), since the start.
    pub triggers: BTreeMap<String, u64>,
    /// The number of reconciles by result (`success`, `requeue_after`, `error`), since the start.
    pub reconciles: BTreeMap<String, u64>,
    /// How many of the errors are not retried, since the start.
    pub terminal_errors: u64,
    /// How many of the errors were panics, since the start.
    pub panics: u64,
    /// How many of the errors were timeouts, since the start.
    pub timeouts: u64,
    /// How long reconciles took.
    pub reconcile_time: HistogramView,
    /// The time from the arrival of a changed object to the end of the reconcile that saw it.
    pub latency: HistogramView,
}

/// A kind whose changes lead to reconciles of another kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct RelatedView {
    /// The kind.
    pub kind: KindView,
    /// `owner` if the owner of an object is reconciled, `mapping` if a function says which keys are.
    pub relation: String,
}

/// The number of keys in each state. Keys in two states count in the one that [`KeyState`] names first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct KeyCounts {
    /// See [`KeyState::Running`].
    pub running: usize,
    /// See [`KeyState::Waiting`].
    pub waiting: usize,
    /// See [`KeyState::Parked`].
    pub parked: usize,
    /// See [`KeyState::Retrying`].
    pub retrying: usize,
    /// See [`KeyState::Delayed`].
    pub delayed: usize,
    /// See [`KeyState::Failed`].
    pub failed: usize,
    /// See [`KeyState::Idle`].
    pub idle: usize,
    /// See [`KeyState::Cached`].
    pub cached: usize,
}

/// A histogram.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct HistogramView {
    /// The number of durations.
    pub count: u64,
    /// The sum of all durations.
    pub sum_seconds: f64,
    /// The buckets that are not empty, in the order of their bounds.
    pub buckets: Vec<BucketView>,
}

/// A bucket of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct BucketView {
    /// The upper bound; none for the last bucket, which has none.
    pub up_to_seconds: Option<f64>,
    /// The number of durations in this bucket and in none before.
    pub count: u64,
}

/// A page of the keys of a controller: `/debug/controllers/NAME/keys`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct KeysPage {
    /// The time of this view.
    pub at: String,
    /// The controller.
    pub controller: String,
    /// The kind of the keys.
    pub kind: KindView,
    /// The number of all keys by state.
    pub counts: KeyCounts,
    /// The number of keys that the question matches, on this page and others.
    pub matched: usize,
    /// The keys of this page.
    pub keys: Vec<KeySummary>,
    /// The parameter `continue` of the next page; none on the last one.
    #[serde(rename = "continue")]
    pub next: Option<String>,
    /// The parameter `continue` of the page before; none on the first one.
    pub previous: Option<String>,
}

/// A key in a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct KeySummary {
    /// The key: `NAMESPACE/NAME`, or `NAME` if the kind has no namespaces.
    pub key: String,
    /// Its state.
    pub state: KeyState,
    /// The time since which it is in this state, if that is known.
    pub since: Option<String>,
    /// The time at which it becomes ready, if it is retrying, delayed or parked.
    pub until: Option<String>,
    /// The number of failures in a row.
    pub failures: u32,
    /// The last error, if no success came after it; its first 200 bytes.
    pub last_error: Option<String>,
    /// The time of the last success.
    pub last_success: Option<String>,
    /// Its newest trigger.
    pub trigger: Option<String>,
}

/// The informers of a program in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct InformerSummary {
    /// The number of informers.
    pub total: usize,
    /// How many of them have their initial list.
    pub synced: usize,
    /// How many of them are degraded.
    pub degraded: usize,
    /// The number of cached objects.
    pub objects: usize,
    /// The bytes of the cached objects.
    pub bytes: usize,
}

/// An informer: `/debug/informers`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct InformerView {
    /// The plural name and the group of the kind, with scope and selection; unique in a program.
    pub id: String,
    /// The plural name of the kind, with scope and selection if they are narrowed.
    pub name: String,
    /// The kind.
    pub kind: KindView,
    /// The namespace; none for all namespaces.
    pub namespace: Option<String>,
    /// The label selector; empty for all objects.
    pub labels: String,
    /// The field selector; empty for all objects.
    pub fields: String,
    /// `idle`, `listing`, `watching`, `waiting`, `parked` or `stopped`.
    pub phase: String,
    /// Whether it has the initial list.
    pub synced: bool,
    /// The current problem.
    pub degraded: Option<DegradedView>,
    /// The number of cached objects.
    pub objects: usize,
    /// The bytes of the cached objects.
    pub bytes: usize,
    /// The version that the cache reflects.
    pub version: String,
    /// The number of changes that wait to be applied to the cache.
    pub queued: usize,
    /// The time of the last data from the server.
    pub last_contact: Option<String>,
    /// The number of complete lists by reason (`first`, `expired`, ...).
    pub lists: BTreeMap<String, u64>,
    /// The number of opened watches.
    pub watches: u64,
    /// How often the server's history was rewritten.
    pub rewritten: u64,
    /// The time at which the cache was last compared with the server.
    pub verified: Option<String>,
    /// The number of objects that differed in such comparisons.
    pub differences: u64,
    /// Its handlers.
    pub handlers: Vec<HandlerView>,
}

/// The problem of an informer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct DegradedView {
    /// The time at which it began.
    pub since: String,
    /// `unreachable`, `no_permission`, `polled`, `not_served` or `failing`.
    pub cause: String,
    /// The last error; its first 512 bytes.
    pub why: String,
}

/// A handler of an informer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct HandlerView {
    /// The name of the handler.
    pub name: String,
    /// The number of notifications that wait for it.
    pub pending: usize,
    /// The number of notifications that were merged, as it was too far behind.
    pub coalesced: u64,
    /// The number of its panics.
    pub panics: u64,
    /// The number of callbacks that blocked their thread for more than 100 ms.
    pub slow: u64,
}
