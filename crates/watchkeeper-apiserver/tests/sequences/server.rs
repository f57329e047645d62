//! Running a sequence on a server: requests one after another in a namespace of its own; watches are read at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube_client::client::Body;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use regex::{Captures, Regex};
use serde_json::{Value, json};
use watchkeeper::Env;
use watchkeeper_apiserver::ApiServer;

use crate::kinds::{DEFINITIONS, KINDS, Kind, WIDGETS, definition};
use crate::normalise::Names;
use crate::operation::{GAP, Operation, SPACE};

/// Longer than any response takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

static GAPS: LazyLock<Regex> = LazyLock::new(|| Regex::new(GAP).unwrap());

/// A server that runs sequences.
pub(crate) struct Server {
    client: Client,
    env: Env,
    /// Part of every namespace, so that concurrent runs on one server are separate.
    run: String,
    sequences: AtomicU64,
}

/// The result of a sequence.
#[derive(Default)]
pub(crate) struct Transcript {
    /// The normalized responses, each with its request.
    pub(crate) answers: Vec<(String, Value)>,
    /// The seconds in which each operation was sent and answered.
    pub(crate) seconds: Vec<(i64, i64)>,
}

impl Server {
    pub(crate) async fn embedded(env: &Env) -> Self {
        let client = ApiServer::new(env).client();
        Self { client, env: env.clone(), run: "embedded".to_owned(), sequences: AtomicU64::new(0) }
            .prepared()
            .await
    }

    pub(crate) async fn of(kubeconfig: std::ffi::OsString) -> Self {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        config.default_retry = false;
        config.read_timeout = None;
        let (env, client) = (Env::system(), Client::try_from(config).unwrap());
        let run = env.generator.uuid()[..8].to_owned();
        Self { client, env, run, sequences: AtomicU64::new(0) }.prepared().await
    }

    async fn prepared(self) -> Self {
        self.ask("POST", DEFINITIONS, "application/json", definition().to_string()).await;
        while self.ask("GET", WIDGETS, "", String::new()).await.0 != 200 {
            self.env.clock.sleep(Duration::from_millis(20)).await;
        }
        self
    }

    /// Returns the current second, as timestamps have it.
    pub(crate) fn second(&self) -> i64 {
        self.env.clock.wall().as_second()
    }

    /// Waits for the start of the next second.
    pub(crate) async fn next_second(&self) {
        let over = self.env.clock.wall().subsec_nanosecond();
        self.env.clock.sleep(Duration::from_nanos(1_000_000_000 - u64::from(over.unsigned_abs()))).await;
    }

    async fn send(&self, method: &str, path: &str, content_type: &str, body: String) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path).header("user-agent", "sequence/1.0");
        if !body.is_empty() {
            request = request.header("content-type", content_type);
        }
        let sent = self.client.send(request.body(Body::from(body.into_bytes())).unwrap());
        let answer = self.env.clock.timeout(PATIENCE, sent).await;
        answer.unwrap_or_else(|_| panic!("no answer to {method} {path}")).unwrap()
    }

    async fn ask(&self, method: &str, path: &str, content_type: &str, body: String) -> (u16, Value) {
        read(self.send(method, path, content_type, body).await).await
    }

    /// Runs a sequence and returns its transcript.
    pub(crate) async fn run(&self, operations: &[Operation]) -> Transcript {
        let number = self.sequences.fetch_add(1, Ordering::Relaxed);
        let space = format!("{SPACE}-{}-{number}", self.run);
        let body = json!({"metadata": {"name": space}}).to_string();
        let (code, made) = self.ask("POST", "/api/v1/namespaces", "application/json", body).await;
        assert_eq!(code, 201, "{made}");
        let mut telling = Running {
            server: self,
            space: space.clone(),
            seen: Seen::default(),
            names: Names::default(),
            transcript: Transcript::default(),
            watches: Vec::new(),
        };
        telling.seen.past.push(made["metadata"]["resourceVersion"].as_str().unwrap().to_owned());
        for operation in operations {
            telling.perform(operation).await;
        }
        telling.end(operations).await;
        self.give_back_addresses(&space).await;
        self.ask("DELETE", &format!("/api/v1/namespaces/{space}"), "", String::new()).await;
        telling.transcript
    }
}

impl Server {
    /// Deletes the services of a finished namespace: a server without controllers keeps them, and has only 254
    /// addresses.
    async fn give_back_addresses(&self, space: &str) {
        let services = Kind::Service.collection().replace(SPACE, space);
        let (_, list) = self.ask("GET", &services, "", String::new()).await;
        for service in list["items"].as_array().unwrap() {
            let path = format!("{services}/{}", service["metadata"]["name"].as_str().unwrap());
            let free = json!({"metadata": {"finalizers": null}}).to_string();
            self.ask("PATCH", &path, "application/merge-patch+json", free).await;
            self.ask("DELETE", &format!("{path}?propagationPolicy=Background"), "", String::new()).await;
        }
    }
}

async fn read(response: Response<Body>) -> (u16, Value) {
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into()))
}

/// Versions, uids and tokens seen so far, for placeholders.
#[derive(Default)]
struct Seen {
    /// Versions and uid by plural and name.
    objects: BTreeMap<String, (Vec<String>, String)>,
    tokens: BTreeMap<String, String>,
    past: Vec<String>,
}

impl Seen {
    fn keep(&mut self, path: &str, body: &Value) {
        // A dry run may return any version that was sent.
        let Some(plural) = plural(path).filter(|_| !path.contains("dryRun=All")) else { return };
        let metadata = &body["metadata"];
        if let Some(token) = metadata["continue"].as_str().filter(|token| !token.is_empty()) {
            self.tokens.insert(plural.to_owned(), token.to_owned());
        }
        let (Some(name), Some(version)) = (metadata["name"].as_str(), metadata["resourceVersion"].as_str())
        else {
            return;
        };
        let (versions, uid) = self.objects.entry(format!("{plural}/{name}")).or_default();
        if versions.last().is_none_or(|last| last != version) {
            versions.push(version.to_owned());
            self.past.push(version.to_owned());
        }
        *uid = metadata["uid"].as_str().unwrap_or_default().to_owned();
    }

    fn fill(&self, text: &str) -> String {
        let filled = GAPS.replace_all(text, |gap: &Captures<'_>| {
            let object = self.objects.get(&gap[2]);
            let version = |back: usize| {
                let versions = object.map(|(versions, _)| versions.iter().rev());
                versions.and_then(|mut versions| versions.nth(back).cloned()).unwrap_or("1".to_owned())
            };
            match &gap[1] {
                "version" => version(0),
                "stale" => version(1),
                "uid" => object.map_or("00000000-0000-0000-0000-000000000000", |(_, uid)| uid).to_owned(),
                "continue" => self.tokens.get(&gap[2]).cloned().unwrap_or_default(),
                "first" => self.past[0].clone(),
                _ => {
                    let back: usize = gap[2].parse().unwrap();
                    self.past[self.past.len() - 1 - back.min(self.past.len() - 1)].clone()
                }
            }
        });
        filled.into_owned()
    }
}

/// Returns the resource of a path.
fn plural(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once("/namespaces/")?;
    rest.split(['/', '?']).nth(1)
}

/// A sequence in progress.
struct Running<'a> {
    server: &'a Server,
    space: String,
    seen: Seen,
    names: Names,
    transcript: Transcript,
    watches: Vec<(String, Body)>,
}

impl Running<'_> {
    fn tell(&mut self, asked: String, answer: &Value) {
        let text = answer.to_string().replace(&self.space, SPACE);
        let answer = self.names.normalise(&serde_json::from_str(&text).unwrap());
        self.transcript.answers.push((asked, answer));
    }

    async fn perform(&mut self, operation: &Operation) {
        let fill = |text: &str| self.seen.fill(text).replace(SPACE, &self.space);
        let path = fill(&operation.path);
        let body = if operation.body.is_null() { String::new() } else { fill(&operation.body.to_string()) };
        let cached = ["resourceVersion=0", "resourceVersion=&", "NotOlderThan"]
            .iter()
            .any(|part| operation.path.contains(part));
        if cached || operation.path.ends_with("resourceVersion=") {
            // A response from the watch cache is at least as new as the last list.
            let kind = KINDS.into_iter().find(|kind| plural(&path) == Some(kind.plural().as_str())).unwrap();
            self.server.ask("GET", &kind.collection().replace(SPACE, &self.space), "", String::new()).await;
        }
        let sent = self.server.second();
        let response = self.server.send(operation.method, &path, operation.content_type, body).await;
        self.transcript.seconds.push((sent, self.server.second()));
        let warnings: Vec<_> = response
            .headers()
            .get_all("warning")
            .iter()
            .map(|value| value.to_str().unwrap().to_owned())
            .collect();
        let (code, body) = if operation.watch && response.status() == 200 {
            self.watches.push((operation.to_string(), response.into_body()));
            (200, Value::Null)
        } else {
            read(response).await
        };
        self.seen.keep(&operation.path, &body);
        self.tell(operation.to_string(), &json!({"code": code, "warnings": warnings, "body": body}));
    }

    /// Creates the markers and reads the watches up to them. The replay of a watch from the beginning must equal the
    /// list of its kind.
    async fn end(&mut self, operations: &[Operation]) {
        let used: BTreeSet<_> = operations.iter().filter_map(|operation| plural(&operation.path)).collect();
        let kinds: Vec<Kind> =
            KINDS.into_iter().filter(|kind| used.contains(kind.plural().as_str())).collect();
        for kind in &kinds {
            self.perform(&Operation::watch(format!(
                "{}?watch=1&resourceVersion=<first 0>",
                kind.collection()
            )))
            .await;
            self.perform(&Operation::new("POST", kind.collection(), kind.marker())).await;
        }
        let mut replayed = BTreeMap::new();
        for (asked, body) in std::mem::take(&mut self.watches) {
            let reading = events(body);
            let events = self.server.env.clock.timeout(PATIENCE, reading).await;
            let events = events.unwrap_or_else(|_| panic!("no marker within {PATIENCE:?}: {asked}"));
            self.tell(asked.clone(), &json!(events));
            // The last watch opened of a kind started before everything.
            replayed.insert(plural(&asked).unwrap().to_owned(), replay(&events));
        }
        for kind in &kinds {
            let path = kind.collection().replace(SPACE, &self.space);
            let (code, list) = self.server.ask("GET", &path, "", String::new()).await;
            let listed = list["items"].as_array().unwrap().iter().map(entry).collect();
            assert_eq!(
                replayed[&kind.plural()],
                listed,
                "a watch of {} leads elsewhere than a list",
                kind.plural()
            );
            self.tell(format!("list {}", kind.plural()), &json!({"code": code, "body": list}));
        }
        let order = self.names.order();
        self.transcript.answers.push(("in which order the versions rise".to_owned(), order));
    }
}

fn entry(object: &Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap().to_owned();
    (text("name"), text("resourceVersion"))
}

/// Returns the state after all events: versions by name.
fn replay(events: &[Value]) -> BTreeMap<String, String> {
    let mut objects = BTreeMap::new();
    for event in events {
        assert_ne!(event["type"], "ERROR", "a watch was cut off: {event}");
        let (name, version) = entry(&event["object"]);
        if event["type"] == "DELETED" {
            objects.remove(&name);
        } else {
            objects.insert(name, version);
        }
    }
    objects
}

/// Reads a watch up to the marker, or to its end.
async fn events(mut body: Body) -> Vec<Value> {
    let (mut events, mut buffer) = (Vec::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        buffer.extend_from_slice(frame.unwrap().data_ref().unwrap());
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).unwrap();
            let last = event["type"] == "ERROR" || event["object"]["metadata"]["name"] == "zz-marker";
            if event["type"] != "BOOKMARK" {
                events.push(event);
            }
            if last {
                return events;
            }
        }
    }
    events
}
