//! Kinds that are not served: caches are emptied, and filled again when the kind is back. On both queues.

use std::time::Duration;

use watchkeeper::ResourceVersion;
use watchkeeper::reflector::{ListReason, Phase};
use watchkeeper::source::{Asked, Reply, ScriptedSource};
use watchkeeper::wire::Class;

use crate::common::{QUEUES, ScriptedInformer, list, silence};
use crate::error;

fn missing() -> Reply {
    Reply::refuse(error(Class::NotFound))
}

fn discoveries(source: &ScriptedSource) -> usize {
    source.asked().iter().filter(|asked| **asked == Asked::Discovery).count()
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_goes_is_deleted_from_the_cache_and_one_that_comes_back_is_listed() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1", "b@2"]).await;
        scripted.log.take();
        scripted.source.serve(false).on_watch(missing());
        drop(feed);
        scripted.env.clock.sleep(Duration::from_secs(10)).await;
        assert!(scripted.cached().is_empty(), "{:?}", scripted.cached());
        assert_eq!(scripted.log.take_sorted(), ["- a@1 tombstone", "- b@2 tombstone"]);
        let health = scripted.informer.health();
        let (since, why) = health.degraded.clone().unwrap();
        assert_eq!(why, "parked configmaps: the server does not serve the kind: is its CRD installed?");
        assert_eq!((health.phase, health.stale_since()), (Phase::Parked, None));
        assert_eq!(scripted.env.reporter.errors(), 1, "reported once");
        // Nobody waits for what was written to a cache that is gone.
        assert_eq!(scripted.informer.indexer().version(), ResourceVersion::from(0));

        let before = discoveries(&scripted.source);
        scripted.env.clock.sleep(Duration::from_secs(600)).await;
        let asked = discoveries(&scripted.source) - before;
        assert!((30..=60).contains(&asked), "{asked} questions in ten minutes");
        assert_eq!(scripted.informer.health().degraded.unwrap().0, since, "the same problem");
        assert_eq!(scripted.env.reporter.errors(), 1, "reported once");

        scripted.source.serve(true).on_list(list(20, &["a/new@15"])).on_watch(silence());
        scripted.env.clock.sleep(Duration::from_secs(21)).await;
        assert_eq!(
            (scripted.cached(), scripted.log.take()),
            (vec!["a@15".to_owned()], vec!["+ a@15".to_owned()])
        );
        let health = scripted.informer.health();
        assert_eq!((health.phase, health.degraded), (Phase::Watching, None));
        assert_eq!(health.lists_by_reason.get(&ListReason::ServedAgain), Some(&1));
    }
}

#[tokio::test(start_paused = true)]
async fn one_answer_that_a_kind_is_gone_does_not_empty_its_cache() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1"]).await;
        scripted.log.take();
        scripted.source.serve(false).on_watch(missing());
        drop(feed);
        scripted.until_asked(4).await;
        assert_eq!(scripted.source.asked().last(), Some(&Asked::Discovery));
        scripted.source.serve(true).on_watch(silence());
        scripted.until_asked(6).await;
        scripted.settle().await;
        assert_eq!((scripted.cached(), scripted.log.take()), (vec!["a@1".to_owned()], vec![]));
        assert!(matches!(&scripted.source.asked()[5], Asked::Watch(options) if options.version == 10.into()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_404_for_a_kind_that_is_served_is_a_failure_like_others() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1"]).await;
        (0..3).for_each(|_| drop(scripted.source.on_watch(missing()).clone()));
        scripted.source.on_list(missing()).on_list(list(20, &["a@1", "b@20"])).on_watch(silence());
        drop(feed);
        scripted.env.clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(scripted.cached(), ["a@1", "b@20"]);
        assert_eq!(scripted.informer.health().phase, Phase::Watching);
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_absent_at_the_start_syncs_when_it_comes_unless_it_is_optional() {
    for queue in QUEUES {
        for is_optional in [false, true] {
            let source = ScriptedSource::new();
            source.serve(false).on_list(missing());
            let scripted =
                ScriptedInformer::on(
                    queue,
                    source,
                    |builder| {
                        if is_optional { builder.optional() } else { builder }
                    },
                );
            scripted.start();
            scripted.env.clock.sleep(Duration::from_secs(60)).await;
            let health = scripted.informer.health();
            assert_eq!(
                (scripted.informer.has_synced(), health.phase, health.degraded.is_none()),
                (is_optional, Phase::Parked, is_optional)
            );
            assert_eq!(scripted.env.reporter.errors(), u64::from(!is_optional));
            scripted.source.serve(true).on_list(list(20, &["a@15"])).on_watch(silence());
            scripted.env.clock.sleep(Duration::from_secs(21)).await;
            assert!(scripted.informer.has_synced() && scripted.informer.health().degraded.is_none());
            assert_eq!(scripted.cached(), ["a@15"]);
            assert_eq!(scripted.informer.health().lists_by_reason.get(&ListReason::First), Some(&1));
        }
    }
}
