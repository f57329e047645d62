//! A server of Events for the tests of sinks, which keeps the writes and fails on demand.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube_client::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use watchkeeper::{Client, Env};

/// What becomes of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    Served,
    /// It does not arrive.
    Lost,
    /// It is served, and the answer does not arrive.
    AnswerLost,
    /// It is served, and the answer to a success is not an Event.
    Garbled,
    /// It is refused with that code and reason.
    Refused(u16, &'static str),
    /// It is refused since its namespace is being deleted.
    Terminating,
    /// It is refused with that code, and the wish to come back after so many seconds.
    Busy(u16, u64),
    /// There is never an answer.
    Silence,
}

/// Events by path. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    events: BTreeMap<String, Value>,
    asked: Vec<(Method, String, Value)>,
    /// What becomes of the next requests; of those after them the last.
    fates: VecDeque<Fate>,
}

impl Server {
    pub(crate) fn new(fates: &[Fate]) -> Self {
        let server = Self::default();
        server.0.lock().fates = fates.iter().copied().collect();
        server
    }

    pub(crate) fn client(&self, env: &Env) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (method, path) = (request.method().clone(), request.uri().path().to_owned());
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&body).unwrap();
                let (fate, (code, answer)) = server.serve(method, path, body);
                let answer = match fate {
                    Fate::Silence => std::future::pending().await,
                    Fate::Lost | Fate::AnswerLost => {
                        return Err(io::Error::from(io::ErrorKind::ConnectionReset));
                    }
                    Fate::Garbled if code < 300 => json!("no Event"),
                    _ => answer,
                };
                let response =
                    Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
                Ok(response.unwrap())
            }
        });
        Client::from_kube(kube_client::Client::new(service, "default"), env)
    }

    fn serve(&self, method: Method, path: String, body: Value) -> (Fate, (u16, Value)) {
        let mut state = self.0.lock();
        let fate = match state.fates.len() {
            0 => Fate::Served,
            1 => state.fates[0],
            _ => state.fates.pop_front().unwrap(),
        };
        state.asked.push((method.clone(), path.clone(), body.clone()));
        let answer = match fate {
            Fate::Refused(code, reason) => status(code, reason),
            Fate::Terminating => {
                let (code, mut answer) = status(403, "Forbidden");
                answer["message"] = json!("no new content in namespace ns because it is being terminated");
                (code, answer)
            }
            Fate::Busy(code, seconds) => {
                let (code, mut answer) = status(code, "");
                answer["details"] = json!({"retryAfterSeconds": seconds});
                (code, answer)
            }
            Fate::Lost | Fate::Silence => (0, Value::Null),
            Fate::Served | Fate::AnswerLost | Fate::Garbled => state.apply(&method, path, body),
        };
        (fate, answer)
    }

    /// Every request so far: method, path and body.
    pub(crate) fn asked(&self) -> Vec<(Method, String, Value)> {
        self.0.lock().asked.clone()
    }

    /// The methods of all requests so far.
    pub(crate) fn methods(&self) -> Vec<String> {
        self.asked().iter().map(|(method, ..)| method.to_string()).collect()
    }

    /// The Events on the server.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.0.lock().events.values().cloned().collect()
    }

    /// How often things happened, as the Events on the server say.
    pub(crate) fn total(&self) -> u64 {
        self.events().iter().map(|event| event["count"].as_u64().unwrap()).sum()
    }

    /// All Events go, as they do after an hour.
    pub(crate) fn expire(&self) {
        self.0.lock().events.clear();
    }
}

impl State {
    fn apply(&mut self, method: &Method, path: String, body: Value) -> (u16, Value) {
        match *method {
            Method::POST => {
                let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
                if self.events.contains_key(&path) {
                    return status(409, "AlreadyExists");
                }
                self.events.insert(path, body.clone());
                (201, body)
            }
            Method::PATCH => match self.events.get_mut(&path) {
                Some(event) => {
                    let fields = body.as_object().unwrap().clone();
                    event.as_object_mut().unwrap().extend(fields);
                    (200, event.clone())
                }
                None => status(404, "NotFound"),
            },
            _ => status(405, "MethodNotAllowed"),
        }
    }
}

fn status(code: u16, reason: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "message": "no", "reason": reason, "code": code}))
}

/// An object without a namespace.
pub(crate) fn node() -> Node {
    serde_json::from_value(json!({"metadata": {"name": "n1", "uid": "u", "resourceVersion": "4"}})).unwrap()
}

/// An object with one.
pub(crate) fn pod(name: &str) -> Pod {
    let metadata =
        json!({"name": name, "namespace": "ns", "uid": format!("{name}-uid"), "resourceVersion": "7"});
    serde_json::from_value(json!({"metadata": metadata})).unwrap()
}
