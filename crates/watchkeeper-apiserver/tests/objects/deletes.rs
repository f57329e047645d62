//! Options and preconditions of deletes.

use serde_json::json;

use crate::common::*;

#[tokio::test(start_paused = true)]
async fn options_in_the_body_of_a_delete_replace_those_of_the_query() {
    let server = Server::start().await;
    post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await;
    let path = format!("{CONFIG_MAPS}/a");
    let body = json!({"propagationPolicy": "Background"});
    assert_eq!(call(&server, "DELETE", &format!("{path}?dryRun=All"), &body).await.0, 200);
    assert_eq!(get(&server, &path).await.0, 404, "it was no dry run");
}

#[tokio::test(start_paused = true)]
async fn a_version_precondition_conflicts_with_a_policy_that_removes_the_last_finalizer() {
    let server = Server::start().await;
    let mut object = config_map("a", &json!({}));
    object["metadata"]["finalizers"] = json!(["orphan"]);
    let made = post(&server, CONFIG_MAPS, &object).await;
    let precondition = json!({"resourceVersion": version(&made).to_string()});
    let options = json!({"propagationPolicy": "Background", "preconditions": precondition});
    let path = format!("{CONFIG_MAPS}/a");
    let (code, status) = call(&server, "DELETE", &path, &options).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")), "{status}");
    assert_eq!(get(&server, &path).await, (200, made), "nothing was done");
}
