//! MutatingWebhookConfigurations and ValidatingWebhookConfigurations.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Behaviour, Change, Findings};
use crate::failure::{Cause, Result};
use crate::kinds::cells::{Row, count, list, text};
use crate::kinds::fill::{each, fill, remove_null};
use crate::kinds::kind::Kind;
use crate::kinds::meta::{label_problems, qualified_name_problem, subdomain_problems};

/// The most conditions of a webhook.
const CONDITIONS: usize = 64;

#[derive(Debug)]
pub(in crate::kinds) struct WebhookConfiguration {
    pub(in crate::kinds) mutating: bool,
}

impl Behaviour for WebhookConfiguration {
    fn defaults(&self, _kind: &Kind, object: &mut Value) -> Result<()> {
        for hook in each(&mut object["webhooks"]) {
            fill(hook, "failurePolicy", "Fail".into());
            fill(hook, "matchPolicy", "Equivalent".into());
            fill(hook, "namespaceSelector", json!({}));
            fill(hook, "objectSelector", json!({}));
            fill(hook, "timeoutSeconds", 10.into());
            if self.mutating {
                fill(hook, "reinvocationPolicy", "Never".into());
            }
            if hook["clientConfig"]["service"].is_object() {
                fill(&mut hook["clientConfig"]["service"], "port", 443.into());
            }
            if hook.get("rules").is_some() {
                each(&mut hook["rules"]).for_each(|rule| fill(rule, "scope", "*".into()));
            }
        }
        remove_null(object, "webhooks");
        Ok(())
    }

    fn validate(&self, change: &Change<'_>, findings: &mut Findings) {
        let mut names = BTreeSet::new();
        for (at, hook) in list(&change.new["webhooks"]).iter().enumerate() {
            let at = format!("webhooks[{at}]");
            validate(hook, &at, &mut findings.causes);
            if !names.insert(text(&hook["name"])) {
                findings.causes.push(Cause::duplicate(&format!("{at}.name"), &hook["name"]));
            }
        }
    }

    fn headers(&self) -> &'static str {
        "Name Webhooks:integer Age"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        json!([row.name(), count(&row.object["webhooks"]), row.age()])
    }
}

fn validate(hook: &Value, at: &str, causes: &mut Vec<Cause>) {
    let mut invalid = |field: &str, value: &Value, why: &str| {
        causes.push(Cause::invalid(&format!("{at}.{field}"), value, why));
    };
    let name = text(&hook["name"]);
    if name.is_empty() {
        causes.push(Cause::required(&format!("{at}.name"), ""));
    } else if let [why, ..] = &subdomain_problems(name)[..] {
        invalid("name", &hook["name"], why);
    } else if name.split('.').count() < 3 {
        invalid("name", &hook["name"], "should be a domain with at least three segments separated by dots");
    }
    for (index, rule) in list(&hook["rules"]).iter().enumerate() {
        validate_rule(rule, &format!("{at}.rules[{index}]"), causes);
    }
    for (field, supported) in
        [("failurePolicy", ["Fail", "Ignore"]), ("matchPolicy", ["Equivalent", "Exact"])]
    {
        if hook[field].is_string() && !supported.contains(&text(&hook[field])) {
            causes.push(Cause::not_supported(&format!("{at}.{field}"), &hook[field], &supported));
        }
    }
    let effects = &hook["sideEffects"];
    if effects.is_null() {
        let why = "must specify one of None, NoneOnDryRun";
        causes.push(Cause::required(&format!("{at}.sideEffects"), why));
    } else if !["None", "NoneOnDryRun"].contains(&text(effects)) {
        let supported = ["None", "NoneOnDryRun"];
        causes.push(Cause::not_supported(&format!("{at}.sideEffects"), effects, &supported));
    }
    let seconds = &hook["timeoutSeconds"];
    if seconds.as_i64().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        causes.push(Cause::invalid(&format!("{at}.timeoutSeconds"), seconds, why));
    }
    let policy = &hook["reinvocationPolicy"];
    if policy.is_string() && !["Never", "IfNeeded"].contains(&text(policy)) {
        let supported = ["Never", "IfNeeded"];
        causes.push(Cause::not_supported(&format!("{at}.reinvocationPolicy"), policy, &supported));
    }
    validate_versions(&hook["admissionReviewVersions"], &format!("{at}.admissionReviewVersions"), causes);
    validate_client(&hook["clientConfig"], &format!("{at}.clientConfig"), causes);
    validate_conditions(&hook["matchConditions"], &format!("{at}.matchConditions"), causes);
}

fn validate_rule(rule: &Value, at: &str, causes: &mut Vec<Cause>) {
    let operations = list(&rule["operations"]);
    let supported = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    for (index, operation) in operations.iter().enumerate() {
        if !supported.contains(&text(operation)) {
            let field = format!("{at}.operations[{index}]");
            causes.push(Cause::not_supported(&field, operation, &supported));
        }
    }
    for (field, what) in [
        ("operations", "operations"),
        ("apiGroups", "API groups"),
        ("apiVersions", "API versions"),
        ("resources", "resources"),
    ] {
        let (entries, path) = (list(&rule[field]), format!("{at}.{field}"));
        if entries.is_empty() {
            causes.push(Cause::required(&path, ""));
        } else if entries.len() > 1 && entries.iter().any(|entry| entry == "*") {
            let why = format!("if '*' is present, must not specify other {what}");
            causes.push(Cause::invalid(&path, &rule[field], &why));
        }
    }
    let scope = &rule["scope"];
    if scope.is_string() && !["*", "Cluster", "Namespaced"].contains(&text(scope)) {
        let supported = ["*", "Cluster", "Namespaced"];
        causes.push(Cause::not_supported(&format!("{at}.scope"), scope, &supported));
    }
}

fn validate_versions(versions: &Value, at: &str, causes: &mut Vec<Cause>) {
    let all = list(versions);
    let known = ["v1", "v1beta1"];
    if all.is_empty() {
        causes.push(Cause::required(at, "must specify one of v1, v1beta1"));
    } else if !all.iter().any(|version| known.contains(&text(version))) {
        causes.push(Cause::invalid(at, versions, "must include at least one of v1, v1beta1"));
    }
    let mut seen = BTreeSet::new();
    for (index, version) in all.iter().enumerate() {
        let field = format!("{at}[{index}]");
        match &label_problems(text(version))[..] {
            [why, ..] => causes.push(Cause::invalid(&field, version, why)),
            [] if !seen.insert(text(version)) => {
                causes.push(Cause::invalid(&field, version, "duplicate version"))
            }
            [] => {}
        }
    }
}

fn validate_client(config: &Value, at: &str, causes: &mut Vec<Cause>) {
    let (url, service) = (&config["url"], &config["service"]);
    if url.is_null() != service.is_object() {
        causes.push(Cause::required(at, "exactly one of url or service is required"));
        return;
    }
    if service.is_object() {
        for field in ["name", "namespace"] {
            if text(&service[field]).is_empty() {
                causes.push(Cause::required(
                    &format!("{at}.service.{field}"),
                    &format!("service {field} is required"),
                ));
            }
        }
        if service["port"].as_i64().is_some_and(|port| !(1..=65535).contains(&port)) {
            let why = "port is not valid: must be between 1 and 65535, inclusive";
            causes.push(Cause::invalid(&format!("{at}.service.port"), &service["port"], why));
        }
        return;
    }
    let shown = text(url);
    let why = match shown.strip_prefix("https://") {
        None => "'https' is the only allowed URL scheme; desired format: https://host[/path]",
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            "host must be specified; desired format: https://host[/path]"
        }
        Some(rest) if rest.split('/').next().is_some_and(|host| host.contains('@')) => {
            "user information is not permitted in the URL; desired format: https://host[/path]"
        }
        Some(rest) if rest.contains('#') => {
            "fragments are not permitted in the URL; desired format: https://host[/path]"
        }
        Some(rest) if rest.contains('?') => {
            "query parameters are not permitted in the URL; desired format: https://host[/path]"
        }
        Some(_) => return,
    };
    causes.push(Cause::invalid(&format!("{at}.url"), url, why));
}

fn validate_conditions(conditions: &Value, at: &str, causes: &mut Vec<Cause>) {
    let conditions = list(conditions);
    if conditions.len() > CONDITIONS {
        causes.push(Cause {
            reason: "FieldValueTooMany",
            message: format!("Too many: {}: must have at most {CONDITIONS} items", conditions.len()),
            field: at.to_owned(),
        });
    }
    let mut names = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let name = text(&condition["name"]);
        if name.is_empty() {
            causes.push(Cause::required(&format!("{at}.name"), ""));
        } else if let Some(why) = qualified_name_problem(name) {
            causes.push(Cause::invalid(&format!("{at}.name"), &condition["name"], &why));
        } else if !names.insert(name) {
            causes.push(Cause::duplicate(&format!("{at}.name"), &condition["name"]));
        }
        if text(&condition["expression"]).trim().is_empty() {
            causes.push(Cause::required(&format!("{at}.expression"), ""));
        }
    }
}
