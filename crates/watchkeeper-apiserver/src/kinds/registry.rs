//! The kinds that are served: the built-in table, and those of CustomResourceDefinitions.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::kinds::builtin::{BUILTINS, REVIEWS, Review};
use crate::kinds::kind::{Kind, NameSet, ResourceId, Waiting};

/// A group and its versions, preferred first, for discovery.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) versions: Vec<Version>,
}

/// The kinds and reviews of one version of a group.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) kinds: Vec<Arc<Kind>>,
    pub(crate) reviews: Vec<Review>,
}

type ByPlural = BTreeMap<String, Arc<Kind>>;

/// Definitions by a name of their group; the built-in kinds count as the definition "".
type ByName = BTreeMap<(String, NameSet, String), BTreeSet<String>>;

/// The encoded list of all groups, and its ETag.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) text: Bytes,
    pub(crate) etag: String,
}

/// All kinds, including versions of definitions that are not served.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    builtins: Vec<Arc<Kind>>,
    /// By name of the definition.
    customs: BTreeMap<String, Vec<Arc<Kind>>>,
    index: BTreeMap<String, BTreeMap<String, ByPlural>>,
    /// The definitions that hold a name.
    holders: ByName,
    /// The definitions that request a name without holding it.
    waiters: ByName,
    /// The aggregated discovery documents of the other groups and of the core group, made on first use.
    documents: [OnceLock<Document>; 2],
    /// The OpenAPI document of all kinds, in JSON and in protobuf, made on first use.
    swagger: [OnceLock<Document>; 2],
}

impl Registry {
    pub(crate) fn new() -> Self {
        let builtins: Vec<_> = BUILTINS.iter().map(|row| Arc::new(Kind::builtin(row))).collect();
        let mut holders = ByName::new();
        for kind in &builtins {
            for (set, name) in kind.names() {
                holders.entry((kind.group.clone(), set, name.clone())).or_default().insert(String::new());
            }
        }
        let mut registry = Self {
            builtins,
            customs: BTreeMap::new(),
            index: BTreeMap::new(),
            holders,
            waiters: ByName::new(),
            documents: Default::default(),
            swagger: Default::default(),
        };
        registry.reindex();
        registry
    }

    /// Returns a copy to change. It serves nothing before [`Registry::reindex`].
    pub(crate) fn draft(&self) -> Self {
        Self {
            builtins: self.builtins.clone(),
            customs: self.customs.clone(),
            index: BTreeMap::new(),
            holders: self.holders.clone(),
            waiters: self.waiters.clone(),
            documents: Default::default(),
            swagger: Default::default(),
        }
    }

    /// Serves the present kinds. Called after [`Registry::define`], once for several definitions.
    pub(crate) fn reindex(&mut self) {
        self.index.clear();
        self.documents = Default::default();
        self.swagger = Default::default();
        let kinds = self.builtins.iter().chain(self.customs.values().flatten());
        for kind in kinds.filter(|kind| kind.is_served()) {
            let versions = self.index.entry(kind.group.clone()).or_default();
            versions
                .entry(kind.version.clone())
                .or_default()
                .entry(kind.plural.clone())
                .or_insert_with(|| kind.clone());
        }
        for review in REVIEWS {
            let versions = self.index.entry(review.group.to_owned()).or_default();
            versions.entry(review.version.to_owned()).or_default();
        }
    }

    /// Returns the aggregated discovery document, of the `core` group or of the others; the first caller makes it.
    pub(crate) fn document(&self, core: bool, make: impl FnOnce() -> Document) -> &Document {
        self.documents[usize::from(core)].get_or_init(make)
    }

    /// Returns the OpenAPI document of all kinds; the first caller makes it.
    pub(crate) fn swagger(&self, is_protobuf: bool, make: impl FnOnce() -> Document) -> &Document {
        self.swagger[usize::from(is_protobuf)].get_or_init(make)
    }

    pub(crate) fn serves(&self, group: &str, version: &str) -> bool {
        self.index.get(group).is_some_and(|versions| versions.contains_key(version))
    }

    /// Returns whether the group has built-in kinds.
    pub(crate) fn is_builtin(&self, group: &str) -> bool {
        let kinds = self.index.get(group).into_iter().flat_map(|versions| versions.values());
        kinds.flat_map(|kinds| kinds.values()).any(|kind| kind.custom.is_none())
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.index.get(group)?.get(version)?.get(plural)
    }

    pub(crate) fn review(group: &str, version: &str, plural: &str) -> Option<&'static Review> {
        REVIEWS.iter().find(|r| r.group == group && r.version == version && r.plural == plural)
    }

    fn builtin(&self, group: &str, kind: &str) -> Option<Arc<Kind>> {
        self.builtins.iter().find(|row| row.is(group, kind)).cloned()
    }

    /// The kind Namespace.
    pub(crate) fn namespaces(&self) -> Option<Arc<Kind>> {
        self.builtin("", "Namespace")
    }

    /// The kind Node.
    pub(crate) fn nodes(&self) -> Option<Arc<Kind>> {
        self.builtin("", "Node")
    }

    /// The kind Service.
    pub(crate) fn services(&self) -> Option<Arc<Kind>> {
        self.builtin("", "Service")
    }

    /// The kind PodDisruptionBudget.
    pub(crate) fn disruption_budgets(&self) -> Option<Arc<Kind>> {
        self.builtin("policy", "PodDisruptionBudget")
    }

    /// The kind CustomResourceDefinition.
    pub(crate) fn custom_resource_definitions(&self) -> Option<Arc<Kind>> {
        self.builtin("apiextensions.k8s.io", "CustomResourceDefinition")
    }

    /// Returns a kind for each stored resource: the storage version if there is one.
    pub(crate) fn storages(&self) -> BTreeMap<ResourceId, Arc<Kind>> {
        let mut by_storage: BTreeMap<_, Arc<Kind>> = BTreeMap::new();
        for kind in self.builtins.iter().chain(self.customs.values().flatten()) {
            let stored =
                kind.custom.as_ref().is_some_and(|custom| custom.storage_version == kind.api_version);
            if stored || !by_storage.contains_key(&kind.storage) {
                by_storage.insert(kind.storage.clone(), kind.clone());
            }
        }
        by_storage
    }

    /// Returns whether a built-in kind or another definition of the group holds a name.
    pub(crate) fn is_taken(&self, group: &str, set: NameSet, name: &str, definition: &str) -> bool {
        let holders = self.holders.get(&(group.to_owned(), set, name.to_owned()));
        holders.is_some_and(|holders| holders.iter().any(|holder| holder != definition))
    }

    /// Replaces the kinds of a definition; an empty list removes them. They are served after [`Registry::reindex`].
    /// Returns its previous kinds, and the definitions, possibly itself, that wait for a name that has a new holder.
    pub(crate) fn define(
        &mut self,
        definition: &str,
        kinds: Vec<Kind>,
    ) -> (Vec<Arc<Kind>>, BTreeSet<String>) {
        let kinds: Vec<_> = kinds.into_iter().map(Arc::new).collect();
        let before = self.customs.remove(definition).unwrap_or_default();
        let key = |kind: &Kind, set: NameSet, name: &String| (kind.group.clone(), set, name.clone());
        // All versions of a definition have the same names.
        let names = |kinds: &[Arc<Kind>]| -> BTreeSet<_> {
            let first = kinds.first().into_iter();
            first.flat_map(|kind| kind.names().map(|(set, name)| key(kind, set, name))).collect()
        };
        let missing = |kinds: &[Arc<Kind>]| -> Vec<_> {
            let first = kinds.first().and_then(|kind| Some((kind, kind.custom.as_ref()?.waiting.as_ref()?)));
            let missing =
                first.into_iter().flat_map(|(kind, it)| it.missing.iter().map(move |it| (kind, it)));
            missing.map(|(kind, (set, name))| key(kind, *set, name)).collect()
        };
        let (had, has) = (names(&before), names(&kinds));
        had.difference(&has).for_each(|name| remove(&mut self.holders, name, definition));
        missing(&before).iter().for_each(|name| remove(&mut self.waiters, name, definition));
        let missing = missing(&kinds);
        let mut touched = BTreeSet::new();
        if !missing.is_empty() {
            touched.insert(definition.to_owned());
        }
        for name in had.symmetric_difference(&has) {
            touched.extend(self.waiters.get(name).into_iter().flatten().cloned());
        }
        for name in has {
            self.holders.entry(name).or_default().insert(definition.to_owned());
        }
        for name in missing {
            self.waiters.entry(name).or_default().insert(definition.to_owned());
        }
        if !kinds.is_empty() {
            self.customs.insert(definition.to_owned(), kinds);
        }
        (before, touched)
    }

    /// Returns a served kind by the name of the kind.
    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Kind>> {
        let mut all = self.builtins.iter().chain(self.customs.values().flatten());
        all.find(|known| known.is_served() && known.api_version == api_version && known.kind == kind).cloned()
    }

    /// Returns the other served versions and groups under which the objects of a kind can be written.
    pub(crate) fn equivalents(&self, kind: &Arc<Kind>) -> Vec<Arc<Kind>> {
        let all = self.builtins.iter().chain(self.customs.values().flatten());
        let others = all.filter(|other| other.storage == kind.storage && other.is_served());
        others.filter(|other| !Arc::ptr_eq(other, kind)).cloned().collect()
    }

    /// Returns the names of all definitions.
    pub(crate) fn definitions(&self) -> Vec<String> {
        self.customs.keys().cloned().collect()
    }

    /// Returns the kinds of a definition.
    pub(crate) fn defined(&self, definition: &str) -> Vec<Arc<Kind>> {
        self.customs.get(definition).cloned().unwrap_or_default()
    }

    /// Returns whether a kind is unchanged since it was found: its definition may have changed.
    pub(crate) fn is_current(&self, kind: &Arc<Kind>) -> bool {
        kind.custom.as_ref().is_none_or(|custom| {
            let kinds = self.customs.get(&custom.definition);
            kinds.is_some_and(|kinds| kinds.iter().any(|known| Arc::ptr_eq(known, kind)))
        })
    }

    /// Returns the resource under which the objects of a definition are stored.
    pub(crate) fn storage_of(&self, definition: &str) -> Option<&ResourceId> {
        self.customs.get(definition)?.first().map(|kind| &kind.storage)
    }

    /// Returns the group of a definition that lacks a name, and the names that it waits for.
    pub(crate) fn waiting(&self, definition: &str) -> Option<(&str, &Waiting)> {
        let kind = self.customs.get(definition)?.first()?;
        Some((&kind.group, kind.custom.as_ref()?.waiting.as_ref()?))
    }

    /// Returns the groups for discovery: the built-in ones in the table's order, then the others by name.
    pub(crate) fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        let mut add = |group: &str, version: &str, kind: Option<&Arc<Kind>>, review: Option<Review>| {
            let at = groups.iter().position(|g| g.name == group).unwrap_or_else(|| {
                groups.push(Group { name: group.to_owned(), versions: Vec::new() });
                groups.len() - 1
            });
            let versions = &mut groups[at].versions;
            let at = versions.iter().position(|v| v.name == version).unwrap_or_else(|| {
                versions.push(Version { name: version.to_owned(), kinds: Vec::new(), reviews: Vec::new() });
                versions.len() - 1
            });
            versions[at].kinds.extend(kind.cloned());
            versions[at].reviews.extend(review);
        };
        for kind in &self.builtins {
            add(&kind.group, &kind.version, Some(kind), None);
        }
        for review in REVIEWS {
            add(review.group, review.version, None, Some(*review));
        }
        let mut customs: Vec<_> = self.customs.values().flatten().filter(|kind| kind.is_served()).collect();
        customs.sort_by_key(|kind| (kind.group.clone(), kind.plural.clone()));
        for kind in customs {
            add(&kind.group, &kind.version, Some(kind), None);
        }
        for group in &mut groups {
            group.versions.sort_by(|a, b| compare_versions(&b.name, &a.name));
            for version in &mut group.versions {
                version.kinds.sort_by(|a, b| a.plural.cmp(&b.plural));
            }
        }
        groups
    }
}

fn remove(from: &mut ByName, name: &(String, NameSet, String), definition: &str) {
    if let Some(definitions) = from.get_mut(name) {
        definitions.remove(definition);
        if definitions.is_empty() {
            from.remove(name);
        }
    }
}

/// Orders API versions as clients prefer them: stable above beta above alpha, then by number; other names last, by text.
pub(crate) fn compare_versions(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let major = rest[..digits].parse().ok()?;
    let (level, minor) = match &rest[digits..] {
        "" => return Some((2, major, 0)),
        other if other.starts_with("beta") => (1, &other[4..]),
        other if other.starts_with("alpha") => (0, &other[5..]),
        _ => return None,
    };
    Some((level, major, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::kind::api_version;
    use crate::types;

    #[test]
    fn versions_order_by_stability_then_number() {
        let mut versions =
            ["foo10", "v1", "v11alpha2", "v10", "v3beta1", "v12alpha1", "v11beta2", "foo1", "v2"];
        versions.sort_by(|a, b| compare_versions(b, a));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v11beta2", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
        );
    }

    #[test]
    fn both_event_kinds_share_one_storage() {
        let registry = Registry::new();
        let old = registry.find("", "v1", "events").unwrap();
        let new = registry.find("events.k8s.io", "v1", "events").unwrap();
        assert_eq!(old.storage, new.storage);
    }

    #[test]
    fn every_built_in_kind_can_be_found_by_its_path() {
        let registry = Registry::new();
        for row in BUILTINS {
            assert!(registry.find(row.group, row.version, row.plural).is_some(), "{}", row.plural);
        }
    }

    #[test]
    fn every_kind_is_in_the_table() {
        for row in BUILTINS {
            assert!(types::of_kind(&api_version(row.group, row.version), row.kind).is_some(), "{}", row.kind);
        }
        for row in REVIEWS {
            assert!(types::of_kind(&api_version(row.group, row.version), row.kind).is_some(), "{}", row.kind);
        }
    }
}
