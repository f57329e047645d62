//! What a user may grant: nobody gives away a permission that they do not have.

use serde_json::Value;

use crate::access::attributes::{Attributes, Resource};
use crate::access::rbac::index::{GROUP, Index, RoleRef, aggregate};
use crate::access::rbac::rule::{Rule, missing, quoted_list};
use crate::access::user::User;
use crate::failure::{Failure, Result, quoted};
use crate::kinds::behaviour::Grants;
use crate::kinds::fill::copy_field;
use crate::kinds::kind::Kind;
use crate::kinds::meta;

/// A write of a role or of a binding.
#[derive(Debug)]
pub(crate) struct Granting<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) what: Grants,
    /// The name in the URL; empty for a POST.
    pub(crate) asked_name: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) old: Option<&'a Value>,
    pub(crate) new: &'a Value,
}

impl Granting<'_> {
    /// Refuses to grant what the user does not have, unless the user may `escalate` or `bind`.
    pub(crate) fn check(&self, index: &Index, user: &User) -> Result<()> {
        if self.old.is_some_and(|old| changes_only_metadata_of_deletion(old, self.new)) {
            return Ok(());
        }
        match self.what {
            Grants::Rules => self.check_role(index, user),
            Grants::Role => self.check_binding(index, user),
        }
    }

    fn check_role(&self, index: &Index, user: &User) -> Result<()> {
        if self.may(index, user, "escalate", &self.kind.plural, self.asked_name) {
            return Ok(());
        }
        self.check_rules(index, user, &Rule::all_of(self.new))?;
        let aggregates = |role: &Value| {
            role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|list| !list.is_empty())
        };
        // Such a role can gather anything.
        if (aggregates(self.new) || self.old.is_some_and(aggregates))
            && self.check_rules(index, user, &everything()).is_err()
        {
            return Err(self.forbidden("must have cluster-admin privileges to use the aggregationRule"));
        }
        Ok(())
    }

    fn check_binding(&self, index: &Index, user: &User) -> Result<()> {
        let role = RoleRef::of(self.new);
        let plural = if role.kind == "Role" { "roles" } else { "clusterroles" };
        if self.may(index, user, "bind", plural, &role.name) {
            return Ok(());
        }
        match index.rules(&role, self.namespace) {
            Ok(rules) => self.check_rules(index, user, rules),
            // The real server reports the role under the resource of the request.
            Err(failure) if failure.code == 404 => Err(Failure::not_found(self.kind, &role.name)),
            Err(failure) => Err(failure),
        }
    }

    fn may(&self, index: &Index, user: &User, verb: &str, resource: &str, name: &str) -> bool {
        let namespace = self.namespace;
        let asked = Resource { group: GROUP, resource, name, namespace, ..Resource::default() };
        index.decide(user, &Attributes::of_resource(verb, asked)).0
    }

    fn check_rules(&self, index: &Index, user: &User, wanted: &[Rule]) -> Result<()> {
        let (mut held, mut problems) = (Vec::new(), Vec::new());
        for grant in index.grants(user, self.namespace) {
            match grant.rules {
                Ok(rules) => held.extend(rules.iter().cloned()),
                Err(failure) => problems.push(failure.message),
            }
        }
        let missing = missing(&held, wanted);
        if missing.is_empty() {
            return Ok(());
        }
        let (name, groups) = (quoted(&user.name), quoted_list(&user.groups));
        let mut why = format!(
            "user {name} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{}",
            missing.join("\n")
        );
        if !problems.is_empty() {
            why += &format!("; resolution errors: [{}]", aggregate(&problems));
        }
        Err(self.forbidden(&why))
    }

    fn forbidden(&self, why: &str) -> Box<Failure> {
        Failure::forbidden(self.kind, meta::text(self.new, "name"), why)
    }
}

/// The rules of `cluster-admin`.
fn everything() -> [Rule; 2] {
    let all = || vec!["*".to_owned()];
    let resources = Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() };
    [resources, Rule { verbs: all(), urls: all(), ..Rule::default() }]
}

/// Such a change lets the object be deleted, whatever it grants.
fn changes_only_metadata_of_deletion(old: &Value, new: &Value) -> bool {
    let mut new = new.clone();
    if let Some(metadata) = new.get_mut("metadata") {
        for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
            copy_field(&old["metadata"], metadata, field);
        }
    }
    *old == new
}
