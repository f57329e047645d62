//! Cost budget of the rules at an object, estimated before they run because a running rule cannot be interrupted.
//!
//! The real server counts the steps of each rule while it runs and stops when a request has spent its budget. Here the
//! steps are estimated from the values that a rule will see; a loop over the result of a call counts as one iteration.

use kube_cel::cel::common::ast::{Expr, IdedExpr, operators};
use serde_json::Value;

use super::size;

/// The budget of all rules of an object, as on the real server.
pub(super) const BUDGET: u64 = 10_000_000;

/// The base cost of an evaluation: converting the value takes as long as many steps.
const BEGIN: u64 = 100;

/// The number of characters that a call reads per step.
const CHARACTERS: usize = 10;

/// The variables of an expression, innermost last, with their values if known.
type Scope<'a> = Vec<(&'a str, Option<&'a Value>)>;

/// Returns the cost of an expression at a value and its previous state.
pub(super) fn cost_at<'a>(expression: &'a IdedExpr, value: &'a Value, old: Option<&'a Value>) -> u64 {
    let mut scope = vec![("self", Some(value)), ("oldSelf", old)];
    BEGIN.saturating_add(steps(expression, &mut scope))
}

fn steps<'a>(expression: &'a IdedExpr, scope: &mut Scope<'a>) -> u64 {
    let mut sum = |parts: &mut dyn Iterator<Item = &'a IdedExpr>| {
        parts.fold(1_u64, |sum, part| sum.saturating_add(steps(part, scope)))
    };
    match &expression.expr {
        Expr::Call(call) => {
            let parts = || call.target.as_deref().into_iter().chain(&call.args);
            let steps = sum(&mut parts());
            let read =
                parts().filter_map(|part| value_of(part, scope)?.as_str()).map(str::len).sum::<usize>();
            steps.saturating_add((read / CHARACTERS) as u64)
        }
        Expr::Select(select) => 1 + steps(&select.operand, scope),
        Expr::List(list) => sum(&mut list.elements.iter()),
        Expr::Map(map) => sum(&mut map.entries.iter().flat_map(|entry| size::parts(&entry.expr))),
        Expr::Comprehension(all) => {
            let before = sum(&mut [&all.iter_range, &all.accu_init, &all.result].into_iter());
            let (turns, element) = turns(&all.iter_range, scope);
            scope.push((&all.iter_var, element));
            let inside = steps(&all.loop_cond, scope).saturating_add(steps(&all.loop_step, scope));
            scope.pop();
            before.saturating_add(turns.saturating_mul(inside))
        }
        _ => 1,
    }
}

/// Returns the iterations of a loop and its longest element; one iteration if nothing is known.
fn turns<'a>(range: &'a IdedExpr, scope: &Scope<'a>) -> (u64, Option<&'a Value>) {
    let length = |value: &&Value| match value {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        Value::String(text) => text.len(),
        _ => 0,
    };
    match &range.expr {
        Expr::List(list) => (list.elements.len() as u64, None),
        // The result of `filter` or `map` is no longer than its input.
        Expr::Comprehension(inner) if matches!(inner.accu_init.expr, Expr::List(_)) => {
            (turns(&inner.iter_range, scope).0, None)
        }
        _ => match value_of(range, scope) {
            Some(Value::Array(list)) => (list.len() as u64, list.iter().max_by_key(length)),
            Some(Value::Object(map)) => (map.len() as u64, None),
            _ => (1, None),
        },
    }
}

/// Returns the value of an expression that selects a part of the object.
fn value_of<'a>(expression: &'a IdedExpr, scope: &Scope<'a>) -> Option<&'a Value> {
    match &expression.expr {
        Expr::Ident(name) => scope.iter().rev().find(|(known, _)| known == name)?.1,
        Expr::Select(select) => value_of(&select.operand, scope)?.get(&select.field),
        Expr::Call(call) if call.func_name == operators::INDEX => {
            let operand = value_of(call.args.first()?, scope)?;
            operand.as_array()?.first()
        }
        _ => None,
    }
}
