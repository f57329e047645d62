//! Checks of the rules in a definition: their form, their types, and the static limit of their cost.
//!
//! The cost is the maximum number of iterations of their loops, from the bounds of the schema and of a request.
//! The real server estimates the cost of every step. Here only loop iterations count, so that no rule is refused that
//! the real server accepts.

use kube_cel::CompiledSchema;
use kube_cel::cel::common::ast::{Expr, IdedExpr, operators};
use serde_json::Value;

use super::{form, size, types};
use crate::failure::Cause;

/// The budget of one rule, and of all rules of a schema.
const RULE_BUDGET: u64 = 10_000_000;
const SCHEMA_BUDGET: u64 = 100_000_000;

/// The maximum size of a request. It bounds lists and maps without `maxItems` or `maxProperties`.
const REQUEST: u64 = 3 << 20;

/// Returns the problems of a schema's rules. `at` is the path of the schema in the definition.
pub(super) fn check(schema: &Value, compiled: &CompiledSchema, at: &str) -> Vec<Cause> {
    let mut check = Check { causes: Vec::new(), total: 0, root: at, unmatched: None };
    check.walk(schema, compiled, at, Some(1));
    if check.total > SCHEMA_BUDGET {
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        check.causes.push(Cause::forbidden(at, &exceeded(what, check.total, SCHEMA_BUDGET)));
    }
    check.causes
}

struct Check<'a> {
    causes: Vec<Cause>,
    total: u64,
    /// The path of the schema of the whole resource.
    root: &'a str,
    /// The path of the enclosing list whose elements have no previous state, since nothing identifies them.
    unmatched: Option<String>,
}

impl Check<'_> {
    /// Walks a schema; `times` is the maximum number of occurrences of this part, `None` if only the request's size
    /// bounds it.
    fn walk(&mut self, schema: &Value, compiled: &CompiledSchema, at: &str, times: Option<u64>) {
        for (index, rule) in compiled.validations.iter().enumerate() {
            let place = format!("{at}.x-kubernetes-validations[{index}]");
            let said = &schema["x-kubernetes-validations"][index];
            if !self.is_sound(schema, index, at, &place) {
                continue;
            }
            let field = format!("{place}.rule");
            match rule {
                Ok(rule) => {
                    if let Some(list) = self.unmatched.as_ref().filter(|_| rule.is_transition_rule) {
                        let problem = format!(
                            "oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
                        );
                        self.causes.push(Cause::invalid(&field, &rule.rule.rule.as_str().into(), &problem));
                    }
                    if let Some(set) = said.get("optionalOldSelf").filter(|_| !rule.is_transition_rule) {
                        let problem = "may not be set if oldSelf is not used in rule";
                        self.causes.push(Cause::invalid(&format!("{place}.optionalOldSelf"), set, problem));
                    }
                    let mut scope = vec![("self", Some(schema)), ("oldSelf", Some(schema))];
                    let turns = turns(rule.program.expression(), &mut scope).max(1);
                    let times = times.unwrap_or(REQUEST / (smallest(schema) + 1));
                    let cost = turns.saturating_mul(times);
                    self.total = self.total.saturating_add(cost);
                    if cost > RULE_BUDGET {
                        let problem = exceeded("estimated rule cost", cost, RULE_BUDGET);
                        self.causes.push(Cause::forbidden(&field, &problem));
                    }
                }
                Err(error) => {
                    let problem = format!("compilation failed: {error}");
                    self.causes.push(Cause::invalid(&field, &"".into(), &problem));
                }
            }
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(compiled) = compiled.properties.get(name) {
                self.walk(property, compiled, &format!("{at}.properties[{name}]"), times);
            }
        }
        let within = |bound: &str| Some(times?.saturating_mul(schema[bound].as_u64()?));
        if let Some(compiled) = &compiled.items {
            let outside = self.unmatched.clone();
            if schema["x-kubernetes-list-type"] != "map" && outside.is_none() {
                self.unmatched = Some(at.to_owned());
            }
            self.walk(&schema["items"], compiled, &format!("{at}.items"), within("maxItems"));
            self.unmatched = outside;
        }
        if let Some(compiled) = &compiled.additional_properties {
            let at = format!("{at}.additionalProperties");
            self.walk(&schema["additionalProperties"], compiled, &at, within("maxProperties"));
        }
    }

    /// Returns whether a rule has the right form and types, and reports it otherwise.
    fn is_sound(&mut self, schema: &Value, index: usize, at: &str, place: &str) -> bool {
        let rule = &schema["x-kubernetes-validations"][index];
        let mut problems = form::problems(rule, place);
        if problems.is_empty() {
            let whole = at == self.root || schema["x-kubernetes-embedded-resource"] == true;
            let problem = types::problem(rule, schema, whole);
            problems.extend(problem.map(|problem| form::mistyped(rule, place, problem)));
        }
        let is_sound = problems.is_empty();
        self.causes.append(&mut problems);
        is_sound
    }
}

fn exceeded(what: &str, cost: u64, budget: u64) -> String {
    let factor = cost as f64 / budget as f64;
    let factor = match factor {
        _ if factor > 100.0 => "more than 100x".to_owned(),
        _ if factor < 1.5 => format!("{factor:.6}x"),
        _ => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// The variables of an expression, innermost last, with their schema if it is known.
type Scope<'a> = Vec<(&'a str, Option<&'a Value>)>;

/// Returns the maximum number of loop iterations of an expression, as far as known.
fn turns<'a>(expression: &'a IdedExpr, scope: &mut Scope<'a>) -> u64 {
    let mut sum = |parts: &mut dyn Iterator<Item = &'a IdedExpr>| {
        parts.fold(0_u64, |sum, part| sum.saturating_add(turns(part, scope)))
    };
    match &expression.expr {
        Expr::Call(call) if call.func_name == operators::CONDITIONAL => {
            call.args.iter().map(|part| turns(part, scope)).max().unwrap_or(0)
        }
        Expr::Call(call) => sum(&mut call.target.as_deref().into_iter().chain(&call.args)),
        Expr::Select(select) => turns(&select.operand, scope),
        Expr::List(list) => sum(&mut list.elements.iter()),
        Expr::Map(map) => sum(&mut map.entries.iter().flat_map(|entry| size::parts(&entry.expr))),
        Expr::Comprehension(all) => {
            let before = sum(&mut [&all.iter_range, &all.accu_init, &all.result].into_iter());
            let (size, element) = bounds(&all.iter_range, scope);
            scope.push((&all.iter_var, element));
            let inside = turns(&all.loop_step, scope).max(1);
            scope.pop();
            before.saturating_add(size.saturating_mul(inside))
        }
        _ => 0,
    }
}

/// Returns the maximum number of elements of a loop, and their schema; 1 if unknown.
fn bounds<'a>(range: &'a IdedExpr, scope: &Scope<'a>) -> (u64, Option<&'a Value>) {
    match &range.expr {
        Expr::List(list) => (list.elements.len() as u64, None),
        // `filter` and `map` do not lengthen a list.
        Expr::Comprehension(inner) if matches!(inner.accu_init.expr, Expr::List(_)) => {
            (bounds(&inner.iter_range, scope).0, None)
        }
        _ => match schema_of(range, scope) {
            Some(list) if list["type"] == "array" => {
                let most = || (REQUEST - 2) / (smallest(&list["items"]) + 1);
                (list["maxItems"].as_u64().unwrap_or_else(most), Some(&list["items"]))
            }
            Some(map) if map["additionalProperties"].is_object() => {
                let most = || (REQUEST - 2) / (smallest(&map["additionalProperties"]) + 6);
                (map["maxProperties"].as_u64().unwrap_or_else(most), None)
            }
            _ => (1, None),
        },
    }
}

/// Returns the schema of an expression that selects a part of the object.
fn schema_of<'a>(expression: &'a IdedExpr, scope: &Scope<'a>) -> Option<&'a Value> {
    match &expression.expr {
        Expr::Ident(name) => scope.iter().rev().find(|(known, _)| known == name)?.1,
        Expr::Select(select) => {
            let operand = schema_of(&select.operand, scope)?;
            operand["properties"].get(&select.field).or_else(|| operand.get("additionalProperties"))
        }
        Expr::Call(call) if call.func_name == operators::INDEX => {
            let operand = schema_of(call.args.first()?, scope)?;
            operand.get("items").or_else(|| operand.get("additionalProperties"))
        }
        _ => None,
    }
}

/// Returns the minimum length of a value of this schema as JSON.
fn smallest(schema: &Value) -> u64 {
    match schema["type"].as_str() {
        Some("object") => {
            let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let parts = names.map(|name| (name, &schema["properties"][name]));
            let parts = parts.filter(|(_, part)| part.get("default").is_none());
            parts.fold(2, |size, (name, part)| size + name.len() as u64 + smallest(part) + 4)
        }
        Some("string") if !schema["format"].is_null() => 22,
        Some("string" | "array") => 2,
        Some("boolean") => 4,
        _ => 1,
    }
}
