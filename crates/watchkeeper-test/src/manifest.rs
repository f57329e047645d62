//! Manifests: the objects of a YAML text, and where the server keeps them.

use kube_core::{ApiResource, DynamicObject, GroupVersionKind};
use serde::Deserialize;
use serde_json::Value;
use watchkeeper::wire::ApiError;
use watchkeeper::{Client, ObjectName};

/// An object of a manifest.
pub(crate) struct Manifest {
    pub(crate) kind: ApiResource,
    pub(crate) key: ObjectName,
    pub(crate) value: Value,
}

#[derive(Deserialize)]
struct Resources {
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
    kind: String,
    namespaced: bool,
}

/// The objects of a YAML text with any number of documents. Objects without a namespace are in `default`, if their kind has any.
pub(crate) async fn read(client: &Client, yaml: &str) -> Result<Vec<Manifest>, String> {
    read_where(client, yaml, |_| true).await
}

/// The objects of a YAML text that `keep` accepts, by kind.
pub(crate) async fn read_where(
    client: &Client,
    yaml: &str,
    keep: impl Fn(&str) -> bool,
) -> Result<Vec<Manifest>, String> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(yaml).map_err(|error| format!("not YAML: {error}"))?;
    let mut objects = Vec::new();
    let keep = |value: &Value| !value.is_null() && keep(value["kind"].as_str().unwrap_or_default());
    for value in documents.into_iter().filter(keep) {
        objects.push(place(client, value).await?);
    }
    Ok(objects)
}

async fn place(client: &Client, mut value: Value) -> Result<Manifest, String> {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&value, "apiVersion"), text(&value, "kind"));
    let name = text(&value["metadata"], "name");
    if api_version.is_empty() || kind.is_empty() || name.is_empty() {
        return Err(format!("an object needs apiVersion, kind and metadata.name: {value}"));
    }
    let path = if api_version.contains('/') {
        format!("/apis/{api_version}")
    } else {
        format!("/api/{api_version}")
    };
    let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
    let served: Resources = client.kube().request(request).await.map_err(|error| {
        format!("the server has no {api_version}: install the CRD first ({})", ApiError::from(error))
    })?;
    let resource =
        served.resources.into_iter().find(|resource| resource.kind == kind && !resource.name.contains('/'));
    let resource = resource.ok_or_else(|| format!("the server has no {kind} in {api_version}"))?;
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    let gvk = GroupVersionKind::gvk(group, version, &kind);
    let namespace = if resource.namespaced {
        let namespace = value["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
        value["metadata"]["namespace"] = namespace.clone().into();
        namespace
    } else {
        String::new()
    };
    Ok(Manifest {
        kind: ApiResource::from_gvk_with_plural(&gvk, &resource.name),
        key: ObjectName::namespaced(&namespace, &name),
        value,
    })
}

impl Manifest {
    /// Applies the object as kubectl does: by server-side apply.
    pub(crate) async fn apply(&self, client: &Client) -> Result<(), ApiError> {
        let requests = client.requests().clone().manager("kubectl");
        requests
            .api_of::<DynamicObject>(self.kind.clone())
            .force_apply(&self.key, &self.value)
            .await
            .map(drop)
    }
}
