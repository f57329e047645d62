//! Type check of the expressions of admission policies.

use super::check::type_of;
use super::{Object, Type};
use crate::kinds::kind::Kind;
use crate::kinds::rules::{MOST_SIGNS, signs, with_room};
use crate::types::{self, ValueType};

/// The type of the variable `authorizer`, and of what its methods return before they decide.
pub(super) const AUTHORIZER: Type<'static> = Type::Plain("kubernetes.authorization.Authorizer");

/// Variables of any type.
const OTHERS: [&str; 3] = ["namespaceObject", "request", "variables"];

/// Returns the errors of an expression about objects of `kind`, in the real server's words. The parameters have the type
/// of `params`; a policy without parameters has no such variable. `None` also if the fields of the kind are not known.
pub(crate) fn policy_problem(expression: &str, kind: &Kind, params: Option<&Kind>) -> Option<String> {
    let object = Type::of_kind(kind)?;
    let mut scope: Vec<_> = OTHERS.iter().map(|name| (*name, Type::Dyn)).collect();
    scope.extend([("object", object.clone()), ("oldObject", object), ("authorizer", AUTHORIZER)]);
    scope.extend(params.map(|params| ("params", Type::of_kind(params).unwrap_or(Type::Dyn))));
    if signs(expression) > MOST_SIGNS {
        return Some("the expression is too long or too deep".to_owned());
    }
    let checked = with_room(|| type_of(expression, &scope).map(|_| ()));
    checked.unwrap_or_else(|| Err("the expression cannot be understood".to_owned())).err()
}

impl<'a> Type<'a> {
    /// Returns the type of the objects of a kind, with all of their metadata.
    fn of_kind(kind: &'a Kind) -> Option<Self> {
        match (kind.schema, &kind.custom) {
            (Some(id), _) => Some(Self::Object(Object::Builtin { id, whole: true })),
            (None, Some(custom)) => Self::of(&custom.document, false).map(|found| match found {
                Self::Object(_) => Self::Object(Object::Custom(&custom.document)),
                other => other,
            }),
            (None, None) => None,
        }
    }

    /// Returns the type of a value of a built-in type.
    pub(super) fn of_value(value: &ValueType) -> Self {
        match value {
            ValueType::String => super::STRING,
            ValueType::Bool => super::BOOL,
            ValueType::Int32 | ValueType::Int64 => Self::Plain("int"),
            ValueType::Float => Self::Plain("double"),
            ValueType::Bytes => Self::Plain("bytes"),
            ValueType::Time | ValueType::MicroTime => Self::Plain("timestamp"),
            ValueType::Strings => Self::List(Box::new(super::STRING)),
            ValueType::List(element) => Self::List(Box::new(Self::of_value(element))),
            ValueType::Map(value) => Self::Map(Box::new(super::STRING), Box::new(Self::of_value(value))),
            ValueType::Message(id) => Self::Object(Object::Builtin { id: *id, whole: false }),
            ValueType::Fields
            | ValueType::IntOrString
            | ValueType::Quantity
            | ValueType::Raw
            | ValueType::Json
            | ValueType::SchemaOrBool
            | ValueType::SchemaOrArray
            | ValueType::SchemaOrStrings => Self::Dyn,
        }
    }
}

impl<'a> Object<'a> {
    /// Returns the type of a field that every resource has, in full.
    pub(super) fn common(name: &str) -> Option<Type<'a>> {
        match name {
            "kind" | "apiVersion" => Some(super::STRING),
            "metadata" => Some(Type::of_value(types::metadata())),
            _ => None,
        }
    }

    /// Returns the type of a field of a built-in type by its name in rules.
    pub(super) fn builtin_field(id: types::Id, name: &str) -> Option<Type<'a>> {
        let found = types::get(id).all().find(|field| super::escaped(field.name).as_deref() == Some(name))?;
        Some(Type::of_value(&found.ty))
    }
}
