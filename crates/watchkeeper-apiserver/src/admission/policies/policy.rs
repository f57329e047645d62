//! A compiled policy, and its decision on one object.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_cel::cel::Value as CelValue;
use serde_json::Value;

use crate::admission::expression::{Expression, Scope, map};
use crate::admission::policies::mutation::Mutation;
use crate::kinds::cells::{list, text};
use crate::state::store::Stored;

/// A policy with its bindings.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) name: String,
    pub(super) spec: Value,
    /// By name.
    pub(super) bindings: Vec<(String, Value)>,
    conditions: Vec<Expression>,
    variables: Vec<(String, Expression)>,
    validations: Vec<Validation>,
    mutations: Vec<Mutation>,
}

#[derive(Debug)]
struct Validation {
    expression: Expression,
    text: String,
    message: String,
    message_expression: Option<Expression>,
    reason: String,
}

/// Why a policy does not accept an object.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) message: String,
    /// The reason that the policy gives; empty for none.
    pub(super) reason: String,
}

impl Policy {
    /// Compiles policies. The objects are all policies and all bindings.
    pub(super) fn all(objects: &[Arc<Stored>], is_binding: impl Fn(&Value) -> bool) -> Vec<Self> {
        let values = objects.iter().map(|stored| (stored.key.name.clone(), stored.value()));
        let (bindings, policies): (Vec<_>, Vec<_>) = values.partition(|(_, value)| is_binding(value));
        let mut by_policy = BTreeMap::<String, Vec<(String, Value)>>::new();
        for (name, mut binding) in bindings {
            let spec = binding["spec"].take();
            by_policy.entry(text(&spec["policyName"]).to_owned()).or_default().push((name, spec));
        }
        let mut bound = |name: &String| by_policy.remove(name).unwrap_or_default();
        policies
            .into_iter()
            .map(|(name, mut policy)| (bound(&name), name, policy["spec"].take()))
            .filter(|(bindings, ..)| !bindings.is_empty())
            .map(|(bindings, name, spec)| Self::compile(name, spec, bindings))
            .collect()
    }

    fn compile(name: String, spec: Value, bindings: Vec<(String, Value)>) -> Self {
        let compile = |value: &Value| Expression::compile(text(value));
        let variables = list(&spec["variables"]).iter();
        let validations = list(&spec["validations"]).iter().map(|it| Validation {
            expression: compile(&it["expression"]),
            text: text(&it["expression"]).trim().to_owned(),
            message: text(&it["message"]).to_owned(),
            message_expression: it["messageExpression"]
                .is_string()
                .then(|| compile(&it["messageExpression"])),
            reason: text(&it["reason"]).to_owned(),
        });
        Self {
            name,
            conditions: list(&spec["matchConditions"]).iter().map(|it| compile(&it["expression"])).collect(),
            variables: variables
                .map(|it| (text(&it["name"]).to_owned(), compile(&it["expression"])))
                .collect(),
            validations: validations.collect(),
            mutations: list(&spec["mutations"]).iter().map(Mutation::compile).collect(),
            bindings,
            spec,
        }
    }

    /// Whether an expression that fails is ignored.
    pub(super) fn ignores_failures(&self) -> bool {
        self.spec["failurePolicy"] == "Ignore"
    }

    /// Evaluates the conditions. One that is false outweighs one that fails.
    pub(super) fn conditions_hold(&self, scope: &Scope) -> Result<bool, String> {
        let results: Vec<_> = self.conditions.iter().map(|condition| condition.holds(scope)).collect();
        if results.contains(&Ok(false)) {
            return Ok(false);
        }
        results.into_iter().find(Result::is_err).unwrap_or(Ok(true))
    }

    /// What the policy does to an object, in order.
    pub(super) fn mutations(&self) -> &[Mutation] {
        &self.mutations
    }

    /// Returns why an object is refused.
    pub(super) fn refusals(&self, scope: Scope) -> Vec<Refusal> {
        let scope = self.with_variables(scope);
        self.validations.iter().filter_map(|validation| self.refusal(validation, &scope)).collect()
    }

    fn refusal(&self, validation: &Validation, scope: &Scope) -> Option<Refusal> {
        match validation.expression.holds(scope) {
            Ok(true) => None,
            Ok(false) => {
                Some(Refusal { message: validation.shown(scope), reason: validation.reason.clone() })
            }
            Err(_) if self.ignores_failures() => None,
            Err(message) => Some(Refusal { message, reason: String::new() }),
        }
    }

    /// Adds the variables, in their order. One that fails is missing, so that only those who use it fail.
    pub(super) fn with_variables(&self, mut scope: Scope) -> Scope {
        let mut variables: Vec<(&str, CelValue)> = Vec::new();
        scope = scope.with_value("variables", map(&variables));
        for (name, expression) in &self.variables {
            if let Ok(value) = expression.evaluate(&scope) {
                variables.push((name, value));
                scope = scope.with_value("variables", map(&variables));
            }
        }
        scope
    }
}

impl Validation {
    /// The message of a refusal.
    fn shown(&self, scope: &Scope) -> String {
        let evaluated = self.message_expression.as_ref().and_then(|it| match it.evaluate(scope) {
            Ok(CelValue::String(text)) => Some(text.trim().to_owned()),
            _ => None,
        });
        let usable =
            evaluated.filter(|text| !text.is_empty() && !text.contains('\n') && text.len() <= 5 * 1024);
        match (usable, self.message.trim()) {
            (Some(text), _) => text,
            (None, "") => format!("failed expression: {}", self.text),
            (None, message) => message.to_owned(),
        }
    }
}
