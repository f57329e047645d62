//! The roles and bindings of a server, compiled, and indexed by subject. Follows the changes of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::access::attributes::Attributes;
use crate::access::rbac::rule::Rule;
use crate::access::user::User;
use crate::failure::{Details, Failure, quoted};
use crate::kinds::cells::{list, text};
use crate::kinds::kind::ResourceId;
use crate::state::store::{Key, Store, Stored};

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// A compiled role: its rules, shared with those who evaluate them.
type Rules = Arc<[Rule]>;

/// Which role a binding grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoleRef {
    pub(crate) kind: String,
    pub(crate) name: String,
}

impl RoleRef {
    pub(crate) fn of(binding: &Value) -> Self {
        let part = |field: &str| text(&binding["roleRef"][field]).to_owned();
        Self { kind: part("kind"), name: part("name") }
    }
}

#[derive(Clone, Debug)]
struct Binding {
    role: RoleRef,
    /// In their order: the first that applies is named as the reason.
    subjects: Vec<Subject>,
}

/// Whom a binding is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    /// Also a service account, by its user name.
    User(String),
    Group(String),
}

/// The four resources, each with the revision up to which it is indexed.
#[derive(Debug)]
struct Seen {
    resources: [(ResourceId, u64); 4],
    epoch: Option<u64>,
}

/// Compiled roles and bindings. Those of the cluster are in the namespace "".
#[derive(Debug)]
pub(crate) struct Index {
    seen: Seen,
    roles: BTreeMap<Key, Rules>,
    bindings: BTreeMap<Key, Binding>,
    /// The bindings that name a subject.
    by_subject: BTreeMap<Subject, BTreeSet<Key>>,
}

/// A binding that applies to a user, and the rules that it grants.
pub(crate) struct Grant<'a> {
    key: &'a Key,
    binding: &'a Binding,
    pub(crate) rules: Result<&'a Rules, Box<Failure>>,
}

impl Default for Index {
    fn default() -> Self {
        let resources = ["clusterroles", "roles", "clusterrolebindings", "rolebindings"];
        let resources = resources.map(|plural| (ResourceId::new(GROUP, plural), 0));
        Self {
            seen: Seen { resources, epoch: None },
            roles: BTreeMap::new(),
            bindings: BTreeMap::new(),
            by_subject: BTreeMap::new(),
        }
    }
}

impl Index {
    /// Applies the changes since the last call. If they are no longer in the history, or the store was set back,
    /// everything is read again.
    pub(crate) fn refresh(&mut self, store: &Store) {
        if self.seen.epoch != Some(store.watch_epoch()) {
            *self = Self::default();
            self.seen.epoch = Some(store.watch_epoch());
        }
        for at in 0..self.seen.resources.len() {
            let (id, seen) = &self.seen.resources[at];
            let newest = store.changed(id);
            if newest == *seen {
                continue;
            }
            let are_roles = at < 2;
            match store.changes(id, *seen) {
                Some(changes) if *seen > 0 => {
                    for (stored, removed) in changes {
                        self.apply(are_roles, &stored, removed);
                    }
                }
                _ => {
                    let current: Vec<_> = store.range(id, None, None).cloned().collect();
                    self.forget(are_roles, at % 2 == 0);
                    current.iter().for_each(|stored| self.apply(are_roles, stored, false));
                }
            }
            self.seen.resources[at].1 = newest;
        }
    }

    /// Forgets all roles or bindings, of the cluster or of namespaces.
    fn forget(&mut self, roles: bool, of_cluster: bool) {
        if roles {
            self.roles.retain(|key, _| key.namespace.is_empty() != of_cluster);
            return;
        }
        let keys = self.bindings.keys().filter(|key| key.namespace.is_empty() == of_cluster);
        for key in keys.cloned().collect::<Vec<_>>() {
            self.unbind(&key);
        }
    }

    fn apply(&mut self, is_role: bool, stored: &Stored, removed: bool) {
        let key = stored.key.clone();
        match (is_role, removed) {
            (true, true) => {
                self.roles.remove(&key);
            }
            (true, false) => {
                self.roles.insert(key, Rule::all_of(&stored.value()).into());
            }
            (false, true) => self.unbind(&key),
            (false, false) => self.bind(key, &stored.value()),
        }
    }

    fn bind(&mut self, key: Key, binding: &Value) {
        self.unbind(&key);
        let subjects = list(&binding["subjects"]).iter();
        let subjects: Vec<_> = subjects.filter_map(|subject| Subject::of(subject, &key.namespace)).collect();
        for subject in &subjects {
            self.by_subject.entry(subject.clone()).or_default().insert(key.clone());
        }
        self.bindings.insert(key, Binding { role: RoleRef::of(binding), subjects });
    }

    fn unbind(&mut self, key: &Key) {
        for subject in self.bindings.remove(key).into_iter().flat_map(|binding| binding.subjects) {
            if let Some(keys) = self.by_subject.get_mut(&subject) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_subject.remove(&subject);
                }
            }
        }
    }

    /// Returns the rules of a role; 404 if there is none.
    pub(crate) fn rules(&self, role: &RoleRef, namespace: &str) -> Result<&Rules, Box<Failure>> {
        let namespace = match role.kind.as_str() {
            "ClusterRole" => "",
            // A binding of the cluster has no namespace in which to find the role.
            "Role" if namespace.is_empty() => return Err(not_found(role)),
            "Role" => namespace,
            kind => {
                return Err(Failure::internal(format!("unsupported role reference kind: {}", quoted(kind))));
            }
        };
        self.roles.get(&Key::new(namespace, &role.name)).ok_or_else(|| not_found(role))
    }

    /// Returns the rules of a role of the cluster; none if there is no such role.
    pub(crate) fn cluster_rules(&self, role: &str) -> &[Rule] {
        self.roles.get(&Key::new("", role)).map_or(&[], |rules| rules)
    }

    /// Returns what is granted to a user in a namespace and in the cluster, or in the cluster only if it is empty.
    pub(crate) fn grants<'a>(&'a self, user: &User, namespace: &str) -> impl Iterator<Item = Grant<'a>> {
        let groups = user.groups.iter().map(|group| Subject::Group(group.clone()));
        let subjects = groups.chain([Subject::User(user.name.clone())]);
        let keys = subjects.filter_map(|subject| self.by_subject.get(&subject)).flatten();
        let applies = |key: &&Key| key.namespace.is_empty() || key.namespace == namespace;
        let keys: BTreeSet<&Key> = keys.filter(applies).collect();
        keys.into_iter().filter_map(|key| {
            let binding = self.bindings.get(key)?;
            Some(Grant { key, binding, rules: self.rules(&binding.role, &key.namespace) })
        })
    }

    /// Decides on a request. The reason is that of the real server.
    pub(crate) fn decide(&self, user: &User, asked: &Attributes<'_>) -> (bool, String) {
        let mut problems: Vec<String> = Vec::new();
        for grant in self.grants(user, asked.namespace()) {
            match &grant.rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(asked)) => {
                    return (true, format!("RBAC: allowed by {}", grant.text(user)));
                }
                Ok(_) => {}
                Err(failure) if problems.contains(&failure.message) => {}
                Err(failure) => problems.push(failure.message.clone()),
            }
        }
        (false, if problems.is_empty() { String::new() } else { format!("RBAC: {}", aggregate(&problems)) })
    }
}

impl Grant<'_> {
    /// The binding as reasons name it.
    fn text(&self, user: &User) -> String {
        let Binding { role, subjects } = self.binding;
        let (kind, name) = match self.key.namespace.as_str() {
            "" => ("ClusterRoleBinding", self.key.name.clone()),
            namespace => ("RoleBinding", format!("{}/{namespace}", self.key.name)),
        };
        let subject =
            subjects.iter().find(|subject| subject.is(user)).map_or_else(String::new, Subject::text);
        format!("{kind} {} of {} {} to {subject}", quoted(&name), role.kind, quoted(&role.name))
    }
}

impl Subject {
    /// The subject of a binding in a namespace; "" for a binding of the cluster.
    fn of(subject: &Value, namespace: &str) -> Option<Self> {
        let name = text(&subject["name"]);
        match text(&subject["kind"]) {
            "User" => Some(Self::User(name.to_owned())),
            "Group" => Some(Self::Group(name.to_owned())),
            "ServiceAccount" => {
                let own = text(&subject["namespace"]);
                let namespace = if own.is_empty() { namespace } else { own };
                (!namespace.is_empty()).then(|| Self::User(User::service_account(namespace, name).name))
            }
            _ => None,
        }
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Self::User(name) => user.name == *name,
            Self::Group(group) => user.groups.contains(group),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Group(name) => format!("Group {}", quoted(name)),
            Self::User(name) => match crate::access::user::as_service_account(name) {
                Some((namespace, name)) => {
                    format!("ServiceAccount {}", quoted(&format!("{name}/{namespace}")))
                }
                None => format!("User {}", quoted(name)),
            },
        }
    }
}

fn not_found(role: &RoleRef) -> Box<Failure> {
    let kind = role.kind.to_lowercase();
    let message = format!("{kind}.{GROUP} {} not found", quoted(&role.name));
    Failure::new(404, "NotFound", message).with_details(Details {
        name: role.name.clone(),
        group: GROUP.to_owned(),
        kind,
        ..Details::default()
    })
}

/// Several problems, as the real server joins them.
pub(crate) fn aggregate(problems: &[String]) -> String {
    if let [only] = problems { only.clone() } else { format!("[{}]", problems.join(", ")) }
}
