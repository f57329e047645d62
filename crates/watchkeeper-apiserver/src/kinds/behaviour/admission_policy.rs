//! ValidatingAdmissionPolicies and their bindings, and the same of MutatingAdmissionPolicies.

use serde_json::{Value, json};

use super::{Behaviour, Change, Findings};
use crate::failure::{Cause, Result};
use crate::kinds::cells::{Row, count, list, text};
use crate::kinds::fill::{each, fill};
use crate::kinds::kind::Kind;

/// The policies of one sort.
#[derive(Debug)]
pub(in crate::kinds) struct AdmissionPolicy {
    /// The field with what the policy does, and its column.
    pub(in crate::kinds) rules: &'static str,
    pub(in crate::kinds) headers: &'static str,
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
