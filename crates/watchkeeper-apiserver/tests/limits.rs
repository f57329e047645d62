//! Limits: requests that are refused before they cost much.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use watchkeeper::Env;
use watchkeeper_apiserver::{ApiServer, ListenOptions, Listening};

use common::{CONFIG_MAPS, JSON_PATCH, MERGE, Server, call, config_map, get, inside, patch, post, version};

async fn embedded(env: &Env, history: usize) -> Server {
    Server::around(env, ApiServer::builder(env).history(history).build()).await
}

async fn listen(server: &ApiServer) -> Listening {
    server.listen(ListenOptions { insecure_http: true, ..ListenOptions::default() }).await.unwrap()
}

/// Sends bytes and reads until the server closes the connection or has sent a response head.
async fn exchange(listening: &Listening, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(listening.address()).await.unwrap();
    // The server may respond and close before it has read everything.
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
    // Over a socket the rest of the body is not even read.
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

/// Sends one request on a connection of its own and reads the whole response.
async fn ask(address: SocketAddr, method: &str, path: &str, form: &str, body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: {form}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap())
}

#[derive(Default)]
struct Acknowledged {
    versions: Vec<u64>,
    /// The content that was put at the shared object, by revision.
    replaced: BTreeMap<u64, Value>,
    /// The acknowledged creates of shared objects.
    created: Vec<(usize, Value)>,
}

const ROUNDS: usize = 4;

/// Writes to objects of its own and to shared ones; every response must be the expected one.
async fn write_among_others(address: SocketAddr, things: &'static str, writer: usize) -> Acknowledged {
    let mut acknowledged = Acknowledged::default();
    for round in 0..ROUNDS {
        let mark = format!("{writer}-{round}");
        // Half of the bodies are large and run on a blocking thread.
        let text = mark.repeat(if (writer + round).is_multiple_of(2) { 50_000 } else { 1 });
        let json = "application/json";
        let own = config_map(&format!("own-{mark}"), &json!({"text": text}));
        let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": format!("thing-{mark}")}, "spec": text});
        for (path, body) in [(CONFIG_MAPS, &own), (things, &thing)] {
            let (code, answer) = ask(address, "POST", path, json, body).await;
            assert_eq!(code, 201, "{path}: {}", answer["message"]);
            acknowledged.versions.push(version(&answer));
        }
        let change = json!({"data": {"text": text, &mark: "yes"}});
        let (code, answer) = ask(address, "PATCH", &format!("{CONFIG_MAPS}/patched"), MERGE, &change).await;
        assert_eq!(code, 200, "{}", answer["message"]);
        assert_eq!((&answer["data"]["text"], &answer["data"][&mark]), (&json!(text), &json!("yes")));
        acknowledged.versions.push(version(&answer));
        let whole = config_map("replaced", &json!({"text": text, "by": mark}));
        let (code, answer) = ask(address, "PUT", &format!("{CONFIG_MAPS}/replaced"), json, &whole).await;
        assert_eq!(code, 200, "{}", answer["message"]);
        acknowledged.replaced.insert(version(&answer), whole["data"].clone());
        let once = config_map(&format!("once-{round}"), &json!({"text": text}));
        let (code, answer) = ask(address, "POST", CONFIG_MAPS, json, &once).await;
        match code {
            201 => acknowledged.created.push((round, once["data"].clone())),
            409 => assert_eq!(answer["reason"], "AlreadyExists"),
            other => panic!("{other}: {}", answer["message"]),
        }
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_and_small_writes_at_the_same_time_are_all_answered_and_none_is_lost() {
    const WRITERS: usize = 6;
    let (env, folder) = (Env::system(), tempfile::tempdir().unwrap());
    let open = || ApiServer::builder(&env).open(folder.path()).unwrap();
    let server = common::filled(Server::around(&env, open()).await, &["patched", "replaced"]).await;
    let things = anything(&server).await;
    let listening = listen(inside(&server)).await;
    let address = listening.address();
    let writers: Vec<_> =
        (0..WRITERS).map(|writer| tokio::spawn(write_among_others(address, things, writer))).collect();
    // The definition changes meanwhile, so requests in flight are retried.
    let changes = tokio::spawn(async move {
        let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
        for change in 0..ROUNDS * 3 {
            let names = json!({"spec": {"names": {"shortNames": [format!("t{change}")]}}});
            let (code, answer) = ask(address, "PATCH", definition, MERGE, &names).await;
            assert_eq!(code, 200, "{}", answer["message"]);
        }
    });
    let (mut versions, mut replaced, mut created) = (Vec::new(), BTreeMap::new(), Vec::new());
    for writer in writers {
        let acknowledged = writer.await.unwrap();
        versions.extend(acknowledged.versions);
        replaced.extend(acknowledged.replaced);
        created.extend(acknowledged.created);
    }
    changes.await.unwrap();
    listening.stop().await;
    let writes = WRITERS * ROUNDS;
    assert_eq!((versions.iter().collect::<BTreeSet<_>>().len(), replaced.len()), (3 * writes, writes));
    drop(server);
    let server = Server::around(&env, open()).await;
    let data = async |name: &str| get(&server, &format!("{CONFIG_MAPS}/{name}")).await.1["data"].clone();
    let patched = data("patched").await;
    for mark in (0..WRITERS).flat_map(|writer| (0..ROUNDS).map(move |round| format!("{writer}-{round}"))) {
        assert_eq!(patched[&mark], "yes", "a patch that was acknowledged is lost");
    }
    assert_eq!(Some(&data("replaced").await), replaced.values().last(), "not what was written last");
    created.sort_by_key(|(round, _)| *round);
    assert_eq!(created.iter().map(|(round, _)| *round).collect::<Vec<_>>(), (0..ROUNDS).collect::<Vec<_>>());
    for (round, contents) in created {
        assert_eq!(data(&format!("once-{round}")).await, contents);
    }
    let count = |list: &Value, prefix: &str| {
        common::names(list).iter().filter(|name| name.starts_with(prefix)).count()
    };
    assert_eq!(count(&get(&server, CONFIG_MAPS).await.1, "own-"), writes);
    assert_eq!(count(&get(&server, things).await.1, "thing-"), writes);
}

/// Defines a kind without schema restrictions.
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
        // Formatted as text, because serde_json has a depth limit of its own.
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
    // More than the socket buffers of both sides hold.
    let (size, changes) = (500_000, 60);
    post(&server, CONFIG_MAPS, &config_map("a", &json!({}))).await;
    for change in 0..changes {
        let data = json!({"data": {"k": "v".repeat(size), "change": change.to_string()}});
        assert_eq!(patch(&server, &format!("{CONFIG_MAPS}/a"), MERGE, &data).await.0, 200);
        // Lets the connection take what it can.
        tokio::task::yield_now().await;
    }
    env.clock.sleep(Duration::from_secs(31)).await;
    let mut rest = Vec::new();
    let mut piece = vec![0; 1 << 20];
    while let Ok(read @ 1..) = stopped.read(&mut piece).await {
        rest.extend_from_slice(&piece[..read]);
    }
    assert!(rest.len() < size * changes, "it received {} bytes", rest.len());
    assert!(
        !String::from_utf8_lossy(&rest).contains("Expired"),
        "the connection is closed without an ERROR event"
    );
    listening.stop().await;
}
