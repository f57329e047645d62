//! Users: who makes a request.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The group of users that authorization never refuses.
pub(crate) const MASTERS: &str = "system:masters";
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
pub(crate) const ANONYMOUS: &str = "system:anonymous";

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
const NODE: &str = "system:node:";
const NODES: &str = "system:nodes";

/// A user, as authentication finds it.
///
/// ```
/// use watchkeeper_apiserver::User;
///
/// let user = User::new("jane").group("developers");
/// assert_eq!(user.groups, ["system:authenticated", "developers"]);
/// assert_eq!(User::service_account("shop", "operator").name, "system:serviceaccount:shop:operator");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct User {
    /// The name, such as `jane` or `system:serviceaccount:shop:operator`.
    pub name: String,
    /// The uid; empty if the user has none.
    pub uid: String,
    /// The groups. Members of `system:masters` may do everything.
    pub groups: Vec<String>,
    /// Whatever else is known of the user, by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user of that name, in the group `system:authenticated`.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), groups: vec![AUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// The user as which pods of a service account make their requests.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let mut groups = service_account_groups(namespace);
        groups.push(AUTHENTICATED.to_owned());
        Self { name: format!("{SERVICE_ACCOUNT}{namespace}:{name}"), groups, ..Self::default() }
    }

    /// The user without credentials.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// The user of the server's own token, who may do everything.
    pub fn admin() -> Self {
        let groups = vec![MASTERS.to_owned(), AUTHENTICATED.to_owned()];
        Self { name: "admin".to_owned(), uid: "admin".to_owned(), groups, ..Self::default() }
    }

    /// Adds the user to a group.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.groups.push(group.into());
        self
    }

    /// The node whose agent the user is.
    pub(crate) fn node(&self) -> Option<&str> {
        as_node(&self.name).filter(|_| self.groups.iter().any(|group| group == NODES))
    }

    /// The user as reviews show it.
    pub(crate) fn shown(&self) -> Value {
        let mut info = Map::new();
        for (field, text) in [("username", &self.name), ("uid", &self.uid)] {
            if !text.is_empty() {
                info.insert(field.to_owned(), text.as_str().into());
            }
        }
        if !self.groups.is_empty() {
            info.insert("groups".to_owned(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            info.insert("extra".to_owned(), json!(self.extra));
        }
        info.into()
    }

    pub(crate) fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

/// The groups of every service account of a namespace.
pub(crate) fn service_account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// Returns namespace and name of the service account that a user name stands for.
pub(crate) fn as_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// Returns the node that a user name stands for.
pub(crate) fn as_node(user: &str) -> Option<&str> {
    user.strip_prefix(NODE).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_names_are_service_accounts() {
        assert_eq!(as_service_account("system:serviceaccount:a:b"), Some(("a", "b")));
        for name in ["system:serviceaccount:a", "system:serviceaccount::b", "system:serviceaccount:a:", "a:b"]
        {
            assert_eq!(as_service_account(name), None, "{name}");
        }
        assert_eq!(as_service_account("system:serviceaccount:a:b:c"), None);
    }
}
