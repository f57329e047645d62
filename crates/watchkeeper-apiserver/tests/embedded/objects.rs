//! Revisions and determinism.

use crate::common::*;
use serde_json::json;

async fn server() -> Server {
    Server::embedded(|settings| settings).await
}

#[tokio::test(start_paused = true)]
async fn versions_start_high_and_rise_with_every_change() {
    let server = server().await;
    let before = inside(&server).revision();
    assert!(before > 1_767_225_600_000_000);
    let a = version(&post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await);
    let b = version(&post(&server, CONFIG_MAPS, &config_map("b", &json!({}))).await);
    assert!(before < a && a < b);
    assert_eq!(inside(&server).revision(), b);
}

#[tokio::test(start_paused = true)]
async fn two_servers_of_one_seed_make_the_same_objects() {
    let object = config_map("a", &json!({}));
    let generated = json!({"metadata": {"generateName": "g-"}});
    let (first, second) = (server().await, server().await);
    assert_eq!(post(&first, CONFIG_MAPS, &object).await, post(&second, CONFIG_MAPS, &object).await);
    assert_eq!(post(&first, CONFIG_MAPS, &generated).await, post(&second, CONFIG_MAPS, &generated).await);
}
