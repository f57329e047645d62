//! Types of expressions in rules and policies: those of the schema, and those of CEL.
//!
//! A type that is not known is `Dyn`, which fits everywhere: no rule is refused that a real server accepts.

use std::fmt;

use serde_json::Value;

use crate::types::Id;

mod check;
mod functions;
mod policy;
mod position;

pub(super) use check::{Problem, problem};
pub(crate) use policy::policy_problem;

/// The type of an expression.
#[derive(Clone, Debug, PartialEq)]
enum Type<'a> {
    Dyn,
    /// The element type of an empty list or map: any type fits, and replaces it.
    Unbound,
    Null,
    /// A type without parts, by the name that messages use: `int`, `net.IP`.
    Plain(&'static str),
    List(Box<Type<'a>>),
    Map(Box<Type<'a>>, Box<Type<'a>>),
    Optional(Box<Type<'a>>),
    Object(Object<'a>),
}

/// The declared fields of an object.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Object<'a> {
    /// Those of a schema; `whole` if it is that of a resource, which also has the fields that every resource has.
    Schema { schema: &'a Value, whole: bool },
    /// The metadata of a resource: rules see the name alone.
    Metadata,
    /// Those of a custom resource, as policies see it: with all of its metadata.
    Custom(&'a Value),
    /// Those of a built-in type; `whole` if it is that of a resource.
    Builtin { id: Id, whole: bool },
}

const BOOL: Type<'static> = Type::Plain("bool");
const STRING: Type<'static> = Type::Plain("string");

/// Types without parts that may be null.
const NULLABLE: [&str; 8] = [
    "timestamp",
    "duration",
    "net.IP",
    "net.CIDR",
    "kubernetes.URL",
    "kubernetes.Quantity",
    "kubernetes.Semver",
    "kubernetes.NamedFormat",
];

impl<'a> Type<'a> {
    /// Returns the type of a value with this schema; `None` if rules do not see such values.
    fn of(schema: &'a Value, whole: bool) -> Option<Self> {
        if schema["x-kubernetes-int-or-string"] == true {
            return Some(Self::Dyn);
        }
        let of_part = |part: &'a Value| Self::of(part, part["x-kubernetes-embedded-resource"] == true);
        Some(match (schema["type"].as_str()?, schema["format"].as_str().unwrap_or_default()) {
            ("array", _) => Self::List(Box::new(of_part(&schema["items"])?)),
            ("object", _) if schema["additionalProperties"].is_object() => {
                Self::Map(Box::new(STRING), Box::new(of_part(&schema["additionalProperties"])?))
            }
            ("object", _) => Self::Object(Object::Schema { schema, whole }),
            ("string", "byte") => Self::Plain("bytes"),
            ("string", "duration") => Self::Plain("duration"),
            ("string", "date" | "date-time") => Self::Plain("timestamp"),
            ("string", _) => STRING,
            ("boolean", _) => BOOL,
            ("number", _) => Self::Plain("double"),
            ("integer", _) => Self::Plain("int"),
            _ => return None,
        })
    }

    /// Returns the type without the schema it refers to.
    fn plain(self) -> Type<'static> {
        let inside = |part: Box<Self>| Box::new(part.plain());
        match self {
            Self::Dyn | Self::Unbound => Type::Dyn,
            Self::Null => Type::Null,
            Self::Plain(name) => Type::Plain(name),
            Self::List(element) => Type::List(inside(element)),
            Self::Map(key, value) => Type::Map(inside(key), inside(value)),
            Self::Optional(value) => Type::Optional(inside(value)),
            Self::Object(_) => Type::Object(Object::Metadata),
        }
    }

    fn is_unknown(&self) -> bool {
        matches!(self, Self::Dyn | Self::Unbound)
    }

    /// Returns whether a value of one type could be used where the other is expected.
    fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (a, b) if a.is_unknown() || b.is_unknown() => true,
            (Self::Null, Self::Plain(name)) | (Self::Plain(name), Self::Null) => NULLABLE.contains(name),
            (Self::Null, Self::List(_) | Self::Map(..)) | (Self::List(_) | Self::Map(..), Self::Null) => {
                false
            }
            (Self::Null, _) | (_, Self::Null) => true,
            (Self::Plain(a), Self::Plain(b)) => a == b,
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.fits(b),
            (Self::Map(key, value), Self::Map(other, found)) => key.fits(other) && value.fits(found),
            (Self::Object(_), Self::Object(_)) => true,
            _ => false,
        }
    }

    /// Returns the type of a value that may be of either type.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unbound | Self::Null, known) | (known, Self::Unbound | Self::Null) => known,
            (Self::Dyn, _) | (_, Self::Dyn) => Self::Dyn,
            (Self::List(a), Self::List(b)) => Self::List(Box::new(a.or(*b))),
            (Self::Optional(a), Self::Optional(b)) => Self::Optional(Box::new(a.or(*b))),
            (Self::Map(key, value), Self::Map(other, found)) => {
                Self::Map(Box::new(key.or(*other)), Box::new(value.or(*found)))
            }
            (a, b) if a == b => a,
            _ => Self::Dyn,
        }
    }
}

impl<'a> Object<'a> {
    /// Returns the type of a field by its name in rules.
    fn field(self, name: &str) -> Option<Type<'a>> {
        let (schema, whole) = match self {
            Self::Schema { schema, whole } => (schema, whole),
            Self::Metadata => return ["name", "generateName"].contains(&name).then_some(STRING),
            Self::Builtin { id, whole } => {
                let common = if whole { Self::common(name) } else { None };
                return common.or_else(|| Self::builtin_field(id, name));
            }
            Self::Custom(schema) => match Self::common(name) {
                None => (schema, false),
                common => return common,
            },
        };
        match name {
            "kind" | "apiVersion" if whole => return Some(STRING),
            "metadata" if whole => return Some(Type::Object(Self::Metadata)),
            _ => {}
        }
        let mut properties = schema["properties"].as_object()?.iter();
        let (_, found) = properties.find(|(property, _)| escaped(property).as_deref() == Some(name))?;
        Type::of(found, found["x-kubernetes-embedded-resource"] == true)
    }
}

/// Words that are no field names in CEL.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Returns the name of a property in rules; `None` if rules cannot name it.
fn escaped(property: &str) -> Option<String> {
    if RESERVED.contains(&property) {
        return Some(format!("__{property}__"));
    }
    let name = property.replace("__", "__underscores__");
    let name = name.replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__");
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    (name.chars().all(allowed) && !name.starts_with(|letter: char| letter.is_ascii_digit())).then_some(name)
}

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn | Self::Unbound => f.write_str("dyn"),
            Self::Null => f.write_str("null"),
            Self::Plain(name) => f.write_str(name),
            Self::List(element) => write!(f, "list({element})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(value) => write!(f, "optional_type({value})"),
            Self::Object(_) => f.write_str("object"),
        }
    }
}
