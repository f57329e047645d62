//! How much memory a rule may take at an object: the characters of the texts and lists that it builds, told before it runs.
//!
//! Texts can grow fast: ten calls of `replace` after each other make ten thousand million characters of one. Nothing ends a rule while it
//! runs, and a process that gets no memory is aborted, so a bound from above is found first, by the values that the rule will see.

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators,
};
use serde_json::Value;

/// How many characters a rule may build.
pub(super) const MOST: u64 = 100_000_000;

/// What a number takes at most when it is formatted, without the decimals that were asked for, and how many those can be.
const NUMBER: u64 = 320;
const MOST_DECIMALS: u64 = (1 << 16) - 1;

/// A part of a text takes more memory than its characters.
const PARTS: u64 = 8;

/// The variables of an expression, innermost last.
type Scope<'a> = Vec<Variable<'a>>;

/// What is known of a variable: its value, if any, and how many characters it has at most.
struct Variable<'a> {
    name: &'a str,
    value: Option<&'a Value>,
    size: u64,
}

/// Whether an expression builds anything that may be larger than what it is built of.
pub(super) fn builds(expression: &IdedExpr) -> bool {
    let mut scope = Scope::new();
    built(expression, &mut scope) > 0
}

/// How many characters an expression builds at most, in all, at a part of an object and its state before.
pub(super) fn built_at<'a>(expression: &'a IdedExpr, value: &'a Value, old: Option<&'a Value>) -> u64 {
    let variable = |name, value| Variable { name, value: Some(value), size: length(value) };
    let old = old.map(|old| variable("oldSelf", old));
    let mut scope: Scope<'_> = old.into_iter().chain([variable("self", value)]).collect();
    built(expression, &mut scope)
}

/// How many characters an expression builds at most, in all.
fn built<'a>(expression: &'a IdedExpr, scope: &mut Scope<'a>) -> u64 {
    let mut sum = |parts: &mut dyn Iterator<Item = &'a IdedExpr>| {
        parts.fold(0_u64, |sum, part| sum.saturating_add(built(part, scope)))
    };
    match &expression.expr {
        Expr::Call(call) if call.func_name == operators::CONDITIONAL => {
            call.args.iter().map(|part| built(part, scope)).max().unwrap_or(0)
        }
        Expr::Call(call) => {
            let before = sum(&mut call.target.as_deref().into_iter().chain(&call.args));
            let factor = match call.func_name.as_str() {
                // A list that gets another element is not copied.
                operators::ADD if call.args.iter().any(|part| matches!(part.expr, Expr::List(_))) => 0,
                operators::ADD
                | "replace"
                | "join"
                | "format"
                | "quote"
                | "encode"
                | "escapeKey"
                | "flatten"
                | "range" => 1,
                "split" => PARTS,
                _ => 0,
            };
            let own = if factor == 0 { 0 } else { size(expression, scope).saturating_mul(factor) };
            before.saturating_add(own)
        }
        Expr::Select(select) => built(&select.operand, scope),
        Expr::List(list) => sum(&mut list.elements.iter()),
        Expr::Map(map) => sum(&mut map.entries.iter().flat_map(|entry| parts(&entry.expr))),
        Expr::Struct(made) => sum(&mut made.entries.iter().flat_map(|entry| parts(&entry.expr))),
        Expr::Comprehension(all) => {
            let before = sum(&mut [&all.iter_range, &all.accu_init].into_iter());
            let range = extent(&all.iter_range, scope);
            let inside = within(all, &range, scope, |scope| {
                built(&all.loop_step, scope).saturating_add(built(&all.loop_cond, scope))
            });
            let total = collected(all, scope).total;
            scope.push(Variable { name: &all.accu_var, value: None, size: total });
            let after = built(&all.result, scope);
            scope.pop();
            before.saturating_add(range.count.saturating_mul(inside)).saturating_add(after)
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => 0,
    }
}

fn parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

/// How many characters a value has at most, with all that is in it; a number or a truth value counts as one.
fn size<'a>(expression: &'a IdedExpr, scope: &mut Scope<'a>) -> u64 {
    if let Some(value) = value_of(expression, scope) {
        return length(value);
    }
    let mut sum = |parts: &mut dyn Iterator<Item = &'a IdedExpr>| {
        parts.fold(0_u64, |sum, part| sum.saturating_add(size(part, scope)).saturating_add(1))
    };
    match &expression.expr {
        Expr::Literal(LiteralValue::String(text)) => text.inner().len() as u64,
        Expr::Literal(LiteralValue::Bytes(bytes)) => bytes.inner().len() as u64,
        Expr::Unspecified | Expr::Literal(_) => 1,
        Expr::Ident(name) => {
            scope.iter().rev().find(|known| known.name == name).map_or(1, |known| known.size)
        }
        Expr::Select(select) if select.test => 1,
        Expr::Select(select) => {
            // What the object does not have has no size; but a rule may have to write its name another way.
            let is_absent = !select.field.contains("__") && value_of(&select.operand, scope).is_some();
            if is_absent { 0 } else { size(&select.operand, scope) }
        }
        Expr::List(list) => sum(&mut list.elements.iter()),
        Expr::Map(map) => sum(&mut map.entries.iter().flat_map(|entry| parts(&entry.expr))),
        Expr::Struct(made) => sum(&mut made.entries.iter().flat_map(|entry| parts(&entry.expr))),
        Expr::Call(call) => of_call(call, scope),
        Expr::Comprehension(all) => {
            let collected = collected(all, scope).total;
            scope.push(Variable { name: &all.accu_var, value: None, size: collected });
            let result = size(&all.result, scope);
            scope.pop();
            result
        }
    }
}

fn of_call<'a>(call: &'a CallExpr, scope: &mut Scope<'a>) -> u64 {
    let operands = || call.target.as_deref().into_iter().chain(&call.args);
    let mut nth = |at: usize| call.args.get(at).map_or(0, |part| size(part, scope));
    match call.func_name.as_str() {
        operators::CONDITIONAL => nth(1).max(nth(2)),
        operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT => nth(0),
        operators::LOGICAL_AND
        | operators::LOGICAL_OR
        | operators::LOGICAL_NOT
        | operators::NOT_STRICTLY_FALSE
        | operators::IN
        | operators::EQUALS
        | operators::NOT_EQUALS
        | operators::LESS
        | operators::LESS_EQUALS
        | operators::GREATER
        | operators::GREATER_EQUALS
        | operators::SUBSTRACT
        | operators::MULTIPLY
        | operators::DIVIDE
        | operators::MODULO
        | operators::NEGATE
        | "size"
        | "int"
        | "uint"
        | "double"
        | "contains"
        | "startsWith"
        | "endsWith"
        | "matches" => 1,
        "replace" => {
            let to = nth(1);
            let text = call.target.as_deref().map_or(0, |text| size(text, scope));
            match call.args.first().and_then(literal) {
                Some(from) if !from.is_empty() => {
                    let from = from.len() as u64;
                    text.saturating_add((text / from).saturating_mul(to.saturating_sub(from)))
                }
                // Before and behind each character.
                _ => text.saturating_add(text.saturating_add(1).saturating_mul(to)),
            }
        }
        "join" => {
            let separator = nth(0);
            let Some(list) = call.target.as_deref() else { return 0 };
            let list = extent(list, scope);
            list.total.saturating_add(list.count.saturating_mul(separator))
        }
        "format" => {
            let values = nth(0).saturating_mul(2);
            let Some(text) = call.target.as_deref() else { return 0 };
            let length = size(text, scope);
            let numbers = literal(text).map_or(length.saturating_mul(MOST_DECIMALS), |text| {
                text.split('%').skip(1).fold(0, |sum, verb| sum + NUMBER + decimals(verb))
            });
            values.saturating_add(length).saturating_add(numbers)
        }
        "quote" | "encode" | "escapeKey" => nth(0).saturating_mul(2).saturating_add(2),
        "range" => match call.args.first().map(|count| &count.expr) {
            Some(Expr::Literal(LiteralValue::Int(count))) => u64::try_from(*count.inner()).unwrap_or(0),
            _ => u64::MAX,
        },
        _ => operands().fold(0, |sum, part| sum.saturating_add(size(part, scope))),
    }
}

fn literal(expression: &IdedExpr) -> Option<&str> {
    match &expression.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

/// How many decimals a verb of `format` asks for, behind its `%`; more are refused as it runs.
fn decimals(verb: &str) -> u64 {
    let digits = verb.strip_prefix('.').map(|rest| rest.chars().take_while(char::is_ascii_digit).collect());
    digits.and_then(|digits: String| digits.parse().ok()).unwrap_or(0).min(MOST_DECIMALS)
}

/// What is known of a list or map: how many elements it has, the size of one, and of them all, at most.
struct Extent {
    count: u64,
    element: u64,
    total: u64,
}

fn extent<'a>(list: &'a IdedExpr, scope: &mut Scope<'a>) -> Extent {
    if let Expr::Comprehension(all) = &list.expr
        && matches!(all.accu_init.expr, Expr::List(_))
    {
        return collected(all, scope);
    }
    let total = size(list, scope);
    let (count, element) = match (&list.expr, value_of(list, scope)) {
        (Expr::List(list), _) => {
            let sizes = list.elements.iter().map(|element| size(element, scope));
            (list.elements.len(), sizes.max().unwrap_or(0))
        }
        (_, Some(Value::Array(list))) => (list.len(), list.iter().map(length).max().unwrap_or(0)),
        (_, Some(Value::Object(map))) => (map.len(), total),
        // Each element counts as one at least.
        _ => return Extent { count: total.saturating_add(1), element: total, total },
    };
    Extent { count: count as u64, element, total }
}

/// What a loop has collected at its end.
fn collected<'a>(all: &'a ComprehensionExpr, scope: &mut Scope<'a>) -> Extent {
    if matches!(all.accu_init.expr, Expr::Literal(LiteralValue::Boolean(_) | LiteralValue::Int(_))) {
        return Extent { count: 1, element: 1, total: 1 };
    }
    let (begin, range) = (size(&all.accu_init, scope), extent(&all.iter_range, scope));
    // What is appended in one turn is one element, or none.
    let element = within(all, &range, scope, |scope| size(&all.loop_step, scope));
    let total = begin.saturating_add(range.count.saturating_mul(element));
    Extent { count: range.count, element, total }
}

/// Asks something about one turn of a loop over a range.
fn within<'a>(
    all: &'a ComprehensionExpr,
    range: &Extent,
    scope: &mut Scope<'a>,
    ask: impl FnOnce(&mut Scope<'a>) -> u64,
) -> u64 {
    let (outside, size) = (scope.len(), range.element);
    scope.push(Variable { name: &all.iter_var, value: None, size });
    scope.extend(all.iter_var2.as_deref().map(|name| Variable { name, value: None, size }));
    scope.push(Variable { name: &all.accu_var, value: None, size: 0 });
    let answer = ask(scope);
    scope.truncate(outside);
    answer
}

/// The value of an expression, if it is a part of the object.
fn value_of<'a>(expression: &'a IdedExpr, scope: &Scope<'a>) -> Option<&'a Value> {
    match &expression.expr {
        Expr::Ident(name) => scope.iter().rev().find(|known| known.name == name)?.value,
        Expr::Select(select) if !select.test => value_of(&select.operand, scope)?.get(&select.field),
        _ => None,
    }
}

/// How many characters a value has, with all that is in it.
fn length(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => text.len() as u64,
        Value::Array(list) => list.iter().fold(0, |sum, element| sum + length(element) + 1),
        Value::Object(map) => {
            map.iter().fold(0, |sum, (name, part)| sum + name.len() as u64 + length(part) + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use kube_cel::cel::Program;
    use serde_json::json;

    use super::*;

    fn built_of(rule: &str) -> u64 {
        let text = "a".repeat(1000);
        let value =
            json!({"s": text, "t": "0123456789", "n": [1, 2, 3], "l": [text, "b"], "o": [{"s": text}]});
        let built = || built_at(Program::compile(rule).unwrap().expression(), &value, None);
        crate::rules::with_room(built).unwrap()
    }

    #[test]
    fn what_a_rule_builds_is_bounded_from_above_and_closely() {
        let ten = format!("'a'{} != ''", ".replace('a', 'aaaaaaaaaa')".repeat(10));
        let doubled = format!("[self.s]{}.all(x, x != '')", ".map(x, x + x)".repeat(40));
        let quoted = (0..60).fold("self.s".to_owned(), |inner, _| format!("strings.quote({inner})"));
        let halved = (0..60).fold("'x'".to_owned(), |inner, _| format!("(true ? {inner} : 'y') + 'z'"));
        for (rule, least, most) in [
            ("self.s == 'x' && self.n.all(x, x > 0)", 0, 0),
            ("self.l.filter(x, x != '').size() > 0", 0, 0),
            ("self.l.map(x, x).exists(x, x.contains('b'))", 0, 0),
            ("self.s + self.t != ''", 1010, 1100),
            ("self.s.replace('a', 'b') != ''", 1000, 1100),
            ("self.s.replace('a', self.s) != ''", 1_000_000, 1_100_000),
            ("self.s.replace('', self.s) != ''", 1_000_000, 1_100_000),
            ("self.s.replace(self.t, 'bb') != ''", 1000, 3100),
            ("self.l.join(', ') != ''", 1001, 1100),
            ("self.l.all(x, x + 'c' != '')", 1003, 2100),
            ("self.o.map(x, x.s + x.s).join(self.s) != ''", 4000, 6100),
            ("self.s.split('').map(x, x + self.s).join('') != ''", 1_000_000, u64::MAX),
            ("'%s, %.3f'.format([self.s, 1.5]) != ''", 1000, 3000),
            ("'%.60000f'.format([1.5]) != ''", 60_000, 62_000),
            ("self.s.format([]) != ''", 1000, u64::MAX),
            ("lists.range(1000000000000).size() > 0", MOST + 1, u64::MAX),
            ("lists.range(int(self.t)).size() > 0", MOST + 1, u64::MAX),
            ("!has(self.x) || self.x.y + 'z' != ''", 1, 100),
            ("self.x__dot__y + 'z' != ''", 1000, u64::MAX),
            (&ten, MOST + 1, u64::MAX),
            (&doubled, MOST + 1, u64::MAX),
            (&format!("{quoted} != ''"), MOST + 1, u64::MAX),
            (&format!("{halved} != ''"), 60, 4000),
        ] {
            let built = built_of(rule);
            assert!((least..=most).contains(&built), "{rule}: {built}");
        }
    }
}
