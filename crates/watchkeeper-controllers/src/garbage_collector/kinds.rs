//! The kinds whose objects can own or be owned: those that can be listed, watched and deleted.

use std::collections::BTreeSet;

use kube_client::core::ApiResource;
use kube_client::discovery::{Discovery, Scope, verbs};
use watchkeeper::Client;

/// The kinds that a server has, as far as the garbage collector is concerned with them. Clones share them.
#[derive(Clone, Debug)]
pub struct Kinds(std::sync::Arc<[OwnedKind]>);

/// A kind in its group's preferred version.
#[derive(Clone, Debug)]
pub(super) struct OwnedKind {
    pub(super) resource: ApiResource,
    pub(super) is_namespaced: bool,
}

impl OwnedKind {
    /// The group and the kind.
    pub(super) fn name(&self) -> (String, String) {
        (self.resource.group.clone(), self.resource.kind.clone())
    }
}

/// `pods`, or `deployments.apps`: also the name of a custom kind's definition.
pub(super) fn resource_name(resource: &ApiResource) -> String {
    match resource.group.as_str() {
        "" => resource.plural.clone(),
        group => format!("{}.{group}", resource.plural),
    }
}

impl Kinds {
    /// Asks the server for the kinds that it has now.
    ///
    /// # Errors
    ///
    /// Those of the requests.
    pub async fn discover(client: &Client) -> Result<Self, kube_client::Error> {
        let discovery = Discovery::new(client.kube().clone()).run_aggregated().await?;
        let mut found = Vec::new();
        for group in discovery.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                let can = |verb| capabilities.supports_operation(verb);
                // Events have no owners, and there are many of them.
                if resource.kind != "Event" && [verbs::LIST, verbs::WATCH, verbs::DELETE].into_iter().all(can)
                {
                    let is_namespaced = capabilities.scope == Scope::Namespaced;
                    found.push(OwnedKind { resource, is_namespaced });
                }
            }
        }
        Ok(Self(found.into()))
    }

    /// Those among `only`; all if there is no such restriction.
    pub(super) fn wanted<'a>(
        &'a self,
        only: Option<&'a BTreeSet<String>>,
    ) -> impl Iterator<Item = &'a OwnedKind> {
        let is_wanted =
            move |kind: &&OwnedKind| only.is_none_or(|only| only.contains(&resource_name(&kind.resource)));
        self.0.iter().filter(is_wanted)
    }
}
