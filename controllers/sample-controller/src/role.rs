//! The permissions of the program, which it asks for at the start.

use watchkeeper::controller::Role;

use crate::COMPONENT;

/// The permissions of the controller.
pub fn controller() -> Role {
    role(&[
        ("samplecontroller.k8s.io", "foos", &["list", "watch"]),
        ("samplecontroller.k8s.io", "foos/status", &["update"]),
        // To make Deployments that block the deletion of their Foo.
        ("samplecontroller.k8s.io", "foos/finalizers", &["update"]),
        ("apps", "deployments", &["list", "watch", "create", "update"]),
        ("", "events", &["create", "patch"]),
    ])
}

/// The permissions of a server that asks who may read its pages.
pub fn pages() -> Role {
    role(&[
        ("authentication.k8s.io", "tokenreviews", &["create"]),
        ("authorization.k8s.io", "subjectaccessreviews", &["create"]),
    ])
}

/// The permissions of the election, in the namespace of its Lease.
pub fn election() -> Role {
    let group = "coordination.k8s.io";
    let mut role = role(&[(group, "leases", &["create"])]);
    ["get", "list", "watch", "update"]
        .iter()
        .for_each(|verb| role.add_named(group, "leases", COMPONENT, verb));
    role
}

fn role(permissions: &[(&str, &str, &[&str])]) -> Role {
    let mut role = Role::default();
    for (group, resource, verbs) in permissions {
        verbs.iter().for_each(|verb| role.add(group, resource, verb));
    }
    role
}
