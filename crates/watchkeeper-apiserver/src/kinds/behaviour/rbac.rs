//! Roles and role bindings, of a namespace or of the cluster.

use serde_json::{Value, json};

use super::Behaviour;
use crate::failure::{Cause, Result};
use crate::kinds::cells::{Row, list, text};
use crate::kinds::fill::{each, fill};
use crate::kinds::kind::Kind;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Role and ClusterRole.
#[derive(Debug)]
pub(in crate::kinds) struct Role;

impl Behaviour for Role {
    fn headers(&self) -> &'static str {
        "Name Created_At:date"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        json!([row.name(), row.object["metadata"]["creationTimestamp"]])
    }
}

/// RoleBinding and ClusterRoleBinding.
#[derive(Debug)]
pub(in crate::kinds) struct RoleBinding;

impl Behaviour for RoleBinding {
    fn defaults(&self, _kind: &Kind, binding: &mut Value) -> Result<()> {
        if binding["roleRef"]["apiGroup"] == "" {
            binding["roleRef"]["apiGroup"] = GROUP.into();
        }
        for subject in binding.get_mut("subjects").into_iter().flat_map(each) {
            if ["User", "Group"].contains(&text(&subject["kind"])) {
                fill(subject, "apiGroup", GROUP.into());
            }
        }
        Ok(())
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        let changed = old.get("roleRef") != new.get("roleRef");
        let cause = || Cause::invalid("roleRef", &new["roleRef"], "cannot change roleRef");
        changed.then(cause).into_iter().collect()
    }

    fn headers(&self) -> &'static str {
        "Name Role Age Users* Groups* ServiceAccounts*"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let role = &row.object["roleRef"];
        let subjects = |kind: &str| subjects(&row.object["subjects"], kind);
        json!([
            row.name(),
            format!("{}/{}", text(&role["kind"]), text(&role["name"])),
            row.age(),
            subjects("User"),
            subjects("Group"),
            subjects("ServiceAccount"),
        ])
    }
}

/// The names of the subjects of a kind.
fn subjects(subjects: &Value, kind: &str) -> String {
    let of_kind = list(subjects).iter().filter(|subject| subject["kind"] == kind);
    let names = of_kind.map(|subject| match text(&subject["namespace"]) {
        "" => text(&subject["name"]).to_owned(),
        namespace => format!("{namespace}/{}", text(&subject["name"])),
    });
    names.collect::<Vec<_>>().join(", ")
}
