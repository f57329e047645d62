//! Attaches a watch to the manager's informers: caches its objects and calls a handler with their changes.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::caches::{CONTROLLER_INDEX, KindCaches, Part, Source};
use super::manager::{Manager, Verb};
use super::optional::OptionalKind;
use super::selection::Matcher;
use super::setup::{IndexError, SetupError};
use super::watch::Watch;
use crate::informer::{Handler, HandlerOptions, SharedInformer, SharedInformerFactory};
use crate::object::Kind;
use crate::queue::Deleted;
use crate::store::{Index, IndexConflict};

/// Caches the objects of `watch` with `indexes`, and calls clones of `handler` with their changes. Returns the caches of the kind.
pub(super) fn attach<W: Kind, H: Handler<W> + Clone + Sync>(
    manager: &mut Manager,
    controller: &str,
    watch: &Watch<W>,
    indexes: Vec<Index<W>>,
    handler: H,
) -> Result<Arc<KindCaches<W>>, SetupError> {
    let kind = || W::kind(&watch.kind).into_owned();
    let matcher = || {
        Matcher::new(&watch.selection).map_err(|source| SetupError::Selector {
            controller: controller.to_owned(),
            kind: kind(),
            source,
        })
    };
    let options = HandlerOptions::default().name(&format!("controller {controller}"));
    manager.needs::<W>(&watch.kind, &[Verb::List, Verb::Watch]);
    let mut caches = None;
    for scope in watch.scopes(manager.scopes()) {
        let factory = narrowed(manager.factory(), watch, scope.namespace());
        let informer = if watch.optional {
            let slot = Arc::new(ArcSwapOption::empty());
            let kind =
                follow(manager, controller, watch, factory, slot.clone(), &indexes, &handler, &options);
            manager.add_optional(kind);
            Source::Optional(slot)
        } else {
            let informer = factory.informer_of::<W>(watch.kind.clone());
            add_indexes(&informer, &indexes)
                .map_err(|source| SetupError::Index { controller: controller.to_owned(), source })?;
            informer.add_handler_with(handler.clone(), options.clone())?;
            Source::Always(informer)
        };
        let part = Part { scope, matcher: matcher()?, metadata_only: watch.metadata_only, informer };
        caches = Some(manager.caches().add(&watch.kind, part));
    }
    caches.ok_or_else(|| SetupError::NoNamespace { controller: controller.to_owned(), kind: kind() })
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

#[expect(clippy::too_many_arguments, reason = "everything that a kind needs when it appears")]
fn follow<W: Kind, H: Handler<W> + Clone + Sync>(
    manager: &Manager,
    controller: &str,
    watch: &Watch<W>,
    factory: SharedInformerFactory,
    slot: Arc<ArcSwapOption<SharedInformer<W>>>,
    indexes: &[Index<W>],
    handler: &H,
    options: &HandlerOptions,
) -> OptionalKind<W> {
    let env = manager.env().fork(&format!("optional {} of {controller}", W::kind(&watch.kind)));
    let (indexes, handler, options) = (indexes.to_vec(), handler.clone(), options.clone());
    let last = handler.clone();
    let reporter = env.reporter.clone();
    OptionalKind {
        kind: watch.kind.clone(),
        factory,
        requests: manager.client().requests().clone(),
        env,
        slot,
        prepare: Box::new(move |informer| {
            if let Err(error) = add_indexes(informer, &indexes) {
                reporter.error("controller", informer.name(), &error);
            }
            // An informer that has not been started takes handlers.
            let _added = informer.add_handler_with(handler.clone(), options.clone());
        }),
        gone: Box::new(move |object| last.clone().delete(&Deleted::Final(object.clone()))),
    }
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
