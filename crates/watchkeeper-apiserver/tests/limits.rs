//! What does the server refuse to take, before it costs anything?
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use watchkeeper::Env;
use watchkeeper_apiserver::{ApiServer, ListenOptions, Listening};

use common::{CONFIG_MAPS, JSON_PATCH, MERGE, Server, call, config_map, get, inside, patch, post};

async fn embedded(env: &Env, history: usize) -> Server {
    Server::around(env, ApiServer::builder(env).history(history).build()).await
}

async fn listen(server: &ApiServer) -> Listening {
    server.listen(ListenOptions { insecure_http: true, ..ListenOptions::default() }).await.unwrap()
}

/// Sends bytes and reads until the server closes the connection, or has answered with a head.
async fn exchange(listening: &Listening, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(listening.address()).await.unwrap();
    // The server may answer and close before it has read everything.
    let _cut = stream.write_all(bytes).await;
    let mut answer = vec![0; 4096];
    let read = stream.read(&mut answer).await.unwrap_or(0);
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

#[tokio::test]
async fn a_body_over_3_mib_is_too_large() {
    let server = embedded(&Env::system(), 10_000).await;
    let value = |size: usize| config_map("a", &json!({"k": "v".repeat(size)}));
    let (code, answer) = call(&server, "POST", CONFIG_MAPS, &value(3 << 20)).await;
    assert_eq!((code, &answer["reason"]), (413, &json!("RequestEntityTooLarge")), "{answer}");
    // And over the wire, where the rest is not even read.
    let listening = listen(inside(&server)).await;
    let head =
        format!("POST {CONFIG_MAPS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    let claimed = format!("{head}content-length: 4000000\r\n\r\n{}", value(3 << 20));
    assert!(exchange(&listening, claimed.as_bytes()).await.starts_with("HTTP/1.1 413 "));
    listening.stop().await;
}

#[tokio::test]
async fn a_head_that_is_too_long_or_has_too_many_headers_is_refused() {
    let listening = listen(&ApiServer::new(&Env::system())).await;
    let with = |headers: String| format!("GET /version HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    let many = |count: usize| (0..count).map(|at| format!("x-{at}: y\r\n")).collect::<String>();
    for (head, code) in [
        (with(many(90)), 200),
        (with(many(101)), 431),
        (with(format!("x: {}\r\n", "y".repeat(50_000))), 200),
        (with(format!("x: {}\r\n", "y".repeat(70_000))), 431),
    ] {
        let answer = exchange(&listening, head.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{} of {code}: {answer}", head.len());
    }
    listening.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_ends_its_head_is_cut() {
    let env = Env::system();
    let listening = listen(&ApiServer::new(&env)).await;
    let before = env.clock.now();
    let answer = exchange(&listening, b"GET /version HTTP/1.1\r\nhost: ").await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!((Duration::from_secs(29)..Duration::from_secs(40)).contains(&(env.clock.now() - before)));
    listening.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn many_large_requests_take_turns_and_all_are_answered() {
    let server = ApiServer::new(&Env::system());
    let listening = listen(&server).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let post = |name: usize| {
        let body = config_map(&format!("large-{name}"), &json!({"k": "v".repeat(900_000)})).to_string();
        let length = body.len();
        format!(
            "POST {maps} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    };
    let requests: Vec<_> = (0..20).map(post).collect();
    let answers = requests.iter().map(|request| exchange(&listening, request.as_bytes()));
    for answer in futures::future::join_all(answers).await {
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    }
    listening.stop().await;
}

/// A kind whose objects may hold anything.
async fn anything(server: &Server) -> &'static str {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    });
    post(server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    "/apis/example.com/v1/things"
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!("x"), |value, _| json!({"a": value}))
}

#[tokio::test]
async fn an_object_as_deep_as_allowed_is_kept_and_a_deeper_one_refused() {
    let server = embedded(&Env::system(), 10_000).await;
    let things = anything(&server).await;
    let thing = |name: &str, levels| json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": nested(levels)});
    post(&server, things, &thing("deep", 99)).await;
    let object = format!("{things}/deep");
    let kept = get(&server, &object).await.1;
    assert_eq!(kept["spec"], nested(99), "nothing is lost, though the record of managers is deeper still");
    assert_eq!(patch(&server, &object, MERGE, &json!({"metadata": {"labels": {"x": "y"}}})).await.0, 200);
    let apply = format!("{things}/applied?fieldManager=m");
    for (method, path, form, name) in [
        ("PATCH", &*apply, "application/apply-patch+yaml", "applied"),
        ("POST", things, "application/yaml", "created"),
    ] {
        let text = thing(name, 99).to_string();
        let (code, answer) = common::raw(&server, method, path, &[("content-type", form)], &text).await;
        assert_eq!(code, 201, "{form}: {answer}");
    }
    for levels in [100, 120, 200, 100_000] {
        // Made as text: the tools of the test have limits of their own.
        let spec = format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        let body = format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Thing","metadata":{{"name":"b"}},"spec":{spec}}}"#
        );
        let headers = [("content-type", "application/json")];
        assert_eq!(common::raw(&server, "POST", things, &headers, &body).await.0, 400, "{levels}");
        let headers = [("content-type", "application/yaml")];
        assert_eq!(common::raw(&server, "POST", things, &headers, &body).await.0, 400, "{levels}");
    }
}

#[tokio::test]
async fn a_patch_cannot_nest_an_object_without_end() {
    let server = embedded(&Env::system(), 10_000).await;
    let things = anything(&server).await;
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"a": {}}});
    post(&server, things, &thing).await;
    let object = format!("{things}/t");
    // Each copy doubles the depth.
    let path = |depth: u32| "/a".repeat(2_usize.pow(depth));
    let copies: Vec<_> = (0..16)
        .map(|at| json!({"op": "copy", "from": "/spec/a", "path": format!("/spec{}", path(at))}))
        .collect();
    let (code, answer) = patch(&server, &object, JSON_PATCH, &json!(copies)).await;
    assert_eq!(code, 422, "{answer}");
    let moves: Vec<_> = (0..5_000)
        .flat_map(|_| {
            [
                json!({"op": "add", "path": "/other", "value": nested(50)}),
                json!({"op": "move", "from": "/spec", "path": format!("/other{}", "/a".repeat(50))}),
                json!({"op": "move", "from": "/other", "path": "/spec"}),
            ]
        })
        .take(9_000)
        .collect();
    let (code, answer) = patch(&server, &object, JSON_PATCH, &json!(moves)).await;
    assert_eq!(code, 422, "{answer}");
    assert_eq!(get(&server, &object).await.1["spec"], json!({"a": {}}));
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_does_not_read_is_cut_and_nothing_is_kept_for_it() {
    let env = Env::system();
    let server = embedded(&env, 5).await;
    let listening = listen(inside(&server)).await;
    let mut stopped = TcpStream::connect(listening.address()).await.unwrap();
    let request = format!(
        "GET {CONFIG_MAPS}?watch=1&resourceVersion={} HTTP/1.1\r\nhost: localhost\r\n\r\n",
        inside(&server).revision()
    );
    stopped.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 16];
    stopped.read_exact(&mut head).await.unwrap();
    assert!(head.starts_with(b"HTTP/1.1 200 "));
    // More than the sockets of both sides hold.
    let (size, changes) = (500_000, 60);
    post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await;
    for change in 0..changes {
        let data = json!({"data": {"k": "v".repeat(size), "change": change.to_string()}});
        assert_eq!(patch(&server, &format!("{CONFIG_MAPS}/a"), MERGE, &data).await.0, 200);
        // The connection takes what it can.
        tokio::task::yield_now().await;
    }
    env.clock.sleep(Duration::from_secs(31)).await;
    let mut rest = Vec::new();
    let mut piece = vec![0; 1 << 20];
    while let Ok(read @ 1..) = stopped.read(&mut piece).await {
        rest.extend_from_slice(&piece[..read]);
    }
    assert!(rest.len() < size * changes, "it was told {} bytes", rest.len());
    assert!(!String::from_utf8_lossy(&rest).contains("Expired"), "it was cut, and not told anything more");
    listening.stop().await;
}
