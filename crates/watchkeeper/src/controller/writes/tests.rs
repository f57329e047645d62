//! Tests of parking and waking keys.

use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use tokio::sync::oneshot;

use super::*;
use crate::queue::KnownObjects;
use crate::workqueue::limiter;

struct Setup {
    env: Env,
    queue: RateLimitingQueue<u32>,
    writes: Writes<u32>,
    cache: Indexer<ConfigMap>,
}

fn setup() -> Setup {
    let env = Env::simulated(1);
    let queue = RateLimitingQueue::new("keys", limiter::default_item_based(), &env);
    Setup { writes: Writes::new(&queue, &env), cache: Indexer::new(&env, []), queue, env }
}

fn map(name: &str, version: u64) -> Object<ConfigMap> {
    let json = format!(r#"{{"metadata":{{"name":"{name}","uid":"u","resourceVersion":"{version}"}}}}"#);
    Object::from_json(json.as_bytes()).unwrap()
}

fn reach<K>(cache: &Indexer<K>, version: u64) {
    cache.write(|batch| batch.set_version(version.into()));
}

impl Setup {
    fn wrote(&self, key: u32, version: u64) {
        self.writes.enter(&key, &self.cache, &map("a", version), false);
    }

    /// Takes the key that is next and asks whether it may start.
    fn admit(&self) -> Option<WorkItem<u32>> {
        let item = self.queue.get().now_or_never().expect("a key is ready");
        self.writes.admit(item.expect("the queue is open"))
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    fn open_keys(&self) -> usize {
        self.writes.0.state.lock().keys.len()
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_without_open_writes_starts_at_once() {
    let setup = setup();
    setup.wrote(1, 5);
    setup.queue.add(2);
    assert_eq!(*setup.admit().unwrap().key(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_parked_until_the_cache_has_seen_its_write() {
    let setup = setup();
    setup.wrote(1, 5);
    setup.queue.add(1);
    assert!(setup.admit().is_none() && setup.is_idle());
    reach(&setup.cache, 4);
    assert!(setup.is_idle(), "not yet");
    reach(&setup.cache, 5);
    let item = setup.admit().unwrap();
    assert_eq!(item.attempts(), 0, "no attempt was counted");
    item.forget();
    assert_eq!((setup.open_keys(), setup.writes.overdue()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_wrote_to_two_caches_waits_for_both() {
    let setup = setup();
    let pods = Indexer::<Pod>::new(&setup.env, []);
    setup.wrote(1, 5);
    let pod = Object::from_json(br#"{"metadata":{"name":"p","resourceVersion":"7"}}"#).unwrap();
    setup.writes.enter(&1, &pods, &pod, false);
    setup.queue.add(1);
    assert!(setup.admit().is_none());
    setup.cache.add(map("a", 5));
    reach(&setup.cache, 9);
    assert!(setup.is_idle());
    reach(&pods, 9);
    assert!(setup.admit().is_some());
}

#[tokio::test(start_paused = true)]
async fn after_five_seconds_a_key_runs_with_the_answers_over_the_cache() {
    let setup = setup();
    setup.wrote(1, 5);
    setup.queue.add(1);
    let start = setup.env.clock.now();
    assert!(setup.admit().is_none());
    let item = setup.writes.admit(setup.queue.get().await.unwrap()).unwrap();
    assert_eq!((setup.env.clock.now() - start, setup.writes.overdue()), (PATIENCE, 1));
    let name = ObjectName::cluster("a");
    let own = setup.writes.get(&1, &setup.cache, &name).unwrap();
    assert_eq!(*own.version(), 5.into());
    assert!(setup.writes.get(&2, &setup.cache, &name).is_none(), "others read the cache alone");
    item.forget();
    setup.queue.add(1);
    assert!(setup.admit().is_some(), "no run waits a second time for one write");
}

#[tokio::test(start_paused = true)]
async fn events_meanwhile_do_not_prolong_the_wait() {
    let setup = setup();
    setup.wrote(1, 5);
    let start = setup.env.clock.now();
    for _ in 0..4 {
        setup.queue.add(1);
        assert!(setup.admit().is_none());
        setup.env.clock.sleep(Duration::from_secs(1)).await;
    }
    let item = setup.writes.admit(setup.queue.get().await.unwrap()).unwrap();
    assert_eq!(setup.env.clock.now() - start, PATIENCE);
    item.forget();
    assert!(setup.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_object_is_absent_until_the_cache_agrees() {
    let setup = setup();
    let name = ObjectName::cluster("a");
    setup.cache.add(map("a", 3));
    setup.writes.deleted(&1, &setup.cache, &name, "u");
    assert!(setup.writes.get(&1, &setup.cache, &name).is_none());
    assert_eq!(setup.writes.unseen(&1, &setup.cache).len(), 1);
    setup.queue.add(1);
    assert!(setup.admit().is_none());
    setup.cache.delete(&name);
    assert!(setup.admit().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_set_back_or_ends_wakes_its_keys() {
    let setup = setup();
    reach(&setup.cache, 10);
    setup.wrote(1, 12);
    setup.queue.add(1);
    assert!(setup.admit().is_none());
    reach(&setup.cache, 10);
    assert!(setup.is_idle());
    reach(&setup.cache, 3);
    setup.admit().unwrap().forget();
    setup.wrote(1, 12);
    setup.queue.add(1);
    assert!(setup.admit().is_none());
    setup.cache.ended();
    assert!(setup.admit().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_set_back_forgets_writes_even_if_nobody_looked_at_it_before_them() {
    let setup = setup();
    setup.wrote(1, 2);
    reach(&setup.cache, 2);
    // Nothing is open while the cache goes on.
    reach(&setup.cache, 10);
    setup.wrote(1, 12);
    setup.queue.add(1);
    assert!(setup.admit().is_none());
    reach(&setup.cache, 5);
    setup.admit().unwrap().forget();
    reach(&setup.cache, 11);
    assert!(setup.writes.unseen(&1, &setup.cache).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_write_the_server_has_lost_is_reconciled_again() {
    let setup = setup();
    reach(&setup.cache, 3);
    setup.wrote(1, 12);
    setup.queue.add(1);
    assert!(setup.admit().is_none());
    let item = setup.writes.admit(setup.queue.get().await.unwrap()).unwrap();
    item.forget();
    assert!(setup.is_idle());
    let question = setup.cache.asking();
    setup.cache.answered(question, &7.into());
    setup.admit().expect("enqueued by the answer").forget();
    assert!(setup.writes.get(&1, &setup.cache, &ObjectName::cluster("a")).is_none());
    assert_eq!(setup.open_keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_run_holds_its_key_until_its_request_has_ended() {
    let setup = setup();
    let (answer, request) = oneshot::channel::<u64>();
    let writes = setup.writes.clone();
    let cache = setup.cache.clone();
    let whole = async move {
        let version = request.await.unwrap();
        writes.enter(&1, &cache, &map("a", version), false);
    };
    let mut run = Box::pin(setup.writes.finish(&1, whole));
    assert!(run.as_mut().now_or_never().is_none());
    drop(run);
    setup.queue.add(1);
    assert!(setup.admit().is_none(), "the request is in flight");
    setup.env.clock.sleep(Duration::from_secs(20)).await;
    assert!(setup.is_idle());
    answer.send(5).unwrap();
    setup.writes.join().await;
    assert!(setup.admit().is_none(), "its outcome is entered, and not seen yet");
    reach(&setup.cache, 5);
    assert!(setup.admit().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_ends_in_time_leaves_nothing_behind() {
    let setup = setup();
    assert_eq!(setup.writes.finish(&1, async { 7 }).await, 7);
    assert_eq!(setup.open_keys(), 0);
    setup.writes.join().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_of_unknown_outcome_is_settled_by_a_read() {
    let setup = setup();
    let tries = Arc::new(AtomicUsize::new(0));
    let (writes, cache, counted) = (setup.writes.clone(), setup.cache.clone(), tries.clone());
    let settle = move || {
        let (writes, cache, counted) = (writes.clone(), cache.clone(), counted.clone());
        let read = async move {
            if counted.fetch_add(1, Ordering::Relaxed) == 0 {
                return Err(ApiError::new(crate::wire::Class::Timeout, "no answer"));
            }
            writes.enter(&1, &cache, &map("a", 5), false);
            Ok(())
        };
        read.boxed()
    };
    let name = ObjectName::cluster("a");
    setup
        .writes
        .lost(&1, Unknown { kind: "ConfigMap".to_owned(), name: name.clone(), settle: Box::new(settle) });
    setup.queue.add(1);
    let item = setup.admit().expect("what is unknown is settled by the run itself");
    assert!(setup.writes.settle(&1).await.is_err());
    assert!(setup.writes.settle(&1).await.is_ok(), "what could not be read stays unknown");
    assert!(setup.writes.get(&1, &setup.cache, &name).is_some());
    assert!(setup.writes.settle(&1).await.is_ok());
    assert_eq!(tries.load(Ordering::Relaxed), 2);
    item.forget();
}

#[tokio::test(start_paused = true)]
async fn keys_that_never_come_back_do_not_pile_up() {
    let setup = setup();
    for key in 0..10_000 {
        setup.wrote(key, u64::from(key) + 1);
        reach(&setup.cache, u64::from(key) + 1);
    }
    assert!(setup.open_keys() <= SWEEP);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_keys_that_wait_are_woken_each_at_its_version() {
    let setup = setup();
    for key in 1..=1_000 {
        setup.wrote(key, u64::from(key));
        setup.queue.add(key);
        assert!(setup.admit().is_none());
    }
    reach(&setup.cache, 500);
    assert_eq!(setup.queue.len(), 500);
    reach(&setup.cache, 1_000);
    assert_eq!(setup.queue.len(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_object_was_gone_before_the_cache_had_it_is_reconciled_again() {
    let setup = setup();
    setup.wrote(1, 5);
    // A relist: the object was created and deleted in between, and no handler hears of it.
    reach(&setup.cache, 7);
    setup.admit().expect("enqueued by the cache").forget();
    assert!(setup.is_idle() && setup.open_keys() == 0);
    setup.wrote(1, 9);
    setup.cache.write(|batch| {
        batch.put(&map("a", 9));
        batch.set_version(9.into());
    });
    assert!(setup.is_idle(), "the cache has it");
    assert_eq!(setup.open_keys(), 0);
}
