//! Request metrics.

use http_body_util::{BodyExt as _, Full};
use tower::ServiceExt as _;
use watchkeeper::Env;

use crate::server::ApiServer;

async fn send(server: &ApiServer, method: &str, path: &str, form: &str, body: &'static str) -> String {
    let request = http::Request::builder().method(method).uri(path).header("content-type", form);
    let reply = server.service().oneshot(request.body(Full::from(body)).unwrap()).await.unwrap();
    String::from_utf8(reply.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_what_they_ask_for_and_how_they_end() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    const APPLY: &str = "application/apply-patch+yaml";
    let server = ApiServer::new(&Env::simulated(1));
    let json = "application/json";
    let map = r#"{"metadata":{"name":"a"}}"#;
    for _ in 0..2 {
        send(&server, "POST", MAPS, json, map).await;
    }
    send(&server, "PATCH", &format!("{MAPS}/a?fieldManager=m&dryRun=All"), APPLY, "{}").await;
    send(&server, "GET", "/api/v1/configmaps", json, "").await;
    send(&server, "GET", "/api/v1/nonsense", json, "").await;
    send(&server, "GET", &format!("{MAPS}/a/%22%0Anonsense"), json, "").await;
    let text = send(&server, "GET", "/metrics", json, "").await;
    let counts: Vec<_> = text.lines().filter(|line| line.starts_with("apiserver_request_total{")).collect();
    let count = |labels: &str| {
        let found = counts.iter().find(|line| line.contains(labels));
        found.and_then(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
    };
    let maps = |code: u16, dry_run: &str, scope: &str, verb: &str| {
        count(&format!(
            "{{code=\"{code}\",component=\"apiserver\",dry_run=\"{dry_run}\",group=\"\",resource=\"configmaps\",\
             scope=\"{scope}\",subresource=\"\",verb=\"{verb}\",version=\"v1\"}}"
        ))
    };
    assert_eq!(maps(201, "", "resource", "POST"), Some(1), "{text}");
    assert_eq!(maps(409, "", "resource", "POST"), Some(1), "{text}");
    assert_eq!(maps(400, "All", "resource", "APPLY"), Some(1), "{text}");
    assert_eq!(maps(200, "", "cluster", "LIST"), Some(1), "{text}");
    assert_eq!(maps(404, "", "resource", "GET"), Some(1), "{text}");
    assert_eq!(counts.len(), 5, "what is not served is not counted: {text}");
}
