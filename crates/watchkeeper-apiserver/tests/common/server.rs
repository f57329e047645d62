//! The server under test: that of `WATCHKEEPER_TEST_KUBECONFIG`, else an embedded one per test.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use kube_client::Config;
use kube_client::client::Body;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt as _;
use watchkeeper::{Client, Env};
use watchkeeper_apiserver::{ApiServer, ApiServerBuilder, Authorization};
use watchkeeper_controllers::{garbage_collector, namespace_controller};

/// The namespace of every test, and part of every cluster-scoped name that a test creates. On a real server, which is
/// shared, it is replaced by a unique name in requests and responses.
pub(crate) const OURS: &str = "wktest";

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a response from either server.
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

fn boxed<B>(body: B) -> AnswerBody
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    body.map_err(Into::into).boxed_unsync()
}

/// A server with the namespace [`OURS`]. On a real server, whatever a test has created is deleted when this is dropped.
pub(crate) struct Server {
    pub(crate) env: Env,
    place: Place,
    /// Stops our controllers with the server.
    controllers: Option<DropGuard>,
}

enum Place {
    Inside(ApiServer),
    /// A shared server, and the unique name that replaces [`OURS`].
    Shared(kube_client::Client, Box<Config>, String),
}

impl Server {
    /// Starts or connects to the server of this test run. Only the embedded one works with a paused clock.
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
        let (env, client) = (Env::system(), kube_client::Client::try_from(config.clone()).unwrap());
        let ours = format!("{OURS}-{}", &env.generator.uuid()[..8]);
        Self { env, place: Place::Shared(client, Box::new(config), ours), controllers: None }
            .with_namespace()
            .await
    }

    /// As [`Server::start`], with our built-in controllers; a real server must have its own.
    pub(crate) async fn with_controllers() -> Self {
        let mut server = Self::start().await;
        if server.inside().is_some() {
            let (clients, stop) = (server.clients(), CancellationToken::new());
            server.controllers = Some(stop.clone().drop_guard());
            tokio::spawn(async move {
                tokio::join!(
                    garbage_collector::run(&clients, stop.clone()),
                    namespace_controller::run(&clients, stop)
                )
            });
        }
        server
    }

    /// As [`Server::start`], with roles that decide; those of a real server always do.
    pub(crate) async fn with_roles() -> Self {
        match std::env::var_os("WATCHKEEPER_TEST_KUBECONFIG") {
            Some(_) => Self::start().await,
            None => Self::embedded(|settings| settings.authorization(Authorization::Rbac)).await,
        }
    }

    /// As [`Server::start`], with the admission plugins that the reference has.
    pub(crate) async fn with_admission() -> Self {
        match std::env::var_os("WATCHKEEPER_TEST_KUBECONFIG") {
            Some(_) => Self::start().await,
            None => Self::embedded_with_admission("*,-ServiceAccount").await,
        }
    }

    /// An embedded server with a list of admission plugins.
    pub(crate) async fn embedded_with_admission(list: &str) -> Self {
        Self::embedded(|settings| settings.admission(list.parse().unwrap())).await
    }

    /// An embedded server, for tests that cannot run on a real one.
    pub(crate) async fn embedded(settings: impl FnOnce(ApiServerBuilder) -> ApiServerBuilder) -> Self {
        let env = Env::simulated(1);
        Self::around(&env, settings(ApiServer::builder(&env)).build()).await
    }

    /// An embedded server that the test has configured or reopened.
    pub(crate) async fn around(env: &Env, inside: ApiServer) -> Self {
        Self { env: env.clone(), place: Place::Inside(inside), controllers: None }.with_namespace().await
    }

    async fn with_namespace(self) -> Self {
        let namespace = json!({"metadata": {"name": OURS}});
        let response = self.send("POST", "/api/v1/namespaces", &[], namespace.to_string().into()).await;
        assert!([201, 409].contains(&response.status().as_u16()), "{response:?}");
        self
    }

    /// Returns the embedded server; `None` if another one is used.
    pub(crate) fn inside(&self) -> Option<&ApiServer> {
        match &self.place {
            Place::Inside(server) => Some(server),
            Place::Shared(..) => None,
        }
    }

    /// The name that stands for [`OURS`] on this server.
    pub(crate) fn ours(&self) -> &str {
        match &self.place {
            Place::Inside(_) => OURS,
            Place::Shared(_, _, ours) => ours,
        }
    }

    /// The toolkit's clients of this server; they do not replace names.
    pub(crate) fn clients(&self) -> Client {
        let client = match &self.place {
            Place::Inside(server) => server.client(),
            Place::Shared(client, ..) => client.clone(),
        };
        Client::from_kube(client, &self.env)
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
            request = request.header(*name, value.replace(OURS, self.ours()));
        }
        let body = match String::from_utf8(body.to_vec()) {
            Ok(text) => Bytes::from(text.replace(OURS, self.ours())),
            Err(_) => body,
        };
        let request = request.body(Body::from(body)).unwrap();
        match &self.place {
            // Not through a client, whose background task would keep the server alive for a while.
            Place::Inside(server) => server.service().oneshot(request).await.unwrap().map(boxed),
            Place::Shared(client, ..) => client.send(request).await.unwrap().map(boxed),
        }
    }

    /// Replaces the unique name in a text of this server by [`OURS`].
    pub(crate) fn restore_names(&self, text: &[u8]) -> String {
        String::from_utf8_lossy(text).replace(self.ours(), OURS)
    }

    /// Repeats a request until the response is as expected. Effects of a request are immediate; those of controllers
    /// take time.
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
    /// On a thread of its own, because the test's runtime is about to end.
    fn drop(&mut self) {
        let Place::Shared(_, config, ours) = &self.place else { return };
        let (config, ours) = (config.clone(), ours.clone());
        let cleaning = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let client = kube_client::Client::try_from(*config).unwrap();
                for path in [
                    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
                    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
                    "/api/v1/namespaces",
                ] {
                    remove_named_after(&client, path, &ours).await;
                }
            });
        });
        // A failed test has reported its panic already.
        let _ = cleaning.join();
    }
}

async fn remove_named_after(client: &kube_client::Client, collection: &str, ours: &str) {
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
