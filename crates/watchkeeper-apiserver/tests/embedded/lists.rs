//! Lists at past and future revisions.

use std::time::Duration;

use crate::common::*;
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_old_offers_to_go_on() {
    let server = filled(Server::embedded(|settings| settings).await, &["a", "b", "c"]).await;
    let (_, first) = get(&server, &format!("{CONFIG_MAPS}?limit=1")).await;
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    call(&server, "DELETE", &format!("{CONFIG_MAPS}/b"), &Value::Null).await;
    inside(&server).compact_now();
    let (code, status) = get(&server, &format!("{CONFIG_MAPS}?limit=1&continue={token}")).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
    let token = status["metadata"]["continue"].as_str().unwrap();
    let (code, rest) = get(&server, &format!("{CONFIG_MAPS}?limit=1&continue={token}")).await;
    assert_eq!((code, names(&rest)), (200, vec!["c"]));
    assert_eq!(get(&server, &format!("{CONFIG_MAPS}?resourceVersion=5&continue={token}")).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_comes_in_time_is_waited_for() {
    let server = filled(Server::embedded(|settings| settings).await, &["a"]).await;
    let path = format!("{CONFIG_MAPS}?resourceVersion={}", inside(&server).revision() + 1);
    let write = async {
        server.env.clock.sleep(Duration::from_secs(1)).await;
        post(&server, CONFIG_MAPS, &config_map("b", &json!({}))).await;
    };
    let ((code, list), ()) = tokio::join!(get(&server, &path), write);
    assert_eq!((code, names(&list)), (200, vec!["a", "b"]));
}
