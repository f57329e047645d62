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
pub struct Role(BTreeMap<(String, String), BTreeSet<String>>);

/// One rule of a [`Role`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rule {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name of the kind, with a subresource such as `deployments/status`.
    pub resource: String,
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
        self.0.entry((group.to_owned(), resource.to_owned())).or_default().insert(verb.to_owned());
    }

    /// Whether it has a permission.
    pub fn allows(&self, group: &str, resource: &str, verb: &str) -> bool {
        self.0.get(&(group.to_owned(), resource.to_owned())).is_some_and(|verbs| verbs.contains(verb))
    }

    /// Whether it has no permission at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rules, in order of group and resource.
    pub fn rules(&self) -> Vec<Rule> {
        let rules = self.0.iter().map(|((group, resource), verbs)| Rule {
            group: group.clone(),
            resource: resource.clone(),
            verbs: verbs.iter().cloned().collect(),
        });
        rules.collect()
    }

    /// The permissions of this role that `other` does not have, as `verb resource.group`.
    pub fn beyond(&self, other: &Self) -> Vec<String> {
        let mut missing = Vec::new();
        for Rule { group, resource, verbs } in self.rules() {
            for verb in verbs.iter().filter(|verb| !other.allows(&group, &resource, verb)) {
                let group = if group.is_empty() { String::new() } else { format!(".{group}") };
                missing.push(format!("{verb} {resource}{group}"));
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

    pub(super) fn allow_leases(&mut self) {
        let (group, resource) = ("coordination.k8s.io", "leases");
        self.allow(group, resource, &[Verb::Get, Verb::List, Verb::Watch, Verb::Create]);
        self.add(group, resource, "update");
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
        for Rule { group, resource, verbs } in self.rules() {
            let verbs: Vec<_> = verbs.iter().map(|verb| format!("{verb:?}")).collect();
            writeln!(
                f,
                "- apiGroups: [{group:?}]\n  resources: [{resource:?}]\n  verbs: [{}]",
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
}
