//! ValidatingAdmissionPolicies and their bindings.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::cells::{Row, count, text};

#[derive(Debug)]
pub(in crate::kinds) struct ValidatingAdmissionPolicy;

impl Behaviour for ValidatingAdmissionPolicy {
    fn headers(&self) -> &'static str {
        "Name Validations:integer ParamKind Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let kind = &row.spec()["paramKind"];
        let kind = if kind.is_object() {
            format!("{}/{}", text(&kind["apiVersion"]), text(&kind["kind"]))
        } else {
            "<unset>".to_owned()
        };
        json!([row.name(), count(&row.spec()["validations"]), kind, row.age()])
    }
}

#[derive(Debug)]
pub(in crate::kinds) struct ValidatingAdmissionPolicyBinding;

impl Behaviour for ValidatingAdmissionPolicyBinding {
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
