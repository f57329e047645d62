//! Watches: their effect on the cache, the version from which the next one continues, and their duration.

use std::time::Duration;

use serde_json::{Value, json};
use watchkeeper::object::Transform;
use watchkeeper::queue::QueueKind;
use watchkeeper::reflector::ListReason;
use watchkeeper::source::{Asked, Reply, ScriptedSource};

use crate::bookmark;
use crate::common::{QUEUES, ScriptedInformer, event, list, raw, silence, watched};

#[tokio::test(start_paused = true)]
async fn a_short_watch_that_brought_something_is_resumed_at_once() {
    for queue in QUEUES {
        let source = ScriptedSource::new();
        source.on_list(list(10, &["a@1"]));
        (11..31)
            .for_each(|n| drop(source.on_watch(Reply::body(event("MODIFIED", &format!("a@{n}")))).clone()));
        source.on_watch(silence());
        let scripted = ScriptedInformer::started(queue, source);
        scripted.until_asked(22).await;
        assert_eq!((scripted.asked().pop().unwrap(), scripted.elapsed()), ("watch 30".to_owned(), 0.0));
        assert_eq!(scripted.reasons(), [(ListReason::First, 1)]);
    }
}

// client-go: TestReflectorWatchHandler, TestGetExpectedGVKFromObject, TestIsUnsupportedTableObject
#[tokio::test(start_paused = true)]
async fn events_of_other_kinds_and_types_are_skipped_and_a_lower_version_leads_to_a_list() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["foo@1", "bar@2"]).await;
        let mut other = watched("rejected@99");
        other["kind"] = "Service".into();
        let mut group = watched("rejected@99");
        group["apiVersion"] = "example.com/v1".into();
        let table = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "99"}, "rows": []});
        feed.send(raw("ADDED", &other) + &raw("MODIFIED", &group) + &raw("ADDED", &table));
        feed.send(event("DANCED", "rejected@99"));
        scripted.settle().await;
        assert_eq!((scripted.reports(), scripted.informer.last_sync_version()), (4, 10.into()));
        feed.send(event("DELETED", "foo@11") + &event("MODIFIED", "bar@55"));
        scripted.settle().await;
        assert_eq!(
            (scripted.cached(), scripted.informer.last_sync_version()),
            (vec!["bar@55".into()], 55.into())
        );
        assert_eq!(scripted.informer.indexer().version(), 55.into());
        assert_eq!(scripted.reports(), 4, "one report for each");
        feed.send(event("ADDED", "baz@32"));
        scripted.source.on_list(list(32, &["bar@31", "baz@32"]));
        scripted.until_asked(4).await;
        scripted.settle().await;
        assert_eq!(scripted.asked()[3], "watch 32");
        assert_eq!(scripted.cached(), ["bar@31", "baz@32"]);
        assert_eq!(scripted.reports(), 5);
    }
}

// client-go: TestReflectorResourceVersionUpdate
#[tokio::test(start_paused = true)]
async fn the_version_moves_with_every_event_and_can_be_read() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1"]).await;
        assert_eq!(scripted.informer.last_sync_version(), 10.into());
        let events = [
            (event("ADDED", "b@11"), 11),
            (event("MODIFIED", "b@12"), 12),
            (bookmark(17, false), 17),
            (event("DELETED", "b@20"), 20),
        ];
        for (event, version) in events {
            feed.send(event);
            scripted.settle().await;
            let version = version.into();
            assert_eq!(scripted.informer.last_sync_version(), version);
            assert_eq!(
                (scripted.informer.health().version, scripted.informer.indexer().version()),
                (version.clone(), version)
            );
        }
    }
}

// client-go: TestWatchTimeout
#[tokio::test(start_paused = true)]
async fn watches_last_for_the_time_that_was_set_but_not_less_than_five_minutes() {
    for (set, range) in [(0, 300..600), (10, 300..600), (300, 300..600), (3600, 3600..7200)] {
        let source = ScriptedSource::new();
        source.on_list(list(10, &[]));
        for version in 11..31 {
            source.on_watch(Reply::body(bookmark(version, false)));
        }
        let scripted = ScriptedInformer::on(QueueKind::Ordered, source, |builder| {
            builder.min_watch_timeout(Duration::from_secs(set))
        });
        scripted.start();
        scripted.until_asked(22).await;
        let mut lengths: Vec<_> = scripted.source.asked()[1..]
            .iter()
            .map(|asked| match asked {
                Asked::Watch(options) => options.timeout.as_secs(),
                Asked::List(options) => panic!("{options:?}"),
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(lengths.iter().all(|length| range.contains(length)), "{lengths:?} for {set}");
        lengths.dedup();
        assert!(lengths.len() > 10, "not all at the same time");
    }
}

// client-go: TestStoreResourceVersionWithNonMetaTransform
#[tokio::test(start_paused = true)]
async fn a_transform_cannot_take_the_version_away_and_the_store_follows_every_event() {
    for queue in QUEUES {
        let transform = Transform::value(|mut json| -> Result<Value, &str> {
            json["metadata"].as_object_mut().unwrap().remove("resourceVersion");
            Ok(json)
        });
        let (source, (reply, feed)) = (ScriptedSource::new(), Reply::live());
        source.on_list(list(10, &["a@1"])).on_watch(reply);
        let scripted = ScriptedInformer::on(queue, source, |builder| builder.transform(transform));
        scripted.start();
        scripted.until_synced().await;
        scripted.settle().await;
        assert_eq!(scripted.informer.indexer().version(), 10.into());
        feed.send(event("ADDED", "b@11") + &event("MODIFIED", "a@12"));
        scripted.settle().await;
        assert_eq!(
            (scripted.cached(), scripted.informer.indexer().version()),
            (vec!["a@12".into(), "b@11".into()], 12.into())
        );
        feed.send(bookmark(15, false));
        scripted.settle().await;
        assert_eq!(scripted.informer.indexer().version(), 15.into());
    }
}
