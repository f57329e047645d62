//! Finds the resources whose objects a namespace can contain.

use std::collections::BTreeSet;
use std::time::Duration;

use kube_client::core::ApiResource;
use kube_client::core::discovery::v2::{APIGroupDiscovery, APIResourceDiscovery};
use kube_client::{Client, Error};
use watchkeeper::clock::Clock;

/// The time that the server has to answer.
const DEADLINE: Duration = Duration::from_secs(30);

/// A namespaced resource whose objects can be deleted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resource {
    pub(crate) api: ApiResource,
    pub(crate) can_delete_collection: bool,
}

/// The resources that the server has now.
#[derive(Debug, Default)]
pub(crate) struct Discovered {
    pub(crate) resources: Vec<Resource>,
    /// The group versions whose resources the server does not know for now.
    stale: Vec<String>,
}

/// The reason why the resources are unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiscoverError {
    #[error("cannot discover the resources of the server: {0}")]
    Request(#[from] Error),
    #[error("cannot discover the resources of the server: no answer within {DEADLINE:?}")]
    Timeout,
    // A list of group names, which older servers send instead, reads as an empty one.
    #[error("cannot discover the resources of the server: it does not serve aggregated discovery at {0}")]
    NotAggregated(&'static str),
}

/// Discovers the resources. Kinds come and go, so the result is not kept.
pub(crate) async fn discover(client: &Client, clock: &Clock) -> Result<Discovered, DiscoverError> {
    let both = async {
        Ok::<_, Error>((
            client.list_core_api_versions_aggregated().await?,
            client.list_api_groups_aggregated().await?,
        ))
    };
    let (core, groups) = clock.timeout(DEADLINE, both).await.map_err(|_| DiscoverError::Timeout)??;
    for (path, list) in [("/api", &core), ("/apis", &groups)] {
        if list.items.is_empty() {
            return Err(DiscoverError::NotAggregated(path));
        }
    }
    let mut discovered = Discovered::default();
    core.items.iter().chain(&groups.items).for_each(|group| discovered.add(group));
    Ok(discovered)
}

impl Discovered {
    /// Returns the text of the condition, if some group versions are unknown.
    pub(crate) fn problem(&self) -> Option<String> {
        let texts =
            self.stale.iter().map(|version| format!("{version}: stale GroupVersion discovery: {version}"));
        let texts: Vec<_> = texts.collect();
        (!texts.is_empty()).then(|| {
            let (count, texts) = (texts.len(), texts.join(", "));
            format!(
                "Discovery failed for some groups, {count} failing: unable to retrieve the complete list of server APIs: {texts}"
            )
        })
    }

    /// Adds each resource of a group in the most preferred version that has it.
    fn add(&mut self, group: &APIGroupDiscovery) {
        let name = group.metadata.as_ref().and_then(|metadata| metadata.name.as_deref()).unwrap_or_default();
        let mut seen = BTreeSet::new();
        for version in &group.versions {
            let number = version.version.as_deref().unwrap_or_default();
            let group_version = if name.is_empty() { number.to_owned() } else { format!("{name}/{number}") };
            if version.freshness.as_deref() == Some("Stale") {
                self.stale.push(group_version);
                continue;
            }
            for resource in &version.resources {
                let plural = resource.resource.as_deref().unwrap_or_default();
                if is_content(resource) && seen.insert(plural) {
                    let kind = resource.response_kind.as_ref().and_then(|kind| kind.kind.clone());
                    let api = ApiResource {
                        group: name.to_owned(),
                        version: number.to_owned(),
                        api_version: group_version.clone(),
                        kind: kind.unwrap_or_default(),
                        plural: plural.to_owned(),
                    };
                    let can_delete_collection = can(resource, "deletecollection");
                    self.resources.push(Resource { api, can_delete_collection });
                }
            }
        }
    }
}

/// Returns whether a namespace contains the resource's objects. A resource that cannot be listed is not stored.
fn is_content(resource: &APIResourceDiscovery) -> bool {
    resource.scope.as_deref() == Some("Namespaced") && can(resource, "delete") && can(resource, "list")
}

fn can(resource: &APIResourceDiscovery, verb: &str) -> bool {
    resource.verbs.iter().any(|own| own == verb)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_resource_is_found_in_its_preferred_version_and_a_stale_version_is_named() {
        let resource = |plural: &str, scope: &str, verbs: &[&str]| json!({"resource": plural, "scope": scope, "verbs": verbs});
        let all = &["delete", "deletecollection", "list"];
        let group = json!({"metadata": {"name": "a.io"}, "versions": [
            {"version": "v3", "freshness": "Stale", "resources": [resource("hidden", "Namespaced", all)]},
            {"version": "v2", "freshness": "Current", "resources": [
                resource("foos", "Namespaced", all), resource("nodes", "Cluster", all),
                resource("reviews", "Namespaced", &["create"])]},
            {"version": "v1", "resources": [
                resource("foos", "Namespaced", all), resource("bars", "Namespaced", &["delete", "list"])]},
        ]});
        let mut discovered = Discovered::default();
        discovered.add(&serde_json::from_value(group).unwrap());
        let found = discovered.resources.iter().map(|resource| {
            (&*resource.api.api_version, &*resource.api.plural, resource.can_delete_collection)
        });
        assert_eq!(found.collect::<Vec<_>>(), [("a.io/v2", "foos", true), ("a.io/v1", "bars", false)]);
        assert_eq!(
            discovered.problem().unwrap(),
            "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: \
             a.io/v3: stale GroupVersion discovery: a.io/v3"
        );
    }
}
