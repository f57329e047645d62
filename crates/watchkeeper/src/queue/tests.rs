//! Tests of both queues.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::clock::Generator;

type Obj = Object<()>;

fn obj(name: &str, version: u64) -> Obj {
    let json =
        format!(r#"{{"metadata":{{"name":"{name}","uid":"u-{name}","resourceVersion":"{version}"}}}}"#);
    Object::from_json(json.as_bytes()).unwrap()
}

#[derive(Default)]
struct Known(BTreeMap<ObjectName, Obj>);

impl Known {
    fn of(objects: impl IntoIterator<Item = Obj>) -> Self {
        Self(objects.into_iter().map(|object| (object.key(), object)).collect())
    }
}

impl KnownObjects<()> for Known {
    fn known(&self, key: &ObjectName) -> Option<Obj> {
        self.0.get(key).cloned()
    }

    fn each_known(&self, each: &mut dyn FnMut(&Obj)) {
        self.0.values().for_each(each);
    }
}

fn delta_fifo() -> DeltaFifo<()> {
    DeltaFifo::new(&Generator::seeded(1))
}

fn deleted(name: &str, version: u64) -> Delta<()> {
    Delta::Deleted(Deleted::Final(obj(name, version)))
}

fn show(delta: &Delta<()>) -> String {
    let of = |object: &Obj| format!("{}@{}", object.name(), object.version());
    match delta {
        Delta::Added(o) => format!("added {}", of(o)),
        Delta::Updated(o) => format!("updated {}", of(o)),
        Delta::Deleted(Deleted::Final(o)) => format!("deleted {}", of(o)),
        Delta::Deleted(Deleted::Unknown { key, last_known }) => {
            format!("gone {key} {}", last_known.as_ref().map_or("?".into(), of))
        }
        Delta::Replaced(o) => format!("replaced {}", of(o)),
        Delta::Sync(o) => format!("sync {}", of(o)),
        Delta::ReplacedAll { items, version } => format!("all {} at {version}", items.len()),
        Delta::SyncAll => "sync all".into(),
        Delta::Bookmark(version) => format!("bookmark {version}"),
    }
}

/// Pops until the queue is empty, and marks each pop as processed.
fn drain(queue: &mut dyn Queue<()>) -> Vec<Vec<String>> {
    let mut pops = Vec::new();
    while let Some(popped) = queue.pop() {
        pops.push(popped.deltas.iter().map(show).collect());
        queue.processed();
        assert!(pops.len() < 100, "it never runs empty: {pops:?}");
    }
    assert_eq!((queue.len(), queue.bytes(), queue.is_empty()), (0, 0, true));
    pops
}

#[test]
fn only_the_same_state_of_an_object_is_kept() {
    let known = Known::of([obj("a", 1)]);
    assert!(known.unchanged(&obj("a", 1)).is_some());
    assert!(known.unchanged(&obj("a", 2)).is_none());
    assert!(known.unchanged(&obj("b", 1)).is_none());
    assert!(NoKnown.unchanged(&obj("a", 1)).is_none());
}

#[test]
fn a_delta_weighs_as_much_as_itself_and_the_objects_it_carries() {
    let (own, [a, b]) = (size_of::<Delta<()>>(), [obj("a", 1), obj("longer", 1)]);
    let sizes = [a.size(), b.size()];
    assert_eq!(Delta::<()>::Bookmark(1.into()).bytes(), own);
    assert_eq!(Delta::Deleted(Deleted::Final(a.clone())).bytes(), own + sizes[0]);
    let all = Delta::ReplacedAll { items: vec![a, b], version: 1.into() };
    assert_eq!(all.bytes(), own + sizes[0] + sizes[1]);
}

#[test]
fn a_tombstone_is_told_from_a_delete_that_was_seen() {
    let seen = Deleted::Final(obj("a", 2));
    let missed = Deleted::tombstone(&obj("a", 1));
    let nothing = Deleted::<()>::Unknown { key: ObjectName::cluster("a"), last_known: None };
    let last_known = |deleted: &Deleted<()>| deleted.last_known().map(|object| object.version().clone());
    assert_eq!([&seen, &missed, &nothing].map(Deleted::is_tombstone), [false, true, true]);
    assert_eq!([&seen, &missed, &nothing].map(last_known), [Some(2.into()), Some(1.into()), None]);
    assert!([seen, missed, nothing].iter().all(|deleted| deleted.key() == ObjectName::cluster("a")));
}

#[test]
fn a_queue_is_empty_until_something_waits() {
    for queue in [&mut OrderedFifo::new() as &mut dyn Queue<()>, &mut delta_fifo()] {
        assert!(queue.is_empty() && !queue.is_closed());
        queue.push(Delta::Added(obj("a", 1)), &NoKnown);
        assert!(!queue.is_empty());
        queue.pop();
        assert!(queue.is_empty());
    }
}

mod ordered {
    use super::*;

    #[test]
    fn what_is_put_in_front_of_the_first_list_belongs_to_the_first_state() {
        let mut queue = OrderedFifo::new();
        queue.replace(vec![], 5.into(), &NoKnown);
        let deltas = vec![Delta::Added(obj("a", 1)), Delta::Added(obj("b", 2))];
        queue.add_if_not_present(Popped { deltas, in_initial_list: false, version: None });
        for expected in [vec!["added a@1", "added b@2"], vec!["all 0 at 5"]] {
            let popped = queue.pop().unwrap();
            assert_eq!(popped.deltas.iter().map(show).collect::<Vec<_>>(), expected);
            assert!(popped.in_initial_list && !queue.has_synced());
            queue.processed();
        }
        assert!(queue.has_synced());
    }

    // client-go: TestRealFIFO_detectLineJumpers, TestRealFIFO_addUpdate
    #[test]
    fn deltas_come_out_in_the_order_of_the_stream_and_together() {
        let (mut queue, known) = (OrderedFifo::new(), Known::default());
        queue.push(Delta::Added(obj("a", 1)), &known);
        queue.push(Delta::Added(obj("b", 2)), &known);
        queue.push(Delta::Updated(obj("a", 3)), &known);
        queue.push(deleted("x", 4), &known);
        let popped = queue.pop().unwrap();
        assert_eq!(
            popped.deltas.iter().map(show).collect::<Vec<_>>(),
            ["added a@1", "added b@2", "updated a@3", "deleted x@4"]
        );
        assert_eq!(popped.version, Some(4.into()));
    }

    // client-go: TestRealFIFO_ReplaceAtomic, TestRealFIFO_ResyncAtomic
    #[test]
    fn a_list_and_a_resync_are_entries_of_their_own() {
        let (mut queue, known) = (OrderedFifo::new(), Known::default());
        queue.push(Delta::Added(obj("a", 1)), &known);
        queue.replace(vec![obj("a", 2), obj("b", 2)], 5.into(), &known);
        queue.resync(&known);
        queue.push(Delta::Bookmark(7.into()), &known);
        assert_eq!(
            drain(&mut queue),
            [vec!["added a@1"], vec!["all 2 at 5"], vec!["sync all"], vec!["bookmark 7"]]
        );
    }

    // client-go: TestRealFIFO_HasSynced
    #[test]
    fn it_has_synced_when_the_first_list_has_been_processed() {
        let (mut queue, known) = (OrderedFifo::new(), Known::default());
        assert!(!queue.has_synced());
        queue.replace(vec![], 5.into(), &known);
        queue.push(Delta::Added(obj("a", 6)), &known);
        let first = queue.pop().unwrap();
        assert!(first.in_initial_list && !queue.has_synced());
        queue.processed();
        assert!(queue.has_synced());
        assert!(!queue.pop().unwrap().in_initial_list);
    }

    #[test]
    fn it_has_synced_at_once_when_a_change_came_before_any_list() {
        let (mut queue, known) = (OrderedFifo::new(), Known::default());
        queue.push(Delta::Bookmark(1.into()), &known);
        assert!(!queue.has_synced());
        queue.push(Delta::Added(obj("a", 1)), &known);
        assert!(queue.has_synced());
    }
}

mod gathering {
    use super::*;

    // client-go: TestDeltaFIFO_addUpdate, TestDeltaFIFO_detectLineJumpers
    #[test]
    fn the_deltas_of_a_key_come_out_together_and_a_key_popped_goes_to_the_end() {
        let (mut queue, known) = (delta_fifo(), Known::default());
        queue.push(Delta::Added(obj("a", 1)), &known);
        queue.push(Delta::Added(obj("b", 2)), &known);
        queue.push(Delta::Updated(obj("a", 3)), &known);
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.pop().unwrap().deltas.len(), 2);
        queue.processed();
        queue.push(Delta::Updated(obj("a", 4)), &known);
        assert_eq!(drain(&mut queue), [["added b@2"], ["updated a@4"]]);
    }

    // client-go: TestDeltaFIFO_enqueueingNoLister, TestDeltaFIFO_enqueueingWithLister, TestDeltaFIFO_DeleteExistingNonPropagated
    #[test]
    fn a_delete_counts_when_the_object_is_known_queued_or_in_flight() {
        let known = Known::of([obj("k", 1)]);
        let mut queue = delta_fifo();
        queue.push(deleted("nobody", 2), &known);
        queue.push(deleted("k", 2), &known);
        queue.push(Delta::Added(obj("q", 3)), &known);
        queue.push(deleted("q", 4), &known);
        assert_eq!(drain(&mut queue), [vec!["deleted k@2"], vec!["added q@3", "deleted q@4"]]);
        queue.push(Delta::Added(obj("f", 5)), &known);
        queue.pop();
        queue.push(deleted("f", 6), &known);
        queue.processed();
        assert_eq!(drain(&mut queue), [["deleted f@6"]]);
    }

    // client-go: TestDeltaFIFOW_ReplaceMakesDeletionsForObjectsOnlyInQueue ("never two consecutive deletes")
    #[test]
    fn two_deletes_in_a_row_become_one_with_the_better_state() {
        let known = Known::of([obj("a", 1), obj("b", 1)]);
        let mut queue = delta_fifo();
        queue.push(deleted("a", 2), &known);
        queue.replace(vec![obj("b", 1)], 3.into(), &known);
        assert_eq!(drain(&mut queue), [["deleted a@2"], ["replaced b@1"]]);
        let mut queue = delta_fifo();
        queue.replace(vec![], 3.into(), &Known::of([obj("a", 1)]));
        queue.push(deleted("a", 4), &known);
        assert_eq!(drain(&mut queue), [["deleted a@4"]]);
    }

    // client-go: TestDeltaFIFO_ReplaceMakesDeletionsReplaced
    #[test]
    fn a_list_leaves_tombstones_of_what_is_queued_in_flight_or_known_and_not_in_it() {
        let known = Known::of([obj("known", 1), obj("stays", 1)]);
        let mut queue = delta_fifo();
        queue.push(Delta::Added(obj("flying", 2)), &known);
        queue.pop();
        queue.push(Delta::Added(obj("queued", 3)), &known);
        queue.replace(vec![obj("stays", 1), obj("new", 4)], 5.into(), &known);
        queue.processed();
        let pops = drain(&mut queue);
        assert_eq!(
            pops,
            [
                vec!["added queued@3", "gone queued queued@3"],
                vec!["replaced stays@1"],
                vec!["replaced new@4"],
                vec!["gone flying flying@2"],
                vec!["gone known known@1"],
            ]
        );
    }

    // client-go: TestDeltaFIFO_replaceWithDeleteDeltaIn
    #[test]
    fn a_pending_delete_and_a_list_with_the_key_are_both_kept() {
        let known = Known::of([obj("a", 1)]);
        let mut queue = delta_fifo().emit(Emit::Sync);
        queue.push(deleted("a", 2), &known);
        queue.replace(vec![obj("a", 3)], 3.into(), &known);
        assert_eq!(drain(&mut queue), [["deleted a@2", "sync a@3"]]);
    }

    // client-go: TestDeltaFIFO_Resync, TestDeltaFIFO_ResyncNonExisting, TestDeltaFIFO_UpdateResyncRace
    #[test]
    fn a_resync_repeats_only_what_has_nothing_pending() {
        let known = Known::of([obj("idle", 1), obj("pending", 1), obj("flying", 1)]);
        let mut queue = delta_fifo();
        queue.push(Delta::Updated(obj("flying", 2)), &known);
        queue.pop();
        queue.push(deleted("pending", 3), &known);
        queue.resync(&known);
        queue.processed();
        assert_eq!(drain(&mut queue), [["deleted pending@3"], ["sync idle@1"]]);
    }

    // client-go: TestDeltaFIFO_HasSynced, TestDeltaFIFO_HasSyncedCorrectOnDeletion
    #[test]
    fn it_has_synced_when_list_items_and_deletions_have_been_processed() {
        let known = Known::of([obj("gone", 1)]);
        let mut queue = delta_fifo();
        assert!(!queue.has_synced());
        queue.replace(vec![obj("a", 1), obj("a", 2)], 2.into(), &known);
        for _ in ["a", "gone"] {
            assert!(queue.pop().unwrap().in_initial_list && !queue.has_synced());
            queue.processed();
        }
        assert!(queue.has_synced());
        let mut empty = delta_fifo();
        empty.replace(vec![], 2.into(), &Known::default());
        assert!(empty.has_synced());
        let mut early = delta_fifo();
        early.push(Delta::Added(obj("a", 1)), &known);
        assert!(early.has_synced());
    }

    #[test]
    fn an_empty_list_without_a_version_is_still_handed_over() {
        let mut queue = delta_fifo();
        queue.replace(vec![], ResourceVersion::UNSET, &Known::default());
        let popped = queue.pop().unwrap();
        assert_eq!((popped.deltas.len(), popped.version), (0, Some(ResourceVersion::UNSET)));
        assert!(queue.pop().is_none());
    }

    #[test]
    fn a_version_is_returned_once() {
        let known = Known::of([obj("a", 1)]);
        let mut queue = delta_fifo();
        queue.replace(vec![obj("a", 1)], 5.into(), &known);
        assert_eq!(queue.pop().unwrap().version, Some(5.into()));
        queue.processed();
        queue.resync(&known);
        assert_eq!(queue.pop().unwrap().version, None);
    }

    #[test]
    fn the_first_state_is_whole_though_a_resync_was_under_way_when_it_came() {
        let known = Known::of([obj("a", 1)]);
        let mut queue = delta_fifo();
        queue.resync(&known);
        queue.pop();
        queue.replace(vec![obj("b", 2)], 2.into(), &known);
        for _ in ["b", "a is gone"] {
            queue.processed();
            assert!(!queue.has_synced());
            queue.pop();
        }
        queue.processed();
        assert!(queue.has_synced());
    }

    #[test]
    fn the_store_has_a_version_only_when_the_queue_has_run_empty() {
        let (mut queue, known) = (delta_fifo(), Known::default());
        queue.replace(vec![obj("a", 1), obj("b", 2)], 5.into(), &known);
        assert_eq!(queue.pop().unwrap().version, None);
        assert_eq!(queue.pop().unwrap().version, Some(5.into()));
        assert!(queue.pop().is_none());
        queue.push(Delta::Bookmark(9.into()), &known);
        let popped = queue.pop().unwrap();
        assert_eq!((popped.deltas.len(), popped.version), (0, Some(9.into())));
        assert!(queue.pop().is_none());
    }
}

/// One step of a stream, on few names so that they collide.
#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    Delete(u8),
    Relist,
    Resync,
    /// The consumer pops this often; the last pop is left unprocessed until the next step.
    Pop(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..6_u8).prop_map(Step::Put),
        3 => (0..6_u8).prop_map(Step::Delete),
        1 => Just(Step::Relist),
        1 => Just(Step::Resync),
        3 => (0..4_u8).prop_map(Step::Pop),
    ];
    prop::collection::vec(step, 0..60)
}

/// The consumer: a plain map, filled the way the informer's loop fills its store.
fn consume(store: &mut Known, popped: Popped<()>) {
    for delta in popped.deltas {
        match delta {
            Delta::ReplacedAll { items, .. } => *store = Known::of(items),
            Delta::Deleted(deleted) => {
                store.0.remove(&deleted.key());
            }
            Delta::SyncAll | Delta::Bookmark(_) => {}
            other => {
                let object = other.object().cloned().unwrap();
                store.0.insert(object.key(), object);
            }
        }
    }
}

fn play(queue: &mut dyn Queue<()>, steps: &[Step]) -> BTreeMap<ObjectName, u64> {
    let (mut server, mut store) = (BTreeMap::<String, u64>::new(), Known::default());
    let mut flying: Option<Popped<()>> = None;
    let land = |queue: &mut dyn Queue<()>, store: &mut Known, flying: &mut Option<Popped<()>>| {
        if let Some(popped) = flying.take() {
            consume(store, popped);
            queue.processed();
        }
    };
    queue.replace(vec![], 1.into(), &store);
    for (version, step) in (2..).zip(steps) {
        match step {
            Step::Put(n) => {
                let name = format!("o{n}");
                let change = if server.insert(name.clone(), version).is_some() {
                    Delta::Updated
                } else {
                    Delta::Added
                };
                queue.push(change(obj(&name, version)), &store);
            }
            Step::Delete(n) => {
                let name = format!("o{n}");
                if server.remove(&name).is_some() {
                    queue.push(deleted(&name, version), &store);
                }
            }
            Step::Relist => {
                let items = server.iter().map(|(name, version)| obj(name, *version)).collect();
                queue.replace(items, version.into(), &store);
            }
            Step::Resync => queue.resync(&store),
            Step::Pop(count) => {
                for _ in 0..*count {
                    land(queue, &mut store, &mut flying);
                    flying = queue.pop();
                }
            }
        }
    }
    land(queue, &mut store, &mut flying);
    for _ in 0..100 {
        let Some(popped) = queue.pop() else { break };
        consume(&mut store, popped);
        queue.processed();
    }
    assert!(queue.pop().is_none(), "it never runs empty");
    assert!(queue.has_synced() && queue.is_empty());
    let expected: BTreeMap<_, _> =
        server.into_iter().map(|(name, v)| (ObjectName::cluster(&name), v)).collect();
    let found: BTreeMap<_, _> =
        store.0.into_iter().map(|(key, o)| (key, o.version().as_number().unwrap())).collect();
    assert_eq!(found, expected);
    found
}

proptest! {
    #[test]
    fn both_queues_end_in_the_same_store(steps in steps()) {
        let ordered = play(&mut OrderedFifo::new(), &steps);
        let gathered = play(&mut delta_fifo(), &steps);
        prop_assert_eq!(ordered, gathered);
    }
}
