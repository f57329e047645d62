//! An operator that reads and writes marked Secrets, on a server with TLS, a marked token, and admin pages.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube_core::ObjectMeta;
use kube_core::params::Patch;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use watchkeeper::controller::{AccessCheck, Action, Context, Controller, Error, Manager, Watch};
use watchkeeper::leader::LeaderElection;
use watchkeeper::process::{AdminAddress, AdminArgs, ClientArgs, Pages};
use watchkeeper::record::EventType;
use watchkeeper::source::{Scope, Selection};
use watchkeeper::{Client, Env, ObjectName};
use watchkeeper_apiserver::{ApiServer, Credentials, ListenOptions, Listening};

use crate::marks::{self, SCRAPER, SECRET, TOKEN};

/// What the operator does with the Secret of each ConfigMap, by its name.
const NAMES: [&str; 6] = ["good", "refused", "immutable", "large", "stale", "panics"];

/// A server that accepts the marked token only, and its kubeconfig in a file.
pub(crate) async fn server(env: &Env, folder: &std::path::Path) -> (ApiServer, Listening, ClientArgs) {
    std::fs::write(folder.join("token"), TOKEN).unwrap();
    let credentials = Credentials::kept_in(folder).unwrap();
    let server = ApiServer::new(env);
    let options = ListenOptions { credentials: Some(credentials), ..ListenOptions::default() };
    let listening = server.listen(options).await.unwrap();
    let file = folder.join("kubeconfig");
    std::fs::write(&file, listening.kubeconfig()).unwrap();
    let args = ClientArgs { kubeconfig: Some(file), ..ClientArgs::default() };
    println!("{server:?} {listening:?} {args:?}");
    (server, listening, args)
}

fn secret(name: &str, key: &str, data: &str) -> Secret {
    let data = BTreeMap::from([(key.to_owned(), ByteString(data.as_bytes().to_vec()))]);
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    Secret { metadata, data: Some(data), ..Secret::default() }
}

async fn reconcile(name: &str, cx: &Context<ConfigMap>) -> Result<Action, Error> {
    println!("{cx:?}");
    match name {
        "good" => {
            cx.apply(&secret(name, "password", SECRET)).await?;
            let patch = json!({"stringData": {"other": SECRET}});
            cx.patch::<Secret, _>(name, &Patch::Merge(patch)).await?;
            cx.live().get::<Secret>(&ObjectName::namespaced("default", name)).await?;
            cx.event(EventType::Normal, "Applied", "the secret is there");
        }
        "refused" => drop(cx.apply(&secret(name, "not a key", SECRET)).await?),
        "immutable" => {
            let mut fixed = secret(name, "password", SECRET);
            fixed.immutable = Some(true);
            cx.apply(&fixed).await?;
            fixed.data = secret(name, "password", &format!("{SECRET}, changed")).data;
            cx.apply(&fixed).await?;
        }
        "large" => drop(cx.apply(&secret(name, "password", &SECRET.repeat(60_000))).await?),
        "stale" => {
            cx.apply(&secret(name, "password", SECRET)).await?;
            let mut old = secret(name, "password", &format!("{SECRET}, replaced"));
            old.metadata.resource_version = Some("1".to_owned());
            cx.replace(&old).await?;
        }
        _ => panic!("as planned"),
    }
    Ok(Action::done())
}

/// Registers the operator; each end of a reconcile is sent to `ended`.
fn register(manager: &mut Manager, ended: mpsc::UnboundedSender<String>) {
    Controller::<ConfigMap>::new(manager)
        .owns(Watch::<Secret>::new())
        .workers(2)
        .reconcile(move |map, cx| {
            let (name, ended) = (map.metadata.name.clone().unwrap_or_default(), ended.clone());
            async move {
                // Sent at the start, too: the second is sent when the outcome of the first has been handled.
                let _closed = ended.send(name.clone());
                let outcome = reconcile(&name, &cx).await;
                println!("{name} was reconciled: {outcome:?}");
                outcome
            }
        })
        .unwrap();
}

async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

async fn page(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {SCRAPER}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    println!("page {path}: {answer}");
    answer
}

/// What the admin server has, of the controller `configmap` and of all else.
const PAGES: [&str; 20] = [
    "/",
    "/metrics",
    "/readyz?verbose",
    "/healthz?verbose",
    "/readyz/caches",
    "/readyz/reads",
    "/debug/controllers",
    "/debug/controllers/configmap/keys",
    "/debug/explain?kind=configmap&key=default/good",
    "/debug/explain?kind=configmap&key=default/refused",
    "/debug/explain?kind=secret&key=default/good",
    "/debug/informers",
    "/controllers/configmap",
    "/informers",
    "/explain?kind=configmap&key=default/good",
    "/explain?kind=configmap&key=default/immutable",
    "/explain?kind=configmap&key=default/large",
    "/explain?kind=configmap&key=default/panics",
    "/explain?kind=configmap&key=default/stale",
    "/explain?kind=secret&key=default/good",
];

/// Sends a token in plain text to where TLS is spoken.
async fn mistaken_scrape(client: &Client) {
    let mut args = AdminArgs::default();
    args.metrics_bind_address = AdminAddress::At(SocketAddr::from(([127, 0, 0, 1], 0)));
    args.metrics_secure = Some(true);
    let server = args.bind(Pages::default(), client).await.unwrap();
    println!("{args:?} {server:?}");
    let (address, stop) = (server.address().unwrap(), CancellationToken::new());
    let run = tokio::spawn(server.run(stop.clone()));
    page(address, "/metrics").await;
    stop.cancel();
    run.await.unwrap();
}

/// A review with a token, by the client that would ask it for a protected page.
async fn review(client: &Client) {
    use k8s_openapi::api::authentication::v1::TokenReview;
    let review: TokenReview =
        serde_json::from_value(json!({"metadata": {}, "spec": {"token": SCRAPER}})).unwrap();
    let reviewed = client.api::<TokenReview>().create(&review).await.unwrap();
    println!("TokenReview: {:?}", reviewed.status.unwrap().error);
}

pub(crate) async fn run() {
    let (env, folder) = (Env::system(), tempfile::tempdir().unwrap());
    env.reporter.add_hook(|report| println!("report: {report:?} {}", report.incident));
    let (_server, listening, args) = server(&env, folder.path()).await;
    let client = args.connect(&env).await.unwrap();
    let election = LeaderElection::builder(&client, "default", "canary").build().unwrap();
    let address = free_address().await;
    let at = AdminAddress::At(address);
    let builder = Manager::builder("canary", &client).leader_election(election);
    let mut manager = builder.admin(at, at).preflight(AccessCheck::Warn).build();
    let (ended, mut ends) = mpsc::unbounded_channel();
    register(&mut manager, ended);
    let (handle, stop) = (manager.handle(), CancellationToken::new());
    println!("{client:?} {manager:?} {handle:?} {:?}", manager.factory());
    let lister = manager.factory().informer::<Secret>();
    let run = tokio::spawn(manager.run(stop.clone()));
    handle.wait_until_running().await;
    for name in NAMES {
        let map = json!({"metadata": {"name": name, "namespace": "default"}});
        client.api::<ConfigMap>().create(&serde_json::from_value(map).unwrap()).await.unwrap();
    }
    // Those that fail are tried again when the failure has been reported.
    let mut counts = BTreeMap::<String, u32>::new();
    let wanted = |name: &str| if name == "good" { 1 } else { 2 };
    while NAMES.iter().any(|name| counts.get(*name).copied().unwrap_or(0) < wanted(name)) {
        *counts.entry(ends.recv().await.unwrap()).or_default() += 1;
    }
    for name in NAMES {
        let key = ObjectName::namespaced("default", name);
        println!("explained: {:?}", handle.explain("configmap", &key));
    }
    println!("{:?} {:?} {:?}", handle.caches(), handle.figures(), lister.indexer().snapshot());
    for path in PAGES {
        let answer = page(address, path).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    }
    mistaken_scrape(&client).await;
    review(&client).await;
    let exists = client.api::<Secret>().get(&ObjectName::namespaced("default", "good")).await.unwrap();
    assert_eq!(exists.data.unwrap()["password"].0, SECRET.as_bytes(), "the secret is on the server");
    assert!(marks::leak(&marks::encoded(SECRET)).is_some());
    stop.cancel();
    println!("ended: {:?}", run.await.unwrap());
    // The events are written when the manager has ended.
    let events = client.api::<Event>().list(&Scope::Cluster, &Selection::default()).await.unwrap();
    for event in events.into_parts().0 {
        println!("event {}", serde_json::to_string(&event).unwrap());
    }
    listening.stop().await;
}
