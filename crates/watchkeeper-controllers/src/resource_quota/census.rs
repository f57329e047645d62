//! The objects that quotas count: those that are cached, and those that the server has.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, Pod, ReplicationController, ResourceQuota, Secret, Service,
};
use kube_core::{ApiResource, DynamicObject};
use serde_json::Value;
use watchkeeper::controller::{Error, Manager};
use watchkeeper::source::{Scope, Selection};
use watchkeeper::store::NAMESPACE_INDEX;
use watchkeeper::{Client, Kind};
use watchkeeper_quota::{Resource, covers};

use crate::namespace_controller::discover::discover;

/// The objects of a namespace, by their resource: `group/plural`.
pub(super) type Objects = BTreeMap<(String, String), Vec<Value>>;

/// Reads the cached objects of a namespace.
type Cached = Box<dyn Fn(&str) -> Vec<Value> + Send + Sync>;

/// A kind whose objects are cached.
struct Source {
    api: ApiResource,
    cached: Cached,
}

/// The objects that quotas count.
pub(super) struct Census {
    client: Client,
    sources: Vec<Source>,
}

impl Census {
    /// That of the manager's caches. Some controller must watch each of the kinds.
    pub(super) fn of(manager: &Manager) -> Self {
        let sources = vec![
            source::<Pod>(manager),
            source::<Service>(manager),
            source::<PersistentVolumeClaim>(manager),
            source::<ConfigMap>(manager),
            source::<Secret>(manager),
            source::<ReplicationController>(manager),
            source::<ResourceQuota>(manager),
            source::<Deployment>(manager),
            source::<ReplicaSet>(manager),
            source::<StatefulSet>(manager),
            source::<DaemonSet>(manager),
            source::<Job>(manager),
            source::<CronJob>(manager),
        ];
        Self { client: manager.client().clone(), sources }
    }

    /// The cached objects that count for limits of these names.
    pub(super) fn cached<'a>(
        &self,
        namespace: &str,
        names: impl Iterator<Item = &'a String> + Clone,
    ) -> Objects {
        let counted = self
            .sources
            .iter()
            .filter(|source| names.clone().any(|name| covers(resource(&source.api), name)));
        counted.map(|source| (key(&source.api), (source.cached)(namespace))).collect()
    }

    /// The names of limits for kinds that are not cached.
    pub(super) fn is_apart(&self, name: &str) -> bool {
        let is_known = |source: &Source| covers(resource(&source.api), name);
        name.starts_with("count/") && !self.sources.iter().any(is_known)
    }

    /// The objects on the server that count for limits of these names.
    pub(super) async fn live<'a>(
        &self,
        namespace: &str,
        names: impl Iterator<Item = &'a String> + Clone,
    ) -> Result<Objects, Error> {
        let is_counted = |api: &ApiResource| names.clone().any(|name| covers(resource(api), name));
        let mut apis: Vec<_> = self.sources.iter().map(|source| source.api.clone()).collect();
        if names.clone().any(|name| self.is_apart(name)) {
            let found = discover(self.client.kube(), &self.client.env().clock)
                .await
                .map_err(|error| Error::boxed(error.into()))?;
            let others = found.resources.into_iter().map(|found| found.api);
            let is_new = |api: &ApiResource| !self.sources.iter().any(|source| key(&source.api) == key(api));
            apis.extend(others.filter(is_new));
        }
        let mut objects = Objects::new();
        for api in apis.into_iter().filter(is_counted) {
            let (scope, everything) = (Scope::Namespace(namespace.to_owned()), Selection::default());
            let kind = self.client.api_of::<DynamicObject>(api.clone());
            let found = kind.list(&scope, &everything).await?.complete()?;
            let values = found.into_iter().map(|object| serde_json::to_value(object).unwrap_or_default());
            objects.insert(key(&api), values.collect());
        }
        Ok(objects)
    }
}

fn source<W: Kind<DynamicType: Default> + kube_core::Resource<DynamicType = ()>>(
    manager: &Manager,
) -> Source {
    let informer = manager.factory().informer::<W>();
    let cached = move |namespace: &str| {
        let snapshot = informer.indexer().snapshot();
        let Ok(found) = snapshot.by_index(NAMESPACE_INDEX, namespace) else { return Vec::new() };
        found.map(|object| serde_json::from_slice(object.json()).unwrap_or_default()).collect()
    };
    Source { api: ApiResource::erase::<W>(&()), cached: Box::new(cached) }
}

fn resource(api: &ApiResource) -> Resource<'_> {
    Resource { group: &api.group, plural: &api.plural }
}

fn key(api: &ApiResource) -> (String, String) {
    (api.group.clone(), api.plural.clone())
}
