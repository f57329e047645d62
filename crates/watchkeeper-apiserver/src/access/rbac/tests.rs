//! Tests of the index on a store: subjects, namespaces, reasons, and incremental changes.

use serde_json::{Value, json};
use watchkeeper::Env;

use crate::access::attributes::{Attributes, Object, Resource};
use crate::access::rbac::index::{GROUP, Index};
use crate::access::user::User;
use crate::state::core::Core;
use crate::state::store::Key;

struct Fixture {
    core: Core,
    index: Index,
}

impl Fixture {
    fn new() -> Self {
        Self { core: Core::new(&Env::simulated(1), 4), index: Index::default() }
    }

    /// Stores an object; a role is `rules`, a binding `roleRef` and `subjects`.
    fn put(&mut self, plural: &str, key: &str, body: Value) -> &mut Self {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let kind = self.core.registry.find(GROUP, "v1", plural).unwrap().clone();
        let mut object = body;
        object["metadata"] = json!({"name": name, "namespace": namespace});
        self.core.put_value(&kind, &Key::new(namespace, name), object);
        self
    }

    fn role(&mut self, plural: &str, key: &str, verb: &str) -> &mut Self {
        let rule = json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]});
        self.put(plural, key, json!({"rules": [rule]}))
    }

    fn bind(&mut self, key: &str, (kind, role): (&str, &str), subjects: Value) -> &mut Self {
        let plural = if key.contains('/') { "rolebindings" } else { "clusterrolebindings" };
        self.put(plural, key, json!({"roleRef": {"kind": kind, "name": role}, "subjects": subjects}))
    }

    fn remove(&mut self, plural: &str, key: &str) -> &mut Self {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let kind = self.core.registry.find(GROUP, "v1", plural).unwrap().clone();
        let stored = self.core.store.get(&kind.storage, &Key::new(namespace, name)).unwrap().clone();
        let last = stored.at(self.core.store.next_revision());
        self.core.store.remove(&kind.storage, last);
        self
    }

    fn decide(&mut self, user: &User, verb: &str, namespace: &str) -> (bool, String) {
        self.index.refresh(&self.core.store);
        let resource = Resource { resource: "pods", namespace, ..Resource::default() };
        self.index.decide(user, &Attributes { verb, object: Object::Resource(resource) })
    }

    fn may(&mut self, user: &User, verb: &str, namespace: &str) -> bool {
        self.decide(user, verb, namespace).0
    }
}

#[test]
fn bindings_apply_to_users_groups_and_service_accounts() {
    let mut f = Fixture::new();
    f.role("clusterroles", "reader", "get").role("roles", "a/lister", "list");
    let jane = json!([{"kind": "User", "name": "jane"}, {"kind": "Group", "name": "readers"}]);
    f.bind("cluster", ("ClusterRole", "reader"), jane);
    f.bind("a/local", ("Role", "lister"), json!([{"kind": "ServiceAccount", "name": "robot"}]));
    f.bind(
        "a/far",
        ("ClusterRole", "reader"),
        json!([{"kind": "ServiceAccount", "name": "robot", "namespace": "b"}]),
    );
    let (jane, reader) = (User::new("jane"), User::new("joe").group("readers"));
    let (robot, far) = (User::service_account("a", "robot"), User::service_account("b", "robot"));
    for (user, verb, namespace, expected) in [
        (&jane, "get", "", true),
        (&jane, "get", "a", true),
        (&jane, "list", "a", false),
        (&reader, "get", "b", true),
        (&User::new("joe"), "get", "b", false),
        (&robot, "list", "a", true),
        (&robot, "list", "b", false),
        (&robot, "list", "", false),
        (&robot, "get", "a", false),
        (&far, "get", "a", true),
        (&far, "list", "a", false),
        // A user of the name of a group is nobody.
        (&User::new("readers"), "get", "a", false),
    ] {
        assert_eq!(f.may(user, verb, namespace), expected, "{} {verb} {namespace}", user.name);
    }
}

#[test]
fn a_binding_of_the_cluster_cannot_name_a_service_account_without_namespace_nor_a_role() {
    let mut f = Fixture::new();
    f.role("clusterroles", "reader", "get").role("roles", "a/reader", "get");
    f.bind("x", ("ClusterRole", "reader"), json!([{"kind": "ServiceAccount", "name": "robot"}]));
    f.bind("y", ("Role", "reader"), json!([{"kind": "User", "name": "jane"}]));
    assert!(!f.may(&User::service_account("a", "robot"), "get", "a"));
    assert!(!f.may(&User::new("jane"), "get", "a"));
}

#[test]
fn decisions_say_why() {
    let mut f = Fixture::new();
    f.role("clusterroles", "reader", "get");
    f.bind("a/b", ("ClusterRole", "reader"), json!([{"kind": "ServiceAccount", "name": "robot"}]));
    f.bind("c", ("ClusterRole", "gone"), json!([{"kind": "User", "name": "jane"}]));
    f.bind("a/d", ("Role", "lost"), json!([{"kind": "User", "name": "jane"}]));
    let robot = User::service_account("a", "robot");
    let allowed = r#"RBAC: allowed by RoleBinding "b/a" of ClusterRole "reader" to ServiceAccount "robot/a""#;
    assert_eq!(f.decide(&robot, "get", "a"), (true, allowed.to_owned()));
    assert_eq!(f.decide(&robot, "list", "a"), (false, String::new()));
    let gone = r#"RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#;
    assert_eq!(f.decide(&User::new("jane"), "get", "b"), (false, gone.to_owned()));
    let both = r#"RBAC: [clusterrole.rbac.authorization.k8s.io "gone" not found, role.rbac.authorization.k8s.io "lost" not found]"#;
    assert_eq!(f.decide(&User::new("jane"), "get", "a"), (false, both.to_owned()));
}

#[test]
fn changes_take_effect_at_once_also_those_beyond_the_history() {
    let mut f = Fixture::new();
    let jane = User::new("jane");
    let subjects = || json!([{"kind": "User", "name": "jane"}]);
    assert!(!f.may(&jane, "get", "a"));
    f.role("roles", "a/r", "get").bind("a/b", ("Role", "r"), subjects());
    assert!(f.may(&jane, "get", "a"));
    f.role("roles", "a/r", "list");
    assert!(!f.may(&jane, "get", "a") && f.may(&jane, "list", "a"));
    f.bind("a/b", ("Role", "r"), json!([{"kind": "User", "name": "joe"}]));
    assert!(!f.may(&jane, "list", "a") && f.may(&User::new("joe"), "list", "a"));
    f.bind("a/b", ("Role", "r"), subjects()).remove("roles", "a/r");
    assert!(!f.may(&jane, "list", "a"));
    // The history has four changes.
    for at in 0..6 {
        f.role("roles", &format!("a/other{at}"), "get");
    }
    f.role("roles", "a/r", "watch").remove("roles", "a/other1");
    assert!(f.may(&jane, "watch", "a"));
    f.remove("rolebindings", "a/b");
    assert!(!f.may(&jane, "watch", "a"));
}

#[test]
fn a_store_that_was_set_back_is_read_again() {
    let mut f = Fixture::new();
    let jane = User::new("jane");
    f.role("clusterroles", "r", "get");
    let before = f.core.store.without_history();
    f.bind("b", ("ClusterRole", "r"), json!([{"kind": "User", "name": "jane"}]));
    assert!(f.may(&jane, "get", "a"));
    f.core.store.set_back(&before);
    assert!(!f.may(&jane, "get", "a"));
}
