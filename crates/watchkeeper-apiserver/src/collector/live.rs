//! Which objects of a kind does another own, as the server has it now? Caches may be behind, or not be filled yet.

use std::time::Duration;

use futures::StreamExt as _;
use kube_client::core::ApiResource;
use watchkeeper::source::{ApiSource, ListOptions, ListerWatcher as _, Scope};
use watchkeeper::wire::{ApiError, Class, ListSplitter};
use watchkeeper::{Clients, Object};

use super::kinds::Meta;

const PAGE: u32 = 500;
/// A page must come within this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// An error unless all of them are seen.
pub(super) async fn owned(
    owner: &str,
    kind: &ApiResource,
    scope: &Scope,
    clients: &Clients,
) -> Result<Vec<Object<Meta>>, ApiError> {
    let source = ApiSource::new::<Meta>(clients.watch().clone(), kind, scope);
    let mut found = Vec::new();
    let mut options = ListOptions { limit: PAGE, ..ListOptions::default() };
    loop {
        let page = page(&source, &options, owner, &mut found);
        let late = |_| ApiError::new(Class::Timeout, format!("no list within {PATIENCE:?}"));
        options.continue_token = clients.env().clock.timeout(PATIENCE, page).await.map_err(late)??;
        if options.continue_token.is_empty() {
            return Ok(found);
        }
    }
}

/// Adds what is found on one page; the token of the next.
async fn page(
    source: &ApiSource,
    options: &ListOptions,
    owner: &str,
    found: &mut Vec<Object<Meta>>,
) -> Result<String, ApiError> {
    let mut chunks = source.list(options).await?;
    let mut splitter = ListSplitter::default();
    let mut bad = None;
    while let Some(chunk) = chunks.next().await {
        splitter.feed(&chunk?, |item| {
            let object = item
                .map_err(ApiError::undecodable)
                .and_then(|bytes| Object::<Meta>::from_json(bytes).map_err(ApiError::undecodable));
            match object {
                Ok(object) if object.owner_references().iter().any(|reference| reference.uid == owner) => {
                    found.push(object);
                }
                Ok(_) => {}
                Err(error) => bad = Some(error),
            }
        })?;
    }
    let meta = splitter.finish()?;
    bad.map_or(Ok(meta.continue_token), Err)
}
