//! The operator: keeps a ConfigMap with the text of each {{Kind}}.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watchkeeper::prelude::*;

/// The desired state of a {{Kind}}.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "{{group}}", version = "v1", kind = "{{Kind}}", plural = "{{plural}}", namespaced)]
#[kube(status = "{{Kind}}Status", doc = "A text, and the ConfigMap that has it.")]
#[kube(printcolumn(name = "Text", type_ = "string", json_path = ".spec.text"))]
#[kube(printcolumn(
    name = "Ready",
    type_ = "string",
    json_path = ".status.conditions[?(@.type=='Ready')].status"
))]
#[kube(crates(
    kube_core = "watchkeeper::kube_core",
    k8s_openapi = "watchkeeper::k8s_openapi",
    serde_json = "watchkeeper::serde_json"
))]
pub struct {{Kind}}Spec {
    /// The text of the ConfigMap.
    pub text: String,
}

/// The observed state of a {{Kind}}.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct {{Kind}}Status {
    /// Ready is true when the ConfigMap has the text.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

impl {{Kind}} {
    /// Whether the ConfigMap has the current text.
    pub fn is_ready(&self) -> bool {
        let ready = self.status.as_ref().and_then(|status| status.conditions.find("Ready"));
        ready.is_some_and(|ready| {
            ready.status == "True" && ready.observed_generation == self.metadata.generation
        })
    }
}

/// Registers the controllers of this operator.
pub fn register(manager: &mut Manager) -> Result<(), SetupError> {
    Controller::<{{Kind}}>::new(manager).owns(Watch::<ConfigMap>::new()).reconcile(reconcile)
}

/// Brings one object to its desired state. Runs after each change of it or of its ConfigMap, and must change nothing if
/// there is nothing to do.
async fn reconcile(object: Arc<{{Kind}}>, cx: Context<{{Kind}}>) -> Result<Action, Error> {
    cx.apply(&config_map(&object)).await?;
    cx.status(|status| status.conditions.set(cx.condition("Ready", true, "Applied"))).await?;
    if !object.is_ready() {
        cx.event(EventType::Normal, "Applied", "the ConfigMap has the text");
    }
    Ok(Action::done())
}

fn config_map(object: &{{Kind}}) -> ConfigMap {
    let metadata = ObjectMeta { name: object.metadata.name.clone(), ..ObjectMeta::default() };
    let data = BTreeMap::from([("text".to_owned(), object.spec.text.clone())]);
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}
