//! Reads a list of metadata, page by page.

use futures::StreamExt;

use super::run::{PATIENCE, silent};
use crate::clock::Clock;
use crate::object::{Object, ResourceVersion};
use crate::source::{ListOptions, ListerWatcher};
use crate::wire::{ApiError, ListMeta, ListSplitter, Pages};

/// Passes the metadata of all objects on, page by page, and returns the version of the first page. Items without a name, and
/// those larger than `cap`, are left out: nothing caches them.
///
/// # Errors
///
/// A page cannot be read, the server is silent for too long, or the pages never end.
pub(crate) async fn list_metadata<S: ListerWatcher>(
    source: &S,
    clock: &Clock,
    cap: usize,
    mut options: ListOptions,
    mut each: impl FnMut(Object<()>),
) -> Result<ResourceVersion, ApiError> {
    let (mut version, mut pages) = (None, Pages::default());
    loop {
        let mut first = None;
        let meta = page(source, clock, cap, &options, |object| {
            first.get_or_insert_with(|| object.key());
            each(object);
        });
        let meta = meta.await?;
        let version = version.get_or_insert(meta.version).clone();
        if meta.continue_token.is_empty() {
            return Ok(version);
        }
        pages.turn(&meta.continue_token, first)?;
        // The token carries the version.
        options.version = ResourceVersion::UNSET;
        options.continue_token = meta.continue_token;
    }
}

async fn page<S: ListerWatcher>(
    source: &S,
    clock: &Clock,
    cap: usize,
    options: &ListOptions,
    mut each: impl FnMut(Object<()>),
) -> Result<ListMeta, ApiError> {
    let mut stream = clock.timeout(PATIENCE, source.list(options)).await.map_err(|_| silent())??;
    let mut splitter = ListSplitter::with_cap(cap);
    while let Some(chunk) = clock.timeout(PATIENCE, stream.next()).await.map_err(|_| silent())? {
        splitter.feed(&chunk?, |item| {
            if let Some(object) = item.ok().and_then(|bytes| Object::<()>::from_json(bytes).ok()) {
                each(object);
            }
        })?;
        crate::fair::give_way().await;
    }
    Ok(splitter.finish()?)
}
