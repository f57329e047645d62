//! Authorization: whether a user may do what a request asks for.

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::access::attributes::Attributes;
use crate::access::node;
use crate::access::rbac::escalation::Granting;
use crate::access::rbac::index::{Index, aggregate};
use crate::access::rbac::rule::Rule;
use crate::access::user::User;
use crate::failure::Result;
use crate::state::core::Core;

/// How requests are authorized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Authorization {
    /// Every user may do everything, and requests without credentials are refused.
    #[default]
    AlwaysAllow,
    /// Roles and role bindings decide, as with `--authorization-mode=Node,RBAC` of kube-apiserver. A new server has its
    /// default roles. Members of `system:masters` may do everything, and nodes (users `system:node:NAME` in the group
    /// `system:nodes`) read what Pods on them refer to.
    Rbac,
}

/// The authorizer of a server.
#[derive(Debug, Default)]
pub(crate) struct Authorizer {
    mode: Authorization,
    index: Mutex<Index>,
}

impl Authorizer {
    pub(crate) fn new(mode: Authorization) -> Self {
        Self { mode, index: Mutex::default() }
    }

    /// Returns whether requests without credentials are served, as far as the roles of anonymous users allow.
    pub(crate) fn admits_anonymous(&self) -> bool {
        self.mode != Authorization::AlwaysAllow
    }

    /// Returns whether a user may do everything, without a look at any role.
    pub(crate) fn trusts(&self, user: &User) -> bool {
        self.mode == Authorization::AlwaysAllow || user.is_master()
    }

    /// Decides on a request. The reason may be empty.
    pub(crate) fn decide(&self, core: &Mutex<Core>, user: &User, asked: &Attributes<'_>) -> (bool, String) {
        match self.trusts(user) {
            true => (true, String::new()),
            false => self.with_index(core, |index| {
                let of_node =
                    |node: &str| node::decide(&core.lock(), index.cluster_rules(node::ROLE), node, asked);
                let unrelated = match user.node().map(of_node) {
                    Some(Ok(())) => return (true, String::new()),
                    Some(Err(reason)) => reason,
                    None => String::new(),
                };
                let (is_allowed, reason) = index.decide(user, asked);
                match (is_allowed, unrelated.is_empty(), reason.is_empty()) {
                    (true, ..) | (_, true, _) => (is_allowed, reason),
                    (false, _, true) => (false, unrelated),
                    (false, _, false) => (false, format!("{unrelated}\n{reason}")),
                }
            }),
        }
    }

    /// Refuses a request that the user may not make.
    pub(crate) fn check(&self, core: &Mutex<Core>, user: &User, asked: &Attributes<'_>) -> Result<()> {
        match self.decide(core, user, asked) {
            (true, _) => Ok(()),
            (false, reason) => Err(asked.forbidden(&user.name, &reason)),
        }
    }

    /// Refuses a write that grants what its author does not have.
    pub(crate) fn check_granting(&self, core: &Mutex<Core>, user: &User, write: &Granting<'_>) -> Result<()> {
        match self.trusts(user) {
            true => Ok(()),
            false => self.with_index(core, |index| write.check(index, user)),
        }
    }

    /// Returns all that a user may do in a namespace, as the status of a SelfSubjectRulesReview.
    pub(crate) fn rules_of(&self, core: &Mutex<Core>, user: &User, namespace: &str) -> Value {
        if self.mode == Authorization::AlwaysAllow {
            return json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            });
        }
        self.with_index(core, |index| {
            let (mut resources, mut others, mut problems) = (Vec::new(), Vec::new(), Vec::new());
            for grant in index.grants(user, namespace) {
                let rules = grant.rules.map_err(|failure| problems.push(failure.message));
                for rule in rules.into_iter().flat_map(|rules| rules.iter()) {
                    resources.extend((!rule.resources.is_empty()).then(|| resource_rule(rule)));
                    let other = || json!({"verbs": rule.verbs, "nonResourceURLs": rule.urls});
                    others.extend((!rule.urls.is_empty()).then(other));
                }
            }
            let mut status =
                json!({"resourceRules": resources, "nonResourceRules": others, "incomplete": false});
            if !problems.is_empty() {
                status["evaluationError"] = aggregate(&problems).into();
            }
            status
        })
    }

    /// The index is brought up to date under the lock of the core, and used without it.
    fn with_index<T>(&self, core: &Mutex<Core>, work: impl FnOnce(&Index) -> T) -> T {
        let mut index = self.index.lock();
        index.refresh(&core.lock().store);
        work(&index)
    }
}

fn resource_rule(rule: &Rule) -> Value {
    let mut shown = json!({"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources});
    if !rule.names.is_empty() {
        shown["resourceNames"] = json!(rule.names);
    }
    shown
}
