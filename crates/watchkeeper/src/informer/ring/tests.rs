//! A handler that is behind receives everything that matters, in memory bounded by the number of objects.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Returns an object of `name` with this uid and version.
fn object(name: &str, uid: u64, version: u64) -> Object<()> {
    let json = format!(r#"{{"metadata":{{"name":"{name}","uid":"{uid}","resourceVersion":"{version}"}}}}"#);
    Object::from_json(json.as_bytes()).unwrap()
}

fn add(name: &str, version: u64) -> Notification<()> {
    Notification::Add { object: object(name, 0, version), in_initial_list: false }
}

fn initial(name: &str, version: u64) -> Notification<()> {
    Notification::Add { object: object(name, 0, version), in_initial_list: true }
}

fn update(name: &str, old: u64, new: u64) -> Notification<()> {
    Notification::Update { old: object(name, 0, old), new: object(name, 0, new) }
}

fn delete(name: &str, version: u64) -> Notification<()> {
    Notification::Delete(Deleted::Final(object(name, 0, version)))
}

fn in_short(notification: &Notification<()>) -> String {
    match notification {
        Notification::Add { object, in_initial_list } => {
            format!("+{}@{}{}", object.name(), object.version(), if *in_initial_list { "!" } else { "" })
        }
        Notification::Update { old, new } => format!("{}@{}>{}", new.name(), old.version(), new.version()),
        Notification::Delete(deleted) => format!("-{}", deleted.key()),
        Notification::Superseded(object) => format!("({})", object.key()),
    }
}

fn ring(bound: usize, notifications: impl IntoIterator<Item = Notification<()>>) -> Ring<()> {
    let mut ring = Ring::new(bound, FixedState::default());
    notifications.into_iter().for_each(|notification| ring.push(notification));
    ring
}

fn drain(ring: &mut Ring<()>) -> Vec<String> {
    std::iter::from_fn(|| ring.pop()).map(|notification| in_short(&notification)).collect()
}

/// Returns a ring that coalesces from its first notification on.
fn behind(notifications: impl IntoIterator<Item = Notification<()>>) -> Ring<()> {
    ring(0, notifications)
}

#[test]
fn up_to_the_bound_every_change_is_told_in_order() {
    let mut ring = ring(4, [add("a", 1), update("a", 1, 2), delete("a", 3), add("a", 4)]);
    assert!(!ring.is_coalescing());
    assert_eq!(drain(&mut ring), ["+a@1", "a@1>2", "-a", "+a@4"]);
    assert_eq!(ring.coalesced(), 0);
}

#[test]
fn one_more_than_the_bound_coalesces_what_waits_until_all_of_it_was_taken() {
    let mut ring = ring(2, [update("a", 1, 2), update("a", 2, 3), update("a", 3, 4)]);
    assert!(ring.is_coalescing());
    assert_eq!((ring.len(), ring.coalesced()), (1, 2));
    assert_eq!(in_short(&ring.pop().unwrap()), "a@1>4");
    ring.push(update("b", 1, 2));
    ring.push(update("b", 2, 3));
    assert!(ring.is_coalescing(), "not yet drained");
    assert_eq!(drain(&mut ring), ["b@1>3"]);
    assert!(!ring.is_coalescing());
    ring.push(update("b", 3, 4));
    ring.push(update("b", 4, 5));
    assert_eq!(drain(&mut ring), ["b@3>4", "b@4>5"]);
}

#[test]
fn the_old_state_is_the_last_that_the_handler_was_told() {
    let mut ring = behind([add("a", 1)]);
    assert_eq!(in_short(&ring.pop().unwrap()), "+a@1");
    [update("a", 1, 2), update("a", 2, 3)].into_iter().for_each(|change| ring.push(change));
    assert_eq!(drain(&mut ring), ["a@1>3"]);
}

#[test]
fn what_was_known_deleted_and_made_again_is_told_as_delete_and_add() {
    let mut ring = behind([update("a", 1, 2), delete("a", 3), add("a", 4), update("a", 4, 5)]);
    assert_eq!(ring.len(), 2);
    assert_eq!(drain(&mut ring), ["-a", "+a@5"]);
}

#[test]
fn of_several_lives_that_the_handler_missed_only_the_last_is_told() {
    let lives = [delete("a", 3), add("a", 4), delete("a", 5), add("a", 6), delete("a", 7), add("a", 8)];
    assert_eq!(drain(&mut behind(lives)), ["-a", "+a@8"]);
    assert_eq!(drain(&mut behind([delete("a", 3), add("a", 4), delete("a", 5)])), ["-a"]);
}

#[test]
fn what_came_and_went_unseen_is_not_told_and_takes_no_memory() {
    let mut ring = behind((0..1000).flat_map(|n| [add(&format!("a{n}"), n), delete(&format!("a{n}"), n)]));
    assert_eq!((ring.len(), ring.coalesced()), (0, 2000));
    let Waiting::Coalesced(coalesced) = &ring.waiting else { panic!("it coalesces") };
    assert!(coalesced.by_turn.is_empty() && coalesced.turns.is_empty());
    assert_eq!(drain(&mut ring), [""; 0]);
}

#[test]
fn between_the_delete_and_the_add_of_a_recreated_object_another_delete_cancels_the_add() {
    let mut ring = behind([delete("a", 3), add("a", 4)]);
    assert_eq!(in_short(&ring.pop().unwrap()), "-a");
    ring.push(delete("a", 5));
    assert_eq!(drain(&mut ring), [""; 0]);
}

#[test]
fn the_mark_of_the_initial_list_survives_and_an_object_that_is_cancelled_still_counts() {
    let mut ring = behind([add("x", 1), initial("a", 1), initial("b", 1), update("a", 1, 2), delete("b", 2)]);
    assert_eq!(ring.initial(), 1, "b is done with");
    assert_eq!(drain(&mut ring), ["+x@1", "+a@2!"]);
    assert_eq!(ring.initial(), 0);
}

#[test]
fn the_initial_list_does_not_count_toward_the_bound() {
    let names: Vec<_> = (0..100).map(|n| format!("a{n}")).collect();
    let mut ring = ring(2, names.iter().map(|name| initial(name, 1)));
    ring.push(update("a0", 1, 2));
    ring.push(update("a0", 2, 3));
    assert!(!ring.is_coalescing());
    ring.push(update("a0", 3, 4));
    assert!(ring.is_coalescing());
    assert_eq!((ring.len(), ring.initial()), (100, 100));
    assert_eq!(drain(&mut ring).last().unwrap(), "+a0@4!");
}

#[test]
fn a_resync_is_absorbed_by_what_waits_and_puts_nothing_off() {
    let mut ring = behind([update("a", 1, 2), update("b", 1, 2), update("a", 2, 2)]);
    assert_eq!(drain(&mut ring), ["a@1>2", "b@1>2"]);
    let mut ring = behind([update("a", 2, 2), update("a", 2, 3)]);
    assert_eq!(drain(&mut ring), ["a@2>3"]);
}

#[test]
fn a_change_puts_an_object_off_once_so_that_a_busy_one_is_told_too() {
    let mut ring = behind([update("hot", 1, 2), update("a", 1, 2), update("hot", 2, 3), update("b", 1, 2)]);
    ring.push(update("hot", 3, 4));
    assert_eq!(drain(&mut ring), ["a@1>2", "hot@1>4", "b@1>2"]);
}

#[test]
fn what_a_burst_has_taken_is_given_back_at_its_end() {
    let mut ring = ring(0, (0..10_000).map(|n| initial(&format!("a{n}"), 1)));
    drain(&mut ring);
    let Waiting::Exact(exact) = &ring.waiting else { panic!("it is exact") };
    assert!(exact.capacity() <= 2 * SMALL);
}

/// One step of the world, or of the handler.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The object of that name is created or changed; as part of the initial list while that lasts.
    Apply(u8),
    Delete(u8),
    /// The cache sees that an object was recreated: one delete and one add at once.
    Recreate(u8),
    Resync,
    Take,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0..6u8;
    let step = prop_oneof![
        6 => name.clone().prop_map(Step::Apply),
        2 => name.clone().prop_map(Step::Delete),
        1 => name.prop_map(Step::Recreate),
        1 => Just(Step::Resync),
        3 => Just(Step::Take),
    ];
    prop::collection::vec(step, 0..200)
}

/// The objects that the handler knows, checked with every notification.
#[derive(Default)]
struct Delivered {
    known: BTreeMap<String, Object<()>>,
    initial: usize,
}

impl Delivered {
    fn take(&mut self, notification: Notification<()>) {
        match notification {
            Notification::Add { object, in_initial_list } => {
                self.initial += usize::from(in_initial_list);
                let before = self.known.insert(object.name().to_owned(), object);
                assert!(before.is_none(), "added twice");
            }
            Notification::Update { old, new } => {
                let before = self.known.insert(new.name().to_owned(), new.clone()).unwrap();
                assert_eq!(before.version(), old.version(), "an update from another state than the last");
                assert_eq!(before.uid(), new.uid(), "a new object is not an update");
            }
            Notification::Delete(deleted) => {
                let before = self.known.remove(deleted.key().name()).unwrap();
                assert_eq!(Some(before.uid()), deleted.last_known().map(Object::uid), "another was deleted");
            }
            Notification::Superseded(_) => panic!("not for a mailbox"),
        }
    }
}

proptest! {
    #[test]
    fn coalesced_or_exact_a_handler_ends_with_the_same_state(
        steps in steps(), initial_steps in 0..30usize, bound in 0..12usize,
    ) {
        let mut ring = Ring::new(bound, FixedState::default());
        let (mut world, mut delivered) = (BTreeMap::<String, Object<()>>::new(), Delivered::default());
        let (mut version, mut pushed, mut popped, mut initial_added) = (0, 0u64, 0u64, 0);
        let mut listed = std::collections::BTreeSet::new();
        for (at, step) in steps.into_iter().enumerate() {
            version += 1;
            let mut changes = Vec::new();
            match step {
                Step::Apply(name) => {
                    let name = format!("o{name}");
                    let in_initial_list = at < initial_steps && !listed.contains(&name);
                    match world.get(&name).cloned() {
                        Some(old) => {
                            let new = object(&name, old.uid().parse().unwrap(), version);
                            world.insert(name, new.clone());
                            changes.push(Notification::Update { old, new });
                        }
                        None => {
                            let new = object(&name, version, version);
                            world.insert(name.clone(), new.clone());
                            initial_added += usize::from(in_initial_list);
                            listed.insert(name);
                            changes.push(Notification::Add { object: new, in_initial_list });
                        }
                    }
                }
                Step::Delete(name) => {
                    if let Some(old) = world.remove(&format!("o{name}")) {
                        changes.push(Notification::Delete(Deleted::Final(old)));
                    }
                }
                Step::Recreate(name) => {
                    let name = format!("o{name}");
                    if let Some(old) = world.get(&name).cloned() {
                        let new = object(&name, version, version);
                        world.insert(name, new.clone());
                        changes.push(Notification::Delete(Deleted::tombstone(&old)));
                        changes.push(Notification::Add { object: new, in_initial_list: false });
                    }
                }
                Step::Resync => changes.extend(
                    world.values().map(|object| Notification::Update { old: object.clone(), new: object.clone() }),
                ),
                Step::Take => {
                    if let Some(notification) = ring.pop() {
                        popped += 1;
                        delivered.take(notification);
                    }
                }
            }
            for change in changes {
                pushed += 1;
                ring.push(change);
                prop_assert!(ring.len() <= bound.max(2 * 6) + ring.initial());
                prop_assert_eq!(pushed, popped + ring.len() as u64 + ring.coalesced());
            }
        }
        while let Some(notification) = ring.pop() {
            delivered.take(notification);
        }
        prop_assert_eq!(ring.initial(), 0);
        prop_assert!(delivered.initial <= initial_added);
        let states = |of: &BTreeMap<String, Object<()>>| -> Vec<_> {
            of.values().map(|object| (object.name().to_owned(), object.uid().to_owned(), object.version().clone())).collect()
        };
        prop_assert_eq!(states(&delivered.known), states(&world));
    }
}
