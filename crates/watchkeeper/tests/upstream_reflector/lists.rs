//! Requesting and reading a list, page by page.

use serde_json::json;
use watchkeeper::queue::QueueKind;
use watchkeeper::source::{Asked, Reply, ScriptedSource};
use watchkeeper::wire::{ApiError, Class};

use crate::common::{Log, QUEUES, ScriptedInformer, event, first_page, gone, list, list_page, silence};
use crate::error;

// client-go: TestReflectorListAndWatch
#[tokio::test(start_paused = true)]
async fn lists_and_watches_ask_for_this_and_nothing_else() {
    let source = ScriptedSource::new();
    source.on_list(list(10, &["a@1"])).on_watch(Reply::body(event("ADDED", "b@11")).then_hang());
    let scripted = ScriptedInformer::started(QueueKind::Ordered, source);
    scripted.until_asked(2).await;
    scripted.settle().await;
    assert_eq!(scripted.source.asked()[0], first_page(500));
    let Asked::Watch(options) = &scripted.source.asked()[1] else { panic!() };
    assert_eq!((&options.version, options.bookmarks, options.initial_events), (&10.into(), true, false));
    assert_eq!(scripted.cached(), ["a@1", "b@11"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_pages_come_again_is_given_up_and_begun_anew_after_a_wait() {
    for queue in QUEUES {
        for (second, why) in [
            (list_page(10, "t", &["b@2"]), "page 2 has the continue token of page 1"),
            (list_page(10, "u", &["a@1"]), "page 2 begins with ns/a, as page 1 does"),
        ] {
            let source = ScriptedSource::new();
            source.on_list(list_page(10, "t", &["a@1"])).on_list(second);
            source.on_list(list(20, &["c@3"])).on_watch(silence());
            let scripted = ScriptedInformer::on(queue, source, |builder| builder);
            let told = Log::default();
            let log = told.clone();
            scripted.env.reporter.add_hook(move |report| log.add(report.incident.to_string()));
            scripted.start();
            scripted.until_synced().await;
            assert_eq!(told.take(), [format!("cannot list: the list does not end: {why}")]);
            assert_eq!(scripted.asked()[..3], ["list 500", "page 500 t", "list 500"]);
            assert_eq!(scripted.cached(), ["c@3"]);
            assert!(scripted.elapsed() >= 0.8);
        }
    }
}

// client-go: TestIsUnsupportedTableObject
#[tokio::test(start_paused = true)]
async fn a_table_is_no_list() {
    for queue in QUEUES {
        let table = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "5"}, "rows": []});
        let source = ScriptedSource::new();
        source.on_list(Reply::body(table.to_string())).on_list(list(10, &["a@1"])).on_watch(silence());
        let scripted = ScriptedInformer::started(queue, source);
        scripted.until_synced().await;
        assert_eq!((scripted.cached(), scripted.reports()), (vec!["a@1".to_owned()], 1));
        assert!(scripted.elapsed() >= 0.8);
    }
}

// client-go: TestReflectorWatchListPageSize, TestReflectorPaginatingNonConsistentReadsIfWatchCacheDisabled,
// TestReflectorNotPaginatingNotConsistentReads, TestReflectorResyncWithResourceVersion
#[tokio::test(start_paused = true)]
async fn all_pages_of_all_lists_have_the_size_that_was_set() {
    for queue in QUEUES {
        for size in [4, 500, 0] {
            let source = ScriptedSource::new();
            source
                .on_list(list_page(10, "t1", &["a@1"]))
                .on_list(list_page(10, "t2", &["b@2"]))
                .on_list(list(10, &["c@3"]));
            source.on_watch(Reply::body(gone()));
            source.on_list(list_page(20, "t3", &["a@1"])).on_list(list(20, &["d@4"])).on_watch(silence());
            let scripted = ScriptedInformer::on(queue, source, |builder| builder.page_size(size));
            scripted.start();
            scripted.until_asked(7).await;
            scripted.settle().await;
            let expected =
                ["list N", "page N t1", "page N t2", "watch 10", "list N", "page N t3", "watch 20"];
            assert_eq!(scripted.asked(), expected.map(|line| line.replace('N', &size.to_string())));
            assert_eq!(scripted.cached(), ["a@1", "d@4"]);
        }
    }
}

// client-go: TestReflectorFullListIfExpired, TestReflectorExpiredExactResourceVersion, TestListPager_List
#[tokio::test(start_paused = true)]
async fn a_list_whose_next_page_has_expired_is_read_whole_at_once() {
    for queue in QUEUES {
        let source = ScriptedSource::new();
        source.on_list(list_page(10, "t1", &["a@1"])).on_list(Reply::refuse(error(Class::Expired)));
        source.on_list(list(12, &["a@11", "b@2"])).on_watch(silence());
        let scripted = ScriptedInformer::started(queue, source);
        scripted.until_asked(4).await;
        scripted.settle().await;
        assert_eq!(scripted.asked(), ["list 500", "page 500 t1", "list 0", "watch 12"]);
        assert_eq!((scripted.cached(), scripted.elapsed() < 0.01), (vec!["a@11".into(), "b@2".into()], true));
        // Any other error of a later page: from the first one, after a while.
        let source = ScriptedSource::new();
        source.on_list(list_page(10, "t1", &["a@1"])).on_list(Reply::refuse(error(Class::Other)));
        source.on_list(list_page(11, "t2", &["c@1"])).on_list(list(11, &["d@2"])).on_watch(silence());
        let scripted = ScriptedInformer::started(queue, source);
        scripted.until_synced().await;
        assert_eq!(scripted.asked()[..4], ["list 500", "page 500 t1", "list 500", "page 500 t2"]);
        assert_eq!((scripted.cached(), scripted.elapsed() >= 0.8), (vec!["c@1".into(), "d@2".into()], true));
    }
}

// In client-go the REST client below the reflector does so.
#[tokio::test(start_paused = true)]
async fn a_page_that_fails_for_now_is_asked_for_again_and_the_pages_before_it_are_kept() {
    for queue in QUEUES {
        let busy = || ApiError::from_response(http::StatusCode::TOO_MANY_REQUESTS, Some(7), b"");
        let source = ScriptedSource::new();
        source.on_list(list_page(10, "t1", &["a@1"])).on_list(Reply::refuse(busy()));
        // It breaks off behind an object that comes again.
        let cut = list_page(10, "t2", &["b@2", "c@3"]).cut_at(170, error(Class::ConnectionLost));
        source.on_list(cut).on_list(list_page(10, "t2", &["b@2", "c@3"])).on_list(list(10, &["d@4"]));
        source.on_watch(silence());
        let scripted = ScriptedInformer::started(queue, source);
        scripted.until_asked(6).await;
        scripted.settle().await;
        let page = "page 500 t1";
        assert_eq!(scripted.asked(), ["list 500", page, page, page, "page 500 t2", "watch 10"]);
        assert_eq!(
            (scripted.cached(), scripted.reports()),
            (["a@1", "b@2", "c@3", "d@4"].map(Into::into).into(), 2)
        );
        assert_eq!(scripted.log.take_sorted().len(), 4, "each is told once");
        assert!((7.0 + 1.6..7.0 + 3.3).contains(&scripted.elapsed()), "{}", scripted.elapsed());
        assert!(scripted.informer.health().degraded.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_big_kind_is_listed_by_a_server_that_is_busy_now_and_then() {
    let source = ScriptedSource::new();
    for page in 0..100 {
        let token = if page < 99 { format!("t{page}") } else { String::new() };
        source.on_list(list_page(10, &token, &[&format!("o{page}@1")]));
        if page % 15 == 14 {
            source.on_list(Reply::refuse(error(Class::TooManyRequests)));
        }
    }
    source.on_watch(silence());
    let scripted = ScriptedInformer::started(QueueKind::Ordered, source);
    scripted.until_asked(107).await;
    scripted.settle().await;
    assert_eq!((scripted.cached().len(), scripted.asked()[106].as_str()), (100, "watch 10"));
}
