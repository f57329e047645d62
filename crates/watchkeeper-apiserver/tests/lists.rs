//! Lists: consistent snapshots, complete or paged, current or past.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use std::time::Duration;

use common::*;
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn items_of_built_in_lists_have_no_kind() {
    let server = filled(Server::start().await, &["b", "a"]).await;
    let before = revision(&server).await;
    let (code, list) = get(&server, CONFIG_MAPS).await;
    assert_eq!((code, &list["kind"], &list["apiVersion"]), (200, &json!("ConfigMapList"), &json!("v1")));
    assert_eq!(names(&list), ["a", "b"]);
    assert_eq!((list["items"][0].get("kind"), list["items"][0].get("apiVersion")), (None, None));
    assert_newest(&server, version(&list), before).await;
    let (_, empty) = get(&server, "/api/v1/namespaces/nowhere/configmaps").await;
    assert_eq!(empty["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn pages_show_the_moment_of_the_first() {
    let server = filled(Server::start().await, &["a", "b", "c", "d", "e"]).await;
    let (_, first) = get(&server, &format!("{CONFIG_MAPS}?limit=2")).await;
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(3)));
    post(&server, CONFIG_MAPS, &config_map("bb", &json!({}))).await;
    call(&server, "DELETE", &format!("{CONFIG_MAPS}/c"), &Value::Null).await;
    patch(&server, &format!("{CONFIG_MAPS}/d"), MERGE, &json!({"data": {"new": "1"}})).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = get(&server, &format!("{CONFIG_MAPS}?limit=2&continue={token}")).await;
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(second["items"][1].get("data"), None, "as it was");
    assert_eq!(version(&second), version(&first));
    let token = second["metadata"]["continue"].as_str().unwrap();
    let (_, third) = get(&server, &format!("{CONFIG_MAPS}?limit=2&continue={token}")).await;
    assert_eq!((names(&third), third["metadata"].get("continue")), (vec!["e"], None));
}

#[tokio::test(start_paused = true)]
async fn versions_are_understood_by_their_rules() {
    let server = filled(Server::start().await, &["a", "b", "c"]).await;
    let past = revision(&server).await;
    post(&server, CONFIG_MAPS, &config_map("d", &json!({}))).await;
    let now = revision(&server).await;
    for (query, count, shown) in [
        (String::new(), 4, now),
        ("resourceVersion=0&limit=2".into(), 4, now),
        (format!("resourceVersion={past}"), 4, now),
        (format!("resourceVersion={past}&resourceVersionMatch=NotOlderThan&limit=2"), 2, now),
        (format!("resourceVersion={past}&resourceVersionMatch=Exact"), 3, past),
        (format!("resourceVersion={past}&limit=2"), 2, past),
        ("limit=-1".into(), 4, now),
        ("&foo=bar&timeoutSeconds=1".into(), 4, now),
    ] {
        let (code, list) = get(&server, &format!("{CONFIG_MAPS}?{query}")).await;
        // On a shared server others may write to other resources meanwhile.
        let seen = if shown == now { version(&list).min(now) } else { version(&list) };
        assert_eq!((code, names(&list).len(), seen), (200, count, shown), "{query}");
    }
    let future = now + 1_000_000;
    for path in [
        format!("{CONFIG_MAPS}?resourceVersion={future}"),
        format!("{CONFIG_MAPS}?resourceVersion={future}&resourceVersionMatch=Exact"),
        format!("{CONFIG_MAPS}/a?resourceVersion={future}"),
    ] {
        let before = server.env.clock.now();
        let response = send(&server, "GET", &path, &[], "").await;
        assert_eq!(response.status(), 504);
        assert_eq!(response.headers()["retry-after"], "1");
        let waited = server.env.clock.now() - before;
        assert!(waited >= Duration::from_secs(3), "{waited:?}");
        // On a real server the clock does not pause.
        assert!(server.inside().is_none() || waited < Duration::from_secs(4), "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_of_metadata_leaves_the_rest_out() {
    let server = filled(Server::start().await, &["a"]).await;
    let accept = [("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")];
    let (_, list) = raw(&server, "GET", CONFIG_MAPS, &accept, "").await;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(
        (&list["items"][0]["kind"], list["items"][0].get("data")),
        (&json!("PartialObjectMetadata"), None)
    );
}

#[tokio::test(start_paused = true)]
async fn a_page_with_a_selector_may_be_followed_by_an_empty_one() {
    let server = Server::start().await;
    for (name, label) in [("a", "1"), ("b", "2")] {
        let mut object = config_map(name, &json!({}));
        object["metadata"]["labels"] = json!({"l": label});
        post(&server, CONFIG_MAPS, &object).await;
    }
    let (_, page) = get(&server, &format!("{CONFIG_MAPS}?limit=1&labelSelector=l%3D1")).await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = format!("{CONFIG_MAPS}?limit=1&labelSelector=l%3D1&continue={token}");
    let (_, rest) = get(&server, &rest).await;
    assert_eq!((&rest["items"], rest["metadata"].get("continue")), (&json!([]), None));
}

#[tokio::test(start_paused = true)]
async fn a_list_of_one_name_is_current_even_in_pages() {
    let server = Server::start().await;
    let first = post(&server, CONFIG_MAPS, &config_map("a", &json!({"k": "1"}))).await;
    patch(&server, &format!("{CONFIG_MAPS}/a"), MERGE, &json!({"data": {"k": "2"}})).await;
    let at = format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Da&resourceVersion={}", version(&first));
    for (query, shown) in [("limit=1", "2"), ("limit=1&resourceVersionMatch=Exact", "1")] {
        let (_, list) = get(&server, &format!("{at}&{query}")).await;
        assert_eq!(list["items"][0]["data"]["k"], shown, "{query}: {list}");
    }
}
