//! The Website kind.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watchkeeper::prelude::Conditions;

/// What a user asks for.
#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[kube(group = "example.dev", version = "v1", kind = "Website", namespaced, status = "WebsiteStatus")]
#[kube(printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"))]
#[kube(crates(kube_core = "watchkeeper::kube_core", k8s_openapi = "watchkeeper::k8s_openapi"))]
pub(crate) struct WebsiteSpec {
    /// The page to serve.
    pub(crate) page: String,
    /// How many Pods serve it.
    pub(crate) replicas: i32,
    /// The Secret whose values the Pods get as environment variables.
    pub(crate) secret: String,
}

/// What the operator reports.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebsiteStatus {
    #[serde(default)]
    pub(crate) ready_replicas: i32,
    #[serde(default)]
    pub(crate) conditions: Vec<Condition>,
}

impl Website {
    pub(crate) fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.conditions.is_true("Ready"))
    }
}
