//! The effect of deltas on the store, and the notifications that follow.

use super::handler::Notification;
use crate::object::{Object, ResourceVersion};
use crate::queue::{Deleted, Delta, Popped};
use crate::store::{Batch, IndexPanics, Indexer};

/// Applies deltas to the store in one step and returns the notifications, in order.
///
/// Presence in the store decides between add and update, not the verb of the watch. An object with another uid than the
/// stored one is a new object: the delete of the old one is notified first.
pub(super) fn apply<K>(store: &Indexer<K>, popped: &Popped<K>) -> Vec<Notification<K>> {
    let (notifications, panics) = apply_unreported(store, popped);
    panics.report();
    notifications
}

/// Does the same as [`apply`] for a caller that holds locks, which reports the panics of index functions after
/// releasing them.
pub(super) fn apply_unreported<K>(
    store: &Indexer<K>,
    popped: &Popped<K>,
) -> (Vec<Notification<K>>, IndexPanics) {
    let Popped { deltas, in_initial_list, version } = popped;
    let in_initial_list = *in_initial_list;
    store.write_unreported(|batch| {
        let mut notifications = Vec::with_capacity(deltas.len());
        for delta in deltas {
            match delta {
                Delta::Added(object)
                | Delta::Updated(object)
                | Delta::Replaced(object)
                | Delta::Sync(object) => {
                    put(batch, object, in_initial_list, &mut notifications);
                }
                Delta::Deleted(deleted) => {
                    let cached = batch.remove(&deleted.key());
                    let is_other = |cached: &Object<K>| {
                        deleted.last_known().is_none_or(|last| last.version() != cached.version())
                    };
                    notifications.extend(cached.filter(is_other).map(Notification::Superseded));
                    notifications.push(Notification::Delete(deleted.clone()));
                }
                Delta::ReplacedAll { items, version } => {
                    replace_all(batch, items, version, in_initial_list, &mut notifications);
                }
                Delta::SyncAll => notifications.extend(
                    batch
                        .iter()
                        .map(|object| Notification::Update { old: object.clone(), new: object.clone() }),
                ),
                Delta::Bookmark(_) => {}
            }
        }
        if let Some(version) = version {
            batch.set_version(version.clone());
        }
        notifications
    })
}

fn put<K>(
    batch: &mut Batch<'_, K>,
    object: &Object<K>,
    in_initial_list: bool,
    notifications: &mut Vec<Notification<K>>,
) {
    let old = batch.put(object);
    notify_put(old, object, in_initial_list, notifications);
}

fn notify_put<K>(
    old: Option<Object<K>>,
    new: &Object<K>,
    in_initial_list: bool,
    notifications: &mut Vec<Notification<K>>,
) {
    // An object without a uid, such as one added by hand, matches any of its name.
    let is_same = |old: &Object<K>| old.uid() == new.uid() || old.uid().is_empty() || new.uid().is_empty();
    let new = new.clone();
    match old {
        Some(old) if is_same(&old) => notifications.push(Notification::Update { old, new }),
        Some(old) => {
            notifications.push(Notification::Delete(Deleted::tombstone(&old)));
            notifications.push(Notification::Add { object: new, in_initial_list });
        }
        None => notifications.push(Notification::Add { object: new, in_initial_list }),
    }
}

/// Notifies deletes first, in no particular order, then adds and updates in the order of the list.
fn replace_all<K>(
    batch: &mut Batch<'_, K>,
    items: &[Object<K>],
    version: &ResourceVersion,
    in_initial_list: bool,
    notifications: &mut Vec<Notification<K>>,
) {
    let before = batch.replace(items, version.clone());
    for old in before.iter().filter(|old| batch.get_like(old).is_none() && !planted!(ForgottenTombstone)) {
        notifications.push(Notification::Delete(Deleted::tombstone(old)));
    }
    for object in items {
        notify_put(before.get_like(object).cloned(), object, in_initial_list, notifications);
    }
}
