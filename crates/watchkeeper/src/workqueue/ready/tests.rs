use foldhash::fast::FixedState;

use super::*;
use Priority::{High, Low, Normal};

/// Returns keys that are ready in this order.
fn ready(keys: impl IntoIterator<Item = (u32, Priority)>) -> (Ready, Slots<u32>) {
    let (mut ready, mut slots) = (Ready::new(), Slots::new(FixedState::default()));
    for (key, priority) in keys {
        let number = slots.find_or_insert(key);
        slots[number].priority = priority;
        ready.push(&mut slots, number);
    }
    (ready, slots)
}

fn pops(ready: &mut Ready, slots: &mut Slots<u32>) -> Vec<u32> {
    let mut next = || ready.pop(slots).and_then(|number| slots[number].key);
    std::iter::from_fn(&mut next).collect()
}

#[test]
fn higher_priorities_go_first_and_equal_ones_in_their_order() {
    let (mut ready, mut slots) = ready([(1, Low), (2, Normal), (3, High), (4, Normal), (5, High), (6, Low)]);
    assert_eq!((ready.len(), Priority::ALL.map(|priority| ready.depth(priority))), (6, [2, 2, 2]));
    assert_eq!(pops(&mut ready, &mut slots), [3, 5, 2, 4, 1, 6]);
    assert_eq!(ready.len(), 0);
}

#[test]
fn a_raised_key_goes_to_the_end_of_its_new_priority_and_is_never_lowered() {
    let (mut ready, mut slots) = ready([(1, Low), (2, Normal), (3, Normal), (4, Low)]);
    ready.raise(&mut slots, 0, Normal);
    ready.raise(&mut slots, 1, Low);
    ready.raise(&mut slots, 2, Normal);
    assert_eq!(pops(&mut ready, &mut slots), [2, 3, 1, 4]);
}

#[test]
fn after_ten_others_a_lower_priority_has_its_turn() {
    let (mut ready, mut slots) =
        ready((0..3).map(|key| (key, Low)).chain((100..125).map(|key| (key, Normal))));
    let order = pops(&mut ready, &mut slots);
    assert_eq!(order[10], 0, "{order:?}");
    assert_eq!(order[21], 1, "{order:?}");
    assert_eq!((order[27], order.len()), (2, 28));
}

#[test]
fn no_priority_starves_under_two_that_never_end() {
    let keys = (0..5).map(|key| (key, Low)).chain((100..150).map(|key| (key, Normal)));
    let (mut ready, mut slots) = ready(keys.chain((1000..1500).map(|key| (key, High))));
    let order = pops(&mut ready, &mut slots);
    let normal = order[..110].iter().filter(|key| (100..150).contains(*key)).count();
    let low = order[..110].iter().filter(|key| **key < 5).count();
    assert!(normal >= 9 && low == 5, "{normal} normal and {low} low keys among the first 110");
}

#[test]
fn patience_is_not_saved_up_by_a_priority_with_nothing_to_do() {
    let (mut ready, mut slots) = ready((0..9).map(|key| (key, Normal)).chain([(50, Low)]));
    for _ in 0..5 {
        ready.pop(&mut slots);
    }
    // The low key is urgent now, and another low one is added.
    let number = slots.find(&50).unwrap();
    ready.raise(&mut slots, number, High);
    assert_eq!(ready.pop(&mut slots), Some(number));
    for (key, priority) in [(51, Low)].into_iter().chain((60..70).map(|key| (key, Normal))) {
        let number = slots.find_or_insert(key);
        slots[number].priority = priority;
        ready.push(&mut slots, number);
    }
    assert_eq!(pops(&mut ready, &mut slots)[10], 51);
}
