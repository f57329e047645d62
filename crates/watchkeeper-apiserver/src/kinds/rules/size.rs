//! Memory limit of rules: an upper bound of the characters that a rule builds at an object, computed before it runs.
//!
//! Strings can grow exponentially: ten chained calls of `replace` turn one character into ten billion. An evaluation
//! cannot be interrupted, and a failed allocation aborts the process, so the bound is computed from the values that the
//! rule is going to see.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ptr;

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators,
};
use serde_json::Value;

/// The maximum number of characters that a rule may build.
pub(super) const MOST: u64 = 100_000_000;

/// The maximum length of a formatted number without its requested decimals, and the maximum number of decimals.
const NUMBER: u64 = 320;
const MOST_DECIMALS: u64 = (1 << 16) - 1;

/// A part of a split string takes more memory than its characters.
const PARTS: u64 = 8;

/// The variables of an expression, innermost last, with their measures.
type Scope<'a> = Vec<(&'a str, Measure<'a>)>;

/// Upper bounds for an expression. Each expression is measured once, from the measures of its parts.
#[derive(Clone, Copy, Default)]
struct Measure<'a> {
    /// The value of the expression, if it selects a part of the object.
    value: Option<&'a Value>,
    /// The characters of the value including everything in it; numbers and booleans count as one.
    size: u64,
    /// For a list or map: the number of elements, and the size of the largest.
    count: u64,
    element: u64,
    /// The total number of characters built to compute the value.
    built: u64,
}

impl Measure<'_> {
    /// A value of known size. Each element counts as at least one.
    fn sized(size: u64, built: u64) -> Self {
        Self { value: None, size, count: size.saturating_add(1), element: size, built }
    }
}

/// The lengths of an object's values, each computed once.
#[derive(Default)]
pub(super) struct Lengths<'a> {
    known: BTreeMap<*const Value, Length>,
    /// Cached values outlive this, so their addresses are unique.
    values: PhantomData<&'a Value>,
    #[cfg(test)]
    walked: usize,
}

/// The number of characters of a value including everything in it, and its longest element.
#[derive(Clone, Copy)]
struct Length {
    total: u64,
    element: u64,
}

impl<'a> Lengths<'a> {
    /// Shorter lists and maps are not cached: an entry would take more memory than they do.
    const SHORT: u64 = 64;

    fn of(&mut self, value: &'a Value) -> Length {
        #[cfg(test)]
        {
            self.walked += 1;
        }
        let length = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => return Length { total: 1, element: 1 },
            Value::String(text) => return Length { total: text.len() as u64, element: text.len() as u64 },
            _ if let Some(known) = self.known.get(&ptr::from_ref(value)) => return *known,
            Value::Array(list) => list.iter().fold(Length { total: 0, element: 0 }, |sum, element| {
                let own = self.of(element).total;
                Length { total: sum.total + own + 1, element: sum.element.max(own) }
            }),
            Value::Object(map) => {
                let total =
                    map.iter().fold(0, |sum, (name, part)| sum + name.len() as u64 + self.of(part).total + 1);
                Length { total, element: total }
            }
        };
        if length.total >= Self::SHORT {
            self.known.insert(ptr::from_ref(value), length);
        }
        length
    }

    /// Returns the measure of a part of the object.
    fn measure(&mut self, value: &'a Value, built: u64) -> Measure<'a> {
        let Length { total, element } = self.of(value);
        let count = match value {
            Value::Array(list) => list.len() as u64,
            Value::Object(map) => map.len() as u64,
            _ => total.saturating_add(1),
        };
        Measure { value: Some(value), size: total, count, element, built }
    }
}

/// Returns whether an expression may build a value larger than its inputs.
pub(super) fn builds(expression: &IdedExpr) -> bool {
    measure(expression, &mut Scope::new(), &mut Lengths::default()).built > 0
}

/// Returns the maximum number of characters that an expression builds for a value and its old state.
pub(super) fn built_at<'a>(
    expression: &'a IdedExpr,
    value: &'a Value,
    old: Option<&'a Value>,
    lengths: &mut Lengths<'a>,
) -> u64 {
    let values = old.map(|old| ("oldSelf", old)).into_iter().chain([("self", value)]);
    let mut scope = values.map(|(name, value)| (name, lengths.measure(value, 0))).collect();
    measure(expression, &mut scope, lengths).built
}

fn measure<'a>(expression: &'a IdedExpr, scope: &mut Scope<'a>, lengths: &mut Lengths<'a>) -> Measure<'a> {
    match &expression.expr {
        Expr::Literal(LiteralValue::String(text)) => Measure::sized(text.inner().len() as u64, 0),
        Expr::Literal(LiteralValue::Bytes(bytes)) => Measure::sized(bytes.inner().len() as u64, 0),
        Expr::Unspecified | Expr::Literal(_) => Measure::sized(1, 0),
        Expr::Ident(name) => {
            let known = scope.iter().rev().find(|(known, _)| known == name);
            known.map_or(Measure::sized(1, 0), |(_, known)| *known)
        }
        Expr::Select(select) => {
            let operand = measure(&select.operand, scope, lengths);
            let built = operand.built;
            match operand.value.map(|value| value.get(&select.field)) {
                _ if select.test => Measure::sized(1, built),
                Some(Some(field)) => lengths.measure(field, built),
                // A missing field has no size, unless its name is escaped in the rule.
                Some(None) if !select.field.contains("__") => Measure::sized(0, built),
                _ => Measure::sized(operand.size, built),
            }
        }
        Expr::List(list) => collection(&mut list.elements.iter(), scope, lengths),
        Expr::Map(map) => {
            let all =
                collection(&mut map.entries.iter().flat_map(|entry| parts(&entry.expr)), scope, lengths);
            Measure::sized(all.size, all.built)
        }
        Expr::Struct(made) => {
            let all =
                collection(&mut made.entries.iter().flat_map(|entry| parts(&entry.expr)), scope, lengths);
            Measure::sized(all.size, all.built)
        }
        Expr::Call(call) => of_call(call, scope, lengths),
        Expr::Comprehension(all) => of_loop(all, scope, lengths),
    }
}

/// Returns the expressions of an entry of a map or struct.
pub(super) fn parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

/// Returns the measure of a list with these elements.
fn collection<'a>(
    parts: &mut dyn Iterator<Item = &'a IdedExpr>,
    scope: &mut Scope<'a>,
    lengths: &mut Lengths<'a>,
) -> Measure<'a> {
    parts.fold(Measure::default(), |sum, part| {
        let part = measure(part, scope, lengths);
        Measure {
            value: None,
            size: sum.size.saturating_add(part.size).saturating_add(1),
            count: sum.count + 1,
            element: sum.element.max(part.size),
            built: sum.built.saturating_add(part.built),
        }
    })
}

fn of_loop<'a>(all: &'a ComprehensionExpr, scope: &mut Scope<'a>, lengths: &mut Lengths<'a>) -> Measure<'a> {
    let range = measure(&all.iter_range, scope, lengths);
    let begin = measure(&all.accu_init, scope, lengths);
    let (outside, element) = (scope.len(), Measure::sized(range.element, 0));
    scope.push((&all.iter_var, element));
    scope.extend(all.iter_var2.as_deref().map(|name| (name, element)));
    scope.push((&all.accu_var, Measure::sized(0, 0)));
    let step = measure(&all.loop_step, scope, lengths);
    let condition = measure(&all.loop_cond, scope, lengths);
    scope.truncate(outside);
    let is_scalar =
        matches!(all.accu_init.expr, Expr::Literal(LiteralValue::Boolean(_) | LiteralValue::Int(_)));
    // Each iteration appends at most one element.
    let collected =
        if is_scalar { 1 } else { begin.size.saturating_add(range.count.saturating_mul(step.size)) };
    scope.push((&all.accu_var, Measure::sized(collected, 0)));
    let result = measure(&all.result, scope, lengths);
    scope.pop();
    let turn = step.built.saturating_add(condition.built);
    let built = [begin.built, range.count.saturating_mul(turn), result.built]
        .into_iter()
        .fold(range.built, u64::saturating_add);
    if matches!(all.accu_init.expr, Expr::List(_)) {
        Measure { value: None, size: result.size, count: range.count, element: step.size, built }
    } else {
        Measure::sized(result.size, built)
    }
}

fn of_call<'a>(call: &'a CallExpr, scope: &mut Scope<'a>, lengths: &mut Lengths<'a>) -> Measure<'a> {
    let target = call.target.as_deref().map(|target| measure(target, scope, lengths));
    let args: Vec<_> = call.args.iter().map(|part| measure(part, scope, lengths)).collect();
    let size = size_of_call(call, target.as_ref(), &args);
    let built = target.iter().chain(&args).map(|part| part.built);
    if call.func_name == operators::CONDITIONAL {
        return Measure::sized(size, built.max().unwrap_or(0));
    }
    let factor = match call.func_name.as_str() {
        // Appending to a list does not copy it.
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
    Measure::sized(size, built.fold(size.saturating_mul(factor), u64::saturating_add))
}

/// Returns the maximum number of characters that a call returns.
fn size_of_call(call: &CallExpr, target: Option<&Measure<'_>>, args: &[Measure<'_>]) -> u64 {
    let nth = |at: usize| args.get(at).map_or(0, |part| part.size);
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
            let text = target.map_or(0, |text| text.size);
            match call.args.first().and_then(literal) {
                Some(from) if !from.is_empty() => {
                    let from = from.len() as u64;
                    text.saturating_add((text / from).saturating_mul(to.saturating_sub(from)))
                }
                // An empty pattern matches before and after every character.
                _ => text.saturating_add(text.saturating_add(1).saturating_mul(to)),
            }
        }
        "join" => {
            let separator = nth(0);
            target.map_or(0, |list| list.size.saturating_add(list.count.saturating_mul(separator)))
        }
        "format" => {
            let values = nth(0).saturating_mul(2);
            let Some((text, known)) = call.target.as_deref().zip(target) else { return 0 };
            let length = known.size;
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
        _ => target.into_iter().chain(args).fold(0, |sum, part| sum.saturating_add(part.size)),
    }
}

fn literal(expression: &IdedExpr) -> Option<&str> {
    match &expression.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

/// Parses the number of decimals of a `format` verb after its `%`; larger ones are refused at run time.
fn decimals(verb: &str) -> u64 {
    let digits = verb.strip_prefix('.').map(|rest| rest.chars().take_while(char::is_ascii_digit).collect());
    digits.and_then(|digits: String| digits.parse().ok()).unwrap_or(0).min(MOST_DECIMALS)
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
        let built =
            || built_at(Program::compile(rule).unwrap().expression(), &value, None, &mut Lengths::default());
        crate::kinds::rules::with_room(built).unwrap()
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

    #[test]
    fn an_object_is_walked_once_however_often_rules_mention_it() {
        let value =
            json!({"l": vec![vec![7; 10_000]; 10], "deep": {"deep": {"deep": {"n": vec![7; 10_000]}}}});
        let rules = [
            format!("[0]{} != []", " + self.l[0]".repeat(600)),
            format!("self.l.all(x, x{} != [])", " + self.l[0]".repeat(600)),
            "self.deep.deep.deep.n + self.deep.deep.n + self.deep.n + self.n != []".to_owned(),
        ];
        let programs = rules.each_ref().map(|rule| Program::compile(rule).unwrap());
        let mut lengths = Lengths::default();
        let mut places = vec![&value];
        places.extend([&value["l"], &value["deep"], &value["deep"]["deep"], &value["deep"]["deep"]["deep"]]);
        let nodes = 110_016;
        crate::kinds::rules::with_room(|| {
            for place in places {
                for program in &programs {
                    built_at(program.expression(), place, None, &mut lengths);
                }
            }
        })
        .unwrap();
        assert!((nodes..nodes + 20_000).contains(&lengths.walked), "{}", lengths.walked);
    }
}
