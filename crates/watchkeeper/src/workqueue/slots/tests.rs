use std::num::NonZeroU64;
use std::sync::Arc;

use super::super::runs::Run;
use super::*;
use crate::object::ObjectName;

fn slots<T: Hash + Eq>() -> Slots<T> {
    Slots::new(FixedState::default())
}

fn keys(list: &List, slots: &Slots<char>) -> String {
    list.iter(slots).filter_map(|slot| slot.key).collect()
}

#[test]
fn a_key_has_one_slot_until_it_is_removed() {
    let mut slots = slots();
    let (a, b) = (slots.find_or_insert("a"), slots.find_or_insert("b"));
    assert_ne!(a, b);
    assert_eq!((slots.find_or_insert("a"), slots.find(&"b"), slots.find(&"c")), (a, Some(b), None));
    slots.remove(a);
    assert_eq!((slots.find(&"a"), slots.find(&"b"), slots.len()), (None, Some(b), 1));
}

#[test]
fn removed_slots_are_used_again_and_begin_anew() {
    let mut slots = slots();
    let numbers: Vec<_> = (0..100).map(|key| slots.find_or_insert(key)).collect();
    for &number in &numbers {
        slots[number].failures = 7;
        slots.remove(number);
        // Removing a slot twice must not free it twice.
        slots.remove(number);
    }
    let mut again: Vec<_> = (1000..1100).map(|key| slots.find_or_insert(key)).collect();
    assert!(again.iter().all(|&number| slots[number].failures == 0));
    again.sort_unstable();
    assert_eq!(again, numbers);
}

#[test]
fn a_removed_slot_keeps_neither_key_nor_error() {
    let mut slots = slots();
    let key = Arc::new("a");
    let number = slots.find_or_insert(key.clone());
    let at = Tick::at(crate::clock::Clock::system().now(), crate::clock::Clock::system().now());
    slots[number].failed(at, "no".into());
    slots.remove(number);
    assert_eq!(Arc::strong_count(&key), 1);
    assert!(slots[number].last_error().is_none());
}

#[test]
fn a_million_slots_are_small() {
    // Four times, four numbers, one pointer and some flags, beside the key.
    assert_eq!(size_of::<Slot<[u64; 3]>>() - size_of::<Option<[u64; 3]>>(), 64);
    assert_eq!(size_of::<Slot<crate::object::ObjectName>>(), 24 + 64);
}

#[test]
fn the_slots_can_be_gone_through_piece_by_piece() {
    let mut slots = slots();
    (0..10).for_each(|key| _ = slots.find_or_insert(key));
    let piece =
        |start, count| slots.range(start, count).iter().filter_map(|slot| slot.key).collect::<Vec<_>>();
    assert_eq!(
        (piece(0, 4), piece(8, 4), piece(10, 4), piece(99, 4)),
        (vec![0, 1, 2, 3], vec![8, 9], vec![], vec![])
    );
    assert_eq!(piece(0, usize::MAX).len(), 10);
}

#[test]
fn any_slot_of_a_list_can_leave_it() {
    for (leaving, rest) in
        [("a", "bcd"), ("b", "acd"), ("d", "abc"), ("cb", "ad"), ("abcd", ""), ("dcba", "")]
    {
        let (mut slots, mut list) = (slots(), List::EMPTY);
        for key in "abcd".chars() {
            let number = slots.find_or_insert(key);
            list.push(&mut slots, number);
        }
        for key in leaving.chars() {
            let number = slots.find(&key).unwrap();
            list.remove(&mut slots, number);
        }
        assert_eq!(
            (keys(&list, &slots).as_str(), list.len(), list.is_empty()),
            (rest, rest.len(), rest.is_empty())
        );
        assert_eq!(list.first().and_then(|first| slots[first].key), rest.chars().next());
        let number = slots.find_or_insert('z');
        list.push(&mut slots, number);
        assert_eq!(keys(&list, &slots), format!("{rest}z"));
    }
}

#[test]
fn what_is_remembered_of_a_key_is_as_large_as_the_docs_say() {
    // docs/explain.md, "What it costs".
    assert_eq!((size_of::<Slot<ObjectName>>(), size_of::<Extra>()), (88, 176));
    let for_explaining = size_of::<Option<Run>>() + size_of::<u64>() + size_of::<Option<NonZeroU64>>();
    assert_eq!(for_explaining + 2 * size_of::<Option<Tick>>(), 64);
}
