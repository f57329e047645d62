//! Waiting of producer and consumer at a delta queue, for both queues, on the paused clock.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use watchkeeper::clock::{Clock, Generator};
use watchkeeper::queue::{Delta, DeltaFifo, DeltaQueue, OrderedFifo, Popped, ProcessError, Queue, QueueKind};
use watchkeeper::{Env, Object, ObjectName};

const QUEUES: [QueueKind; 2] = [QueueKind::Ordered, QueueKind::Delta];

fn queue(kind: QueueKind) -> Box<dyn Queue<()>> {
    match kind {
        QueueKind::Delta => Box::new(DeltaFifo::new(&Generator::seeded(1))),
        _ => Box::new(OrderedFifo::new()),
    }
}

/// An object from `name@version`.
fn object(item: &str) -> Object<()> {
    let (name, version) = item.split_once('@').unwrap();
    let json = format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#);
    Object::from_json(json.as_bytes()).unwrap()
}

// client-go: TestDeltaFIFO_basic, TestRealFIFO_basic, TestFIFO_basic
#[tokio::test]
async fn two_producers_keep_their_own_order() {
    let env = Env::simulated(1);
    for kind in QUEUES {
        let line = Arc::new(DeltaQueue::<()>::new(queue(kind), &Env::simulated(1)));
        for producer in ["a", "b"] {
            let line = line.clone();
            tokio::spawn(async move {
                for n in 1..=500 {
                    line.push(Delta::Added(object(&format!("{producer}{n}@{n}"))));
                    tokio::task::yield_now().await;
                }
            });
        }
        let mut last = BTreeMap::from([('a', 0), ('b', 0)]);
        while last.values().sum::<u64>() < 1000 {
            let popped = env.clock.timeout(Duration::from_secs(60), line.pop()).await.expect("nothing comes");
            for delta in popped.unwrap().deltas {
                let object = delta.object().unwrap();
                let (producer, n) = object.name().split_at(1);
                let before = last.insert(producer.chars().next().unwrap(), n.parse().unwrap()).unwrap();
                assert_eq!(n.parse::<u64>().unwrap(), before + 1);
            }
            line.processed();
        }
    }
}

// client-go: TestDeltaFIFO_PopShouldUnblockWhenClosed, TestRealFIFO_PopShouldUnblockWhenClosed, TestFIFO_PopShouldUnblockWhenClosed
#[tokio::test(start_paused = true)]
async fn a_close_lets_every_waiting_consumer_go() {
    let env = Env::simulated(1);
    for kind in QUEUES {
        let line = Arc::new(DeltaQueue::<()>::new(queue(kind), &Env::simulated(1)));
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let line = line.clone();
                tokio::spawn(async move { line.pop().await.is_none() })
            })
            .collect();
        tokio::task::yield_now().await;
        line.close();
        for pop in waiting {
            let ended = env.clock.timeout(Duration::from_secs(60), pop).await.expect("a pop still waits");
            assert!(ended.unwrap());
        }
        line.push(Delta::Added(object("late@1")));
        assert!(line.pop().await.is_some() && line.pop().await.is_none());
    }
}

// client-go: TestDeltaFIFO_requeueOnPop, TestFIFO_requeueOnPop, of the releases that had them
#[tokio::test]
async fn a_pop_returns_the_deltas_and_the_error_and_requeues_on_demand() {
    for kind in QUEUES {
        let line = DeltaQueue::<()>::new(queue(kind), &Env::simulated(1));
        line.push(Delta::Added(object("foo@10")));
        let (popped, result) = line.pop_with(|_| Err(ProcessError::requeue("test error"))).await.unwrap();
        assert_eq!((popped.deltas.len(), line.len()), (1, 1));
        assert_eq!(result.unwrap_err().to_string(), "test error");
        let (_, result) = line.pop_with(|_| Err(std::fmt::Error.into())).await.unwrap();
        assert!(result.is_err() && line.is_empty());
        line.push(Delta::Updated(object("foo@11")));
        let (popped, result) = line.pop_with(|_| Ok(())).await.unwrap();
        assert!(result.is_ok() && line.is_empty());
        assert_eq!(popped.deltas[0].key(), Some(ObjectName::cluster("foo")));
    }
}

// client-go: the trace "DeltaFIFO Pop Process"
#[tokio::test]
async fn a_slow_process_function_with_many_waiting_behind_it_is_reported() {
    for (waiting, expected) in [(11, 1), (10, 0)] {
        let env = Env::new(Clock::system(), Generator::seeded(1));
        let reports = Arc::new(Mutex::new(Vec::new()));
        let log = reports.clone();
        env.reporter
            .add_hook(move |report| log.lock().push(format!("{} {}", report.subject, report.incident)));
        let line = DeltaQueue::<()>::new(queue(QueueKind::Delta), &env).name("pods");
        for n in 0..=waiting {
            line.push(Delta::Added(object(&format!("o{n}@1"))));
        }
        let process = |_: &Popped<()>| {
            let until = env.clock.now() + Duration::from_millis(110);
            while env.clock.now() < until {
                std::hint::spin_loop();
            }
            Ok(())
        };
        line.pop_with(process).await.unwrap().1.unwrap();
        let reports = reports.lock();
        assert_eq!(reports.len(), expected, "{waiting} waiting: {reports:?}");
        if expected == 1 {
            let report = &reports[0];
            assert!(
                report.starts_with("pods slow handlers hold the queue up: 1 deltas from o0 on took"),
                "{report}"
            );
            assert!(report.ends_with("while 11 entries wait"), "{report}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_pop_loses_nothing() {
    let env = Env::simulated(1);
    for kind in QUEUES {
        let line = DeltaQueue::<()>::new(queue(kind), &Env::simulated(1));
        assert!(env.clock.timeout(Duration::from_millis(1), line.pop()).await.is_err());
        line.push(Delta::Added(object("a@1")));
        {
            let pop = line.pop();
            drop(pop);
        }
        assert_eq!(line.pop().await.unwrap().deltas.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_consumer_makes_the_producer_wait_and_a_resumed_one_gets_everything() {
    const COUNT: usize = 2000;
    let env = Env::simulated(1);
    for kind in QUEUES {
        let bound = 50 * Delta::Added(object("o1000@1")).bytes();
        let line = Arc::new(DeltaQueue::<()>::new(queue(kind), &Env::simulated(1)).bound(bound));
        let (pushed, into) = (Arc::new(AtomicUsize::new(0)), line.clone());
        let count = pushed.clone();
        tokio::spawn(async move {
            for n in 0..COUNT {
                into.push(Delta::Added(object(&format!("o{n}@1"))));
                count.fetch_add(1, Ordering::Relaxed);
                into.room().await;
            }
            into.close();
        });
        env.clock.sleep(Duration::from_millis(1)).await;
        let stalled = pushed.load(Ordering::Relaxed);
        assert!((50..60).contains(&stalled), "{kind:?}: {stalled}");
        env.clock.sleep(Duration::from_secs(3600)).await;
        assert_eq!(pushed.load(Ordering::Relaxed), stalled);
        let (mut got, mut most) = (0, 0);
        while let Some(popped) = line.pop().await {
            got += popped.deltas.len();
            most = most.max(line.bytes());
            line.processed();
            tokio::task::yield_now().await;
        }
        assert_eq!((got, pushed.load(Ordering::Relaxed)), (COUNT, COUNT));
        assert!(most <= bound + bound / 25, "{kind:?}: {most} of {bound}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_larger_than_the_bound_waits_for_the_consumer_and_locks_nobody_out() {
    let env = Env::simulated(1);
    for kind in QUEUES {
        let line = DeltaQueue::<()>::new(queue(kind), &Env::simulated(1)).bound(1);
        line.room().await;
        line.replace((0..100).map(|n| object(&format!("o{n}@1"))).collect(), 1.into());
        assert!(env.clock.timeout(Duration::from_secs(60), line.room()).await.is_err());
        tokio::join!(line.room(), async {
            while !line.is_empty() {
                line.pop().await.unwrap();
                line.processed();
            }
        });
        line.push(Delta::Added(object("more@2")));
        tokio::join!(line.room(), async { line.close() });
    }
}
