use std::cell::Cell;

use serde_json::json;

use super::super::canonical::{hash_of, hash_of_answer};
use super::*;

const UID: &str = "0a1b2c3d-4e5f-6789-abcd-ef0123456789";
const OTHER_UID: &str = "0a1b2c3d-4e5f-6789-abcd-ef0123456788";
const DESIRED: u64 = 1;
const ANSWER: u64 = 2;
const CHANGED: u64 = 3;
const HOUR: Duration = Duration::from_secs(3600);

/// A memory, one owner and one child of it.
struct Fixture {
    applied: Applied,
    now: Instant,
    owner: ObjectName,
    name: ObjectName,
    /// How often the cached child was hashed.
    hashed: Cell<u32>,
}

impl Fixture {
    fn new() -> Self {
        let env = Env::simulated(1);
        Self {
            now: env.clock.now(),
            applied: Applied::new(&env),
            owner: ObjectName::namespaced("ns", "site"),
            name: ObjectName::namespaced("ns", "web"),
            hashed: Cell::new(0),
        }
    }

    /// As [`Fixture::new`], after an apply that was answered at version 5.
    fn after_an_apply() -> Self {
        let fixture = Self::new();
        assert_eq!(fixture.decide(DESIRED, Cached::Absent), Decision::Send);
        fixture.sent(DESIRED, 5);
        fixture
    }

    fn child(&self) -> Child<'_> {
        Child { group: "apps", kind: "Deployment", name: &self.name }
    }

    fn sent(&self, desired: u64, version: u64) {
        let answer = Answer { uid: UID, version: &version.into(), hash: ANSWER };
        self.applied.sent(self.now, &self.owner, self.child(), desired, answer);
    }

    fn decide(&self, desired: u64, cached: Cached<'_>) -> Decision {
        self.applied.decide(self.now, &self.owner, self.child(), desired, cached)
    }

    /// Decides with a cached child of this state.
    fn decide_on(&self, uid: &str, version: u64, hash: u64) -> Decision {
        let hash = || {
            self.hashed.set(self.hashed.get() + 1);
            Ok(hash)
        };
        let object = Cached::Object { uid, version: &version.into(), deleting: false, hash: &hash };
        self.decide(DESIRED, object)
    }

    fn decide_on_metadata(&self, uid: &str, version: u64) -> Decision {
        self.decide(DESIRED, Cached::Metadata { uid, version: &version.into(), deleting: false })
    }

    /// The number of remembered children.
    fn remembered(&self) -> usize {
        self.applied.owners.lock().values().map(|entries| entries.len()).sum()
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_skipped_that_is_not_remembered() {
    let fixture = Fixture::new();
    assert_eq!(fixture.decide_on(UID, 5, ANSWER), Decision::Send);
    assert_eq!(fixture.decide_on_metadata(UID, 5), Decision::Send);
    assert_eq!(fixture.decide(DESIRED, Cached::Absent), Decision::Send);
    let fixture = Fixture::after_an_apply();
    let other = ObjectName::namespaced("ns", "other");
    let version = 5.into();
    let metadata = Cached::Metadata { uid: UID, version: &version, deleting: false };
    for (owner, child) in [
        (&other, fixture.child()),
        (&fixture.owner, Child { name: &other, ..fixture.child() }),
        (&fixture.owner, Child { kind: "Service", ..fixture.child() }),
        (&fixture.owner, Child { group: "extensions", ..fixture.child() }),
    ] {
        let decision = fixture.applied.decide(fixture.now, owner, child, DESIRED, metadata);
        assert_eq!(decision, Decision::Send, "{owner} {child:?}");
    }
    assert_eq!(fixture.decide(DESIRED, metadata), Decision::Skip);
}

#[tokio::test(start_paused = true)]
async fn an_apply_is_skipped_while_the_child_is_as_the_answer_was() {
    let fixture = Fixture::after_an_apply();
    assert_eq!(fixture.decide_on(UID, 5, ANSWER), Decision::Skip);
    assert_eq!(fixture.decide_on(UID, 6, ANSWER), Decision::Skip, "only the status has changed");
}

#[tokio::test(start_paused = true)]
async fn a_new_status_is_no_reason_to_apply_and_a_new_spec_is() {
    let fixture = Fixture::new();
    let hasher = fixture.applied.hasher();
    let child = |version: u64, replicas: u8, ready: u8| {
        let metadata = json!({"name": "web", "uid": UID, "resourceVersion": version.to_string()});
        json!({"metadata": metadata, "spec": {"replicas": replicas}, "status": {"ready": ready}}).to_string()
    };
    let hash = |child: String| hash_of_answer(child.as_bytes(), hasher);
    let desired = hash_of(&json!({"spec": {"replicas": 1}}), hasher).unwrap();
    let answer = Answer { uid: UID, version: &5.into(), hash: hash(child(5, 1, 0)).unwrap() };
    fixture.applied.sent(fixture.now, &fixture.owner, fixture.child(), desired, answer);
    let decide = |version: u64, replicas: u8, ready: u8| {
        let hash = || hash(child(version, replicas, ready));
        let cached = Cached::Object { uid: UID, version: &version.into(), deleting: false, hash: &hash };
        fixture.decide(desired, cached)
    };
    assert_eq!([decide(6, 1, 1), decide(7, 1, 0), decide(8, 2, 1)], {
        [Decision::Skip, Decision::Skip, Decision::Send]
    });
}

#[tokio::test(start_paused = true)]
async fn an_apply_is_sent_when_desired_uid_or_child_has_changed() {
    let fixture = Fixture::after_an_apply();
    assert_eq!(fixture.decide_on(UID, 6, CHANGED), Decision::Send);
    let fixture = Fixture::after_an_apply();
    assert_eq!(fixture.decide_on(OTHER_UID, 5, ANSWER), Decision::Send);
    let fixture = Fixture::after_an_apply();
    let (hash, version) = (|| Ok(ANSWER), 5.into());
    let object = Cached::Object { uid: UID, version: &version, deleting: false, hash: &hash };
    assert_eq!(fixture.decide(DESIRED + 1, object), Decision::Send);
    let fixture = Fixture::after_an_apply();
    assert_eq!(fixture.decide(DESIRED, Cached::Absent), Decision::Send);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_being_deleted_or_cannot_be_hashed_is_sent() {
    let fixture = Fixture::after_an_apply();
    let (hash, version) = (|| Ok(ANSWER), 5.into());
    let deleted = Cached::Object { uid: UID, version: &version, deleting: true, hash: &hash };
    assert_eq!(fixture.decide(DESIRED, deleted), Decision::Send);
    let fixture = Fixture::after_an_apply();
    let deleted = Cached::Metadata { uid: UID, version: &version, deleting: true };
    assert_eq!(fixture.decide(DESIRED, deleted), Decision::Send);
    let fixture = Fixture::after_an_apply();
    let broken = || Err(JsonError::too_large(&"too large"));
    let version = 6.into();
    let object = Cached::Object { uid: UID, version: &version, deleting: false, hash: &broken };
    assert_eq!(fixture.decide(DESIRED, object), Decision::Send);
}

#[tokio::test(start_paused = true)]
async fn each_version_of_the_child_is_hashed_once() {
    let fixture = Fixture::after_an_apply();
    fixture.decide_on(UID, 5, ANSWER);
    assert_eq!(fixture.hashed.get(), 0, "that is the version of the answer");
    fixture.decide_on(UID, 6, ANSWER);
    fixture.decide_on(UID, 6, ANSWER);
    assert_eq!(fixture.hashed.get(), 1);
    assert_eq!(fixture.decide_on(UID, 7, ANSWER), Decision::Skip);
    assert_eq!(fixture.hashed.get(), 2);
    assert_eq!(fixture.decide_on(OTHER_UID, 8, ANSWER), Decision::Send);
    assert_eq!(fixture.hashed.get(), 2, "the uid says enough");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_says_nothing_equals_none() {
    let fixture = Fixture::new();
    let unset = ResourceVersion::UNSET;
    let answer = Answer { uid: UID, version: &unset, hash: ANSWER };
    fixture.applied.sent(fixture.now, &fixture.owner, fixture.child(), DESIRED, answer);
    let metadata = Cached::Metadata { uid: UID, version: &unset, deleting: false };
    assert_eq!(fixture.decide(DESIRED, metadata), Decision::Send);
    let opaque = ["a".into(), "b".into()];
    let answer = Answer { version: &opaque[0], ..answer };
    for (cached, decision) in opaque.iter().zip([Decision::Skip, Decision::Send]) {
        let fixture = Fixture::new();
        fixture.applied.sent(fixture.now, &fixture.owner, fixture.child(), DESIRED, answer);
        let metadata = Cached::Metadata { uid: UID, version: cached, deleting: false };
        assert_eq!(fixture.decide(DESIRED, metadata), decision);
    }
}

#[tokio::test(start_paused = true)]
async fn with_the_metadata_only_versions_are_compared() {
    let fixture = Fixture::after_an_apply();
    assert_eq!(fixture.decide_on_metadata(UID, 5), Decision::Skip);
    assert_eq!(fixture.decide_on_metadata(UID, 6), Decision::Send);
    fixture.sent(DESIRED, 6);
    assert_eq!(fixture.decide_on_metadata(UID, 6), Decision::Skip);
    assert_eq!(fixture.decide_on_metadata(OTHER_UID, 6), Decision::Send);
}

#[tokio::test(start_paused = true)]
async fn without_a_cache_every_apply_is_sent() {
    let fixture = Fixture::after_an_apply();
    for version in 6..20 {
        assert_eq!(fixture.decide(DESIRED, Cached::NoCache), Decision::Send);
        fixture.sent(DESIRED, version);
    }
    assert_eq!(fixture.applied.uid(&fixture.owner, fixture.child()).as_deref(), Some(UID));
}

#[tokio::test(start_paused = true)]
async fn after_an_apply_without_an_answer_the_next_is_sent() {
    let fixture = Fixture::after_an_apply();
    let other = || fixture.decide(DESIRED + 1, Cached::Absent);
    assert_eq!(other(), Decision::Send);
    // The child may have become what that apply wanted, and the cache may not know it yet.
    assert_eq!(fixture.decide_on(UID, 5, ANSWER), Decision::Send);
    assert_eq!(fixture.decide_on(UID, 5, ANSWER), Decision::Send, "until there is an answer");
    fixture.sent(DESIRED, 7);
    assert_eq!(fixture.decide_on(UID, 7, ANSWER), Decision::Skip);
}

#[tokio::test(start_paused = true)]
async fn an_apply_is_sent_every_ten_hours_a_tenth_more_or_less() {
    let mut forced = Vec::new();
    let mut fixture = Fixture::new();
    let start = fixture.now;
    for _ in 0..200 {
        fixture.now = start;
        fixture.sent(DESIRED, 5);
        // The last minute in which it is skipped.
        let minute = |minutes: u64| start + Duration::from_secs(60 * minutes);
        let found = (0..700).find(|at| {
            fixture.now = minute(*at);
            fixture.decide_on(UID, 5, ANSWER) == Decision::Send
        });
        forced.push(found.unwrap());
    }
    let (least, most) = (*forced.iter().min().unwrap(), *forced.iter().max().unwrap());
    assert!((540..548).contains(&least) && (653..=660).contains(&most), "{least} {most}");
}

#[tokio::test(start_paused = true)]
async fn a_forced_apply_starts_the_next_ten_hours() {
    let mut fixture = Fixture::after_an_apply();
    fixture.now += 11 * HOUR;
    assert_eq!(fixture.decide_on(UID, 5, ANSWER), Decision::Send);
    fixture.sent(DESIRED, 5);
    fixture.now += 8 * HOUR;
    assert_eq!(fixture.decide_on(UID, 5, ANSWER), Decision::Skip);
}

#[tokio::test(start_paused = true)]
async fn the_fourth_equal_apply_within_a_minute_waits_until_the_first_is_a_minute_old() {
    let mut fixture = Fixture::new();
    let start = fixture.now;
    for version in [5, 6, 7] {
        assert_eq!(fixture.decide_on(UID, version, CHANGED), Decision::Send);
        fixture.sent(DESIRED, version);
        fixture.now += Duration::from_secs(10);
    }
    let until = start + WINDOW;
    let fighting = Decision::Fighting { sends: 3, until };
    assert_eq!(fixture.decide_on(UID, 8, CHANGED), fighting);
    assert_eq!(fixture.decide(DESIRED, Cached::Absent), fighting, "somebody may delete it again and again");
    assert_eq!(fixture.decide_on_metadata(UID, 8), fighting);
    assert_eq!(fixture.decide_on(UID, 7, ANSWER), Decision::Skip, "the other has given up");
    fixture.now = until - Tick::STEP;
    assert_eq!(fixture.decide_on(UID, 8, CHANGED), fighting);
    fixture.now = until;
    assert_eq!(fixture.decide_on(UID, 8, CHANGED), Decision::Send);
    fixture.sent(DESIRED, 9);
    let until = start + Duration::from_secs(10) + WINDOW;
    assert_eq!(fixture.decide_on(UID, 10, CHANGED), Decision::Fighting { sends: 3, until });
}

#[tokio::test(start_paused = true)]
async fn applies_of_other_contents_or_of_other_times_are_no_fight() {
    let mut fixture = Fixture::new();
    for desired in 0..10 {
        assert_eq!(fixture.decide(desired, Cached::Absent), Decision::Send);
        fixture.sent(desired, desired);
    }
    for version in 20..30 {
        assert_eq!(fixture.decide_on(UID, version, CHANGED), Decision::Send);
        fixture.sent(DESIRED, version);
        fixture.now += WINDOW / 3;
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_not_answered_does_not_count_as_a_fight() {
    let fixture = Fixture::after_an_apply();
    for _ in 0..10 {
        assert_eq!(fixture.decide_on(UID, 6, CHANGED), Decision::Send);
    }
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_child_or_owner_is_unknown() {
    let fixture = Fixture::after_an_apply();
    let other = ObjectName::namespaced("ns", "other");
    let sibling = Child { name: &other, ..fixture.child() };
    let version = 5.into();
    let answer = Answer { uid: "no uuid", version: &version, hash: ANSWER };
    fixture.applied.sent(fixture.now, &fixture.owner, sibling, DESIRED, answer);
    fixture.applied.forget_child(&other, sibling);
    fixture.applied.forget_child(&fixture.owner, fixture.child());
    assert_eq!(fixture.applied.uid(&fixture.owner, fixture.child()), None);
    assert_eq!(fixture.applied.uid(&fixture.owner, sibling).as_deref(), Some("no uuid"));
    assert_eq!(fixture.decide_on(UID, 5, ANSWER), Decision::Send);
    fixture.applied.forget_child(&fixture.owner, sibling);
    assert!(fixture.applied.owners.lock().is_empty(), "no owner without children is kept");
    fixture.sent(DESIRED, 5);
    fixture.applied.forget_owner(&other);
    assert_eq!(fixture.remembered(), 1);
    fixture.applied.forget_owner(&fixture.owner);
    assert_eq!(fixture.remembered(), 0);
}

#[tokio::test(start_paused = true)]
async fn children_whose_names_change_do_not_pile_up() {
    let mut fixture = Fixture::new();
    for name in 0..1_000 {
        fixture.name = ObjectName::cluster(&format!("web-{name}"));
        fixture.sent(DESIRED, 5);
        assert_eq!(fixture.decide_on(UID, 5, ANSWER), Decision::Skip);
        fixture.now += HOUR;
    }
    assert!((9..=12).contains(&fixture.remembered()), "{}", fixture.remembered());
    fixture.name = ObjectName::cluster("web-993");
    assert_eq!(fixture.decide_on(UID, 5, ANSWER), Decision::Skip, "what still decides something is kept");
    // A fight is remembered although the answer to its last apply is not.
    let fixture = Fixture::after_an_apply();
    fixture.sent(DESIRED, 6);
    assert_eq!(fixture.decide_on(UID, 8, CHANGED), Decision::Send);
    let other = ObjectName::cluster("other");
    let version = 5.into();
    let answer = Answer { uid: UID, version: &version, hash: ANSWER };
    let sibling = Child { name: &other, ..fixture.child() };
    fixture.applied.sent(fixture.now, &fixture.owner, sibling, DESIRED, answer);
    fixture.sent(DESIRED, 9);
    assert!(matches!(fixture.decide_on(UID, 10, CHANGED), Decision::Fighting { .. }));
}

#[tokio::test(start_paused = true)]
async fn many_children_of_an_owner_are_told_apart() {
    let mut fixture = Fixture::new();
    let names: Vec<_> = (0..100).map(|name| ObjectName::cluster(&format!("web-{name}"))).collect();
    for (name, version) in names.iter().zip(100..) {
        fixture.name = name.clone();
        fixture.sent(DESIRED, version);
    }
    assert_eq!(fixture.remembered(), 100);
    for (name, version) in names.iter().zip(100..) {
        fixture.name = name.clone();
        assert_eq!(fixture.decide_on_metadata(UID, version), Decision::Skip);
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_takes_at_most_120_bytes() {
    let mut fixture = Fixture::new();
    for owner in 0..10_000 {
        fixture.owner = ObjectName::namespaced("namespace", &format!("website-{owner}"));
        for child in ["web", "web-config", "web-service"] {
            fixture.name = ObjectName::namespaced("namespace", child);
            fixture.sent(DESIRED, 5);
        }
    }
    let owners = fixture.applied.owners.lock();
    let table = owners.allocation_size();
    // An allocation has a header of 8 bytes and is a multiple of 16; an `Arc` has two counts.
    let allocated = |bytes: usize| (bytes + 8).next_multiple_of(16);
    let lists = owners.iter().map(|(owner, entries)| {
        allocated(16 + owner.to_string().len()) + allocated(size_of_val::<[Entry]>(entries))
    });
    let bytes = table + lists.sum::<usize>();
    let per_child = bytes / 30_000;
    assert!(per_child <= 120, "{per_child}: {table} for the table, {} an entry", size_of::<Entry>());
    drop(owners);
    let forget = |owners: std::ops::Range<u32>| {
        for owner in owners {
            fixture.applied.forget_owner(&ObjectName::namespaced("namespace", &format!("website-{owner}")));
        }
        fixture.applied.owners.lock().allocation_size()
    };
    assert_eq!(forget(0..5_000), table, "a table that is half full is not made anew for each owner");
    let small = forget(5_000..9_999);
    assert!(small < table / 4, "{table} {small}");
}

#[test]
fn a_uid_prints_and_compares_as_the_text_it_was_read_from() {
    let texts = [
        UID,
        OTHER_UID,
        "",
        "u",
        "0A1B2C3D-4E5F-6789-ABCD-EF0123456789",
        "0a1b2c3d-4e5f-6789-abcd-ef012345678g",
        "0a1b2c3d-4e5f-6789-abcdxef0123456789",
        "00000000-0000-0000-0000-00000000000f",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "0a1b2c3d4e5f6789abcdef0123456789",
    ];
    for text in texts {
        let uid = Uid::from(text);
        assert_eq!(uid.to_string(), text);
        assert!(texts.iter().all(|other| (uid == **other) == (text == *other)), "{text}");
    }
    assert!(matches!(Uid::from(UID), Uid::Uuid(_)));
}
