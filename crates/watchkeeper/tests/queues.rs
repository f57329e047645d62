//! Do the two queues do what client-go's queues do, and where they differ, what `docs/differences.md` says? Pure, through the public API.
#![allow(clippy::unwrap_used, reason = "a test may")]

use watchkeeper::clock::Generator;
use watchkeeper::informer::{Change, on_change, process_deltas};
use watchkeeper::queue::{
    Deleted, Delta, DeltaFifo, Emit, KnownObjects, NoKnown, OrderedFifo, Popped, Queue,
};
use watchkeeper::store::Indexer;
use watchkeeper::{Env, Object, ObjectName};

type Obj = Object<()>;

fn obj(name: &str, version: u64) -> Obj {
    let json =
        format!(r#"{{"metadata":{{"name":"{name}","uid":"u-{name}","resourceVersion":"{version}"}}}}"#);
    Object::from_json(json.as_bytes()).unwrap()
}

fn deleted(name: &str, version: u64) -> Delta<()> {
    Delta::Deleted(Deleted::Final(obj(name, version)))
}

fn delta_fifo() -> DeltaFifo<()> {
    DeltaFifo::new(Generator::seeded(1).hasher())
}

fn both() -> [Box<dyn Queue<()>>; 2] {
    [Box::new(OrderedFifo::new()), Box::new(delta_fifo())]
}

fn store_of(objects: impl IntoIterator<Item = Obj>) -> Indexer<()> {
    let store = Indexer::new(&Env::simulated(1), []);
    objects.into_iter().for_each(|object| store.add(object));
    store
}

fn show(delta: &Delta<()>) -> String {
    let of = |object: &Obj| format!("{}@{}", object.name(), object.version());
    match delta {
        Delta::Added(o) => format!("added {}", of(o)),
        Delta::Updated(o) => format!("updated {}", of(o)),
        Delta::Deleted(Deleted::Final(o)) => format!("deleted {}", of(o)),
        Delta::Deleted(Deleted::Unknown { last_known, .. }) => {
            format!("gone {}", last_known.as_ref().map_or("?".into(), of))
        }
        Delta::Replaced(o) => format!("replaced {}", of(o)),
        Delta::Sync(o) => format!("sync {}", of(o)),
        Delta::ReplacedAll { items, version } => {
            format!("all [{}] at {version}", items.iter().map(of).collect::<Vec<_>>().join(" "))
        }
        Delta::SyncAll => "sync all".into(),
        Delta::Bookmark(version) => format!("bookmark {version}"),
    }
}

fn line(popped: &Popped<()>) -> String {
    popped.deltas.iter().map(show).collect::<Vec<_>>().join(", ")
}

/// One line for each pop until the queue is empty; all are processed.
fn drain(queue: &mut dyn Queue<()>) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(popped) = queue.pop() {
        lines.push(line(&popped));
        queue.processed();
    }
    lines.retain(|line| !line.is_empty());
    assert_eq!((queue.len(), queue.bytes()), (0, 0));
    lines
}

/// What a handler hears when the rest of the queue is applied to `store`.
fn hear(queue: &mut dyn Queue<()>, store: &Indexer<()>) -> Vec<String> {
    let (told, heard) = std::sync::mpsc::channel();
    let mut handler = on_change(move |change: Change<'_, ()>| {
        let text = match change {
            Change::Added { object, .. } => format!("+ {}@{}", object.name(), object.version()),
            Change::Updated { old, new } => format!("{} {}->{}", new.name(), old.version(), new.version()),
            Change::Deleted(gone) => {
                let version =
                    gone.last_known().map(|object| object.version().to_string()).unwrap_or_default();
                format!("- {}@{version}{}", gone.key(), if gone.is_tombstone() { " tombstone" } else { "" })
            }
        };
        told.send(text).unwrap();
    });
    while let Some(popped) = queue.pop() {
        process_deltas(store, &popped, &mut handler);
        queue.processed();
    }
    heard.try_iter().collect()
}

mod gathering {
    use super::*;

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
}

mod ordered {
    use super::*;

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
                &["+ foo@2", "foo 2->4", "- foo@4 tombstone"],
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
            assert_eq!(hear(&mut queue, &store), expected);
        }
        // Deletes come before what the list brings.
        let (mut queue, store) = (OrderedFifo::new(), store_of([obj("foo", 1), obj("old", 1)]));
        queue.replace(vec![obj("new", 5), obj("foo", 6)], 6.into(), &NoKnown);
        assert_eq!(hear(&mut queue, &store), ["- old@1 tombstone", "+ new@5", "foo 1->6"]);
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
}

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

// client-go: TestRealFIFO_ReplaceMakesDeletions, TestRealFIFO_ReplaceMakesDeletionsReplaced, TestRealFIFO_HasSyncedCorrectOnDeletion,
// TestReplaceEvents
#[test]
fn on_both_queues_a_list_takes_out_of_the_store_what_it_does_not_contain() {
    for mut queue in both() {
        let store = store_of([obj("foo", 5), obj("bar", 6), obj("baz", 7)]);
        queue.push(deleted("baz", 10), &store);
        queue.push(Delta::Added(obj("new", 11)), &store);
        queue.replace(vec![obj("foo", 8)], 12.into(), &store);
        let mut heard = hear(&mut *queue, &store);
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
        let mut heard = hear(&mut *queue, &store);
        heard.retain(|line| line != "moved 3->3");
        assert_eq!(heard, ["- gone@2", "moved 1->3", "idle 1->1"]);
    }
}
