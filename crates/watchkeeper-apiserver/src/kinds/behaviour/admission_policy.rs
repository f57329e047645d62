//! ValidatingAdmissionPolicies and their bindings, and the same of MutatingAdmissionPolicies.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Behaviour, Change, Context, Findings};
use crate::failure::{Cause, Result};
use crate::kinds::cells::{Row, count, list, text};
use crate::kinds::fill::{each, fill};
use crate::kinds::kind::Kind;
use crate::kinds::registry::Registry;
use crate::kinds::rules::policy_problem;

/// The policies of one sort.
#[derive(Debug)]
pub(in crate::kinds) struct AdmissionPolicy {
    /// The field with what the policy does, and its column.
    pub(in crate::kinds) rules: &'static str,
    pub(in crate::kinds) headers: &'static str,
    /// Whether the types of its expressions are checked, in the status.
    pub(in crate::kinds) is_checked: bool,
}

impl Behaviour for AdmissionPolicy {
    fn defaults(&self, _kind: &Kind, object: &mut Value) -> Result<()> {
        let spec = &mut object["spec"];
        fill(spec, "failurePolicy", "Fail".into());
        if spec["matchConstraints"].is_object() {
            default_resources(&mut spec["matchConstraints"]);
        }
        Ok(())
    }

    fn needs_registry(&self) -> bool {
        self.is_checked
    }

    fn prepare_create(&self, policy: &mut Value, context: &dyn Context) {
        if let Some(registry) = context.registry() {
            set_checked(policy, 1, registry);
        }
    }

    fn prepare_update(&self, before: &Value, policy: &mut Value, context: &dyn Context) {
        if let Some(registry) = context.registry().filter(|_| before["spec"] != policy["spec"]) {
            let generation = before["metadata"]["generation"].as_i64().unwrap_or(0);
            set_checked(policy, generation + 1, registry);
        }
    }

    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        if change.status {
            return;
        }
        let (spec, causes) = (&change.new["spec"], &mut findings.causes);
        if !spec["matchConstraints"].is_object() {
            causes.push(Cause::required("spec.matchConstraints", ""));
        } else if list(&spec["matchConstraints"]["resourceRules"]).is_empty() {
            causes.push(Cause::required("spec.matchConstraints.resourceRules", ""));
        }
        let others = list(&spec["auditAnnotations"]);
        if list(&spec[self.rules]).is_empty() && others.is_empty() {
            let detail = match self.rules {
                "validations" => "validations or auditAnnotations must be specified",
                _ => "mutations must contain at least one item",
            };
            causes.push(Cause::required(&format!("spec.{}", self.rules), detail));
        }
        for (at, validation) in list(&spec["validations"]).iter().enumerate() {
            if text(&validation["expression"]).trim().is_empty() {
                let field = format!("spec.validations[{at}].expression");
                causes.push(Cause::required(&field, "expression is not specified"));
            }
        }
    }

    fn headers(&self) -> &'static str {
        self.headers
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let kind = &row.spec()["paramKind"];
        let kind = if kind.is_object() {
            format!("{}/{}", text(&kind["apiVersion"]), text(&kind["kind"]))
        } else {
            "<unset>".to_owned()
        };
        json!([row.name(), count(&row.spec()[self.rules]), kind, row.age()])
    }
}

/// The number of kinds for which the types of a policy are checked.
const MOST_KINDS: usize = 10;

/// Checks the expressions of a policy against the kinds that its rules name. Nothing depends on the result; it is for users.
fn set_checked(policy: &mut Value, generation: i64, registry: &Registry) {
    let kinds = kinds_of(&policy["spec"], registry);
    let wanted = &policy["spec"]["paramKind"];
    let params = registry.of_kind(text(&wanted["apiVersion"]), text(&wanted["kind"]));
    let mut warnings = Vec::new();
    for (at, validation) in list(&policy["spec"]["validations"]).iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            let expression = text(&validation[field]);
            let problems = kinds.iter().filter(|_| !expression.is_empty()).filter_map(|kind| {
                let problem = policy_problem(expression, kind, params.as_deref())?;
                Some(format!("{}/{}, Kind={}: {problem}\n", kind.group, kind.version, kind.kind))
            });
            let problems: Vec<_> = problems.collect();
            if !problems.is_empty() {
                let field = format!("spec.validations[{at}].{field}");
                warnings.push(json!({"fieldRef": field, "warning": problems.join("\n")}));
            }
        }
    }
    let status = &mut policy["status"];
    status["observedGeneration"] = generation.into();
    status["typeChecking"] = match warnings.is_empty() {
        true => json!({}),
        false => json!({"expressionWarnings": warnings}),
    };
}

/// The kinds that the rules of a policy name. Rules with wildcards are about too many kinds to tell.
fn kinds_of(spec: &Value, registry: &Registry) -> Vec<Arc<Kind>> {
    let mut found = BTreeMap::new();
    for rule in list(&spec["matchConstraints"]["resourceRules"]) {
        let names = |field: &str| {
            let mut names: Vec<_> = list(&rule[field]).iter().map(text).collect();
            names.sort_unstable();
            names
        };
        let (groups, versions, mut resources) =
            (names("apiGroups"), names("apiVersions"), names("resources"));
        resources.retain(|resource| !resource.contains(['*', '/']));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            continue;
        }
        for group in &groups {
            for (version, resource) in versions.iter().flat_map(|it| resources.iter().map(move |to| (it, to)))
            {
                if let Some(kind) = registry.find(group, version, resource) {
                    found.insert((kind.group.clone(), kind.version.clone(), kind.kind.clone()), kind.clone());
                }
            }
        }
    }
    found.into_values().take(MOST_KINDS).collect()
}

/// Fills the defaults of `MatchResources`.
fn default_resources(resources: &mut Value) {
    fill(resources, "matchPolicy", "Equivalent".into());
    fill(resources, "namespaceSelector", json!({}));
    fill(resources, "objectSelector", json!({}));
    for field in ["resourceRules", "excludeResourceRules"] {
        if resources.get(field).is_some() {
            each(&mut resources[field]).for_each(|rule| fill(rule, "scope", "*".into()));
        }
    }
}

/// The bindings of policies of one sort.
#[derive(Debug)]
pub(in crate::kinds) struct AdmissionPolicyBinding {
    /// Whether a binding says what happens to what is refused.
    pub(in crate::kinds) acts: bool,
}

impl Behaviour for AdmissionPolicyBinding {
    fn defaults(&self, _kind: &Kind, object: &mut Value) -> Result<()> {
        if object["spec"]["matchResources"].is_object() {
            default_resources(&mut object["spec"]["matchResources"]);
        }
        Ok(())
    }

    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        let (spec, causes) = (&change.new["spec"], &mut findings.causes);
        if text(&spec["policyName"]).is_empty() {
            causes.push(Cause::required("spec.policyName", ""));
        }
        let actions = &spec["validationActions"];
        if !self.acts {
            return;
        }
        if list(actions).is_empty() {
            causes.push(Cause::required(
                "spec.validationActions",
                "at least one validation action is required",
            ));
        }
        let supported = ["Audit", "Deny", "Warn"];
        for (at, action) in list(actions).iter().enumerate() {
            if !supported.contains(&text(action)) {
                let field = format!("spec.validationActions[{at}]");
                causes.push(Cause::not_supported(&field, action, &supported));
            }
        }
        let has = |wanted: &str| list(actions).iter().any(|action| action == wanted);
        if has("Deny") && has("Warn") {
            let why = "must not contain both Deny and Warn (repeating the same validation failure information in the \
                       API response and headers serves no purpose)";
            causes.push(Cause::invalid("spec.validationActions", actions, why));
        }
    }

    fn headers(&self) -> &'static str {
        "Name PolicyName ParamRef Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let reference = &row.spec()["paramRef"];
        let shown = match (reference.is_object(), text(&reference["namespace"])) {
            (false, _) => "<unset>".to_owned(),
            (true, "") => text(&reference["name"]).to_owned(),
            (true, namespace) => format!("{namespace}/{}", text(&reference["name"])),
        };
        json!([row.name(), text(&row.spec()["policyName"]), shown, row.age()])
    }
}
