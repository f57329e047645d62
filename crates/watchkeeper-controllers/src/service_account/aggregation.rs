//! The ClusterRole aggregation controller: fills the rules of roles that gather those of others by label.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube_core::{Selector, SelectorExt};
use watchkeeper::controller::{Action, Context, Controller, Error, Manager, SetupError, View, Watch};
use watchkeeper::{Object, ObjectName};

/// Registers the controller with `manager`.
pub(super) fn register(manager: &mut Manager) -> Result<(), SetupError> {
    Controller::<ClusterRole>::new(manager)
        .named("clusterrole-aggregation")
        .component("clusterrole-aggregation-controller")
        .watches(Watch::<ClusterRole>::new(), aggregating)
        .reconcile(aggregate)
}

/// All roles that aggregate: any of them may select a role that changed, or no longer select it.
fn aggregating(_: &Object<ClusterRole>, roles: &View<'_, ClusterRole>) -> Vec<ObjectName> {
    let aggregates = |key: &ObjectName| {
        let role = roles.get(key).and_then(|role| role.get().ok());
        role.is_some_and(|role| role.aggregation_rule.is_some())
    };
    roles.keys().into_iter().filter(aggregates).collect()
}

async fn aggregate(role: Arc<ClusterRole>, cx: Context<ClusterRole>) -> Result<Action, Error> {
    if role.aggregation_rule.is_none() || role.metadata.deletion_timestamp.is_some() {
        return Ok(Action::done());
    }
    let others = cx.list::<ClusterRole>(None, &Selector::default())?.ignore_unreadable();
    let rules = gather(&role, others.iter().map(|role| &**role));
    if role.rules.as_deref().unwrap_or_default() != rules {
        let mut changed = ClusterRole::clone(&role);
        changed.rules = Some(rules);
        cx.unowned().replace(&changed).await?;
    }
    Ok(Action::done())
}

/// The rules of the roles that `role` selects, in the order of its selectors and of their names, each once.
fn gather<'a>(role: &ClusterRole, all: impl Iterator<Item = &'a ClusterRole>) -> Vec<PolicyRule> {
    let mut others: Vec<_> = all.filter(|other| other.metadata.name != role.metadata.name).collect();
    others.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let selectors =
        role.aggregation_rule.iter().flat_map(|rule| rule.cluster_role_selectors.iter().flatten());
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in selectors {
        let Ok(selector) = Selector::try_from(selector.clone()) else { continue };
        let selects =
            |other: &&&ClusterRole| selector.matches(&other.metadata.labels.clone().unwrap_or_default());
        for rule in others.iter().filter(selects).flat_map(|other| other.rules.iter().flatten()) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(name: &str, label: &str, verbs: &[&str]) -> ClusterRole {
        let rules: Vec<_> = verbs.iter().map(|verb| json!({"verbs": [verb]})).collect();
        serde_json::from_value(json!({"metadata": {"name": name, "labels": {"to": label}}, "rules": rules}))
            .unwrap()
    }

    #[test]
    fn rules_are_gathered_once_in_order_of_names_and_not_from_the_role_itself() {
        let mut all = role("all", "x", &["own"]);
        let selectors = json!({"clusterRoleSelectors": [
            {"matchLabels": {"to": "x"}},
            {"matchExpressions": [{"key": "to", "operator": "In", "values": ["y", "x"]}]},
        ]});
        all.aggregation_rule = serde_json::from_value(selectors).unwrap();
        let others = [
            role("b", "x", &["get", "list"]),
            role("a", "x", &["list", "watch"]),
            role("c", "y", &["patch"]),
        ];
        let gathered = gather(&all, others.iter().chain([&all]));
        let verbs: Vec<_> = gathered.iter().map(|rule| rule.verbs[0].as_str()).collect();
        assert_eq!(verbs, ["list", "watch", "get", "patch"]);
        all.aggregation_rule = None;
        assert!(gather(&all, others.iter()).is_empty());
    }
}
