//! A stopped reflector stops at once, and leaves nothing behind.

use std::time::Duration;

use watchkeeper::reflector::Phase;
use watchkeeper::source::{Reply, ScriptedSource};
use watchkeeper::wire::Class;

use crate::common::{QUEUES, ScriptedInformer, event, list, silence, soon};
use crate::error;

// client-go: TestReflectorWatchStoppedBefore, TestReflectorHandleWatchStoppedBefore, TestReflectorStopWatch
#[tokio::test(start_paused = true)]
async fn after_a_stop_nothing_is_asked_at_all() {
    for queue in QUEUES {
        let source = ScriptedSource::new();
        source.on_list(list(10, &["a@1"])).on_watch(silence());
        let scripted = ScriptedInformer::on(queue, source, |builder| builder);
        scripted.stop.cancel();
        soon(&scripted.env, scripted.start()).await.unwrap();
        assert!(scripted.asked().is_empty());
        assert_eq!(scripted.informer.health().phase, Phase::Stopped);
    }
}

// client-go: TestRunUntil, TestReflectorWatchStoppedAfter, TestReflectorHandleWatchStoppedAfter
#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_one_watch_and_lets_go_of_its_stream() {
    for queue in QUEUES {
        let (source, (reply, feed)) = (ScriptedSource::new(), Reply::live());
        source.on_list(list(10, &["a@1"])).on_watch(reply).on_watch(silence());
        let scripted = ScriptedInformer::on(queue, source, |builder| builder);
        let task = scripted.start();
        scripted.until_synced().await;
        scripted.settle().await;
        assert!(feed.send(event("MODIFIED", "a@11")));
        scripted.settle().await;
        scripted.stop.cancel();
        soon(&scripted.env, task).await.unwrap();
        assert!(!feed.send(event("MODIFIED", "a@12")), "nobody reads any more");
        assert_eq!(
            (scripted.asked(), scripted.cached()),
            (vec!["list 500".into(), "watch 10".into()], vec!["a@11".into()])
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_heard_at_once_whatever_is_waited_for() {
    let refused = || {
        let source = ScriptedSource::new();
        (0..20).for_each(|_| drop(source.on_list(Reply::refuse(error(Class::Forbidden))).clone()));
        source
    };
    let unanswered = ScriptedSource::new;
    let stalled = || {
        let source = ScriptedSource::new();
        source.on_list(list(10, &["a@1"]).stall_at(30));
        source
    };
    let not_opened = || {
        let source = ScriptedSource::new();
        source.on_list(list(10, &["a@1"]));
        source
    };
    let cases: [(&dyn Fn() -> ScriptedSource, u64, Phase); 4] = [
        (&refused, 100, Phase::Waiting),
        (&unanswered, 30, Phase::Listing),
        (&stalled, 30, Phase::Listing),
        (&not_opened, 30, Phase::Watching),
    ];
    for queue in QUEUES {
        for (source, seconds, phase) in cases {
            let scripted = ScriptedInformer::on(queue, source(), |builder| builder);
            let task = scripted.start();
            scripted.env.clock.sleep(Duration::from_secs(seconds)).await;
            assert_eq!(scripted.informer.health().phase, phase);
            let (asked, now) = (scripted.asked().len(), scripted.env.clock.now());
            scripted.stop.cancel();
            soon(&scripted.env, task).await.unwrap();
            assert_eq!((scripted.asked().len(), scripted.env.clock.now() - now), (asked, Duration::ZERO));
        }
    }
}
