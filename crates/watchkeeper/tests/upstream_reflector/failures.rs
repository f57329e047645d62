//! Failing lists and watches: delays, relists, and the remaining state of the cache.

use std::io;
use std::time::Duration;

use serde_json::json;
use watchkeeper::reflector::{Backoff, ListReason};
use watchkeeper::source::{Reply, ScriptedSource};
use watchkeeper::wire::{ApiError, Class};

use crate::common::{QUEUES, ScriptedInformer, event, gone, list, raw, silence, status};
use crate::{bookmark, error};

// client-go: TestCloseWatchChannelOnError
#[tokio::test(start_paused = true)]
async fn an_error_event_that_tells_no_status_ends_the_watch() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["a@1"]).await;
        scripted.source.on_watch(silence());
        feed.send(raw("ERROR", &json!({"kind": "ConfigMap", "metadata": {"name": "no-status"}})));
        scripted.settle().await;
        assert!(!feed.send(event("MODIFIED", "a@11")), "the stream was let go");
        scripted.until_asked(3).await;
        assert_eq!(scripted.asked(), ["list 500", "watch 10", "watch 10"]);
        assert!((0.8..1.7).contains(&scripted.elapsed()));
        assert_eq!((scripted.cached(), scripted.reports()), (vec!["a@1".to_owned()], 1));
    }
}

// client-go: TestReflectorHandleWatchResultChanClosedBefore, TestReflectorHandleWatchResultChanClosedAfter
#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_with_nothing_are_spaced_out_and_lead_to_a_list_in_the_end() {
    for queue in QUEUES {
        let source = ScriptedSource::new();
        source.on_list(list(10, &["a@1"])).on_watch(Reply::body("")).on_watch(Reply::body(""));
        let (reply, feed) = Reply::live();
        source.on_watch(reply);
        let scripted = ScriptedInformer::started(queue, source);
        scripted.until_asked(4).await;
        assert_eq!(scripted.asked(), ["list 500", "watch 10", "watch 10", "watch 10"]);
        assert!((2.4..4.8).contains(&scripted.elapsed()), "0.8 and 1.6, with jitter: {}", scripted.elapsed());
        scripted.source.on_list(list(20, &["a@1", "b@15"])).on_watch(silence());
        scripted.env.clock.sleep(Duration::from_millis(10)).await;
        drop(feed);
        scripted.until_asked(6).await;
        assert_eq!(scripted.asked()[4..], ["list 500", "watch 20"]);
        assert_eq!(scripted.reasons(), [(ListReason::First, 1), (ListReason::KeptFailing, 1)]);
    }
}

// client-go: TestReflectorListAndWatchWithErrors
#[tokio::test(start_paused = true)]
async fn what_is_cached_stays_while_lists_and_watches_fail() {
    for queue in QUEUES {
        let (scripted, feed) = ScriptedInformer::watching(queue, &["foo@1", "bar@2"]).await;
        feed.send(event("ADDED", "baz@12"));
        scripted.settle().await;
        scripted.source.on_watch(Reply::refuse(error(Class::Expired)));
        scripted
            .source
            .on_list(Reply::refuse(error(Class::Other)))
            .on_list(Reply::refuse(ApiError::from_transport(io::Error::other("no route"))));
        drop(feed);
        scripted.until_asked(5).await;
        scripted.settle().await;
        assert_eq!(scripted.cached(), ["bar@2", "baz@12", "foo@1"]);
        let (since, why) = scripted.informer.health().degraded.unwrap();
        assert_eq!(why, "cannot list configmaps: cannot reach the API server: no route");
        assert!(since > scripted.began);
        scripted.source.on_list(list(20, &["foo@1"])).on_watch(silence());
        scripted.until_asked(7).await;
        scripted.settle().await;
        assert_eq!(scripted.cached(), ["foo@1"]);
        assert!(scripted.informer.health().degraded.is_none());
        assert_eq!(scripted.asked()[2..], ["watch 12", "list 500", "list 500", "list 500", "watch 20"]);
    }
}

// client-go: TestBackoffOnTooManyRequests, TestNoRelistOnTooManyRequests, TestReflectorListAndWatchInitConnBackoff
#[tokio::test(start_paused = true)]
async fn a_busy_server_is_left_alone_longer_each_time_and_never_listed_again() {
    for queue in QUEUES {
        for class in [Class::TooManyRequests, Class::ConnectionRefused] {
            let source = ScriptedSource::new();
            source.on_list(list(10, &["a@1"]));
            for _ in 0..3 {
                source
                    .on_watch(Reply::refuse(error(class)))
                    .on_watch(Reply::body(status(429, "TooManyRequests")));
            }
            source.on_watch(Reply::body(event("MODIFIED", "a@11")).then_hang());
            let scripted = ScriptedInformer::started(queue, source);
            let mut last = 0.0;
            for (asked, base) in (3..).zip([0.8, 1.6, 3.2, 6.4, 12.8, 25.6]) {
                scripted.until_asked(asked).await;
                let waited = scripted.elapsed() - last;
                assert!((base..2.0 * base + 0.01).contains(&waited), "{waited} for {base}");
                last = scripted.elapsed();
            }
            scripted.settle().await;
            assert_eq!(scripted.cached(), ["a@11"]);
            assert!(scripted.asked()[1..].iter().all(|asked| asked == "watch 10"));
            assert_eq!((scripted.asked().len(), scripted.reasons()), (8, vec![(ListReason::First, 1)]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_not_let_in_does_not_list_for_it() {
    for queue in QUEUES {
        let source = ScriptedSource::new();
        source.on_list(list(10, &["a@1"]));
        for _ in 0..9 {
            source.on_watch(Reply::refuse(error(Class::Unauthorized)));
        }
        source.on_watch(Reply::body(event("MODIFIED", "a@11")).then_hang());
        let scripted = ScriptedInformer::started(queue, source);
        scripted.until_asked(11).await;
        scripted.settle().await;
        assert!(scripted.asked()[1..].iter().all(|asked| asked == "watch 10"), "{:?}", scripted.asked());
        assert_eq!((scripted.cached(), scripted.reports()), (vec!["a@11".to_owned()], 9));
    }
}

// client-go: TestRetryInternalError
#[tokio::test(start_paused = true)]
async fn internal_errors_of_a_watch_are_retried_for_the_time_that_is_set() {
    for queue in QUEUES {
        let source = ScriptedSource::new();
        source.on_list(list(10, &["a@1"]));
        source.on_watch(Reply::body(event("MODIFIED", "a@11") + &status(500, "InternalError")));
        for _ in 0..20 {
            source.on_watch(Reply::body(status(500, "InternalError")));
        }
        source.on_list(list(20, &["b@12"]));
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1));
        let limit = Duration::from_secs(10);
        let scripted = ScriptedInformer::on(queue, source, |builder| {
            builder.backoff(backoff).retry_internal_errors(limit)
        });
        scripted.start();
        scripted.until_asked(4).await;
        scripted.settle().await;
        assert_eq!(
            (scripted.asked()[1..4].join(", ").as_str(), scripted.cached()),
            ("watch 10, watch 11, watch 11", vec!["a@11".to_owned()])
        );
        scripted.until_cached(&["b@12"]).await;
        // Waits of one to two seconds: it took more than ten for the list to follow.
        assert!((10.0..14.0).contains(&scripted.elapsed()), "{}", scripted.elapsed());
        assert_eq!(scripted.reasons(), [(ListReason::First, 1), (ListReason::ServerError, 1)]);
    }
}

// client-go: TestRetryInternalError, without a time to retry, which is upstream's default too; TestReflectorReplacesStoreOnUnsafeDelete
#[tokio::test(start_paused = true)]
async fn an_error_of_the_servers_own_leads_to_a_list_that_drops_what_vanished() {
    for queue in QUEUES {
        for reason in ["InternalError", "StoreReadError"] {
            let (scripted, feed) = ScriptedInformer::watching(queue, &["foo@1", "corrupt@2"]).await;
            feed.send(event("MODIFIED", "foo@11") + &status(500, reason));
            scripted.source.on_list(list(20, &["foo@11"])).on_watch(silence());
            scripted.until_asked(4).await;
            scripted.settle().await;
            assert_eq!(scripted.cached(), ["foo@11"]);
            assert_eq!(scripted.asked()[2..], ["list 500", "watch 20"]);
            assert_eq!(scripted.reasons(), [(ListReason::First, 1), (ListReason::ServerError, 1)]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_fails_for_unknown_reasons_does_not_turn_streaming_off() {
    for queue in QUEUES {
        let source = ScriptedSource::new().streaming();
        let no_route = || Reply::refuse(ApiError::from_transport(io::Error::other("no route")));
        source.on_watch(no_route()).on_watch(no_route()).on_watch(no_route());
        source.on_list(list(5, &["a@1"])).on_watch(Reply::body(gone())).on_watch(no_route());
        source.on_watch(Reply::body(event("ADDED", "a@2") + &bookmark(10, true)).then_hang());
        let scripted = ScriptedInformer::started(queue, source);
        scripted.until_cached(&["a@2"]).await;
        assert_eq!(
            scripted.asked(),
            ["stream", "stream", "stream", "list 500", "watch 5", "stream", "stream"]
        );
    }
}

// client-go: TestNewReflectorWithCustomBackoff
#[tokio::test(start_paused = true)]
async fn the_waits_between_tries_can_be_set() {
    for queue in QUEUES {
        let source = ScriptedSource::new();
        for _ in 0..5 {
            source.on_list(Reply::refuse(ApiError::new(Class::Other, "down")));
        }
        source.on_list(list(10, &["a@1"])).on_watch(silence());
        let backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(100));
        let scripted = ScriptedInformer::on(queue, source, |builder| builder.backoff(backoff));
        scripted.start();
        scripted.until_asked(6).await;
        // 10 + 20 + 40 + 80 + 100 ms, and up to as much again by jitter.
        let waited = scripted.elapsed();
        assert!((0.25..0.51).contains(&waited), "{waited}");
    }
}

// client-go: TestReflectorFullListIfTooLarge
#[tokio::test(start_paused = true)]
async fn a_version_that_the_server_does_not_know_yet_leads_to_a_list() {
    let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
    for queue in QUEUES {
        for told in [
            json!({"kind": "Status", "code": 504, "reason": "Timeout", "message": "Too large resource version: 9, current: 5"}),
            json!({"kind": "Status", "code": 504, "reason": "Timeout", "details": {"causes": [cause]}}),
            json!({"kind": "Status", "code": 504, "reason": "Timeout", "details": {"causes": [{"message": "Too large resource version"}]}}),
        ] {
            let refusal =
                ApiError::from_response(http::StatusCode::GATEWAY_TIMEOUT, None, told.to_string().as_bytes());
            for reply in [Reply::refuse(refusal), Reply::body(raw("ERROR", &told))] {
                let source = ScriptedSource::new();
                source
                    .on_list(list(10, &["a@1"]))
                    .on_watch(reply)
                    .on_list(list(5, &["a@1"]))
                    .on_watch(silence());
                let scripted = ScriptedInformer::started(queue, source);
                scripted.until_asked(4).await;
                assert_eq!(scripted.asked(), ["list 500", "watch 10", "list 500", "watch 5"]);
                assert_eq!(scripted.reasons(), [(ListReason::First, 1), (ListReason::VersionTooLarge, 1)]);
            }
        }
    }
}
