//! The queue that collects the deltas of a key behaves as client-go's `DeltaFIFO`.

use watchkeeper::queue::{Delta, DeltaFifo, Emit, KnownObjects, NoKnown, Queue};

use crate::{deleted, delta_fifo, drain, line, obj, store_of};

// client-go: TestDeltaFIFO_replaceWithDeleteDeltaIn
#[test]
fn a_list_behind_a_delete_keeps_both() {
    let store = store_of([obj("foo", 1)]);
    let mut queue = delta_fifo().emit(Emit::Sync);
    queue.push(deleted("foo", 1), &store);
    queue.replace(vec![obj("foo", 1)], 1.into(), &store);
    assert_eq!(drain(&mut queue), ["deleted foo@1, sync foo@1"]);
}

// client-go: TestDeltaFIFOW_ReplaceMakesDeletionsForObjectsOnlyInQueue
#[test]
fn a_list_deletes_what_is_only_queued_and_never_twice() {
    let empty = store_of([]);
    let knowns: [&dyn KnownObjects<()>; 2] = [&NoKnown, &empty];
    type Play = fn(&mut DeltaFifo<()>, &dyn KnownObjects<()>);
    let cases: [(Play, &str); 6] = [
        (
            |queue, known| {
                queue.push(Delta::Added(obj("foo", 2)), known);
                queue.replace(vec![], 3.into(), known);
            },
            "added foo@2, gone foo@2",
        ),
        (
            |queue, known| {
                queue.push(Delta::Added(obj("foo", 2)), known);
                queue.replace(vec![], 3.into(), known);
                queue.replace(vec![], 4.into(), known);
            },
            "added foo@2, gone foo@2",
        ),
        (
            |queue, known| {
                queue.push(Delta::Added(obj("foo", 2)), known);
                queue.push(deleted("foo", 2), known);
                queue.replace(vec![], 3.into(), known);
                queue.replace(vec![], 4.into(), known);
            },
            "added foo@2, deleted foo@2",
        ),
        (
            |queue, known| {
                queue.replace(vec![obj("foo", 2)], 2.into(), known);
                queue.replace(vec![obj("foo", 2)], 3.into(), known);
                queue.replace(vec![], 4.into(), known);
                queue.replace(vec![], 5.into(), known);
            },
            "replaced foo@2, replaced foo@2, gone foo@2",
        ),
        (
            |queue, known| {
                queue.push(Delta::Added(obj("foo", 2)), known);
                queue.push(deleted("foo", 3), known);
                queue.push(Delta::Added(obj("foo", 4)), known);
                queue.replace(vec![], 5.into(), known);
            },
            "added foo@2, deleted foo@3, added foo@4, gone foo@4",
        ),
        (
            |queue, known| {
                queue.push(Delta::Added(obj("foo", 2)), known);
                queue.replace(vec![obj("foo", 4)], 4.into(), known);
                queue.replace(vec![], 5.into(), known);
            },
            "added foo@2, replaced foo@4, gone foo@4",
        ),
    ];
    for known in knowns {
        for (play, expected) in &cases {
            let mut queue = delta_fifo();
            play(&mut queue, known);
            assert_eq!(drain(&mut queue), [*expected]);
        }
    }
}

// client-go: TestDeltaFIFO_addUpdate, TestDeltaFIFO_addReplace, TestFIFO_addUpdate, TestFIFO_addReplace
#[test]
fn one_key_is_popped_once_with_all_that_happened_to_it() {
    let mut queue = delta_fifo();
    queue.push(Delta::Added(obj("foo", 10)), &NoKnown);
    queue.push(Delta::Updated(obj("foo", 12)), &NoKnown);
    queue.push(deleted("foo", 15), &NoKnown);
    assert_eq!(queue.len(), 1);
    assert_eq!(drain(&mut queue), ["added foo@10, updated foo@12, deleted foo@15"]);
    queue.push(Delta::Added(obj("foo", 20)), &NoKnown);
    queue.replace(vec![obj("foo", 25)], 25.into(), &NoKnown);
    assert_eq!(drain(&mut queue), ["added foo@20, replaced foo@25"]);
}

// client-go: TestDeltaFIFO_enqueueingNoLister, TestDeltaFIFO_enqueueingWithLister
#[test]
fn a_delete_of_something_nobody_knows_is_dropped() {
    let store = store_of([obj("known", 1)]);
    for (known, expected) in [
        (&NoKnown as &dyn KnownObjects<()>, vec!["added foo@10", "updated bar@15"]),
        (&store, vec!["added foo@10", "updated bar@15", "deleted known@2"]),
    ] {
        let mut queue = delta_fifo();
        queue.push(Delta::Added(obj("foo", 10)), known);
        queue.push(Delta::Updated(obj("bar", 15)), known);
        queue.push(deleted("baz", 20), known);
        queue.push(deleted("known", 2), known);
        assert_eq!(drain(&mut queue), expected);
    }
}

// client-go: TestDeltaFIFO_DeleteExistingNonPropagated
#[test]
fn a_delete_of_something_only_queued_is_kept() {
    let mut queue = delta_fifo();
    queue.push(Delta::Added(obj("foo", 5)), &NoKnown);
    queue.push(deleted("foo", 6), &NoKnown);
    assert_eq!(drain(&mut queue), ["added foo@5, deleted foo@6"]);
}

// client-go: TestDeltaFIFO_ReplaceMakesDeletions, TestDeltaFIFO_ReplaceMakesDeletionsReplaced, TestDeltaFIFO_ReplaceDeltaType
#[test]
fn a_list_makes_deletions_from_what_is_queued_and_known() {
    let store = store_of([obj("foo", 5), obj("bar", 6), obj("baz", 7)]);
    for (emit, listed) in [(Emit::Sync, "sync"), (Emit::Replaced, "replaced")] {
        let foo = format!("{listed} foo@5");
        let play = |known: &dyn KnownObjects<()>, play: &dyn Fn(&mut DeltaFifo<()>)| {
            let mut queue = delta_fifo().emit(emit);
            play(&mut queue);
            queue.replace(vec![obj("foo", 5)], 9.into(), known);
            drain(&mut queue)
        };
        let pops = play(&store, &|queue| queue.push(deleted("baz", 10), &store));
        assert_eq!(pops, ["deleted baz@10", &foo, "gone bar@6"]);
        let pops = play(&store, &|queue| queue.push(Delta::Added(obj("baz", 10)), &store));
        assert_eq!(pops, ["added baz@10, gone baz@10", &foo, "gone bar@6"]);
        let pops = play(&store, &|queue| {
            queue.push(deleted("bar", 6), &store);
            queue.push(Delta::Added(obj("bar", 100)), &store);
        });
        assert_eq!(pops, ["deleted bar@6, added bar@100, gone bar@100", &foo, "gone baz@7"]);
        let pops = play(&store, &|queue| {
            queue.replace(vec![obj("bar", 100), obj("foo", 5)], 8.into(), &store);
        });
        assert_eq!(
            pops,
            [&format!("{listed} bar@100, gone bar@100"), &format!("{foo}, {foo}"), "gone baz@7"]
        );
        let pops = play(&NoKnown, &|queue| queue.push(Delta::Added(obj("baz", 10)), &NoKnown));
        assert_eq!(pops, ["added baz@10, gone baz@10", &foo]);
    }
}

// client-go: TestDeltaFIFO_ResyncNonExisting, TestDeltaFIFO_Resync, TestDeltaFIFO_UpdateResyncRace
#[test]
fn a_resync_tells_what_is_known_and_has_nothing_pending() {
    let store = store_of([obj("foo", 5)]);
    let mut queue = delta_fifo();
    queue.push(deleted("foo", 10), &store);
    queue.resync(&store);
    assert_eq!(drain(&mut queue), ["deleted foo@10"]);
    queue.resync(&store);
    assert_eq!(drain(&mut queue), ["sync foo@5"]);
    queue.push(Delta::Updated(obj("foo", 6)), &store);
    queue.resync(&store);
    assert_eq!(drain(&mut queue), ["updated foo@6"]);
    queue.resync(&NoKnown);
    assert!(drain(&mut queue).is_empty());
}

// client-go: TestDeltaFIFO_HasSyncedCorrectOnDeletion
#[test]
fn deletions_of_the_first_list_belong_to_the_first_state() {
    let store = store_of([obj("foo", 5), obj("bar", 6), obj("baz", 7)]);
    let mut queue = delta_fifo();
    queue.replace(vec![obj("foo", 5)], 9.into(), &store);
    for _ in 0..3 {
        assert!(!queue.has_synced());
        assert!(queue.pop().unwrap().in_initial_list);
        queue.processed();
    }
    assert!(queue.has_synced());
}

// client-go: TestDeltaFIFO_detectLineJumpers, TestFIFO_detectLineJumpers
#[test]
fn a_popped_key_comes_back_at_the_end_of_the_line() {
    let mut queue = delta_fifo();
    for (name, version) in [("foo", 10), ("bar", 1), ("foo", 11), ("foo", 13), ("zab", 30)] {
        queue.push(Delta::Added(obj(name, version)), &NoKnown);
    }
    assert_eq!(line(&queue.pop().unwrap()), "added foo@10, added foo@11, added foo@13");
    queue.push(Delta::Added(obj("foo", 14)), &NoKnown);
    queue.processed();
    assert_eq!(drain(&mut queue), ["added bar@1", "added zab@30", "added foo@14"]);
}

// client-go: TestFIFO_addIfNotPresent, and processLoop with RetryOnError, of the releases that had them
#[test]
fn what_is_given_back_waits_behind_the_others_or_yields_to_what_is_newer() {
    let mut queue = delta_fifo();
    queue.push(Delta::Added(obj("a", 1)), &NoKnown);
    queue.push(Delta::Added(obj("b", 2)), &NoKnown);
    let failed = queue.pop().unwrap();
    queue.add_if_not_present(failed);
    let failed = queue.pop().unwrap();
    assert_eq!(line(&failed), "added b@2");
    queue.push(Delta::Updated(obj("b", 3)), &NoKnown);
    queue.add_if_not_present(failed);
    assert_eq!(drain(&mut queue), ["added a@1", "updated b@3"]);
}

#[test]
fn a_version_given_back_is_told_again() {
    let mut queue = delta_fifo();
    queue.replace(vec![obj("a", 1)], 5.into(), &NoKnown);
    let failed = queue.pop().unwrap();
    assert_eq!(failed.version, Some(5.into()));
    queue.add_if_not_present(failed);
    assert_eq!(queue.pop().unwrap().version, Some(5.into()));
    assert!(queue.pop().is_none());
}

#[test]
fn the_first_state_is_not_processed_while_a_part_of_it_waits_to_be_tried_again() {
    let mut queue = delta_fifo();
    queue.replace(vec![obj("a", 1), obj("b", 1)], 1.into(), &NoKnown);
    let failed = queue.pop().unwrap();
    queue.push(Delta::Added(obj("later", 2)), &NoKnown);
    queue.add_if_not_present(failed);
    let mut pops = Vec::new();
    while let Some(popped) = queue.pop() {
        pops.push((line(&popped), popped.in_initial_list));
        queue.processed();
    }
    let expected = [("replaced b@1", true), ("replaced a@1", true), ("added later@2", false)];
    assert_eq!(pops, expected.map(|(line, initial)| (line.to_owned(), initial)));
}
