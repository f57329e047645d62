//! Discovery: the kinds that a server has, and finding one by the names that kubectl accepts.

use std::time::Duration;

use kube_client::core::ApiResource;
use kube_client::core::discovery::v2::{APIGroupDiscovery, APIResourceDiscovery};
use watchkeeper::Client;
use watchkeeper::wire::ApiError;

/// How long the server may take to answer.
const DEADLINE: Duration = Duration::from_secs(30);

/// A kind that the server has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Served {
    pub(crate) api: ApiResource,
    pub(crate) is_namespaced: bool,
    /// Whether its objects can be listed and watched.
    is_watchable: bool,
    /// Whether no preferred version of its group has it.
    is_preferred: bool,
    singular: String,
    short_names: Vec<String>,
}

/// Why nothing is known of the kinds.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiscoveryError {
    #[error("cannot discover the kinds of the server")]
    Request(#[from] ApiError),
    #[error("cannot discover the kinds of the server: no answer within {DEADLINE:?}")]
    Timeout,
    // A list of group names, which older servers send instead, reads as an empty one.
    #[error(
        "cannot discover the kinds of the server: it has no aggregated discovery (Kubernetes 1.27 or newer)"
    )]
    NotAggregated,
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Found {
    Kind(Box<Served>),
    Nothing,
    /// The full names to choose from.
    Several(Vec<String>),
}

/// All kinds of a server at one moment, in the order of the server's preference.
#[derive(Debug, Default)]
pub(crate) struct Kinds(Vec<Served>);

impl Kinds {
    pub(crate) async fn discover(client: &Client) -> Result<Self, DiscoveryError> {
        let both = async {
            let (core, groups) = (
                client.kube().list_core_api_versions_aggregated(),
                client.kube().list_api_groups_aggregated(),
            );
            Ok::<_, ApiError>((core.await?, groups.await?))
        };
        let answered = client.env().clock.timeout(DEADLINE, both).await;
        let (core, groups) = answered.map_err(|_| DiscoveryError::Timeout)??;
        if core.items.is_empty() || groups.items.is_empty() {
            return Err(DiscoveryError::NotAggregated);
        }
        let mut kinds = Self::default();
        core.items.iter().chain(&groups.items).for_each(|group| kinds.add(group));
        Ok(kinds)
    }

    fn add(&mut self, group: &APIGroupDiscovery) {
        let name = group.metadata.as_ref().and_then(|metadata| metadata.name.as_deref()).unwrap_or_default();
        for version in group.versions.iter().filter(|version| version.freshness.as_deref() != Some("Stale")) {
            let number = version.version.as_deref().unwrap_or_default();
            for resource in &version.resources {
                let served = Served::of(name, number, resource);
                let is_known = |it: &Served| it.api.group == name && it.api.plural == served.api.plural;
                let is_preferred = !self.0.iter().any(is_known);
                self.0.push(Served { is_preferred, ..served });
            }
        }
    }

    /// The kind of an object.
    pub(crate) fn of(&self, api_version: &str, kind: &str) -> Option<&Served> {
        self.0.iter().find(|it| it.api.api_version == api_version && it.api.kind == kind)
    }

    /// Finds a kind as kubectl does: by plural, singular, short name or Kind, also with `.group` or `.version.group`.
    ///
    /// A name in several groups means the core group's kind, if that has it; otherwise it means none of them.
    pub(crate) fn find(&self, name: &str) -> Found {
        let wanted = name.to_lowercase();
        let fits = |served: &&Served| served.is_watchable && served.is_called(&wanted);
        let found: Vec<_> = self.0.iter().filter(fits).collect();
        match &found[..] {
            [] => Found::Nothing,
            [one] => Found::Kind(Box::new((*one).clone())),
            [first, ..] if first.api.group.is_empty() => Found::Kind(Box::new((*first).clone())),
            several => Found::Several(several.iter().map(|served| served.full_name()).collect()),
        }
    }
}

impl Served {
    fn of(group: &str, version: &str, resource: &APIResourceDiscovery) -> Self {
        let kind = resource.response_kind.as_ref().and_then(|kind| kind.kind.clone()).unwrap_or_default();
        let can = |verb: &str| resource.verbs.iter().any(|own| own == verb);
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        Self {
            api: ApiResource {
                group: group.to_owned(),
                version: version.to_owned(),
                api_version,
                kind,
                plural: resource.resource.clone().unwrap_or_default(),
            },
            is_namespaced: resource.scope.as_deref() == Some("Namespaced"),
            is_watchable: can("list") && can("watch"),
            is_preferred: true,
            singular: resource.singular_resource.clone().unwrap_or_default(),
            short_names: resource.short_names.clone(),
        }
    }

    /// The plural with the group, such as `deployments.apps`.
    pub(crate) fn full_name(&self) -> String {
        match self.api.group.as_str() {
            "" => self.api.plural.clone(),
            group => format!("{}.{group}", self.api.plural),
        }
    }

    /// Whether a name in lower case means this kind.
    fn is_called(&self, name: &str) -> bool {
        let (first, rest) = name.split_once('.').unwrap_or((name, ""));
        let ApiResource { group, version, kind, plural, .. } = &self.api;
        let mut names = [plural, &self.singular].into_iter().chain(&self.short_names);
        let is_name = first == kind.to_lowercase() || names.any(|own| first == own);
        let in_group = (rest.is_empty() || rest == group) && self.is_preferred;
        is_name && (in_group || rest == format!("{version}.{group}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kinds() -> Kinds {
        let resource = |plural: &str, kind: &str, short: &[&str], verbs: &[&str]| {
            json!({
                "resource": plural, "responseKind": {"kind": kind}, "scope": "Namespaced",
                "singularResource": kind.to_lowercase(), "shortNames": short, "verbs": verbs,
            })
        };
        let all = &["list", "watch"][..];
        let site = resource("websites", "Website", &["ws"], all);
        let events = resource("events", "Event", &[], all);
        let review = resource("reviews", "Review", &[], &["create"]);
        let groups = json!([
            {"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [events]}]},
            {"metadata": {"name": "events.k8s.io"}, "versions": [{"version": "v1", "resources": [events]}]},
            {"metadata": {"name": "example.dev"}, "versions": [
                {"version": "v1", "resources": [site, review]},
                {"version": "v1beta1", "resources": [site]},
                {"version": "v1alpha1", "freshness": "Stale", "resources": [site]},
            ]},
            {"metadata": {"name": "other.dev"}, "versions": [{"version": "v2", "resources": [resource("websites", "Website", &[], all)]}]},
        ]);
        let groups: Vec<APIGroupDiscovery> = serde_json::from_value(groups).unwrap();
        let mut kinds = Kinds::default();
        groups.iter().for_each(|group| kinds.add(group));
        kinds
    }

    #[test]
    fn a_kind_is_found_by_every_name_that_kubectl_accepts() {
        let kinds = kinds();
        let found = |name: &str| match kinds.find(name) {
            Found::Kind(served) => format!("{} {}", served.full_name(), served.api.version),
            Found::Nothing => "nothing".to_owned(),
            Found::Several(names) => names.join(" or "),
        };
        for name in ["websites.example.dev", "Website.example.dev", "ws", "website.example.dev"] {
            assert_eq!(found(name), "websites.example.dev v1", "{name}");
        }
        assert_eq!(found("websites.v1beta1.example.dev"), "websites.example.dev v1beta1");
        assert_eq!(found("websites"), "websites.example.dev or websites.other.dev");
        assert_eq!(found("events"), "events v1", "the core group comes first");
        assert_eq!(found("events.events.k8s.io"), "events.events.k8s.io v1");
        assert_eq!(
            [found("reviews"), found("sites"), found("websites.v1alpha1.example.dev")],
            ["nothing"; 3]
        );
    }

    #[test]
    fn the_kind_of_an_object_has_its_very_version() {
        let kinds = kinds();
        assert_eq!(kinds.of("example.dev/v1beta1", "Website").unwrap().api.version, "v1beta1");
        assert!(kinds.of("example.dev/v1", "websites").is_none());
    }
}
