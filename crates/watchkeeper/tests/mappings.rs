//! Handlers that see every state: mappings from objects to keys. On both queues, on the paused clock.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use common::{Log, QUEUES, ScriptedInformer, list, raw, silence, watched};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::json;
use watchkeeper::informer::{Change, Handler, HandlerOptions, Registration, filtered, on_change};
use watchkeeper::queue::{Deleted, QueueKind};
use watchkeeper::source::Reply;
use watchkeeper::workqueue::{Priority, enqueue, enqueue_mapped, limiter};
use watchkeeper::{Env, Object, ObjectName, RateLimitingQueue, SharedInformer};

type Keys = RateLimitingQueue<ObjectName>;

fn keys(env: &Env) -> Keys {
    RateLimitingQueue::new("owners", limiter::default_controller(), env)
}

/// The names of the keys that wait, sorted, each with its priority unless something changed.
fn waiting(queue: &Keys) -> Vec<String> {
    let show = |priority| if priority == Priority::Normal { "" } else { " low" };
    let waiting = queue.records().filter(|record| record.waiting_since.is_some());
    let mut names: Vec<_> =
        waiting.map(|record| format!("{}{}", record.key.name(), show(record.priority))).collect();
    names.sort();
    names
}

/// Takes all keys that wait, and is done with them.
async fn take(queue: &Keys) -> Vec<String> {
    let names = waiting(queue);
    for _ in &names {
        queue.get().await.unwrap().forget();
    }
    names
}

/// An event of the object `name@version`, controlled by a ReplicaSet.
fn owned(kind: &str, item: &str, owner: &str) -> String {
    let mut object = watched(item);
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true});
    object["metadata"]["ownerReferences"] = json!([owner]);
    raw(kind, &object)
}

fn owner_of(object: &Object<ConfigMap>) -> Option<ObjectName> {
    object.controller_of::<ReplicaSet>()
}

/// More than none is coalesced.
fn impatient() -> HandlerOptions {
    HandlerOptions::default().bound(0)
}

#[tokio::test(start_paused = true)]
async fn every_owner_that_an_object_had_is_enqueued_however_far_behind_others_are() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &[]).await;
        let (log, owners) = (Log::default(), keys(&scripted.env));
        scripted.informer.add_handler_with(on_change(log.handler()), impatient()).unwrap();
        let mapping = enqueue_mapped(owners.clone(), owner_of);
        let registration = scripted.informer.add_handler_with(mapping, impatient()).unwrap();
        feed.send(owned("ADDED", "x@11", "a"));
        scripted.settle().await;
        assert_eq!((take(&owners).await, log.take()), (vec!["a".into()], vec!["+ x@11".into()]));
        feed.send([owned("MODIFIED", "x@12", "b"), owned("MODIFIED", "x@13", "c")].concat());
        scripted.settle().await;
        assert_eq!(log.take(), ["x 11->13"], "whoever has a mailbox has not heard of b");
        assert_eq!(take(&owners).await, ["a", "b", "c"]);
        let stats = registration.stats();
        assert_eq!((stats.pending, stats.coalesced, registration.is_coalescing()), (0, 0, false));

        // One that came and went, and one whose last change and end came as one.
        feed.send([owned("ADDED", "y@14", "d"), owned("DELETED", "y@15", "d")].concat());
        feed.send(owned("DELETED", "x@16", "e"));
        scripted.settle().await;
        assert_eq!(log.take(), ["- x@16"]);
        assert_eq!(take(&owners).await, ["c", "d", "e"]);
    }
}

#[tokio::test(start_paused = true)]
async fn keys_of_the_first_list_wait_when_the_informer_has_synced_and_a_filter_maps_what_it_keeps() {
    for queue in QUEUES {
        let scripted = ScriptedInformer::new(queue, Duration::ZERO);
        let (all, some) = (keys(&scripted.env), keys(&scripted.env));
        let registration = scripted.informer.add_handler(enqueue(all.clone())).unwrap();
        let is_short = |object: &Object<ConfigMap>| object.name().len() == 1;
        scripted.informer.add_handler(filtered(is_short, enqueue(some.clone()))).unwrap();
        let (reply, feed) = Reply::live();
        scripted.source.on_list(list(10, &["a@1", "bb@2"])).on_watch(reply);
        assert!(!registration.has_synced());
        let task = scripted.start();
        scripted.informer.wait_until_synced().await;
        assert!(registration.has_synced());
        assert_eq!(
            (take(&all).await, take(&some).await),
            (vec!["a low".into(), "bb low".into()], vec!["a low".into()])
        );
        feed.send([common::event("DELETED", "a@11"), common::event("DELETED", "bb@12")].concat());
        scripted.settle().await;
        assert_eq!((take(&all).await, take(&some).await), (vec!["a".into(), "bb".into()], vec!["a".into()]));
        scripted.stop.cancel();
        task.await.unwrap();
        registration.ended().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_a_filter_kept_is_enqueued_at_its_end_whatever_its_final_state_is() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &[]).await;
        let (objects, is_of_a) =
            (keys(&scripted.env), |object: &_| owner_of(object).is_some_and(|it| it.name() == "a"));
        scripted.informer.add_handler(filtered(is_of_a, enqueue(objects.clone()))).unwrap();
        feed.send(owned("ADDED", "x@11", "a"));
        scripted.settle().await;
        assert_eq!(take(&objects).await, ["x"]);
        feed.send(owned("DELETED", "x@12", "b"));
        scripted.settle().await;
        assert_eq!(take(&objects).await, ["x"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_mapping_that_joins_late_has_seen_all_objects_when_it_was_added() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1", "b@2"]).await;
        let late = keys(&scripted.env);
        let registration = scripted.informer.add_handler(enqueue(late.clone())).unwrap();
        assert!(registration.has_synced());
        assert_eq!(take(&late).await, ["a low", "b low"]);
        feed.send(common::event("MODIFIED", "a@11"));
        scripted.settle().await;
        assert_eq!(take(&late).await, ["a"]);
        scripted.informer.remove_handler(&registration);
        registration.ended().await;
        feed.send(common::event("MODIFIED", "a@12"));
        scripted.settle().await;
        assert!(take(&late).await.is_empty());
        assert_eq!(scripted.informer.stats().handlers.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_a_mapping_that_another_thread_is_telling() {
    for queue in QUEUES {
        let scripted = ScriptedInformer::new(queue, Duration::ZERO);
        scripted.source.on_list(list(10, &["a@1"])).on_watch(silence());
        let task = scripted.start();
        scripted.informer.wait_until_synced().await;
        let ((entered, enters), (leave, leaves)) = (mpsc::channel(), mpsc::channel::<()>());
        let mapping = enqueue_mapped(keys(&scripted.env), move |object: &Object<ConfigMap>| {
            entered.send(()).unwrap();
            leaves.recv().unwrap();
            [object.key()]
        });
        let informer = scripted.informer.clone();
        let late = thread::spawn(move || informer.add_handler(mapping).unwrap());
        enters.recv().unwrap();
        scripted.stop.cancel();
        scripted.settle().await;
        assert!(!task.is_finished());
        leave.send(()).unwrap();
        task.await.unwrap();
        late.join().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn resyncs_reach_a_mapping_that_is_due_with_low_priority_and_map_the_state_once() {
    for queue in QUEUES {
        let scripted = ScriptedInformer::new(queue, Duration::from_secs(60));
        let (due, never, mapped) = (keys(&scripted.env), keys(&scripted.env), Arc::new(Mutex::new(0)));
        let count = mapped.clone();
        let mapping = enqueue_mapped(due.clone(), move |object: &Object<ConfigMap>| {
            *count.lock() += 1;
            [object.key()]
        });
        scripted.informer.add_handler(mapping).unwrap();
        let options = HandlerOptions::default().resync(Duration::ZERO);
        scripted.informer.add_handler_with(enqueue(never.clone()), options).unwrap();
        scripted.source.on_list(list(10, &["a@1"])).on_watch(silence());
        scripted.start();
        scripted.informer.wait_until_synced().await;
        assert_eq!((take(&due).await.len(), take(&never).await.len()), (1, 1));
        scripted.env.clock.sleep(Duration::from_secs(61)).await;
        assert_eq!((take(&due).await, take(&never).await), (vec!["a low".into()], vec![]));
        assert_eq!(*mapped.lock(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_mapping_that_panics_is_reported_and_goes_on_and_whoever_hears_of_it_may_ask_the_informer() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1"]).await;
        let (owners, told) = (keys(&scripted.env), Arc::new(Mutex::new(Vec::new())));
        let (informer, into) = (scripted.informer.clone(), told.clone());
        scripted.env.reporter.add_hook(move |report| {
            into.lock().push(format!(
                "{} of {} {}",
                report.subject,
                informer.stats().handlers.len(),
                report.incident
            ));
        });
        let mapping = enqueue_mapped(owners.clone(), |object: &Object<ConfigMap>| {
            assert!(object.name() != "a", "as always");
            [object.key()]
        });
        let options = HandlerOptions::default().name("fragile");
        let registration = scripted.informer.add_handler_with(mapping, options).unwrap();
        assert!(registration.has_synced(), "a panic counts as told");
        feed.send([common::event("MODIFIED", "a@11"), common::event("ADDED", "b@12")].concat());
        scripted.settle().await;
        assert_eq!(take(&owners).await, ["b"]);
        assert_eq!(*told.lock(), ["fragile of 2 panicked: as always"; 2]);
        assert_eq!(registration.stats().panics, 2);
    }
}

/// Removes itself at the first object that it receives.
struct Leaving {
    informer: SharedInformer<ConfigMap>,
    own: Arc<Mutex<Option<Registration<ConfigMap>>>>,
    told: Log,
}

impl Handler<ConfigMap> for Leaving {
    fn sees_every_state(&self) -> bool {
        true
    }

    fn add(&mut self, object: &Object<ConfigMap>, _in_initial_list: bool) {
        self.told.add(object.name().to_owned());
        if let Some(own) = self.own.lock().take() {
            self.informer.remove_handler(&own);
            self.informer.add_handler(on_change(|_: Change<'_, ConfigMap>| {})).unwrap();
        }
    }

    fn delete(&mut self, deleted: &Deleted<ConfigMap>) {
        self.told.add(format!("- {}", deleted.key()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_use_its_informer_and_take_itself_out_while_it_is_told() {
    for queue in [QueueKind::Ordered, QueueKind::Delta] {
        let scripted = ScriptedInformer::new(queue, Duration::ZERO);
        let (own, told) = (Arc::new(Mutex::new(None)), Log::default());
        let leaving = Leaving { informer: scripted.informer.clone(), own: own.clone(), told: told.clone() };
        let registration = scripted.informer.add_handler(leaving).unwrap();
        *own.lock() = Some(registration.clone());
        let (reply, feed) = Reply::live();
        scripted.source.on_list(list(10, &["a@1", "b@2"])).on_watch(reply);
        scripted.start();
        assert!(!registration.synced_or_ended().await, "it was not told of all");
        feed.send(common::event("DELETED", "a@11"));
        scripted.settle().await;
        assert_eq!((told.take().len(), scripted.informer.stats().handlers.len()), (1, 2));
        assert_eq!(scripted.env.reporter.panics(), 0);
    }
}
