//! Installing manifests: definitions first, then namespaces, then everything else.

use std::time::Duration;

use kube_client::core::DynamicObject;
use serde_json::Value;
use watchkeeper::wire::ApiError;
use watchkeeper::{Client, ObjectName};

use crate::discovery::{DiscoveryError, Kinds, Served};
use crate::manifests::{Manifest, Origin};

/// How long a definition may take until its kind is served, and the pause between two looks at it.
const DEADLINE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

/// Why an object was not installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InstallError {
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error("{object}")]
    Refused {
        /// The origin, kind and name of the object.
        object: String,
        #[source]
        source: Box<ApiError>,
    },
    #[error(
        "{origin}: the server has no kind {kind} in {api_version}: add its CustomResourceDefinition to --crds"
    )]
    NoKind { origin: Origin, kind: String, api_version: String },
    #[error("{origin}: CustomResourceDefinition {name} is not established: {problem}")]
    NotEstablished { origin: Origin, name: String, problem: String },
}

/// Applies all objects, as `kubectl apply --server-side --force-conflicts` does: what exists already is updated.
pub(crate) async fn install(manifests: &[Manifest], client: &Client) -> Result<(), InstallError> {
    let (definitions, objects): (Vec<_>, Vec<_>) = manifests.iter().partition(|it| it.is_definition());
    let kinds = Kinds::discover(client).await?;
    for definition in &definitions {
        apply(definition, &kinds, client).await?;
    }
    for definition in &definitions {
        wait_until_established(definition, &kinds, client).await?;
    }
    let kinds = if definitions.is_empty() { kinds } else { Kinds::discover(client).await? };
    let (namespaces, others): (Vec<_>, Vec<_>) = objects.into_iter().partition(|it| it.kind == "Namespace");
    for object in namespaces.into_iter().chain(others) {
        apply(object, &kinds, client).await?;
    }
    Ok(())
}

async fn apply(manifest: &Manifest, kinds: &Kinds, client: &Client) -> Result<DynamicObject, InstallError> {
    let served = served(manifest, kinds)?;
    let key = key(manifest, served);
    let mut value = manifest.value.clone();
    if let Some(namespace) = key.namespace() {
        value["metadata"]["namespace"] = namespace.into();
    }
    let requests = client.requests().clone().manager("watchkeeper");
    let applied = requests.api_of::<DynamicObject>(served.api.clone()).force_apply(&key, &value).await;
    applied.map_err(|source| refused(manifest, source))
}

fn served<'a>(manifest: &Manifest, kinds: &'a Kinds) -> Result<&'a Served, InstallError> {
    let Manifest { origin, api_version, kind, .. } = manifest;
    kinds.of(api_version, kind).ok_or_else(|| InstallError::NoKind {
        origin: origin.clone(),
        kind: kind.clone(),
        api_version: api_version.clone(),
    })
}

fn key(manifest: &Manifest, served: &Served) -> ObjectName {
    let namespace =
        manifest.value["metadata"]["namespace"].as_str().filter(|namespace| !namespace.is_empty());
    match served.is_namespaced {
        true => ObjectName::namespaced(namespace.unwrap_or("default"), &manifest.name),
        false => ObjectName::cluster(&manifest.name),
    }
}

fn refused(manifest: &Manifest, source: ApiError) -> InstallError {
    let Manifest { origin, kind, name, .. } = manifest;
    InstallError::Refused { object: format!("{origin}: {kind} {name}"), source: Box::new(source) }
}

/// The embedded server establishes a definition at once, unless its names are taken.
async fn wait_until_established(
    definition: &Manifest,
    kinds: &Kinds,
    client: &Client,
) -> Result<(), InstallError> {
    let clock = &client.env().clock;
    let (deadline, served) = (clock.now() + DEADLINE, served(definition, kinds)?);
    loop {
        let definitions = client.api_of::<DynamicObject>(served.api.clone());
        let found = definitions.get(&key(definition, served)).await;
        let found = found.map_err(|source| refused(definition, source))?;
        let condition = |kind: &str| {
            let conditions = found.data["status"]["conditions"].as_array();
            conditions.into_iter().flatten().find(|condition| condition["type"] == kind)
        };
        let is = |kind: &str, status: &str| condition(kind).filter(|condition| condition["status"] == status);
        if is("Established", "True").is_some() {
            return Ok(());
        }
        let taken = is("NamesAccepted", "False");
        if taken.is_some() || clock.now() >= deadline {
            let text = |condition: &Value| condition["message"].as_str().map(str::to_owned);
            let problem = taken.or_else(|| condition("Established")).and_then(text);
            return Err(InstallError::NotEstablished {
                origin: definition.origin.clone(),
                name: definition.name.clone(),
                problem: problem.unwrap_or_else(|| format!("not within {DEADLINE:?}")),
            });
        }
        clock.sleep(PAUSE).await;
    }
}
