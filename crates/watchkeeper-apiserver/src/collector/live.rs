//! Objects that another owns, as the server has them now: caches may be behind, or not be filled yet.

use kube_client::core::ApiResource;
use watchkeeper::Clients;
use watchkeeper::source::{Scope, Selection};

use super::CollectError;
use super::kinds::Meta;

/// An error unless all of them are seen, in one namespace or in all.
pub(super) async fn owned(
    owner: &str,
    kind: &ApiResource,
    namespace: Option<&str>,
    clients: &Clients,
) -> Result<Vec<Meta>, CollectError> {
    let scope = namespace.map_or(Scope::Cluster, |namespace| Scope::Namespace(namespace.to_owned()));
    let unseen = |source| CollectError::Unseen { kind: kind.plural.clone(), source };
    let objects = clients.requests().of_kind::<Meta>(kind.clone());
    let mut found = match objects.list(&scope, &Selection::default()).await {
        // The kind has gone just now, with all its objects.
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        Err(error) => return Err(unseen(error.into())),
        Ok(listing) => listing.complete().map_err(|error| unseen(error.into()))?,
    };
    found.retain(|object| {
        object.metadata.owner_references.iter().flatten().any(|reference| reference.uid == owner)
    });
    Ok(found)
}
