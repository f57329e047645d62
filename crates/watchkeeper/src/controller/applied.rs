//! Decides whether a server-side apply can be skipped, from what the last one sent and what it was answered.

#[cfg(test)]
use std::fmt;
use std::hash::BuildHasher;
use std::num::NonZeroU64;
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::clock::{Generator, Instant};
use crate::env::Env;
use crate::object::{JsonError, ObjectName, ResourceVersion};

/// After which time, a tenth more or less, an apply is sent although nothing has changed.
const FORCED: Duration = Duration::from_secs(10 * 3600);

/// Equal applies of a child within [`WINDOW`]; one more waits.
const SENDS: usize = 3;

const WINDOW: Duration = Duration::from_secs(60);

/// The memory of a controller's applies: one entry per child, by the owner whose reconcile applied it.
///
/// It is pure: it sends nothing, and the time is passed in. Reconciles of one owner must not run at the same time, as the work queue
/// ensures. Entries live until their owner is forgotten, or until they decide nothing any more.
#[derive(Debug)]
pub(crate) struct Applied {
    start: Instant,
    hasher: FixedState,
    generator: Generator,
    /// The children of each owner, sorted by id. No list is empty.
    owners: Mutex<HashMap<ObjectName, Box<[Entry]>, FixedState>>,
}

/// An object that a reconcile applies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) name: &'a ObjectName,
}

/// A child as the informer cache has it.
#[derive(Clone, Copy)]
pub(crate) enum Cached<'a> {
    /// No informer watches the kind.
    NoCache,
    /// The cache has no such object.
    Absent,
    /// The cache has the metadata of the object only.
    Metadata { uid: &'a str, version: &'a ResourceVersion, deleting: bool },
    /// The cache has the object; `hash` is called only if its version is new.
    ///
    /// A cache with a transform has other fields than the server's answer: the same transform must be applied to the answer before it is
    /// hashed, or every new version of the child is sent.
    Object {
        uid: &'a str,
        version: &'a ResourceVersion,
        deleting: bool,
        /// [`hash_of_answer`](super::canonical::hash_of_answer) of the object's JSON.
        hash: &'a dyn Fn() -> Result<u64, JsonError>,
    },
}

/// What to do with an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The child is as the last apply left it.
    Skip,
    /// Send it, and tell [`Applied::sent`] the answer.
    Send,
    /// The same apply was sent `sends` times within a minute and did not last: do not send before `until`.
    ///
    /// With a full cache this is another manager of the same fields, or somebody who deletes the child. With the metadata only, it may be
    /// a child whose status changes often.
    Fighting { sends: usize, until: Instant },
}

/// What the server answered to an apply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) uid: &'a str,
    pub(crate) version: &'a ResourceVersion,
    /// [`hash_of_answer`](super::canonical::hash_of_answer) of the object's JSON.
    pub(crate) hash: u64,
}

/// What is remembered of a child.
#[derive(Debug)]
struct Entry {
    /// The hash of group, kind and name.
    id: u64,
    uid: Uid,
    /// The hash of what was sent last.
    desired: u64,
    /// The hash of the answer to it.
    answer: u64,
    /// A version at which the child had the hash `answer`.
    equal_at: Option<NonZeroU64>,
    /// When the next apply is sent in any case; [`Tick::PAST`] if the answer to one is unknown.
    forced: Tick,
    /// When `desired` was sent, the last time first.
    sends: [Tick; SENDS],
}

/// The time since the memory was made, in steps of 50 ms: enough for almost seven years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tick(u32);

impl Tick {
    /// Before everything.
    const PAST: Self = Self(0);
    const START: Self = Self(1);
    const STEP: Duration = Duration::from_millis(50);

    fn after(self, time: Duration) -> Self {
        let steps = time.as_millis() / Self::STEP.as_millis();
        Self(self.0.saturating_add(u32::try_from(steps).unwrap_or(u32::MAX)))
    }

    /// Whether it lies within the last minute.
    fn is_recent(self, now: Self) -> bool {
        self != Self::PAST && now < self.after(WINDOW)
    }
}

/// A uid; nearly all are UUIDs.
#[derive(Debug)]
enum Uid {
    Uuid([u8; 16]),
    Other(Box<str>),
}

impl Entry {
    fn is_fighting(&self, now: Tick) -> bool {
        self.sends.iter().all(|sent| sent.is_recent(now))
    }

    /// Whether it still decides anything: a later apply would be sent without it, too.
    fn is_useful(&self, now: Tick) -> bool {
        now < self.forced || self.sends[0].is_recent(now)
    }
}

impl<'a> Cached<'a> {
    /// The uid and version of a child that exists and is not being deleted.
    fn alive(&self) -> Option<(&'a str, &'a ResourceVersion)> {
        match *self {
            Self::Metadata { uid, version, deleting: false }
            | Self::Object { uid, version, deleting: false, .. } => Some((uid, version)),
            _ => None,
        }
    }

    /// The hash of the child; `None` where the cache does not have it, or has something that cannot be hashed.
    fn hash(&self) -> Option<u64> {
        match self {
            Self::Object { hash, .. } => hash().ok(),
            _ => None,
        }
    }
}

impl Applied {
    pub(crate) fn new(env: &Env) -> Self {
        let generator = env.generator.fork("applied");
        let (hasher, names) = (generator.hasher(), generator.hasher());
        let owners = Mutex::new(HashMap::with_hasher(names));
        Self { start: env.clock.now(), hasher, generator, owners }
    }

    /// The hasher for all hashes that are passed in.
    pub(crate) fn hasher(&self) -> &FixedState {
        &self.hasher
    }

    /// Decides about an apply of `child` with the hash `desired`.
    ///
    /// After `Send`, the child counts as unknown until [`sent`](Self::sent) is called: if the answer is lost, the next apply is sent.
    pub(crate) fn decide(
        &self,
        now: Instant,
        owner: &ObjectName,
        child: Child<'_>,
        desired: u64,
        cached: Cached<'_>,
    ) -> Decision {
        let (tick, seen) = (self.tick(now), cached.alive());
        let known = self.with(owner, child, |entry| {
            let is_same = entry.desired == desired;
            let is_candidate =
                is_same && tick < entry.forced && seen.is_some_and(|(uid, _)| entry.uid == *uid);
            let fighting_since = (is_same && entry.is_fighting(tick)).then(|| entry.sends[SENDS - 1]);
            (is_candidate.then_some((entry.equal_at, entry.answer)), fighting_since)
        });
        let Some((candidate, fighting_since)) = known else { return Decision::Send };
        if let (Some((equal_at, answer)), Some((_, version))) = (candidate, seen) {
            let version = self.version(version);
            if version.is_some() && version == equal_at {
                return Decision::Skip;
            }
            // The lock is not held here: a hash takes a while.
            if cached.hash() == Some(answer) || planted!(BlindSkip) {
                self.with(owner, child, |entry| entry.equal_at = version);
                return Decision::Skip;
            }
        }
        // What nobody watches brings no reconcile back: many applies of it are no fight.
        if let Some(oldest) = fighting_since.filter(|_| !matches!(cached, Cached::NoCache)) {
            return Decision::Fighting { sends: SENDS, until: self.time(oldest.after(WINDOW)) };
        }
        if planted!(FailedApplyCounts) {
            self.with(owner, child, |entry| entry.desired = desired);
            return Decision::Send;
        }
        self.with(owner, child, |entry| entry.forced = Tick::PAST);
        Decision::Send
    }

    /// Remembers that `desired` was sent, and its answer.
    ///
    /// The owner exists, or a call of [`forget_owner`](Self::forget_owner) follows.
    pub(crate) fn sent(
        &self,
        now: Instant,
        owner: &ObjectName,
        child: Child<'_>,
        desired: u64,
        answer: Answer<'_>,
    ) {
        let now = self.tick(now);
        let mut entry = Entry {
            id: self.id(child),
            uid: Uid::from(answer.uid),
            desired,
            answer: answer.hash,
            equal_at: self.version(answer.version),
            forced: now.after(FORCED.mul_f64(0.9 + 0.2 * self.generator.unit())),
            sends: [now, Tick::PAST, Tick::PAST],
        };
        let mut owners = self.owners.lock();
        let entries = owners.entry_ref(owner).or_default();
        match entries.binary_search_by_key(&entry.id, |entry| entry.id) {
            Ok(at) => {
                if entries[at].desired == desired {
                    let [last, before, _] = entries[at].sends;
                    entry.sends = [now, last, before];
                }
                entries[at] = entry;
            }
            Err(_) => insert(entries, entry, now),
        }
    }

    #[cfg(test)]
    /// The uid of the child in the last answer; `None` where none is remembered.
    pub(crate) fn uid(&self, owner: &ObjectName, child: Child<'_>) -> Option<String> {
        self.with(owner, child, |entry| entry.uid.to_string())
    }

    /// Forgets a child, such as one that the controller has deleted.
    pub(crate) fn forget_child(&self, owner: &ObjectName, child: Child<'_>) {
        let id = self.id(child);
        let mut owners = self.owners.lock();
        let Some(entries) = owners.get_mut(owner) else { return };
        let mut left = std::mem::take(entries).into_vec();
        left.retain(|entry| entry.id != id);
        if left.is_empty() {
            owners.remove(owner);
        } else {
            *entries = left.into_boxed_slice();
        }
    }

    /// Forgets an owner that is gone, and its children.
    pub(crate) fn forget_owner(&self, owner: &ObjectName) {
        let mut owners = self.owners.lock();
        owners.remove(owner);
        // A burst of owners does not hold its memory for ever.
        if owners.capacity() > 1_024 && owners.len() < owners.capacity() / 4 {
            owners.shrink_to_fit();
        }
    }

    fn with<T>(&self, owner: &ObjectName, child: Child<'_>, work: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let id = self.id(child);
        let mut owners = self.owners.lock();
        let entries = owners.get_mut(owner)?;
        let at = entries.binary_search_by_key(&id, |entry| entry.id).ok()?;
        Some(work(&mut entries[at]))
    }

    fn id(&self, child: Child<'_>) -> u64 {
        self.hasher.hash_one((child.group, child.kind, child.name))
    }

    /// What is compared of a version; `None` for one that says nothing.
    fn version(&self, version: &ResourceVersion) -> Option<NonZeroU64> {
        let opaque = || (!version.is_unset()).then(|| self.hasher.hash_one(version));
        version.as_number().or_else(opaque).and_then(NonZeroU64::new)
    }

    fn tick(&self, now: Instant) -> Tick {
        Tick::START.after(now.saturating_duration_since(self.start))
    }

    fn time(&self, tick: Tick) -> Instant {
        self.start + Tick::STEP * (tick.0 - Tick::START.0)
    }
}

/// Adds an entry to a sorted list. What decides nothing any more is dropped on the way, so that children whose names change do not pile up.
fn insert(entries: &mut Box<[Entry]>, entry: Entry, now: Tick) {
    let mut list = std::mem::take(entries).into_vec();
    list.retain(|entry| entry.is_useful(now));
    list.reserve_exact(1);
    let at = list.partition_point(|other| other.id < entry.id);
    list.insert(at, entry);
    *entries = list.into_boxed_slice();
}

/// Where the hyphens of a UUID stand.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// Where its pairs of digits stand.
const PAIRS: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

/// The bytes of a UUID in its usual form, in lower case.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let text: &[u8; 36] = text.as_bytes().try_into().ok()?;
    if HYPHENS.iter().any(|at| text[*at] != b'-') {
        return None;
    }
    let digit = |at: usize| match text[at] {
        digit @ b'0'..=b'9' => Some(digit - b'0'),
        digit @ b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; 16];
    for (byte, at) in bytes.iter_mut().zip(PAIRS) {
        *byte = digit(at)? << 4 | digit(at + 1)?;
    }
    Some(bytes)
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        uuid(text).map_or_else(|| Self::Other(text.into()), Self::Uuid)
    }
}

impl PartialEq<str> for Uid {
    fn eq(&self, text: &str) -> bool {
        match self {
            Self::Uuid(bytes) => uuid(text).as_ref() == Some(bytes),
            Self::Other(other) => **other == *text,
        }
    }
}

#[cfg(test)]
impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(bytes) => {
                let hex = format!("{:032x}", u128::from_be_bytes(*bytes));
                write!(f, "{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
            }
            Self::Other(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests;
