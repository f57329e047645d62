//! Attaches a watch to the manager's informers: caches its objects and calls a handler with their changes.

use std::sync::Arc;

use super::caches::{CONTROLLER_INDEX, KindCaches, Part};
use super::manager::{Manager, Verb};
use super::selection::Matcher;
use super::setup::{IndexError, SetupError};
use super::watch::Watch;
use crate::explain::{Mapping, Watched};
use crate::informer::{Handler, HandlerOptions, SharedInformer, SharedInformerFactory};
use crate::object::Kind;
use crate::source::Scope;
use crate::store::{Index, IndexConflict};

/// The caches of a watch.
pub(super) struct Attached<W: Kind> {
    /// All caches of the kind, those of other watches, too.
    pub(super) caches: Arc<KindCaches<W>>,
    /// The informers of this watch.
    pub(super) parts: Vec<(Scope, SharedInformer<W>)>,
}

impl<W: Kind> Attached<W> {
    /// Returns the informers of the watch, to be explained.
    pub(super) fn watched(
        &self,
        watch: &Watch<W>,
        mapping: impl Fn() -> Option<Mapping<W>>,
    ) -> Vec<Watched<W>> {
        let parts = self.parts.iter().map(|(scope, informer)| Watched {
            informer: informer.clone(),
            scope: scope.clone(),
            selection: watch.selection.clone(),
            metadata_only: watch.metadata_only,
            mapping: mapping(),
        });
        parts.collect()
    }
}

/// Caches the objects of `watch` with `indexes`, and calls clones of `handler` with their changes. Returns the caches of the kind.
pub(super) fn attach<W: Kind, H: Handler<W> + Clone + Sync>(
    manager: &mut Manager,
    controller: &str,
    watch: &Watch<W>,
    indexes: Vec<Index<W>>,
    handler: H,
) -> Result<Attached<W>, SetupError> {
    let kind = || W::kind(&watch.kind).into_owned();
    let matcher = || {
        Matcher::new(&watch.selection).map_err(|source| SetupError::Selector {
            controller: controller.to_owned(),
            kind: kind(),
            source,
        })
    };
    let options = HandlerOptions::default().name(&format!("controller {controller}"));
    manager.needs(watch, &[Verb::List, Verb::Watch]);
    let (mut caches, mut parts) = (None, Vec::new());
    for scope in watch.scopes(manager.scopes()) {
        let factory = narrowed(manager.factory(), watch, scope.namespace());
        let informer = factory.informer_with::<W>(watch.kind.clone(), |builder| {
            if watch.optional { builder.optional().build() } else { builder.build() }
        });
        if !watch.optional {
            informer.require();
        }
        add_indexes(&informer, &indexes)
            .map_err(|source| SetupError::Index { controller: controller.to_owned(), source })?;
        informer.add_handler_with(handler.clone(), options.clone())?;
        manager.depends(controller, &informer);
        parts.push((scope.clone(), informer.clone()));
        let part = Part { scope, matcher: matcher()?, metadata_only: watch.metadata_only, informer };
        caches = Some(manager.caches().add(&watch.kind, part));
    }
    let caches =
        caches.ok_or_else(|| SetupError::NoNamespace { controller: controller.to_owned(), kind: kind() })?;
    Ok(Attached { caches, parts })
}

/// The factory for the informers of a watch in one namespace, or in all.
fn narrowed<W: Kind>(
    factory: &SharedInformerFactory,
    watch: &Watch<W>,
    namespace: Option<&str>,
) -> SharedInformerFactory {
    let factory = match namespace {
        Some(namespace) => factory.in_namespace(namespace),
        None => factory.cluster_wide(),
    };
    let factory = factory.selecting(watch.selection.clone());
    if watch.metadata_only { factory.metadata_only() } else { factory }
}

/// Adds the indexes that are not there. That of owners is the same for all controllers.
fn add_indexes<W: Kind>(informer: &SharedInformer<W>, indexes: &[Index<W>]) -> Result<(), IndexError> {
    for index in indexes {
        match informer.indexer().add_indexes([index.clone()]) {
            Err(IndexConflict(name)) if name == CONTROLLER_INDEX => {}
            outcome => outcome?,
        }
    }
    Ok(())
}
