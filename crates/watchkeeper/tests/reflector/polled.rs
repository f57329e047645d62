//! Kinds that may be listed and not watched: they are polled. On both queues.

use std::time::Duration;

use watchkeeper::reflector::{ListReason, Phase};
use watchkeeper::source::{Reply, ScriptedSource};
use watchkeeper::wire::Class;

use crate::common::{QUEUES, ScriptedInformer, list, silence};
use crate::error;

fn forbidden() -> Reply {
    Reply::refuse(error(Class::Forbidden))
}

#[tokio::test(start_paused = true)]
async fn a_kind_without_permission_to_watch_is_polled_and_says_so_once() {
    for queue in QUEUES {
        // A streamed list is a watch, too.
        let source = ScriptedSource::new().streaming();
        source.on_watch(forbidden()).on_list(list(10, &["a@1"]));
        for round in 11..=20 {
            let item = format!("a@{round}");
            source.on_watch(forbidden()).on_list(list(round, &[&item]));
        }
        let scripted = ScriptedInformer::on(queue, source, |builder| builder);
        scripted.start();
        scripted.until_synced().await;
        scripted.until_asked(21).await;
        scripted.settle().await;
        assert_eq!(scripted.cached(), ["a@19"]);
        let health = scripted.informer.health();
        let (_, why) = health.degraded.clone().unwrap();
        assert_eq!(why, "polled, no permission to watch configmaps: scripted");
        assert_eq!((health.stale_since(), scripted.env.reporter.errors()), (None, 1));
        assert_eq!(health.lists_by_reason.get(&ListReason::Polled), Some(&9));
        let (from, began) = (health.lists, scripted.env.clock.now());
        scripted.until_asked(22).await;
        let waited = scripted.env.clock.now() - began;
        assert!((Duration::from_secs(30)..Duration::from_secs(61)).contains(&waited), "{waited:?}");
        scripted.settle().await;
        assert_eq!(scripted.informer.health().lists, from + 1);

        // With the permission, it is watched again.
        scripted.source.on_watch(silence());
        scripted.env.clock.sleep(Duration::from_secs(70)).await;
        let health = scripted.informer.health();
        assert_eq!((health.phase, health.degraded), (Phase::Watching, None));
        assert_eq!(scripted.cached(), ["a@20"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_may_not_be_listed_either_is_stale_until_it_may() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1"]).await;
        let lost = scripted.env.clock.now();
        scripted.source.on_watch(forbidden());
        (0..4).for_each(|_| drop(scripted.source.on_list(forbidden()).clone()));
        drop(feed);
        scripted.until_asked(7).await;
        let health = scripted.informer.health();
        let since = health.stale_since().unwrap();
        assert!(since >= lost && health.degraded.unwrap().1.starts_with("cannot list configmaps"));
        scripted.source.on_list(list(20, &["a@15"])).on_watch(silence());
        scripted.env.clock.sleep(Duration::from_secs(120)).await;
        let health = scripted.informer.health();
        assert_eq!((health.stale_since(), health.degraded), (None, None));
        assert_eq!(scripted.cached(), ["a@15"]);
    }
}
