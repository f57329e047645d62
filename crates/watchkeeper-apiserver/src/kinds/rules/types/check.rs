//! Type check of a rule.

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, MapExpr, SelectExpr,
};
use kube_cel::cel::parser::Parser;
use serde_json::Value;

use super::functions::FUNCTIONS;
use super::policy::AUTHORIZER;
use super::position::{self, Mark};
use super::{BOOL, STRING, Type};

/// Macros that the parser leaves as calls: their variables are not known, so nothing in them is checked.
const MACROS: [&str; 6] =
    ["optFlatMap", "optMap", "sortBy", "transformList", "transformMap", "transformMapEntry"];

/// The names of types, which are values of the type `type`, and the packages of such names.
const TYPES: [&str; 14] = [
    "bool",
    "bytes",
    "double",
    "dyn",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "uint",
    "google",
    "kubernetes",
    "net",
    "optional_type",
];

/// What is wrong with a rule, in the real server's words.
pub(in crate::kinds::rules) enum Problem {
    Rule(String),
    Message(String),
}

/// Returns what is wrong with a rule at a schema; `whole` if the schema is that of a resource.
pub(in crate::kinds::rules) fn problem(rule: &Value, schema: &Value, whole: bool) -> Option<Problem> {
    // A schema without a type is reported elsewhere.
    let this = Type::of(schema, whole)?;
    let old =
        if rule["optionalOldSelf"] == true { Type::Optional(Box::new(this.clone())) } else { this.clone() };
    let scope = [("self", this), ("oldSelf", old)];
    match type_of(rule["rule"].as_str().unwrap_or_default(), &scope) {
        Err(problem) => return Some(Problem::Rule(format!("compilation failed: {problem}"))),
        Ok(found) if !found.fits(&BOOL) => {
            return Some(Problem::Rule("cel expression must evaluate to a bool".to_owned()));
        }
        Ok(_) => {}
    }
    let message = rule["messageExpression"].as_str().filter(|message| !message.is_empty())?;
    match type_of(message, &scope) {
        Err(problem) => Some(Problem::Message(format!("messageExpression compilation failed: {problem}"))),
        Ok(found) if found.fits(&STRING) || found.fits(&Type::List(Box::new(STRING))) => None,
        Ok(_) => Some(Problem::Message("messageExpression must evaluate to a string".to_owned())),
    }
}

/// Returns the type of an expression, or the text of its compile errors.
pub(super) fn type_of(expression: &str, scope: &[(&str, Type<'_>)]) -> Result<Type<'static>, String> {
    let tree = Parser::new()
        .parse(expression)
        .map_err(|errors| position::shown(expression, &position::of_syntax(&errors)))?;
    let mut check = Check { scope: scope.to_vec(), problems: Vec::new() };
    let found = check.of(&tree).plain();
    if check.problems.is_empty() {
        return Ok(found);
    }
    let ids: Vec<_> = check.problems.iter().map(|(id, _)| *id).collect();
    let places = position::of(expression, &ids);
    let problems = check.problems.into_iter().zip(places);
    let mut marks: Vec<_> =
        problems.map(|((_, message), (line, column))| Mark { line, column, message }).collect();
    marks.sort_by_key(|mark| (mark.line, mark.column));
    Err(position::shown(expression, &marks))
}

struct Check<'a> {
    /// The variables, innermost last.
    scope: Vec<(&'a str, Type<'a>)>,
    /// What is wrong, with the id of the part at which it is reported.
    problems: Vec<(u64, String)>,
}

impl<'a> Check<'a> {
    fn of(&mut self, expression: &'a IdedExpr) -> Type<'a> {
        let id = expression.id;
        match &expression.expr {
            Expr::Literal(literal) => of_literal(literal),
            Expr::Ident(name) => self.variable(id, name),
            Expr::Select(select) => self.select(id, select),
            Expr::Call(call) => self.call(id, call),
            Expr::List(list) => {
                let element = self.same(list.elements.iter());
                Type::List(Box::new(element))
            }
            Expr::Map(map) => self.map(map),
            Expr::Comprehension(all) => self.comprehension(all),
            Expr::Struct(made) if !made.type_name.starts_with("google.protobuf.") => {
                self.undeclared(id, &made.type_name)
            }
            Expr::Struct(_) | Expr::Unspecified => Type::Dyn,
        }
    }

    fn report(&mut self, id: u64, message: String) -> Type<'a> {
        self.problems.push((id, message));
        Type::Dyn
    }

    fn undeclared(&mut self, id: u64, name: &str) -> Type<'a> {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn variable(&mut self, id: u64, name: &str) -> Type<'a> {
        let known = self.scope.iter().rev().find(|(variable, _)| *variable == name);
        match known {
            Some((_, found)) => found.clone(),
            None if TYPES.contains(&name.trim_start_matches('.')) => Type::Plain("type"),
            None => self.undeclared(id, name),
        }
    }

    fn select(&mut self, id: u64, select: &'a SelectExpr) -> Type<'a> {
        if self.root(&select.operand).is_some_and(|root| TYPES.contains(&root)) {
            return Type::Dyn;
        }
        let operand = self.of(&select.operand);
        let found = self.field(id, operand, &select.field);
        if select.test { BOOL } else { found }
    }

    fn field(&mut self, id: u64, operand: Type<'a>, field: &str) -> Type<'a> {
        match operand {
            Type::Dyn | Type::Unbound => Type::Dyn,
            Type::Map(_, value) => *value,
            Type::Optional(value) => Type::Optional(Box::new(self.field(id, *value, field))),
            Type::Object(object) => {
                object.field(field).unwrap_or_else(|| self.report(id, format!("undefined field '{field}'")))
            }
            other => self.report(id, format!("type '{other}' does not support field selection")),
        }
    }

    /// Returns the first name of a chain of names that is not a variable.
    fn root(&self, expression: &'a IdedExpr) -> Option<&'a str> {
        match &expression.expr {
            Expr::Ident(name) => {
                let is_free = !self.scope.iter().any(|(variable, _)| variable == name);
                is_free.then(|| name.trim_start_matches('.'))
            }
            Expr::Select(select) if !select.test => self.root(&select.operand),
            _ => None,
        }
    }

    fn call(&mut self, id: u64, call: &'a CallExpr) -> Type<'a> {
        let name = call.func_name.trim_start_matches('.');
        let Some(target) = &call.target else {
            let arguments: Vec<_> = call.args.iter().map(|argument| self.of(argument)).collect();
            return self.resolve(id, name, false, &arguments);
        };
        if let Some(root) = self.root(target)
            && FUNCTIONS.namespaces.contains(root)
        {
            let arguments: Vec<_> = call.args.iter().map(|argument| self.of(argument)).collect();
            let found = FUNCTIONS.call(&format!("{root}.{name}"), false, &arguments);
            return match found {
                Err(false) => self.mismatch(id, &format!("{root}.{name}"), false, &arguments),
                found => found.unwrap_or(Type::Dyn),
            };
        }
        let target = self.of(target);
        if target == AUTHORIZER {
            call.args.iter().for_each(|argument| drop(self.of(argument)));
            return match name {
                "allowed" | "errored" => BOOL,
                "error" | "reason" => STRING,
                _ => AUTHORIZER,
            };
        }
        let loops = ["all", "exists", "existsOne", "exists_one"];
        if MACROS.contains(&name) || loops.contains(&name) && call.args.len() == 3 {
            return Type::Dyn;
        }
        let mut arguments = vec![target];
        arguments.extend(call.args.iter().map(|argument| self.of(argument)));
        self.resolve(id, name, true, &arguments)
    }

    fn resolve(&mut self, id: u64, name: &str, is_method: bool, arguments: &[Type<'a>]) -> Type<'a> {
        match FUNCTIONS.call(name, is_method, arguments) {
            Ok(found) => found,
            Err(true) => self.undeclared(id, name),
            Err(false) => self.mismatch(id, name, is_method, arguments),
        }
    }

    fn mismatch(&mut self, id: u64, name: &str, is_method: bool, arguments: &[Type<'a>]) -> Type<'a> {
        let texts: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        let applied = match texts.split_first() {
            Some((target, rest)) if is_method => format!("{target}.({})", rest.join(", ")),
            _ => format!("({})", texts.join(", ")),
        };
        self.report(id, format!("found no matching overload for '{name}' applied to '{applied}'"))
    }

    /// Returns the common type of the elements of a literal; elements of different types are reported.
    fn same(&mut self, elements: impl Iterator<Item = &'a IdedExpr>) -> Type<'a> {
        let mut all = Type::Unbound;
        for element in elements {
            let found = self.of(element);
            if all.fits(&found) {
                all = all.or(found);
            } else {
                self.report(element.id, format!("expected type '{all}' but found '{found}'"));
            }
        }
        all
    }

    fn map(&mut self, map: &'a MapExpr) -> Type<'a> {
        let entries = || {
            map.entries.iter().filter_map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => Some(entry),
                EntryExpr::StructField(_) => None,
            })
        };
        let key = self.same(entries().map(|entry| &entry.key));
        let value = self.same(entries().map(|entry| &entry.value));
        Type::Map(Box::new(key), Box::new(value))
    }

    fn comprehension(&mut self, all: &'a ComprehensionExpr) -> Type<'a> {
        let element = match self.of(&all.iter_range) {
            Type::List(element) => *element,
            Type::Map(key, _) => *key,
            Type::Dyn | Type::Unbound => Type::Dyn,
            other => self.report(
                all.iter_range.id,
                format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                ),
            ),
        };
        let start = self.of(&all.accu_init);
        let depth = self.scope.len();
        self.scope.push((&all.accu_var, start));
        self.scope.push((&all.iter_var, element));
        if let Some(second) = &all.iter_var2 {
            self.scope.push((second, Type::Dyn));
        }
        self.of(&all.loop_cond);
        let step = self.of(&all.loop_step);
        self.scope.truncate(depth);
        self.scope.push((&all.accu_var, step));
        let result = self.of(&all.result);
        self.scope.truncate(depth);
        result
    }
}

fn of_literal(literal: &LiteralValue) -> Type<'static> {
    match literal {
        LiteralValue::Boolean(_) => BOOL,
        LiteralValue::Bytes(_) => Type::Plain("bytes"),
        LiteralValue::Double(_) => Type::Plain("double"),
        LiteralValue::Int(_) => Type::Plain("int"),
        LiteralValue::Null => Type::Null,
        LiteralValue::String(_) => STRING,
        LiteralValue::UInt(_) => Type::Plain("uint"),
    }
}
