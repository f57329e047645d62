//! The permissions that a program needs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Permissions by resource, printed as the rules of a Role or ClusterRole.
///
/// ```
/// use watchkeeper::controller::Role;
///
/// let mut role = Role::default();
/// role.add("apps", "deployments", "patch");
/// role.add("apps", "deployments", "list");
/// assert_eq!(
///     role.to_string(),
///     r#"rules:
/// - apiGroups: ["apps"]
///   resources: ["deployments"]
///   verbs: ["list", "patch"]
/// "#
/// );
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Role(BTreeMap<Target, BTreeSet<String>>);

/// What verbs are granted on; without a name, on all objects.
type Target = (String, String, Option<String>);

/// One rule of a [`Role`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rule {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name of the kind, with a subresource such as `deployments/status`.
    pub resource: String,
    /// The only object that it is about; `None` for all.
    pub name: Option<String>,
    /// The verbs, sorted.
    pub verbs: Vec<String>,
}

/// A verb of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Patch,
}

impl Verb {
    fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Patch => "patch",
        }
    }
}

impl Role {
    /// Adds a permission.
    pub fn add(&mut self, group: &str, resource: &str, verb: &str) {
        self.insert(group, resource, None, verb);
    }

    /// Adds a permission on the object of that name alone. The server knows no name when it creates an object, and for `list` and
    /// `watch` only that of a field selector `metadata.name`.
    pub fn add_named(&mut self, group: &str, resource: &str, name: &str, verb: &str) {
        self.insert(group, resource, Some(name), verb);
    }

    pub(super) fn insert(&mut self, group: &str, resource: &str, name: Option<&str>, verb: &str) {
        let target = (group.to_owned(), resource.to_owned(), name.map(str::to_owned));
        self.0.entry(target).or_default().insert(verb.to_owned());
    }

    /// Whether it has a permission, on all objects.
    pub fn allows(&self, group: &str, resource: &str, verb: &str) -> bool {
        self.has(group, resource, None, verb)
    }

    /// Whether it has a permission on the object of that name.
    pub fn allows_named(&self, group: &str, resource: &str, name: &str, verb: &str) -> bool {
        self.allows(group, resource, verb) || self.has(group, resource, Some(name), verb)
    }

    fn has(&self, group: &str, resource: &str, name: Option<&str>, verb: &str) -> bool {
        let target = (group.to_owned(), resource.to_owned(), name.map(str::to_owned));
        self.0.get(&target).is_some_and(|verbs| verbs.contains(verb))
    }

    pub(super) fn covers(&self, rule: &Rule, verb: &str) -> bool {
        match &rule.name {
            Some(name) => self.allows_named(&rule.group, &rule.resource, name, verb),
            None => self.allows(&rule.group, &rule.resource, verb),
        }
    }

    /// Whether it has no permission at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rules, in order of group, resource and name.
    pub fn rules(&self) -> Vec<Rule> {
        let rules = self.0.iter().map(|((group, resource, name), verbs)| Rule {
            group: group.clone(),
            resource: resource.clone(),
            name: name.clone(),
            verbs: verbs.iter().cloned().collect(),
        });
        rules.collect()
    }

    /// The permissions of this role that `other` does not have, as `verb resource.group`, with the name of the object if it is about
    /// one.
    pub fn beyond(&self, other: &Self) -> Vec<String> {
        let mut missing = Vec::new();
        for rule in self.rules() {
            let Rule { group, resource, name, verbs } = &rule;
            for verb in verbs.iter().filter(|verb| !other.covers(&rule, verb)) {
                let group = if group.is_empty() { String::new() } else { format!(".{group}") };
                let name = name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
                missing.push(format!("{verb} {resource}{group}{name}"));
            }
        }
        missing
    }

    /// Adds the permissions of another role.
    pub fn extend(&mut self, other: &Self) {
        for (resource, verbs) in &other.0 {
            self.0.entry(resource.clone()).or_default().extend(verbs.iter().cloned());
        }
    }

    pub(super) fn allow(&mut self, group: &str, resource: &str, verbs: &[Verb]) {
        verbs.iter().for_each(|verb| self.add(group, resource, verb.as_str()));
    }

    pub(super) fn allow_events(&mut self) {
        self.allow("", "events", &[Verb::Create, Verb::Patch]);
    }

    /// Those of an election by the Lease of that name. One that does not exist yet cannot be named.
    pub(super) fn allow_lease(&mut self, name: &str) {
        let (group, resource) = ("coordination.k8s.io", "leases");
        self.allow(group, resource, &[Verb::Create]);
        for verb in ["get", "list", "watch", "update"] {
            self.add_named(group, resource, name, verb);
        }
    }

    /// Those of a server that asks who may read its pages.
    #[cfg(feature = "admin")]
    pub(super) fn allow_reviews(&mut self) {
        self.allow("authentication.k8s.io", "tokenreviews", &[Verb::Create]);
        self.allow("authorization.k8s.io", "subjectaccessreviews", &[Verb::Create]);
    }

    pub(super) fn allow_crds(&mut self) {
        let (group, resource) = ("apiextensions.k8s.io", "customresourcedefinitions");
        self.allow(group, resource, &[Verb::Get, Verb::Create]);
        self.add(group, resource, "update");
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rules:")?;
        for Rule { group, resource, name, verbs } in self.rules() {
            let verbs: Vec<_> = verbs.iter().map(|verb| format!("{verb:?}")).collect();
            let name = name.map(|name| format!("  resourceNames: [{name:?}]\n")).unwrap_or_default();
            writeln!(
                f,
                "- apiGroups: [{group:?}]\n  resources: [{resource:?}]\n{name}  verbs: [{}]",
                verbs.join(", ")
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_role_has_beyond_another_is_named() {
        let (mut wide, mut narrow) = (Role::default(), Role::default());
        wide.allow("apps", "deployments", &[Verb::Get, Verb::List]);
        wide.allow_events();
        narrow.allow("apps", "deployments", &[Verb::Get]);
        assert_eq!(wide.beyond(&narrow), ["create events", "patch events", "list deployments.apps"]);
        assert!(narrow.beyond(&wide).is_empty());
        narrow.extend(&wide);
        assert_eq!(narrow, wide);
    }

    #[test]
    fn a_permission_on_one_object_is_part_of_that_on_all_and_not_the_other_way_round() {
        let (mut all, mut one) = (Role::default(), Role::default());
        all.add("apps", "deployments", "get");
        one.add_named("apps", "deployments", "web", "get");
        assert!(one.beyond(&all).is_empty() && one.beyond(&one).is_empty());
        assert_eq!(all.beyond(&one), ["get deployments.apps"]);
        let mut other = Role::default();
        other.add_named("apps", "deployments", "shop", "get");
        assert_eq!(other.beyond(&one), ["get deployments.apps shop"]);
        assert!(
            one.allows_named("apps", "deployments", "web", "get")
                && !one.allows("apps", "deployments", "get")
        );
    }

    #[test]
    fn an_election_is_granted_its_own_lease_and_none_but_new_ones() {
        let mut role = Role::default();
        role.allow_lease("web");
        let expected = r#"rules:
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  verbs: ["create"]
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  resourceNames: ["web"]
  verbs: ["get", "list", "update", "watch"]
"#;
        assert_eq!(role.to_string(), expected);
    }
}
