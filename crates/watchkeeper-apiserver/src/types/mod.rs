//! Schemas of the built-in types: fields, value types, protobuf numbers and merge strategies, read from a generated
//! table.

use std::collections::BTreeMap;
use std::sync::LazyLock;

pub(crate) mod normalize;
pub(crate) mod quantity;

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueType {
    String,
    Bool,
    Int32,
    Int64,
    Float,
    Bytes,
    Time,
    MicroTime,
    /// The `fieldsV1` of managed fields: any JSON object.
    Fields,
    IntOrString,
    Quantity,
    /// An embedded object, as JSON.
    Raw,
    /// Any JSON value.
    Json,
    SchemaOrBool,
    SchemaOrArray,
    SchemaOrStrings,
    /// A list of strings that protobuf wraps into a message.
    Strings,
    List(Box<ValueType>),
    Map(Box<ValueType>),
    Message(Id),
}

/// The index of a type in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id(usize);

/// How a list or map merges in server-side apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Merge {
    /// Lists are atomic; maps and structs merge field by field.
    #[default]
    Usual,
    /// An atomic map or struct.
    Atomic,
    Set,
    Keys(Vec<&'static str>),
}

/// How a list merges in a strategic merge patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patch {
    Replace,
    /// By this key, or by value if there is none.
    Merge(Option<&'static str>),
}

/// A field of a type.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) number: u64,
    pub(crate) ty: ValueType,
    /// An absent value differs from the zero value.
    pub(crate) pointer: bool,
    /// Serialized even when empty (no `omitempty`).
    pub(crate) always: bool,
    pub(crate) merge: Merge,
    /// The value of an absent field in a list map's key.
    pub(crate) default: Option<&'static str>,
    pub(crate) patch: Option<Patch>,
    /// The patch strategy is `retainKeys`: keys that a patch does not name are removed.
    pub(crate) retain_keys: bool,
    /// The values as the table encodes them; see [`Field::values`].
    values: Option<&'static str>,
}

impl Field {
    /// Returns the enum values of the field, or of the elements of a list; empty if any value is allowed.
    pub(crate) fn values(&self) -> Vec<String> {
        let values = self.values.into_iter().flat_map(|text| text.split(','));
        values.map(|value| value.replace('_', " ")).collect()
    }
}

/// A struct type, with its fields in order.
#[derive(Debug, Default)]
pub(crate) struct Type {
    pub(crate) name: &'static str,
    pub(crate) fields: Vec<Field>,
    /// Embedded types, whose fields JSON inlines into this type, by protobuf number.
    pub(crate) inlined: Vec<(u64, Id)>,
    pub(crate) atomic: bool,
    /// Every field by its JSON name, including those of embedded types: the owning type and the index there.
    by_name: BTreeMap<&'static str, (Id, usize)>,
    /// The fields that are serialized even when empty.
    always: Vec<(Id, usize)>,
}

/// The parsed table.
#[derive(Debug)]
pub(crate) struct Types {
    types: Vec<Type>,
    kinds: BTreeMap<(&'static str, &'static str), Id>,
    metadata: ValueType,
    schema: ValueType,
}

/// The table's text, written by the generator in `generate/`.
pub(crate) const TABLE: &str = include_str!("table.txt");

static TYPES: LazyLock<Types> = LazyLock::new(|| Types::read(TABLE));

/// Returns the type of every object's metadata.
pub(crate) fn metadata() -> &'static ValueType {
    &TYPES.metadata
}

/// Returns the type of a schema in a CustomResourceDefinition.
pub(crate) fn schema() -> &'static ValueType {
    &TYPES.schema
}

/// Returns the type of a kind.
pub(crate) fn of_kind(api_version: &str, kind: &str) -> Option<Id> {
    TYPES.kinds.get(&(api_version, kind)).copied()
}

/// Returns the type at an index.
pub(crate) fn get(id: Id) -> &'static Type {
    // An `Id` is only created for an entry of the table.
    &TYPES.types[id.0]
}

/// Returns a type by name.
pub(crate) fn named(name: &str) -> Option<Id> {
    TYPES.types.iter().position(|entry| entry.name == name).map(Id)
}

impl Type {
    /// Returns a field by its JSON name, including those of embedded types.
    pub(crate) fn field(&self, name: &str) -> Option<&'static Field> {
        let (owner, at) = self.by_name.get(name)?;
        get(*owner).fields.get(*at)
    }

    /// Iterates over all fields as JSON has them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static Field> + use<'_> {
        self.by_name.values().filter_map(|(owner, at)| get(*owner).fields.get(*at))
    }

    /// Iterates over the fields that are serialized even when empty.
    pub(crate) fn always(&self) -> impl Iterator<Item = &'static Field> + use<'_> {
        self.always.iter().filter_map(|(owner, at)| get(*owner).fields.get(*at))
    }
}

impl Types {
    fn read(text: &'static str) -> Self {
        let lines = || text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(' '));
        let names =
            lines().filter_map(|mut words| (words.next() == Some("@type")).then(|| words.next()).flatten());
        let ids: Ids = names.enumerate().map(|(at, name)| (name, Id(at))).collect();
        let mut types: Vec<Type> = Vec::with_capacity(ids.len());
        let mut kinds = BTreeMap::new();
        for words in lines() {
            let words: Vec<&'static str> = words.collect();
            match (&words[..], types.last_mut()) {
                (["@kind", version, kind, name], _) => drop(kinds.insert((*version, *kind), ids[name])),
                (["@type", name, rest @ ..], _) => {
                    types.push(Type { name, atomic: rest.contains(&"=atomic"), ..Type::default() });
                }
                ([".", number, ty, ..], Some(open)) => {
                    open.inlined.push((number.parse().unwrap_or(0), ids[ty]));
                }
                ([name, number, ty, flags @ ..], Some(open)) => {
                    open.fields.push(field(&ids, name, number, ty, flags));
                }
                _ => debug_assert!(false, "unexpected line in the type table: {words:?}"),
            }
        }
        let ty = |name: &str| ValueType::Message(ids[name]);
        let (metadata, schema) = (ty("meta/v1.ObjectMeta"), ty("apiextensions/v1.JSONSchemaProps"));
        let mut table = Self { types, kinds, metadata, schema };
        for at in 0..table.types.len() {
            let mut by_name = BTreeMap::new();
            table.collect(Id(at), &mut by_name);
            let always =
                by_name.values().copied().filter(|(id, field)| table.types[id.0].fields[*field].always);
            table.types[at].always = always.collect();
            table.types[at].by_name = by_name;
        }
        table
    }

    fn collect(&self, id: Id, into: &mut BTreeMap<&'static str, (Id, usize)>) {
        let entry = &self.types[id.0];
        into.extend(entry.fields.iter().enumerate().map(|(at, field)| (field.name, (id, at))));
        for (_, inlined) in &entry.inlined {
            self.collect(*inlined, into);
        }
    }
}

type Ids = BTreeMap<&'static str, Id>;

fn field(ids: &Ids, name: &'static str, number: &str, ty: &'static str, flags: &[&'static str]) -> Field {
    let mut field = Field {
        name,
        number: number.parse().unwrap_or(0),
        ty: read_type(ids, ty),
        pointer: false,
        always: false,
        merge: Merge::Usual,
        default: None,
        patch: None,
        retain_keys: false,
        values: None,
    };
    for flag in flags {
        let (sign, rest) = flag.split_at(1);
        match (sign, rest) {
            ("*", _) => field.pointer = true,
            ("!", _) => field.always = true,
            ("~", text) => field.default = Some(text),
            ("|", values) => field.values = Some(values),
            ("=", "atomic") => field.merge = Merge::Atomic,
            ("=", "set") => field.merge = Merge::Set,
            ("=", keys) => field.merge = Merge::Keys(keys.trim_start_matches("map:").split(',').collect()),
            (_, strategy) => {
                let (names, key) =
                    strategy.split_once(':').map_or((strategy, None), |(names, key)| (names, Some(key)));
                field.retain_keys = names.contains("retainKeys");
                if names.contains("replace") {
                    field.patch = Some(Patch::Replace);
                } else if names.contains("merge") {
                    field.patch = Some(Patch::Merge(key));
                }
            }
        }
    }
    field
}

fn read_type(ids: &Ids, text: &'static str) -> ValueType {
    match text {
        "string" => ValueType::String,
        "bool" => ValueType::Bool,
        "int32" => ValueType::Int32,
        "int64" => ValueType::Int64,
        "float" => ValueType::Float,
        "bytes" => ValueType::Bytes,
        "time" => ValueType::Time,
        "microtime" => ValueType::MicroTime,
        "fields" => ValueType::Fields,
        "intorstring" => ValueType::IntOrString,
        "quantity" => ValueType::Quantity,
        "raw" => ValueType::Raw,
        "json" => ValueType::Json,
        "schemaorbool" => ValueType::SchemaOrBool,
        "schemaorarray" => ValueType::SchemaOrArray,
        "schemaorstrings" => ValueType::SchemaOrStrings,
        "strings" => ValueType::Strings,
        _ => match (text.strip_prefix("[]"), text.strip_prefix("{}")) {
            (Some(inner), _) => ValueType::List(Box::new(read_type(ids, inner))),
            (_, Some(inner)) => ValueType::Map(Box::new(read_type(ids, inner))),
            _ => ValueType::Message(ids[text]),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_an_embedded_type_are_its_holders() {
        let volume = get(named("core/v1.Volume").unwrap());
        assert!(volume.field("name").is_some());
        let source = named("core/v1.ConfigMapVolumeSource").unwrap();
        assert_eq!(volume.field("configMap").unwrap().ty, ValueType::Message(source));
        let ports = get(named("core/v1.Container").unwrap()).field("ports").unwrap();
        assert_eq!(ports.merge, Merge::Keys(vec!["containerPort", "protocol"]));
        assert_eq!(ports.patch, Some(Patch::Merge(Some("containerPort"))));
    }
}
