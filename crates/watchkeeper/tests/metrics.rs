//! Metrics of informers for Prometheus, on both queues, on the paused clock.
#![cfg(feature = "prometheus")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::time::Duration;

use common::{Log, QUEUES, event, list};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::Selector;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use watchkeeper::informer::{Change, HandlerOptions, InformerId, MetricsProvider, on_change};
use watchkeeper::process::metrics::{InformerCollector, QueueCollector};
use watchkeeper::source::{Reply, ScriptedSource};
use watchkeeper::wire::{ApiError, Class};
use watchkeeper::workqueue::{Priority, Reason, Trigger, limiter};
use watchkeeper::{Env, RateLimitingQueue, SharedInformer};

fn page(registry: &Registry) -> String {
    let mut page = String::new();
    encode(&mut page, registry).unwrap();
    page
}

#[tokio::test(start_paused = true)]
async fn a_page_has_the_figures_of_every_informer_that_lives() {
    for queue in QUEUES {
        let (env, source, mut registry) = (Env::simulated(1), ScriptedSource::new(), Registry::default());
        let collector = InformerCollector::register(&mut registry);
        let id = || InformerId::new::<ConfigMap>("test", &());
        let builder = SharedInformer::<ConfigMap>::builder(source.clone(), &env).queue(queue);
        let informer = builder.metrics(collector.informer(id())).build();
        let log = Log::default();
        for name in ["quick", "quick"] {
            let options = HandlerOptions::default().name(name);
            informer.add_handler_with(on_change(log.handler()), options).unwrap();
        }
        let options = HandlerOptions::default().name("fragile");
        let fragile = on_change(|_: Change<'_, ConfigMap>| panic!("as always"));
        informer.add_handler_with(fragile, options).unwrap();
        let (reply, feed) = Reply::live();
        source.on_list(list(10, &["a@1", "b@2"])).on_watch(reply);
        let (running, stop) = (informer.clone(), CancellationToken::new());
        let (token, clock) = (stop.clone(), env.clock.clone());
        let task = tokio::spawn(async move { running.run(token).await });
        informer.wait_until_synced().await;
        feed.send(event("MODIFIED", "a@12") + &event("ADDED", "c@13"));
        feed.send(event("DELETED", "b@14"));
        clock.sleep(Duration::from_secs(7)).await;
        informer.lister().list(&Selector::default()).complete().unwrap();

        source.on_list(list(14, &["a@12", "c@13"]));
        informer.verify().await.unwrap();
        let page = page(&registry);
        let of = r#"{name="test",group="",version="v1",resource="configmaps""#;
        let bytes = informer.stats().bytes;
        assert!(bytes > 100);
        for line in [
            format!("informer_queued_items{of}}} 0.0"),
            format!("informer_store_objects{of}}} 2.0"),
            format!("informer_store_bytes{of}}} {bytes}.0"),
            format!("informer_store_resource_version{of}}} 14.0"),
            format!("informer_last_contact_seconds{of}}} 7.0"),
            format!("informer_decodes_total{of}}} 2"),
            format!(r#"informer_lists_total{of},reason="first"}} 1"#),
            format!(r#"informer_lists_total{of},reason="expired"}} 0"#),
            format!(r#"informer_watch_events_total{of},type="modified"}} 1"#),
            format!(r#"informer_watch_events_total{of},type="added"}} 1"#),
            format!(r#"informer_watch_events_total{of},type="deleted"}} 1"#),
            format!("informer_history_rewritten_total{of}}} 0"),
            format!("informer_verifications_total{of}}} 1"),
            format!("informer_cache_differences_total{of}}} 0"),
            format!(r#"informer_handler_pending_notifications{of},handler="quick"}} 0.0"#),
            format!(r#"informer_handler_pending_notifications{of},handler="quick 2"}} 0.0"#),
            format!(r#"informer_handler_panics_total{of},handler="quick"}} 0"#),
            format!(r#"informer_handler_panics_total{of},handler="fragile"}} 5"#),
            format!(r#"informer_handler_slow_callbacks_total{of},handler="quick"}} 0"#),
            format!(r#"informer_handler_coalesced_notifications_total{of},handler="quick"}} 0"#),
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        let processed =
            page.lines().find(|line| line.starts_with("informer_processing_latency_seconds_count"));
        let processed: u64 = processed.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
        assert!((2..=5).contains(&processed), "a list of two and three events, in batches: {processed}");

        stop.cancel();
        task.await.unwrap();
        drop(informer);
        assert!(!self::page(&registry).contains("configmaps"), "a dropped informer is on no page");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_tells_for_how_long_a_cache_has_been_degraded_and_why() {
    let (env, source, mut registry) = (Env::simulated(1), ScriptedSource::new(), Registry::default());
    let metrics =
        InformerCollector::register(&mut registry).informer(InformerId::new::<ConfigMap>("test", &()));
    let informer = SharedInformer::<ConfigMap>::builder(source.clone(), &env).metrics(metrics).build();
    let degraded = || {
        page(&registry).lines().find(|line| line.starts_with("informer_degraded_seconds{")).map(str::to_owned)
    };
    let forbidden = || Reply::refuse(ApiError::new(Class::Forbidden, "scripted"));
    source.on_list(forbidden());
    let stop = CancellationToken::new();
    let (running, token) = (informer.clone(), stop.clone());
    let task = tokio::spawn(async move { running.run(token).await });
    source.until_asked(2).await;
    assert_eq!(
        degraded().unwrap().split_once("cause").unwrap().1.split_once(' ').unwrap().0,
        "=\"no_permission\"}"
    );
    env.clock.sleep(Duration::from_secs(60)).await;
    let lasts: f64 = degraded().unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!((60.0..62.0).contains(&lasts), "{lasts}");
    let (reply, _feed) = Reply::live();
    source.on_list(list(10, &[])).on_watch(reply);
    informer.wait_until_synced().await;
    assert_eq!(degraded(), None);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn informers_with_the_same_labels_are_told_apart_so_that_no_page_is_spoilt() {
    let (env, mut registry) = (Env::simulated(1), Registry::default());
    let collector = InformerCollector::register(&mut registry);
    let make = || {
        let metrics = collector.informer(InformerId::new::<ConfigMap>("test", &()));
        SharedInformer::<ConfigMap>::builder(ScriptedSource::new(), &env).metrics(metrics).build()
    };
    let (first, second) = (make(), make());
    let objects = |page: String| -> Vec<String> {
        page.lines().filter(|line| line.starts_with("informer_store_objects{")).map(str::to_owned).collect()
    };
    let told = objects(page(&registry));
    assert!(told[0].contains(r#"name="test","#) && told[1].contains(r#"name="test 2","#), "{told:?}");
    drop(first);
    let third = make();
    assert_eq!(objects(page(&registry)).len(), 2, "the name of one that is gone is free again");
    drop((second, third));
}

#[tokio::test(start_paused = true)]
async fn a_page_has_the_figures_of_every_queue_each_metric_once() {
    let (env, mut registry) = (Env::simulated(1), Registry::default());
    let collector = QueueCollector::register(&mut registry);
    let queue = |name: &str| {
        let queue = RateLimitingQueue::<u32>::new(name, limiter::default_controller(), &env);
        collector.add(&queue);
        queue
    };
    let (foos, bars) = (queue("foos"), queue("bars"));
    queue("bars").add(9);
    foos.add(1);
    foos.add_with(2, Priority::Low);
    foos.add_after(3, Duration::from_secs(60));
    foos.add_because(4, Priority::High, Trigger::itself(Reason::Changed, &"7".into()));
    foos.get().await.unwrap().park(env.clock.now() + Duration::from_secs(60));
    let first = foos.get().await.unwrap();
    env.clock.sleep(Duration::from_secs(4)).await;
    let told = page(&registry);
    for line in [
        r#"workqueue_depth{name="foos",priority="low"} 1.0"#,
        r#"workqueue_depth{name="foos",priority="normal"} 0.0"#,
        r#"workqueue_depth{name="bars",priority="normal"} 0.0"#,
        r#"workqueue_adds_total{name="foos"} 3"#,
        r#"watchkeeper_workqueue_triggers_total{name="foos",cause="itself"} 1"#,
        r#"watchkeeper_workqueue_triggers_total{name="bars",cause="itself"} 0"#,
        r#"workqueue_retries_total{name="foos"} 1"#,
        r#"workqueue_queue_duration_seconds_count{name="foos"} 2"#,
        r#"workqueue_unfinished_work_seconds{name="foos"} 4.0"#,
        r#"workqueue_longest_running_processor_seconds{name="foos"} 4.0"#,
        r#"workqueue_running{name="foos"} 1.0"#,
        r#"workqueue_delayed{name="foos"} 1.0"#,
        r#"workqueue_parked{name="foos"} 1.0"#,
        r#"watchkeeper_workqueue_keys{name="foos",state="parked"} 1.0"#,
        r#"watchkeeper_workqueue_keys{name="foos",state="failed"} 0.0"#,
        r#"watchkeeper_workqueue_oldest_waiting_seconds{name="bars"} 0.0"#,
    ] {
        assert_eq!(told.lines().filter(|found| *found == line).count(), 1, "{line}\n{told}");
    }
    first.forget();
    let told = page(&registry);
    assert!(told.contains(r#"workqueue_work_duration_seconds_bucket{le="10.0",name="foos"} 1"#), "{told}");
    assert_eq!(told.lines().filter(|line| line.starts_with("# TYPE workqueue_depth")).count(), 1);
    drop((foos, bars));
    assert!(!page(&registry).contains("name="), "a dropped queue is on no page");
}

#[tokio::test(start_paused = true)]
async fn the_time_from_a_change_to_the_end_of_its_run_counts_changes_and_nothing_else() {
    let (env, mut registry) = (Env::simulated(1), Registry::default());
    let queue = RateLimitingQueue::<u32>::new("foos", limiter::default_controller(), &env);
    QueueCollector::register(&mut registry).add(&queue);
    let changed = |version: &str| Trigger::itself(Reason::Changed, &version.into());
    let second = Duration::from_secs(1);
    queue.add_because(1, Priority::Normal, changed("7"));
    env.clock.sleep(2 * second).await;
    // A second change of a waiting key does not count from its own arrival.
    queue.add_because(1, Priority::Normal, changed("8"));
    let oldest = r#"watchkeeper_workqueue_oldest_waiting_seconds{name="foos"} 2.0"#;
    assert!(page(&registry).contains(oldest));
    let item = queue.get().await.unwrap();
    // This one is seen by the next run.
    queue.add_because(1, Priority::Normal, changed("9"));
    env.clock.sleep(second).await;
    item.forget();
    let total = |page: String| {
        let line = "watchkeeper_change_to_reconciled_seconds_sum{name=\"foos\"} ";
        page.lines().find_map(|found| found.strip_prefix(line)?.parse::<f64>().ok()).unwrap()
    };
    assert_eq!(total(page(&registry)), 3.0);
    // It waits for its own writes, and the requeue after it is no change.
    queue.get().await.unwrap().park(env.clock.now() + 4 * second);
    queue.get().await.unwrap().retry_after(60 * second);
    assert_eq!(total(page(&registry)), 3.0 + 5.0);
    queue.get().await.unwrap().forget();
    queue.add_because(1, Priority::Normal, Trigger::itself(Reason::Resync, &"9".into()));
    queue.get().await.unwrap().forget();
    assert_eq!(total(page(&registry)), 8.0);
}
