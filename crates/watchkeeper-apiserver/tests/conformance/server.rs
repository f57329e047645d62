//! The server under test: the embedded one in process, or that of a kubeconfig, through the same client.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use kube_client::client::Body;
use kube_client::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use serde_json::{Value, json};
use watchkeeper::Env;
use watchkeeper_apiserver::{ApiServer, Authorization, User};

use crate::step::{Answers, Step};

/// Longer than any watch of the scripts.
const PATIENCE: Duration = Duration::from_secs(30);

/// Response headers that clients read.
const HEADERS: [&str; 4] = ["content-type", "retry-after", "vary", "warning"];

/// A server, and a client per identity.
pub(crate) struct Server {
    env: Env,
    admin: Client,
    anonymous: Option<Client>,
    /// `None` in process, where requests are not authenticated.
    bad_token: Option<Client>,
}

impl Server {
    /// The embedded server, in process.
    pub(crate) fn embedded() -> Self {
        let env = Env::simulated(7);
        let server = ApiServer::builder(&env).authorization(Authorization::Rbac).build();
        let anonymous = Some(server.client_as(User::anonymous()));
        Self { admin: server.client(), anonymous, bad_token: None, env }
    }

    /// The server of a kubeconfig.
    pub(crate) async fn of(kubeconfig: &Path) -> Self {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        config.default_retry = false;
        config.read_timeout = None;
        let client = |token: Option<&str>| {
            let mut config = config.clone();
            config.auth_info = AuthInfo::default();
            config.auth_info.token = token.map(|token| token.to_owned().into());
            Client::try_from(config).unwrap()
        };
        Self {
            env: Env::system(),
            admin: Client::try_from(config.clone()).unwrap(),
            anonymous: Some(client(None)),
            bad_token: Some(client(Some("bad"))),
        }
    }

    /// Performs a step. The response is `{status, headers, body}`, or `{status, events}` for a watch; `None` if there
    /// is no client of the step's identity.
    pub(crate) async fn perform(&self, step: &Step, answers: &Answers) -> Option<Value> {
        let client = match step.user.as_deref() {
            None => Some(&self.admin),
            Some("anonymous") => self.anonymous.as_ref(),
            Some("bad token") => self.bad_token.as_ref(),
            Some(other) => panic!("{}: nobody is called {other}", step.name),
        }?;
        let deed = async {
            match (&step.until, &step.watch) {
                (Some(wanted), _) => loop {
                    let answer = self.ask(client, step, answers).await;
                    if wanted.iter().all(|(at, value)| answer["body"].pointer(at) == Some(value)) {
                        return answer;
                    }
                    self.env.clock.sleep(Duration::from_millis(20)).await;
                },
                (None, Some(path)) => watch(client, path, step, answers).await,
                (None, None) => self.ask(client, step, answers).await,
            }
        };
        let done = self.env.clock.timeout(PATIENCE, deed).await;
        Some(done.unwrap_or_else(|_| panic!("{}: no answer within {PATIENCE:?}", step.name)))
    }

    async fn ask(&self, client: &Client, step: &Step, answers: &Answers) -> Value {
        let (method, path) = step.request.as_deref().and_then(|r| r.split_once(' ')).expect("METHOD /path");
        let response = send(client, method, path, step, answers).await;
        let status = response.status().as_u16();
        let mut headers = BTreeMap::new();
        for name in HEADERS {
            let values = response.headers().get_all(name).iter().map(|value| value.to_str().unwrap());
            let values: Vec<_> = values.filter(|value| *value != "application/json").collect();
            if !values.is_empty() {
                headers.insert(name, values.join(" | "));
            }
        }
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let yaml = headers.get("content-type").is_some_and(|kind| kind == "application/yaml");
        let body = match serde_json::from_slice(&body) {
            Ok(value) => value,
            Err(_) if body.starts_with(b"k8s\0") => "(protobuf)".into(),
            Err(_) if yaml => serde_saphyr::from_slice(&body).unwrap(),
            Err(_) => Value::from(String::from_utf8_lossy(&body).into_owned()),
        };
        json!({"status": status, "headers": headers, "body": body})
    }
}

async fn send(client: &Client, method: &str, path: &str, step: &Step, answers: &Answers) -> Response<Body> {
    let mut request = Request::builder().method(method).uri(answers.fill(path));
    let body = step.body.as_ref().map(|body| answers.body(body));
    let mut headers: BTreeMap<&str, Option<&str>> =
        BTreeMap::from([("accept", Some("application/json")), ("user-agent", Some("probe/1.0"))]);
    if body.is_some() {
        headers.insert("content-type", Some("application/json"));
    }
    headers.extend(step.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())));
    for (name, value) in headers {
        if let Some(value) = value {
            request = request.header(name, HeaderValue::from_str(value).unwrap());
        }
    }
    client.send(request.body(Body::from(body.unwrap_or_default())).unwrap()).await.unwrap()
}

/// Reads a watch to its end, line by line. Bookmarks are dropped, as their timing varies, except the one that ends the
/// initial state.
async fn watch(client: &Client, path: &str, step: &Step, answers: &Answers) -> Value {
    let response = send(client, "GET", path, step, answers).await;
    let status = response.status().as_u16();
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| Value::from(line)));
    let certain = lines.filter(|event| {
        event["type"] != "BOOKMARK" || event["object"]["metadata"]["annotations"].is_object()
    });
    json!({"status": status, "events": certain.collect::<Vec<_>>()})
}
