//! Merge types: which values are atomic and which merge by field or element, from the type table or a custom schema.

use serde_json::{Map, Value};

use crate::kinds::schema::Node;
use crate::types::{self, Id, Merge, ValueType};

/// The type along which a value merges.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MergeType<'a> {
    Typed(&'static ValueType, &'static Merge),
    Kind(Id),
    /// A custom object: the common metadata, the rest by its schema.
    Custom(&'a Node),
    Node(&'a Node),
    /// Without a schema: maps merge, lists are atomic.
    Any,
    /// An atomic value.
    Whole,
}

/// How a value merges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Treatment<'a> {
    Leaf,
    Map,
    Set,
    Keys(Vec<&'a str>),
}

static USUAL: Merge = Merge::Usual;

impl<'a> MergeType<'a> {
    pub(crate) fn treatment(self, value: &Value) -> Treatment<'a> {
        match self {
            Self::Kind(_) | Self::Custom(_) => Treatment::Map,
            Self::Typed(ty, merge) => match (ty, merge) {
                (ValueType::List(_), Merge::Set) => Treatment::Set,
                (ValueType::List(_), Merge::Keys(keys)) => Treatment::Keys(keys.clone()),
                (ValueType::Map(_) | ValueType::Message(_), Merge::Atomic) => Treatment::Leaf,
                (ValueType::Message(id), _) if types::get(*id).atomic => Treatment::Leaf,
                (ValueType::Map(_) | ValueType::Message(_), _) => Treatment::Map,
                _ => Treatment::Leaf,
            },
            Self::Node(node) => node.treatment(value),
            Self::Any if value.is_object() => Treatment::Map,
            Self::Any | Self::Whole => Treatment::Leaf,
        }
    }

    /// Returns the merge type of a field, and whether the type names the field.
    pub(crate) fn field(self, name: &str) -> Option<(Self, bool)> {
        match self {
            Self::Kind(_) | Self::Custom(_) if name == "apiVersion" || name == "kind" => {
                Some((Self::Whole, true))
            }
            Self::Kind(kind) => Self::typed(kind, name),
            Self::Typed(ValueType::Message(kind), _) => Self::typed(*kind, name),
            Self::Typed(ValueType::Map(inner), _) => Some((Self::Typed(inner, &USUAL), false)),
            Self::Custom(_) if name == "metadata" => Some((Self::Typed(types::metadata(), &USUAL), true)),
            Self::Custom(node) | Self::Node(node) => node.merge_type_of(name),
            Self::Any => Some((Self::Any, false)),
            Self::Typed(..) | Self::Whole => None,
        }
    }

    fn typed(kind: Id, name: &str) -> Option<(Self, bool)> {
        types::get(kind).field(name).map(|field| (Self::Typed(&field.ty, &field.merge), true))
    }

    /// Returns the merge type of a list's elements.
    pub(crate) fn item(self) -> Self {
        match self {
            Self::Typed(ValueType::List(inner), _) => Self::Typed(inner, &USUAL),
            Self::Node(node) => node.item().map_or(Self::Any, Self::Node),
            _ => Self::Any,
        }
    }

    /// Returns the path step of a list element: by its keys, or by its value.
    pub(crate) fn step(self, treatment: &Treatment<'_>, element: &Value) -> Option<String> {
        let Treatment::Keys(keys) = treatment else { return Some(format!("v:{element}")) };
        let mut named = Map::new();
        for key in keys {
            let value = element.get(key).cloned().or_else(|| self.key_default(key));
            named.insert((*key).to_owned(), value?);
        }
        Some(format!("k:{}", Value::Object(named)))
    }

    fn key_default(self, key: &str) -> Option<Value> {
        match self.item() {
            Self::Typed(ValueType::Message(id), _) => {
                let field = types::get(*id).field(key)?;
                // A key field that is serialized even when empty has the value "" when absent.
                let empty = field.always.then_some("");
                field.default.or(empty.filter(|_| field.ty == ValueType::String)).map(Value::from)
            }
            Self::Node(node) => node.default_of(key).cloned(),
            _ => None,
        }
    }
}
