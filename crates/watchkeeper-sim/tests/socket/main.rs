//! Faults on a real socket: what a client sees of each kind, and that informers survive them.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod informers;
mod raw;
mod requests;
mod watches;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use watchkeeper::Env;
use watchkeeper_apiserver::{ApiServer, ListenOptions, Listening};
use watchkeeper_sim::{FaultLayer, FaultLayerBuilder};

use raw::{Answer, Raw};

/// A listening server whose faults are recorded.
pub(crate) struct Faulty {
    pub(crate) env: Env,
    pub(crate) server: ApiServer,
    pub(crate) listening: Listening,
    faults: Arc<Mutex<Vec<String>>>,
}

impl Faulty {
    /// Faults of this kind, at every place where it is possible.
    pub(crate) async fn always(kind: &str) -> Self {
        Self::with(|faults| faults.rate(1.0).kinds([kind.parse().unwrap()])).await
    }

    pub(crate) async fn with(set: impl FnOnce(FaultLayerBuilder) -> FaultLayerBuilder) -> Self {
        Self::seeded(7, set).await
    }

    pub(crate) async fn seeded(seed: u64, set: impl FnOnce(FaultLayerBuilder) -> FaultLayerBuilder) -> Self {
        let env = Env::system();
        let server = ApiServer::builder(&env).bookmark_period(Duration::from_millis(20)).build();
        let faults = Arc::<Mutex<Vec<String>>>::default();
        let told = faults.clone();
        let layer = FaultLayer::builder(seed)
            .longest_delay(Duration::from_millis(50))
            .longest_stall(Duration::from_millis(50))
            .on_fault(move |fault| told.lock().push(fault.to_string()));
        let layer = set(layer).build(&server, &env.clock).unwrap();
        let options = ListenOptions { insecure_http: true, ..ListenOptions::default() };
        let listening = server.listen_through(options, &layer).await.unwrap();
        Self { env, server, listening, faults }
    }

    /// The faults so far.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.faults.lock().clone()
    }

    /// Sends a request on a new connection.
    pub(crate) async fn send(&self, method: &str, path: &str, body: &str) -> Raw {
        Raw::send(self.listening.address(), method, path, body).await
    }

    /// Sends a request, and returns its answer; `None` if the connection is lost.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> Option<Answer> {
        self.send(method, path, body).await.answer().await
    }

    /// The reasons, in order, with which a request is refused each time as its version has expired.
    pub(crate) async fn reasons_of_410(&self, path: &str) -> Vec<String> {
        let mut reasons = BTreeSet::new();
        for _ in 0..20 {
            let answer = self.ask("GET", path, "").await.unwrap();
            assert_eq!(answer.status, 410, "{answer:?}");
            let status: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
            reasons.insert(status["reason"].as_str().unwrap().to_owned());
        }
        reasons.into_iter().collect()
    }

    /// Creates a ConfigMap without faults.
    pub(crate) async fn create(&self, name: &str) {
        let map = map(name);
        let request = http::Request::post(MAPS).header("content-type", "application/json").body(map);
        let client = self.server.client();
        client.request::<serde_json::Value>(request.unwrap().map(String::into_bytes)).await.unwrap();
    }

    /// The names of the ConfigMaps.
    pub(crate) fn names(&self) -> Vec<String> {
        let objects = self.server.objects();
        let maps = objects.iter().filter(|(resource, _)| resource == "/configmaps");
        let name = |json: &[u8]| {
            let object: serde_json::Value = serde_json::from_slice(json).unwrap();
            object["metadata"]["name"].as_str().unwrap().to_owned()
        };
        maps.map(|(_, json)| name(json)).collect()
    }
}

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(crate) fn map(name: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}}}}"#)
}
