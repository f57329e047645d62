//! One webhook of a configuration.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use crate::admission::attempt::Attempt;
use crate::admission::expression::{Expression, Scope};
use crate::admission::rules::{labels_match, selected};
use crate::admission::webhooks::calls::Call;
use crate::admission::webhooks::review::{self, Response};
use crate::admission::webhooks::target::Target;
use crate::failure::{Failure, Result, quoted};
use crate::kinds::cells::text;
use crate::kinds::kind::Kind;
use crate::state::store::Stored;

/// A webhook, as its configuration has it.
#[derive(Debug)]
pub(super) struct Hook {
    /// The name of the configuration and of the webhook.
    pub(super) id: String,
    pub(super) name: String,
    config: Value,
    conditions: Vec<Expression>,
    target: Target,
    timeout: Duration,
    ignores_failures: bool,
    mutating: bool,
}

impl Hook {
    /// Reads the webhooks of configurations, in the order in which they are called.
    pub(super) fn all(configurations: &[Arc<Stored>], mutating: bool) -> Vec<Self> {
        let configurations = configurations.iter().map(|stored| (&stored.key.name, stored.value()));
        configurations
            .flat_map(|(name, mut value)| {
                let hooks = match value["webhooks"].take() {
                    Value::Array(hooks) => hooks,
                    _ => Vec::new(),
                };
                hooks.into_iter().map(|hook| Self::read(name, hook, mutating)).collect::<Vec<_>>()
            })
            .collect()
    }

    fn read(configuration: &str, config: Value, mutating: bool) -> Self {
        let name = text(&config["name"]).to_owned();
        let conditions = config["matchConditions"].as_array().into_iter().flatten();
        let seconds = config["timeoutSeconds"].as_u64().unwrap_or(10);
        Self {
            id: format!("{configuration}/{name}"),
            conditions: conditions.map(|it| Expression::compile(text(&it["expression"]))).collect(),
            target: Target::read(&config["clientConfig"]),
            timeout: Duration::from_secs(seconds),
            ignores_failures: config["failurePolicy"] == "Ignore",
            name,
            config,
            mutating,
        }
    }

    /// Whether it is called again when the object has changed after its call.
    pub(super) fn is_reinvoked(&self) -> bool {
        self.config["reinvocationPolicy"] == "IfNeeded"
    }

    /// Returns the version of the resource in which the webhook is to be called, if it is.
    pub(super) fn selects(&self, attempt: &Attempt<'_>, object: Option<&Value>) -> Result<Option<Arc<Kind>>> {
        let equivalent = self.config["matchPolicy"] != "Exact";
        let Some(kind) = selected(&self.config["rules"], equivalent, attempt) else { return Ok(None) };
        if !labels_match(&self.config, attempt, object) || !self.conditions_hold(attempt, &kind, object)? {
            return Ok(None);
        }
        Ok(Some(kind))
    }

    /// Evaluates the conditions. One that is false outweighs one that fails.
    fn conditions_hold(&self, attempt: &Attempt<'_>, kind: &Kind, object: Option<&Value>) -> Result<bool> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        let in_version = |object: &Value| attempt.convert(object.clone(), attempt.kind, kind);
        let scope = Scope::new()
            .with("object", &object.map_or(Value::Null, in_version))
            .with("oldObject", &attempt.old.map_or(Value::Null, in_version))
            .with("request", &attempt.request(kind));
        let results: Vec<_> = self.conditions.iter().map(|condition| condition.holds(&scope)).collect();
        if results.contains(&Ok(false)) {
            return Ok(false);
        }
        let failed: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        match &failed[..] {
            [] => Ok(true),
            _ if self.ignores_failures => Ok(false),
            [one] => Err(attempt.forbidden(object, one)),
            several => Err(attempt.forbidden(object, &format!("[{}]", several.join(", ")))),
        }
    }

    /// Asks the webhook. Returns `None` if it failed and is to be ignored. Without an answer yet, the request starts
    /// over.
    pub(super) fn ask(
        &self,
        attempt: &Attempt<'_>,
        kind: &Kind,
        object: Option<&Value>,
    ) -> Result<Option<Response>> {
        if attempt.dry_run && !["None", "NoneOnDryRun"].contains(&text(&self.config["sideEffects"])) {
            let why = format!("admission webhook {} does not support dry run", quoted(&self.name));
            return Err(Failure::bad_request(why));
        }
        let versions = self.config["admissionReviewVersions"].as_array().into_iter().flatten();
        let version = versions.map(text).find(|version| ["v1", "v1beta1"].contains(version));
        let Some(version) = version else {
            return self.failed("webhook does not accept known AdmissionReview versions (v1, v1beta1)");
        };
        let uid = attempt.session.uid(&self.id);
        let review = review::review(attempt, &uid, version, kind, object);
        let body = Bytes::from(review.to_string());
        let call = Call { target: self.target.clone(), timeout: self.timeout, body };
        let answer = attempt.session.calls().answer(call).ok_or_else(Failure::outdated)?;
        let answer = match &*answer {
            Ok(answer) => answer,
            Err(why) => return self.failed(&format!("failed to call webhook: {why}")),
        };
        match review::read(answer, &uid, version, self.mutating) {
            Err(why) => self.failed(&format!("received invalid webhook response: {why}")),
            Ok(response) => {
                response.warnings.iter().for_each(|warning| attempt.warn(warning.as_str()));
                match response.allowed {
                    true => Ok(Some(response)),
                    false => Err(Failure::given(review::refusal(&self.name, &response.status))),
                }
            }
        }
    }

    /// Treats a failed call as the failure policy says.
    fn failed<T>(&self, why: &str) -> Result<Option<T>> {
        match self.ignores_failures {
            true => Ok(None),
            false => {
                let message = format!("failed calling webhook {}: {why}", quoted(&self.name));
                Err(Failure::internal_error(&message))
            }
        }
    }
}
