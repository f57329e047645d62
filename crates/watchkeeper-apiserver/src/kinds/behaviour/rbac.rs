//! Roles and role bindings, of a namespace or of the cluster.

use serde_json::{Value, json};

use super::{Behaviour, Change, Findings, Grants};
use crate::failure::{Cause, Result};
use crate::kinds::builtin::NameRule;
use crate::kinds::cells::{Row, list, text};
use crate::kinds::fill::{each, fill};
use crate::kinds::kind::Kind;
use crate::kinds::meta;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Role and ClusterRole.
#[derive(Debug)]
pub(in crate::kinds) struct Role;

impl Behaviour for Role {
    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        for (at, rule) in list(&change.new["rules"]).iter().enumerate() {
            validate_rule(rule, change.kind.namespaced, &format!("rules[{at}]"), &mut findings.causes);
        }
        let aggregation = &change.new["aggregationRule"];
        if aggregation.is_object() && list(&aggregation["clusterRoleSelectors"]).is_empty() {
            let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            findings.causes.push(Cause::required("aggregationRule.clusterRoleSelectors", why));
        }
    }

    fn grants(&self) -> Option<Grants> {
        Some(Grants::Rules)
    }

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

    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        let (role, namespaced) = (&change.new["roleRef"], change.kind.namespaced);
        let causes = &mut findings.causes;
        if role["apiGroup"] != GROUP {
            causes.push(Cause::not_supported("roleRef.apiGroup", &text(&role["apiGroup"]).into(), &[GROUP]));
        }
        let kinds = if namespaced { &["Role", "ClusterRole"][..] } else { &["ClusterRole"] };
        if !kinds.contains(&text(&role["kind"])) {
            causes.push(Cause::not_supported("roleRef.kind", &text(&role["kind"]).into(), kinds));
        }
        let name = text(&role["name"]);
        if name.is_empty() {
            causes.push(Cause::required("roleRef.name", ""));
        } else {
            let problems = meta::name_problems(NameRule::PathSegment, name);
            causes.extend(problems.iter().map(|p| Cause::invalid("roleRef.name", &name.into(), p)));
        }
        for (at, subject) in list(&change.new["subjects"]).iter().enumerate() {
            validate_subject(subject, namespaced, &format!("subjects[{at}]"), causes);
        }
    }

    fn grants(&self) -> Option<Grants> {
        Some(Grants::Role)
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<Cause> {
        let changed = old.get("roleRef") != new.get("roleRef");
        let part = |field: &str| text(&new["roleRef"][field]);
        // The real server shows its internal type.
        let shown = json!({"APIGroup": part("apiGroup"), "Kind": part("kind"), "Name": part("name")});
        let cause = || Cause::invalid("roleRef", &shown, "cannot change roleRef");
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

fn validate_rule(rule: &Value, namespaced: bool, path: &str, causes: &mut Vec<Cause>) {
    let is_empty = |field: &str| list(&rule[field]).is_empty();
    if is_empty("verbs") {
        causes.push(Cause::required(&format!("{path}.verbs"), "verbs must contain at least one value"));
    }
    let field = format!("{path}.nonResourceURLs");
    let urls = &rule["nonResourceURLs"];
    if !is_empty("nonResourceURLs") {
        if namespaced {
            let why = "namespaced rules cannot apply to non-resource URLs";
            causes.push(Cause::invalid(&field, urls, why));
        }
        if !["apiGroups", "resources", "resourceNames"].iter().all(|field| is_empty(field)) {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            causes.push(Cause::invalid(&field, urls, why));
        }
        return;
    }
    for (field, what) in [("apiGroups", "api group"), ("resources", "resource")] {
        if is_empty(field) {
            let why = format!("resource rules must supply at least one {what}");
            causes.push(Cause::required(&format!("{path}.{field}"), &why));
        }
    }
}

fn validate_subject(subject: &Value, namespaced: bool, path: &str, causes: &mut Vec<Cause>) {
    let (kind, name, group) = (text(&subject["kind"]), text(&subject["name"]), text(&subject["apiGroup"]));
    let field = |name: &str| format!("{path}.{name}");
    if name.is_empty() {
        causes.push(Cause::required(&field("name"), ""));
    }
    match kind {
        "ServiceAccount" => {
            let problems = meta::name_problems(NameRule::Subdomain, name);
            let problems = problems.iter().filter(|_| !name.is_empty());
            causes.extend(problems.map(|p| Cause::invalid(&field("name"), &name.into(), p)));
            if !group.is_empty() {
                causes.push(Cause::not_supported(&field("apiGroup"), &group.into(), &[""]));
            }
            if !namespaced && text(&subject["namespace"]).is_empty() {
                causes.push(Cause::required(&field("namespace"), ""));
            }
        }
        "User" | "Group" if group != GROUP => {
            causes.push(Cause::not_supported(&field("apiGroup"), &group.into(), &[GROUP]));
        }
        "User" | "Group" => {}
        _ => {
            let kinds = ["ServiceAccount", "User", "Group"];
            causes.push(Cause::not_supported(&field("kind"), &kind.into(), &kinds));
        }
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
