//! Initializers in the expressions of policies: `Object{..}` and `JSONPatch{..}` become maps, the only composite values
//! that the evaluator knows.

use kube_cel::cel::common::ast::{
    EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, MapEntryExpr, MapExpr, StructExpr,
};

/// The type of a patched object. The types of its parts have the names of their fields: `Object.spec`.
const OBJECT: &str = "Object";
const OPERATION: &str = "JSONPatch";

/// Replaces all initializers in an expression. The error names a type that does not exist.
pub(super) fn replace(expression: &mut IdedExpr) -> Result<(), String> {
    if let Expr::Struct(made) = &mut expression.expr {
        check(made)?;
        expression.expr = Expr::Map(MapExpr { entries: made.entries.drain(..).map(entry).collect() });
    }
    match &mut expression.expr {
        Expr::Call(call) => {
            let target = call.target.as_deref_mut();
            target.into_iter().chain(&mut call.args).try_for_each(replace)
        }
        Expr::Comprehension(all) => {
            let parts = [
                &mut all.iter_range,
                &mut all.accu_init,
                &mut all.loop_cond,
                &mut all.loop_step,
                &mut all.result,
            ];
            parts.into_iter().try_for_each(replace)
        }
        Expr::List(list) => list.elements.iter_mut().try_for_each(replace),
        Expr::Map(map) => map.entries.iter_mut().try_for_each(|entry| match &mut entry.expr {
            EntryExpr::MapEntry(entry) => replace(&mut entry.key).and_then(|()| replace(&mut entry.value)),
            EntryExpr::StructField(field) => replace(&mut field.value),
        }),
        Expr::Select(select) => replace(&mut select.operand),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => Ok(()),
    }
}

/// Checks the names of types: that of a field is the name of the field, with that of the object in front.
fn check(made: &StructExpr) -> Result<(), String> {
    let name = made.type_name.trim_start_matches('.');
    if name == OPERATION {
        return Ok(());
    }
    let is_object = name.strip_prefix(OBJECT).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    if !is_object {
        return Err(format!("undeclared reference to '{name}' (in container '')"));
    }
    for entry in &made.entries {
        if let EntryExpr::StructField(field) = &entry.expr {
            check_field(&field.value, &format!("{name}.{}", field.field))?;
        }
    }
    Ok(())
}

fn check_field(value: &IdedExpr, expected: &str) -> Result<(), String> {
    match &value.expr {
        Expr::Struct(made) if made.type_name.trim_start_matches('.') != expected => Err(format!(
            "type mismatch: unexpected type name \"{}\", expected \"{expected}\", which matches field name path from root Object type",
            made.type_name
        )),
        Expr::List(list) => list.elements.iter().try_for_each(|element| check_field(element, expected)),
        _ => Ok(()),
    }
}

/// A field of an initializer as an entry of a map.
fn entry(field: IdedEntryExpr) -> IdedEntryExpr {
    let id = field.id;
    match field.expr {
        EntryExpr::StructField(field) => {
            let key = IdedExpr { id, expr: Expr::Literal(LiteralValue::String(field.field.into())) };
            let entry = MapEntryExpr { key, value: field.value, optional: field.optional };
            IdedEntryExpr { id, expr: EntryExpr::MapEntry(entry) }
        }
        expr => IdedEntryExpr { id, expr },
    }
}
