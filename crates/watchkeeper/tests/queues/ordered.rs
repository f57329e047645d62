//! The queue that keeps the order of the stream behaves as client-go's `RealFIFO`.

use watchkeeper::queue::{Delta, NoKnown, OrderedFifo, Queue};

use crate::{deleted, drain, notifications, obj, store_of};

// client-go: TestRealFIFO_addUpdate, TestRealFIFO_addReplace, TestRealFIFO_enqueueingNoLister, TestRealFIFO_enqueueingWithLister,
// TestRealFIFO_DeleteExistingNonPropagated, TestRealFIFO_detectLineJumpers, TestRealFIFO_replaceWithDeleteDeltaIn
#[test]
fn everything_comes_out_as_it_came_in() {
    let mut queue = OrderedFifo::new();
    queue.push(Delta::Added(obj("foo", 10)), &NoKnown);
    queue.push(Delta::Updated(obj("bar", 1)), &NoKnown);
    queue.push(Delta::Updated(obj("foo", 11)), &NoKnown);
    queue.push(deleted("foo", 13), &NoKnown);
    queue.push(deleted("nobody", 20), &NoKnown);
    queue.replace(vec![obj("foo", 14)], 21.into(), &NoKnown);
    assert_eq!(queue.len(), 6);
    assert_eq!(
        drain(&mut queue),
        [
            "added foo@10, updated bar@1, updated foo@11, deleted foo@13, deleted nobody@20",
            "all [foo@14] at 21"
        ]
    );
}

// client-go: TestRealFIFO_ReplaceAtomic, TestRealFIFO_ReplaceAtomicPop, TestRealFIFO_ResyncAtomic
#[test]
fn lists_and_resyncs_are_entries_among_others() {
    let mut queue = OrderedFifo::new();
    queue.push(Delta::Added(obj("a", 1)), &NoKnown);
    queue.replace(vec![obj("a", 1), obj("b", 2)], 5.into(), &NoKnown);
    queue.push(Delta::ReplacedAll { items: vec![], version: 6.into() }, &NoKnown);
    queue.push(Delta::SyncAll, &NoKnown);
    queue.push(Delta::Bookmark(7.into()), &NoKnown);
    assert_eq!(
        drain(&mut queue),
        ["added a@1", "all [a@1 b@2] at 5", "all [] at 6", "sync all", "bookmark 7"]
    );
}

// client-go: TestRealFIFOW_ReplaceMakesDeletionsForObjectsOnlyInQueue, TestRealFIFO_ReplaceMakesDeletions
#[test]
fn what_is_queued_before_a_list_that_lacks_it_is_gone_after_it_and_deleted_once() {
    type Play = fn(&mut OrderedFifo<()>);
    let cases: [(Play, &[&str]); 4] = [
        (|queue| queue.push(Delta::Added(obj("foo", 2)), &NoKnown), &["+ foo@2", "- foo@2 tombstone"]),
        (
            |queue| {
                queue.push(Delta::Added(obj("foo", 2)), &NoKnown);
                queue.push(deleted("foo", 3), &NoKnown);
            },
            &["+ foo@2", "- foo@3"],
        ),
        (
            |queue| {
                queue.replace(vec![obj("foo", 2)], 2.into(), &NoKnown);
                queue.replace(vec![obj("foo", 4)], 4.into(), &NoKnown);
            },
            &["+ foo@2 initial", "foo 2->4", "- foo@4 tombstone"],
        ),
        (
            |queue| {
                queue.push(Delta::Added(obj("foo", 2)), &NoKnown);
                queue.push(deleted("foo", 3), &NoKnown);
                queue.push(Delta::Added(obj("foo", 4)), &NoKnown);
            },
            &["+ foo@2", "- foo@3", "+ foo@4", "- foo@4 tombstone"],
        ),
    ];
    for (play, expected) in cases {
        let (mut queue, store) = (OrderedFifo::new(), store_of([]));
        play(&mut queue);
        for version in [8_u64, 9] {
            queue.replace(vec![], version.into(), &NoKnown);
        }
        assert_eq!(notifications(&mut queue, &store), expected);
    }
    // Deletes come before what the list brings.
    let (mut queue, store) = (OrderedFifo::new(), store_of([obj("foo", 1), obj("old", 1)]));
    queue.replace(vec![obj("new", 5), obj("foo", 6)], 6.into(), &NoKnown);
    assert_eq!(notifications(&mut queue, &store), ["- old@1 tombstone", "+ new@5 initial", "foo 1->6"]);
}

// client-go: TestRealFIFO_PopMultipleDeltaInBatch
#[test]
fn a_batch_ends_at_the_end_of_the_first_state_and_at_its_size() {
    let mut queue = OrderedFifo::new();
    queue.push(Delta::Bookmark(1.into()), &NoKnown);
    queue.replace(vec![obj("a", 1)], 1.into(), &NoKnown);
    (2..1502).for_each(|version| queue.push(Delta::Updated(obj("a", version)), &NoKnown));
    let mut sizes = Vec::new();
    while let Some(popped) = queue.pop() {
        sizes.push((popped.deltas.len(), popped.in_initial_list));
        queue.processed();
    }
    assert_eq!(sizes, [(1, true), (1, true), (1000, false), (500, false)]);
}

#[test]
fn what_is_given_back_comes_first_again() {
    let mut queue = OrderedFifo::new();
    queue.push(Delta::Added(obj("a", 1)), &NoKnown);
    queue.push(Delta::Added(obj("b", 2)), &NoKnown);
    let failed = queue.pop().unwrap();
    queue.push(Delta::Updated(obj("a", 3)), &NoKnown);
    queue.add_if_not_present(failed);
    assert_eq!(queue.len(), 3);
    assert_eq!(drain(&mut queue), ["added a@1, added b@2, updated a@3"]);
}

#[test]
fn the_first_list_given_back_is_still_the_first_state() {
    let mut queue = OrderedFifo::new();
    queue.replace(vec![obj("a", 1)], 1.into(), &NoKnown);
    let failed = queue.pop().unwrap();
    queue.push(Delta::Updated(obj("a", 2)), &NoKnown);
    queue.add_if_not_present(failed);
    assert!(!queue.has_synced());
    assert!(queue.pop().unwrap().in_initial_list);
    queue.processed();
    assert!(queue.has_synced());
    assert!(!queue.pop().unwrap().in_initial_list);
}
