//! Lists the dependents of an object from the server, where a cache may be behind or not have synced.

use kube_client::core::ApiResource;
use watchkeeper::Client;
use watchkeeper::source::{Scope, Selection};

use super::CollectError;
use super::graph::Meta;

/// All dependents of one kind, in one namespace or in all. Fails unless every page could be read.
pub(super) async fn owned(
    owner: &str,
    kind: &ApiResource,
    namespace: Option<&str>,
    client: &Client,
) -> Result<Vec<Meta>, CollectError> {
    let scope = namespace.map_or(Scope::Cluster, |namespace| Scope::Namespace(namespace.to_owned()));
    let unseen = |source| CollectError::Unseen { kind: kind.plural.clone(), source };
    let objects = client.api_of::<Meta>(kind.clone());
    let mut found = match objects.list(&scope, &Selection::default()).await {
        // Also where the kind is not served: it may come back with its objects, and discovery finds out if it does not.
        Err(error) => return Err(unseen(error.into())),
        Ok(listing) => listing.complete().map_err(|error| unseen(error.into()))?,
    };
    found.retain(|object| {
        object.metadata.owner_references.iter().flatten().any(|reference| reference.uid == owner)
    });
    Ok(found)
}
