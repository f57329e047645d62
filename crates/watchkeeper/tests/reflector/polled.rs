//! Kinds that may be listed and not watched: they are polled. On both queues.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::subscriber::set_default;
use watchkeeper::reflector::{Cause, ListReason, Phase};
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
        // The watch was permitted before, so it is tried again.
        (0..4).for_each(|_| drop(scripted.source.on_watch(forbidden()).clone()));
        (0..4).for_each(|_| drop(scripted.source.on_list(forbidden()).clone()));
        drop(feed);
        scripted.until_asked(10).await;
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

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_a_watch_for_a_moment_is_asked_for_no_list_and_the_log_tells_the_end_of_it() {
    for queue in QUEUES {
        let log = Log::default();
        let into = log.clone();
        let subscriber = tracing_subscriber::fmt().without_time().with_ansi(false);
        let _logged = set_default(subscriber.with_writer(move || into.clone()).finish());
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1"]).await;
        let lists = scripted.informer.health().lists;
        scripted.source.on_watch(forbidden()).on_watch(forbidden()).on_watch(silence());
        drop(feed);
        scripted.until_asked(4).await;
        scripted.settle().await;
        let health = scripted.informer.health();
        assert!(health.stale_since().is_some());
        assert_eq!(health.cause(), Some(Cause::NoPermission));
        scripted.until_asked(5).await;
        scripted.env.clock.sleep(Duration::from_secs(2)).await;
        let health = scripted.informer.health();
        assert_eq!((health.phase, health.degraded, health.lists), (Phase::Watching, None, lists));
        let log = String::from_utf8(log.0.lock().clone()).unwrap();
        let ends = log.lines().filter(|line| line.contains("the cache is kept up to date again"));
        let ends: Vec<_> = ends.collect();
        assert!(ends.len() == 1 && ends[0].contains("reflector=\"configmaps\""), "{log}");
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
