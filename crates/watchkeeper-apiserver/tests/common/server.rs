//! Which server does a test ask? The one that `WATCHKEEPER_TEST_KUBECONFIG` names, else an embedded one of its own.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use kube_client::client::Body;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use watchkeeper::{Clients, Env};
use watchkeeper_apiserver::{ApiServer, ApiServerBuilder};

/// The namespace of every test, and a part of every name that a test makes outside of it. Others use a real server too: there it stands
/// for a name that no other test has, in requests and answers alike.
pub(crate) const OURS: &str = "wktest";

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer, whichever server gave it.
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

fn boxed<B>(body: B) -> AnswerBody
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    body.map_err(Into::into).boxed_unsync()
}

/// A server with the namespace [`OURS`]. What a test has made on a real one is deleted with it.
pub(crate) struct Server {
    pub(crate) env: Env,
    place: Place,
}

enum Place {
    Inside(ApiServer),
    /// A server that others use too, and what [`OURS`] is called there.
    Shared(Client, Box<Config>, String),
}

impl Server {
    /// The server that this run is about. Only the embedded one lets the clock stand still.
    pub(crate) async fn start() -> Self {
        let Some(path) = std::env::var_os("WATCHKEEPER_TEST_KUBECONFIG") else {
            return Self::embedded(|settings| settings).await;
        };
        tokio::time::resume();
        let kubeconfig = Kubeconfig::read_from(path).unwrap();
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        config.default_retry = false;
        config.read_timeout = None;
        let (env, client) = (Env::system(), Client::try_from(config.clone()).unwrap());
        let ours = format!("{OURS}-{}", &env.generator.uuid()[..8]);
        Self { env, place: Place::Shared(client, Box::new(config), ours) }.with_namespace().await
    }

    /// One of ours, for what cannot be asked of others.
    pub(crate) async fn embedded(settings: impl FnOnce(ApiServerBuilder) -> ApiServerBuilder) -> Self {
        let env = Env::simulated(1);
        Self::around(&env, settings(ApiServer::builder(&env)).build()).await
    }

    /// A server of ours that the test has set up itself, or opened again.
    pub(crate) async fn around(env: &Env, inside: ApiServer) -> Self {
        Self { env: env.clone(), place: Place::Inside(inside) }.with_namespace().await
    }

    async fn with_namespace(self) -> Self {
        let namespace = json!({"metadata": {"name": OURS}});
        let response = self.send("POST", "/api/v1/namespaces", &[], namespace.to_string().into()).await;
        assert!([201, 409].contains(&response.status().as_u16()), "{response:?}");
        self
    }

    /// The embedded server itself; none where another is asked.
    pub(crate) fn inside(&self) -> Option<&ApiServer> {
        match &self.place {
            Place::Inside(server) => Some(server),
            Place::Shared(..) => None,
        }
    }

    /// What [`OURS`] is called on this server.
    pub(crate) fn ours(&self) -> &str {
        match &self.place {
            Place::Inside(_) => OURS,
            Place::Shared(_, _, ours) => ours,
        }
    }

    /// The toolkit's clients of this server; they see the names as they are.
    pub(crate) fn clients(&self) -> Clients {
        let client = match &self.place {
            Place::Inside(server) => server.client(),
            Place::Shared(client, ..) => client.clone(),
        };
        Clients::from_client(client, &self.env)
    }

    /// Sends a request with any body and headers.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Response<AnswerBody> {
        let mut request = Request::builder().method(method).uri(path.replace(OURS, self.ours()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match String::from_utf8(body.to_vec()) {
            Ok(text) => Bytes::from(text.replace(OURS, self.ours())),
            Err(_) => body,
        };
        let request = request.body(Body::from(body)).unwrap();
        match &self.place {
            // Not through a client, whose task would keep the server for a while.
            Place::Inside(server) => server.service().oneshot(request).await.unwrap().map(boxed),
            Place::Shared(client, ..) => client.send(request).await.unwrap().map(boxed),
        }
    }

    /// A text of this server as the test knows it.
    pub(crate) fn told(&self, text: &[u8]) -> String {
        String::from_utf8_lossy(text).replace(self.ours(), OURS)
    }

    /// Asks until the answer is as wished. What has happened within a request is there at once; what others do takes its time.
    pub(crate) async fn until<T>(&self, what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
        let asked = async {
            loop {
                if let Some(answer) = ask().await {
                    return answer;
                }
                self.env.clock.sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = self.env.clock.timeout(PATIENCE, asked).await;
        waited.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
    }
}

impl Drop for Server {
    /// On a thread of its own, as the test's runtime is about to end.
    fn drop(&mut self) {
        let Place::Shared(_, config, ours) = &self.place else { return };
        let (config, ours) = (config.clone(), ours.clone());
        let cleaning = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let client = Client::try_from(*config).unwrap();
                for path in ["/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/api/v1/namespaces"]
                {
                    remove_named_after(&client, path, &ours).await;
                }
            });
        });
        // A test that has failed has said why.
        let _ = cleaning.join();
    }
}

async fn remove_named_after(client: &Client, collection: &str, ours: &str) {
    let ask = async |method: &str, path: &str| {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        client.send(request).await.unwrap().into_body().collect().await.unwrap().to_bytes()
    };
    let list: Value = serde_json::from_slice(&ask("GET", collection).await).unwrap();
    for item in list["items"].as_array().unwrap() {
        let name = item["metadata"]["name"].as_str().unwrap();
        if name.contains(ours) {
            ask("DELETE", &format!("{collection}/{name}")).await;
        }
    }
}
