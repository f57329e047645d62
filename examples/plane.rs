//! The API server of the examples, in their own process: they need no cluster and change none.

use serde_json::json;
use watchkeeper::{Client, Env};
use watchkeeper_apiserver::ApiServer;

use k8s_openapi::api::core::v1::Pod;

/// Client of a fresh API server. On a cluster, a program would say `ClientArgs::default().connect(&env).await?` here, or take its flags.
pub fn client(env: &Env) -> Client {
    Client::from_kube(ApiServer::builder(env).build().client(), env)
}

/// A Pod of the default namespace, on `node` if it is on one.
pub fn pod(name: &str, node: Option<&str>) -> Result<Pod, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": [{"name": "web", "image": "nginx:latest"}]},
    }))
}
