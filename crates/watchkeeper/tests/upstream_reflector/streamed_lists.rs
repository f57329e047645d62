//! Streamed lists, complete and broken off.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use watchkeeper::object::Transform;
use watchkeeper::reflector::{ListMode, ListReason};
use watchkeeper::source::{Reply, ScriptedSource};
use watchkeeper::wire::{ApiError, Class};

use crate::common::{QUEUES, ScriptedInformer, event, status};
use crate::{bookmark, error};

/// A transform that counts its calls by name and version.
fn counting() -> (Transform, Arc<Mutex<BTreeMap<String, u32>>>) {
    let calls = Arc::new(Mutex::new(BTreeMap::new()));
    let count = calls.clone();
    let transform = Transform::value(move |json| -> Result<Value, &str> {
        let text = |field: &str| json["metadata"][field].as_str().unwrap_or_default().to_owned();
        *count.lock().entry(format!("{}@{}", text("name"), text("resourceVersion"))).or_default() += 1;
        Ok(json)
    });
    (transform, calls)
}

// client-go: TestReflectorRespectStoreTransformer
#[tokio::test(start_paused = true)]
async fn each_object_of_a_streamed_list_is_transformed_once() {
    for queue in QUEUES {
        let ((transform, calls), source) = (counting(), ScriptedSource::new().streaming());
        let (reply, feed) = Reply::live();
        source.on_watch(reply);
        let scripted = ScriptedInformer::on(queue, source, |builder| builder.transform(transform));
        scripted.start();
        feed.send(
            event("ADDED", "a@1") + &event("ADDED", "b@2") + &bookmark(10, true) + &event("ADDED", "c@11"),
        );
        scripted.until_synced().await;
        scripted.settle().await;
        assert_eq!(scripted.cached(), ["a@1", "b@2", "c@11"]);
        let calls: Vec<_> = calls.lock().iter().map(|(item, count)| format!("{item} {count}")).collect();
        assert_eq!(calls, ["a@1 1", "b@2 1", "c@11 1"]);
    }
}

// client-go: TestWatchListResourceVersion, TestWatchList, no bookmark
#[tokio::test(start_paused = true)]
async fn a_streamed_list_has_no_version_before_its_end() {
    for queue in QUEUES {
        let (source, (reply, feed)) = (ScriptedSource::new().streaming(), Reply::live());
        source.on_watch(reply);
        let scripted = ScriptedInformer::started(queue, source);
        for chunk in
            [event("ADDED", "a@1"), event("ADDED", "b@7"), bookmark(8, false), event("MODIFIED", "a@9")]
        {
            feed.send(chunk);
            scripted.settle().await;
            assert!(!scripted.informer.has_synced() && scripted.informer.last_sync_version().is_unset());
        }
        feed.send(bookmark(10, true));
        scripted.settle().await;
        assert_eq!(
            (scripted.informer.has_synced(), scripted.informer.last_sync_version()),
            (true, 10.into())
        );
        assert_eq!(scripted.asked(), ["stream"]);
    }
}

// client-go: TestWatchList, 429 and connection refused; a watcher that stops before it has synced
#[tokio::test(start_paused = true)]
async fn a_streamed_list_begins_anew_with_nothing_of_its_broken_forerunner() {
    for queue in QUEUES {
        let source = ScriptedSource::new().streaming();
        source.on_watch(Reply::refuse(error(Class::TooManyRequests)));
        source.on_watch(Reply::body(event("ADDED", "old@1") + &status(429, "TooManyRequests")));
        source.on_watch(Reply::body(event("ADDED", "old@1") + &bookmark(5, false)));
        source.on_watch(Reply::body(event("ADDED", "new@2") + &bookmark(10, true)).then_hang());
        let scripted = ScriptedInformer::started(queue, source);
        scripted.until_synced().await;
        scripted.settle().await;
        assert_eq!(
            (scripted.asked(), scripted.cached()),
            (vec!["stream".to_owned(); 4], vec!["new@2".to_owned()])
        );
        assert!(scripted.elapsed() >= 0.8 + 1.6 + 3.2);
        assert_eq!(scripted.reasons(), [(ListReason::First, 1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_unwell_is_streamed_from_when_it_asks_for_it() {
    for queue in QUEUES {
        let source = ScriptedSource::new().streaming();
        let unwell = ApiError::from_response(http::StatusCode::SERVICE_UNAVAILABLE, Some(20), b"");
        source.on_watch(Reply::refuse(unwell)).on_watch(Reply::body(status(500, "InternalError")));
        source.on_watch(Reply::body(event("ADDED", "a@2") + &bookmark(10, true)).then_hang());
        let scripted = ScriptedInformer::started(queue, source);
        scripted.until_synced().await;
        scripted.settle().await;
        assert_eq!(
            (scripted.asked(), scripted.cached()),
            (vec!["stream".to_owned(); 3], vec!["a@2".to_owned()])
        );
        assert!((20.0 + 1.6..20.0 + 3.3).contains(&scripted.elapsed()), "{}", scripted.elapsed());
    }
}

// client-go: TestWatchList, an established watcher that expires
#[tokio::test(start_paused = true)]
async fn a_watch_that_expires_after_a_streamed_list_is_followed_by_another_streamed_list() {
    for queue in QUEUES {
        let source = ScriptedSource::new().streaming();
        let list =
            event("ADDED", "a@1") + &event("ADDED", "b@2") + &bookmark(10, true) + &event("MODIFIED", "a@11");
        source.on_watch(Reply::body(list)).on_watch(Reply::refuse(error(Class::Expired)));
        source.on_watch(Reply::body(event("ADDED", "a@11") + &bookmark(20, true)).then_hang());
        let scripted = ScriptedInformer::started(queue, source);
        scripted.until_asked(3).await;
        assert_eq!(scripted.asked(), ["stream", "watch 11", "stream"]);
        scripted.settle().await;
        assert_eq!(scripted.cached(), ["a@11"]);
        assert_eq!(scripted.reasons(), [(ListReason::First, 1), (ListReason::Expired, 1)]);
    }
}

// client-go: TestNewReflectorWithDisablementWatchList, TestToListWatcherWithWatchListSemantics
#[tokio::test(start_paused = true)]
async fn a_list_is_streamed_only_where_both_the_source_and_the_user_want_it() {
    for queue in QUEUES {
        for (source, mode, first) in [
            (ScriptedSource::new().streaming(), ListMode::Stream, "stream"),
            (ScriptedSource::new().streaming(), ListMode::Paged, "list 500"),
            (ScriptedSource::new(), ListMode::Stream, "list 500"),
            (ScriptedSource::new(), ListMode::Paged, "list 500"),
        ] {
            let scripted = ScriptedInformer::on(queue, source, |builder| builder.list_mode(mode));
            scripted.start();
            scripted.until_asked(1).await;
            assert_eq!(scripted.asked(), [first]);
        }
    }
}
