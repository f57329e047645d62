//! Behaviour of both queues: syncing, the remaining state of the store, and queued bytes.

use watchkeeper::ObjectName;
use watchkeeper::informer::{on_change, process_deltas};
use watchkeeper::queue::{Deleted, Delta, NoKnown, Popped, Queue};

use crate::common::Log;
use crate::{both, deleted, drain, notifications, obj, store_of};

// client-go: TestDeltaFIFO_HasSynced, TestRealFIFO_HasSynced, TestFIFO_HasSynced
#[test]
fn a_queue_has_synced_in_these_cases() {
    type Play = fn(&mut dyn Queue<()>);
    fn pop(queue: &mut dyn Queue<()>) {
        queue.pop();
        queue.processed();
    }
    fn two(queue: &mut dyn Queue<()>) {
        queue.replace(vec![obj("a", 1), obj("b", 2)], 2.into(), &NoKnown);
    }
    // What happens, and whether the ordered and the gathering queue have synced then.
    let cases: [(&str, Play, [bool; 2]); 13] = [
        ("nothing", |_| {}, [false, false]),
        ("a bookmark", |queue| queue.push(Delta::Bookmark(1.into()), &NoKnown), [false, false]),
        ("a resync", |queue| queue.resync(&NoKnown), [false, false]),
        ("an add", |queue| queue.push(Delta::Added(obj("a", 1)), &NoKnown), [true, true]),
        ("an update", |queue| queue.push(Delta::Updated(obj("a", 1)), &NoKnown), [true, true]),
        ("a delete of something unknown", |queue| queue.push(deleted("a", 1), &NoKnown), [true, true]),
        (
            "something given back",
            |queue| {
                let deltas = vec![Delta::Added(obj("a", 1))];
                queue.add_if_not_present(Popped { deltas, in_initial_list: false, version: None });
            },
            [true, true],
        ),
        (
            "an add, then a list",
            |queue| {
                queue.push(Delta::Added(obj("a", 1)), &NoKnown);
                two(queue);
            },
            [true, true],
        ),
        ("an empty list", |queue| queue.replace(vec![], 1.into(), &NoKnown), [false, true]),
        (
            "an empty list, popped",
            |queue| {
                queue.replace(vec![], 1.into(), &NoKnown);
                pop(queue);
            },
            [true, true],
        ),
        (
            "a list of two, popped once: the ordered queue pops a list whole",
            |queue| {
                two(queue);
                pop(queue);
            },
            [true, false],
        ),
        (
            "a list of two, popped once and once without being processed",
            |queue| {
                two(queue);
                pop(queue);
                queue.pop();
            },
            [true, false],
        ),
        (
            "a list of the same key twice, popped once",
            |queue| {
                queue.replace(vec![obj("a", 1), obj("a", 1)], 2.into(), &NoKnown);
                pop(queue);
            },
            [true, true],
        ),
    ];
    for (name, play, expected) in cases {
        let found = both().map(|mut queue| {
            play(&mut *queue);
            queue.has_synced()
        });
        assert_eq!(found, expected, "{name}");
    }
}

// client-go: TestDeltaFIFO_KeyOf, TestRealFIFO_KeyOf
#[test]
fn every_delta_about_one_object_has_its_key() {
    let (key, last_known) = (ObjectName::cluster("a"), Some(obj("a", 1)));
    for delta in [
        Delta::Added(obj("a", 1)),
        Delta::Sync(obj("a", 1)),
        deleted("a", 1),
        Delta::Deleted(Deleted::Unknown { key: key.clone(), last_known }),
        Delta::Deleted(Deleted::Unknown { key: key.clone(), last_known: None }),
    ] {
        assert_eq!(delta.key(), Some(key.clone()));
    }
    assert_eq!(Delta::<()>::SyncAll.key(), None);
}

#[test]
fn a_closed_queue_gives_out_what_is_left() {
    for mut queue in both() {
        queue.push(Delta::Added(obj("a", 1)), &NoKnown);
        queue.close();
        assert!(queue.is_closed());
        assert_eq!(drain(&mut *queue), ["added a@1"]);
    }
}

#[test]
fn the_bytes_that_wait_are_counted_in_and_out() {
    for mut queue in both() {
        let store = store_of([obj("known", 1)]);
        queue.push(Delta::Added(obj("a", 1)), &store);
        let one = queue.bytes();
        assert!(one >= obj("a", 1).size());
        queue.push(deleted("a", 2), &store);
        queue.push(deleted("a", 3), &store);
        queue.replace(vec![obj("a", 4), obj("b", 4)], 4.into(), &store);
        queue.resync(&store);
        assert!(queue.bytes() > 3 * one);
        let before = queue.bytes();
        let failed = queue.pop().unwrap();
        assert!(queue.bytes() < before);
        queue.add_if_not_present(failed);
        assert_eq!(queue.bytes(), before);
        drain(&mut *queue);
    }
}

// client-go: TestDeltaFIFO_HasSyncedCorrectOnDeletion, TestRealFIFO_HasSyncedCorrectOnDeletion
#[test]
fn on_both_queues_the_first_state_is_processed_when_its_deletions_are() {
    for mut queue in both() {
        let store = store_of([obj("foo", 5), obj("bar", 6), obj("baz", 7)]);
        queue.replace(vec![obj("foo", 5)], 8.into(), &store);
        let log = Log::default();
        let mut handler = on_change(log.handler());
        while let Some(popped) = queue.pop() {
            assert!(popped.in_initial_list && !queue.has_synced());
            process_deltas(&store, &popped, &mut handler);
            queue.processed();
        }
        assert_eq!(log.take_sorted(), ["- bar@6 tombstone", "- baz@7 tombstone", "= foo@5"]);
        assert!(queue.has_synced());
    }
}

// client-go: TestRealFIFO_ReplaceMakesDeletions, TestRealFIFO_ReplaceMakesDeletionsReplaced, TestReplaceEvents
#[test]
fn on_both_queues_a_list_takes_out_of_the_store_what_it_does_not_contain() {
    for mut queue in both() {
        let store = store_of([obj("foo", 5), obj("bar", 6), obj("baz", 7)]);
        queue.push(deleted("baz", 10), &store);
        queue.push(Delta::Added(obj("new", 11)), &store);
        queue.replace(vec![obj("foo", 8)], 12.into(), &store);
        let mut heard = notifications(&mut *queue, &store);
        heard.sort();
        assert_eq!(heard, ["+ new@11", "- bar@6 tombstone", "- baz@10", "- new@11 tombstone", "foo 5->8"]);
        assert_eq!((store.snapshot().len(), store.version()), (1, 12.into()));
    }
}

// client-go: TestRealFIFO_Resync, TestRealFIFO_ResyncNonExisting, TestRealFIFO_UpdateResyncRace
#[test]
fn on_both_queues_a_resync_never_brings_an_old_state_back() {
    for mut queue in both() {
        let store = store_of([obj("idle", 1), obj("gone", 1), obj("moved", 1)]);
        queue.push(deleted("gone", 2), &store);
        queue.push(Delta::Updated(obj("moved", 3)), &store);
        queue.resync(&store);
        let mut heard = notifications(&mut *queue, &store);
        heard.retain(|line| line != "= moved@3");
        assert_eq!(heard, ["- gone@2", "moved 1->3", "= idle@1"]);
    }
}
