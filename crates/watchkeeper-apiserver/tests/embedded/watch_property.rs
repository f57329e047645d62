//! A property of watches: whatever writers do and however clients reconnect, each client converges to the server's
//! state.

use std::collections::BTreeMap;

use crate::common::*;
use futures::FutureExt as _;
use proptest::prelude::*;
use serde_json::{Value, json};

/// One step of the writers or of a client.
#[derive(Clone, Debug)]
enum Step {
    Put {
        namespace: usize,
        name: usize,
        label: usize,
    },
    Delete {
        namespace: usize,
        name: usize,
    },
    Read {
        client: usize,
        events: usize,
    },
    /// The client loses its stream and reconnects at a revision it has seen.
    Reconnect {
        client: usize,
        back: usize,
    },
    Compact,
    EndWatches,
}

const NAMESPACES: [&str; 2] = [OURS, "wktest-two"];

/// The namespace and selector of each client.
const VIEWS: [(Option<usize>, &str); 5] =
    [(None, ""), (Some(0), ""), (Some(1), "l%3D1"), (None, "l%21%3D1"), (None, "l+in+(1,2)")];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..2_usize, 0..4_usize, 0..3_usize).prop_map(|(namespace, name, label)| Step::Put { namespace, name, label }),
        2 => (0..2_usize, 0..4_usize).prop_map(|(namespace, name)| Step::Delete { namespace, name }),
        6 => (0..5_usize, 1..6_usize).prop_map(|(client, events)| Step::Read { client, events }),
        2 => (0..5_usize, 0..6_usize).prop_map(|(client, back)| Step::Reconnect { client, back }),
        1 => Just(Step::Compact),
        1 => Just(Step::EndWatches),
    ]
}

type Objects = BTreeMap<(String, String), (u64, Value)>;

struct Client<'a> {
    view: (Option<usize>, &'static str),
    watch: Watch<'a>,
    /// The state after each event, by revision, from which the client can resume.
    past: Vec<(u64, Objects)>,
}

fn path(view: (Option<usize>, &str)) -> String {
    let collection = match view.0 {
        Some(namespace) => format!("/api/v1/namespaces/{}/configmaps", NAMESPACES[namespace]),
        None => "/api/v1/configmaps".to_owned(),
    };
    format!("{collection}?labelSelector={}", view.1)
}

fn entry(object: &Value) -> ((String, String), (u64, Value)) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap().to_owned();
    ((text("namespace"), text("name")), (version(object), object["metadata"]["labels"].clone()))
}

async fn list(server: &Server, view: (Option<usize>, &str)) -> (u64, Objects) {
    let (code, list) = get(server, &path(view)).await;
    assert_eq!(code, 200);
    (version(&list), list["items"].as_array().unwrap().iter().map(entry).collect())
}

impl<'a> Client<'a> {
    async fn start(server: &'a Server, view: (Option<usize>, &'static str)) -> Self {
        let (revision, objects) = list(server, view).await;
        let watch = Watch::open(server, &format!("{}&watch=1&resourceVersion={revision}", path(view))).await;
        Self { view, watch, past: vec![(revision, objects)] }
    }

    /// Reads one event if there is one; returns whether there was.
    async fn read(&mut self, server: &'a Server) -> bool {
        let Some(event) = self.watch.next().now_or_never() else { return false };
        let Some(event) = event else {
            self.reconnect(server, 0).await;
            return true;
        };
        if event["type"] == "ERROR" {
            assert_eq!(event["object"]["code"], 410);
            *self = Self::start(server, self.view).await;
            return true;
        }
        let (seen, mut objects) = self.past.last().unwrap().clone();
        let (key, (revision, content)) = entry(&event["object"]);
        assert!(revision > seen, "versions rise: {revision} after {seen}");
        let known = objects.contains_key(&key);
        match event["type"].as_str().unwrap() {
            "ADDED" => assert!(!known, "{key:?} was added twice"),
            "MODIFIED" => assert!(known, "{key:?} was modified before it was added"),
            "DELETED" => assert!(known, "{key:?} was deleted and not there"),
            other => panic!("unexpected event {other}"),
        }
        if event["type"] == "DELETED" {
            objects.remove(&key);
        } else {
            objects.insert(key, (revision, content));
        }
        self.past.push((revision, objects));
        true
    }

    async fn reconnect(&mut self, server: &'a Server, back: usize) {
        let keep = self.past.len().saturating_sub(back).max(1);
        self.past.truncate(keep);
        let revision = self.past.last().unwrap().0;
        self.watch =
            Watch::open(server, &format!("{}&watch=1&resourceVersion={revision}", path(self.view))).await;
    }
}

async fn run(steps: Vec<Step>, history: usize) {
    let server = Server::embedded(|settings| settings.history(history)).await;
    post(&server, "/api/v1/namespaces", &json!({"metadata": {"name": NAMESPACES[1]}})).await;
    let mut clients = Vec::new();
    for view in VIEWS {
        clients.push(Client::start(&server, view).await);
    }
    for step in steps {
        match step {
            Step::Put { namespace, name, label } => {
                let collection = format!("/api/v1/namespaces/{}/configmaps", NAMESPACES[namespace]);
                let mut object = config_map(&format!("c{name}"), &json!({}));
                object["metadata"]["labels"] = json!({"l": label.to_string()});
                let (code, _) = call(&server, "PUT", &format!("{collection}/c{name}"), &object).await;
                if code == 404 {
                    post(&server, &collection, &object).await;
                }
            }
            Step::Delete { namespace, name } => {
                let path = format!("/api/v1/namespaces/{}/configmaps/c{name}", NAMESPACES[namespace]);
                call(&server, "DELETE", &path, &Value::Null).await;
            }
            Step::Read { client, events } => {
                for _ in 0..events {
                    clients[client].read(&server).await;
                }
            }
            Step::Reconnect { client, back } => clients[client].reconnect(&server, back).await,
            Step::Compact => inside(&server).compact_now(),
            Step::EndWatches => inside(&server).end_watches(),
        }
    }
    for client in &mut clients {
        while client.read(&server).await {}
        let (_, expected) = list(&server, client.view).await;
        assert_eq!(client.past.last().unwrap().1, expected, "{:?}", client.view);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn every_client_ends_with_the_state_of_the_server(
        steps in proptest::collection::vec(step(), 1..120),
        history in prop_oneof![Just(2_usize), Just(10), Just(10_000)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(run(steps, history));
    }
}
