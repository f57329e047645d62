//! Which objects of a kind does another own, as the server has it now? Caches may be behind, or not be filled yet.

use std::time::Duration;

use kube_client::Api;
use kube_client::core::params::ListParams;
use kube_client::core::{ApiResource, DynamicObject};
use watchkeeper::Clients;

use super::CollectError;
use super::kinds::Meta;

const PAGE: u32 = 500;
/// A list of more pages is taken for one that never ends: it would be five million objects.
const MOST_PAGES: usize = 10_000;
/// A page must come within this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// An error unless all of them are seen, in one namespace or in all.
pub(super) async fn owned(
    owner: &str,
    kind: &ApiResource,
    namespace: Option<&str>,
    clients: &Clients,
) -> Result<Vec<Meta>, CollectError> {
    let client = clients.watch().clone();
    let objects: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, kind),
        None => Api::all_with(client, kind),
    };
    let is_owned = |object: &Meta| {
        object.metadata.owner_references.iter().flatten().any(|reference| reference.uid == owner)
    };
    let unseen = |source| CollectError::Unseen { kind: kind.plural.clone(), source };
    let mut found = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    for _ in 0..MOST_PAGES {
        let page = clients.env().clock.timeout(PATIENCE, objects.list_metadata(&params)).await;
        let page = match page.map_err(|_| CollectError::Late(kind.plural.clone()))? {
            // The kind has gone just now, with all its objects.
            Err(kube_client::Error::Api(status)) if status.is_not_found() => return Ok(Vec::new()),
            page => page.map_err(unseen)?,
        };
        found.extend(page.items.into_iter().filter(is_owned));
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(found);
        }
    }
    Err(CollectError::Endless(kind.plural.clone()))
}
