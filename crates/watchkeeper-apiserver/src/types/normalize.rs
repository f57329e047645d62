//! Normalization of objects: type checks, unknown fields dropped, zero values as Go's typed structs serialize them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{Field, Id, ValueType, get, metadata, quantity, schema};

/// A step of a path.
#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

struct Place<'a> {
    before: Option<&'a Place<'a>>,
    step: Step<'a>,
}

impl Place<'_> {
    /// Returns the path as messages name it: `spec.containers[0].name`.
    fn path(&self) -> String {
        let before = self.before.map(Place::path).unwrap_or_default();
        match self.step {
            Step::Index(at) => format!("{before}[{at}]"),
            Step::Field(name) | Step::Key(name) if before.is_empty() => name.to_owned(),
            Step::Field(name) | Step::Key(name) => format!("{before}.{name}"),
        }
    }

    /// Returns the field names alone, as Go's decoding errors name them.
    fn fields(&self) -> String {
        let before = self.before.map(Place::fields).unwrap_or_default();
        match self.step {
            Step::Field(name) if before.is_empty() => name.to_owned(),
            Step::Field(name) => format!("{before}.{name}"),
            _ => before,
        }
    }
}

/// Brings `value` into the form in which type `id` is stored; returns the paths of unknown fields.
///
/// The error names the value that has the wrong type. It never contains the value, which may be secret.
pub(crate) fn normalize(id: Id, value: &mut Value) -> Result<Vec<String>, String> {
    let mut normalizer = Normalizer { unknown: Vec::new(), holder: get(id).name };
    normalizer.message(id, value, None)?;
    Ok(normalizer.unknown)
}

/// Like [`normalize`], for the metadata of an object.
pub(crate) fn normalize_metadata(value: &mut Value) -> Result<Vec<String>, String> {
    let mut normalizer = Normalizer { unknown: Vec::new(), holder: "ObjectMeta" };
    let place = Place { before: None, step: Step::Field("metadata") };
    let normalized = normalizer.value(metadata(), value, &place);
    // The real server decodes the metadata apart, so its errors start below `metadata`.
    normalized.map_err(|problem| problem.replacen(".metadata.", ".", 1))?;
    Ok(normalizer.unknown)
}

/// Returns the object of this type without any field set.
pub(crate) fn empty(id: Id) -> Value {
    let mut value = Value::Object(Map::new());
    let normalized = normalize(id, &mut value);
    debug_assert!(normalized.is_ok(), "an empty object has no value of a wrong type");
    value
}

fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

pub(crate) fn found_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn wanted_type(ty: &ValueType) -> String {
    match ty {
        // A time decodes from a string.
        ValueType::String | ValueType::Time | ValueType::MicroTime => "string".to_owned(),
        ValueType::Bool => "bool".to_owned(),
        ValueType::Int32 => "int32".to_owned(),
        ValueType::Int64 => "int64".to_owned(),
        ValueType::Float => "float64".to_owned(),
        ValueType::Bytes => "[]uint8".to_owned(),
        ValueType::List(inner) => format!("[]{}", wanted_type(inner)),
        ValueType::Map(inner) => format!("map[string]{}", wanted_type(inner)),
        ValueType::Message(id) => get(*id).name.rsplit('/').next().unwrap_or_default().to_owned(),
        ValueType::Strings => "[]string".to_owned(),
        ValueType::IntOrString => "intstr.IntOrString".to_owned(),
        ValueType::Quantity => "resource.Quantity".to_owned(),
        _ => "object".to_owned(),
    }
}

struct Normalizer {
    unknown: Vec<String>,
    /// The name of the innermost struct, for error messages.
    holder: &'static str,
}

impl Normalizer {
    fn wrong(&self, ty: &ValueType, found: &Value, at: Option<&Place<'_>>) -> String {
        let fields = at.map(Place::fields).unwrap_or_default();
        // A number is shown only where a number is expected. Elsewhere it may stand for a secret string.
        let (found, wanted) = match (ty, found) {
            (ValueType::Int32 | ValueType::Int64, Value::Number(number)) => {
                (format!("number {number}"), wanted_type(ty))
            }
            (ValueType::IntOrString, Value::Number(number)) => {
                (format!("number {number}"), "int32".to_owned())
            }
            _ => (found_type(found).to_owned(), wanted_type(ty)),
        };
        format!(
            "json: cannot unmarshal {found} into Go struct field {}.{fields} of type {wanted}",
            short(self.holder)
        )
    }

    fn message(&mut self, id: Id, value: &mut Value, at: Option<&Place<'_>>) -> Result<(), String> {
        let kind = get(id);
        let Value::Object(map) = value else { return Err(self.wrong(&ValueType::Message(id), value, at)) };
        let holder = std::mem::replace(&mut self.holder, kind.name);
        let root = at.is_none();
        let mut failed = None;
        map.retain(|name, value| {
            if failed.is_some() || (root && (name == "apiVersion" || name == "kind")) {
                return true;
            }
            let here = Place { before: at, step: Step::Field(name) };
            let Some(field) = kind.field(name) else {
                self.unknown.push(here.path());
                return false;
            };
            if value.is_null() {
                return false;
            }
            match self.field(field, value, &here) {
                Ok(hidden) => !hidden,
                Err(problem) => {
                    failed = Some(problem);
                    true
                }
            }
        });
        if let Some(problem) = failed {
            return Err(problem);
        }
        for field in kind.always() {
            if !map.contains_key(field.name) {
                map.insert(field.name.to_owned(), zero(field));
            }
        }
        self.holder = holder;
        Ok(())
    }

    /// Normalizes a field that is not null; returns whether it is omitted when serialized.
    fn field(&mut self, field: &'static Field, value: &mut Value, at: &Place<'_>) -> Result<bool, String> {
        self.value(&field.ty, value, at)?;
        if field.always || field.pointer {
            return Ok(false);
        }
        Ok(match value {
            Value::Null => true,
            Value::Bool(flag) => !*flag,
            Value::Number(number) => number.as_f64() == Some(0.0) && field.ty != ValueType::IntOrString,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => match &field.ty {
                ValueType::Message(id) => *value == empty_part(*id),
                _ => map.is_empty(),
            },
        })
    }

    fn value(&mut self, ty: &'static ValueType, value: &mut Value, at: &Place<'_>) -> Result<(), String> {
        let fits = match (ty, &mut *value) {
            (ValueType::Json, _) => true,
            (ValueType::SchemaOrBool | ValueType::SchemaOrArray | ValueType::SchemaOrStrings, value) => {
                let one = [&mut *value];
                let schemas: Box<dyn Iterator<Item = &mut Value>> = match one {
                    [Value::Array(list)] => Box::new(list.iter_mut()),
                    [value] => Box::new(std::iter::once(value)),
                };
                for value in schemas.filter(|value| value.is_object()) {
                    self.value(schema(), value, at)?;
                }
                true
            }
            (ValueType::Fields | ValueType::Raw, value) => value.is_object(),
            (ValueType::String, value) => value.is_string(),
            (ValueType::Bool, value) => value.is_boolean(),
            (ValueType::Float, value) => {
                // A whole number is serialized without a fraction.
                if let Some(whole) =
                    value.as_f64().filter(|f| value.is_f64() && f.fract() == 0.0 && f.abs() < 1e15)
                {
                    *value = (whole as i64).into();
                }
                value.is_number()
            }
            (ValueType::Int32 | ValueType::IntOrString, Value::Number(number)) => {
                number.as_i64().is_some_and(|n| i32::try_from(n).is_ok())
            }
            (ValueType::Int64, Value::Number(number)) => number.as_i64().is_some(),
            (ValueType::IntOrString, value) => value.is_string(),
            (ValueType::Bytes, Value::String(text)) => return check_base64(text),
            (ValueType::Quantity, value @ (Value::String(_) | Value::Number(_))) => return amount(value),
            (ValueType::Time | ValueType::MicroTime, Value::String(text)) => {
                let micro = *ty == ValueType::MicroTime;
                if !is_stored_time(text, micro) {
                    *text = time(text, micro)?;
                }
                true
            }
            (ValueType::Strings, Value::Array(list)) => list.iter().all(Value::is_string),
            (ValueType::List(inner), Value::Array(list)) => {
                for (index, value) in list.iter_mut().enumerate() {
                    let here = Place { before: Some(at), step: Step::Index(index) };
                    self.element(inner, value, &here)?;
                }
                true
            }
            (ValueType::Map(inner), Value::Object(map)) => {
                for (key, value) in map.iter_mut() {
                    let here = Place { before: Some(at), step: Step::Key(key) };
                    self.element(inner, value, &here)?;
                }
                true
            }
            (ValueType::Message(id), value) => return self.message(*id, value, Some(at)),
            _ => false,
        };
        if fits { Ok(()) } else { Err(self.wrong(ty, value, Some(at))) }
    }

    fn element(&mut self, ty: &'static ValueType, value: &mut Value, at: &Place<'_>) -> Result<(), String> {
        if value.is_null() {
            *value = zero_of(ty);
            return Ok(());
        }
        self.value(ty, value, at)
    }
}

/// Returns the value of a struct within an object without any field set.
fn empty_part(id: Id) -> Value {
    let always = get(id).always().map(|field| (field.name.to_owned(), zero(field)));
    Value::Object(always.collect())
}

/// Returns the value as which an absent field is serialized.
fn zero(field: &'static Field) -> Value {
    if field.pointer { Value::Null } else { zero_of(&field.ty) }
}

fn zero_of(ty: &'static ValueType) -> Value {
    match ty {
        ValueType::String => "".into(),
        ValueType::Bool => false.into(),
        ValueType::Int32 | ValueType::Int64 | ValueType::Float | ValueType::IntOrString => 0.into(),
        ValueType::Quantity => "0".into(),
        ValueType::Message(id) => empty_part(*id),
        _ => Value::Null,
    }
}

/// Reports where a text stops being base64, without quoting it.
fn check_base64(text: &str) -> Result<(), String> {
    let Err(error) = STANDARD.decode(text) else { return Ok(()) };
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) => at,
        _ => text.len() / 4 * 4,
    };
    Err(format!("illegal base64 data at input byte {at}"))
}

fn amount(value: &mut Value) -> Result<(), String> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let canonical = quantity::canonical(&text).ok_or(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    )?;
    *value = canonical.into();
    Ok(())
}

/// Returns whether a text is a time as [`time`] returns it, without parsing it. May miss some: of the days, only those
/// count that every month has.
fn is_stored_time(text: &str, micro: bool) -> bool {
    let (form, bytes): (&[u8], _) = match micro {
        true => (b"dddd-dd-ddTdd:dd:dd.ddddddZ", text.as_bytes()),
        false => (b"dddd-dd-ddTdd:dd:ddZ", text.as_bytes()),
    };
    let fits = |(form, byte): (&u8, &u8)| if *form == b'd' { byte.is_ascii_digit() } else { form == byte };
    let within = |at: usize, least: u8, most: u8| {
        (least..=most).contains(&((bytes[at] - b'0') * 10 + bytes[at + 1] - b'0'))
    };
    form.len() == bytes.len()
        && form.iter().zip(bytes).all(fits)
        && &bytes[..4] != b"0000"
        && within(5, 1, 12)
        && within(8, 1, 28)
        && within(11, 0, 23)
        && within(14, 0, 59)
        && within(17, 0, 59)
}

/// Returns whether a scalar is stored as it is in a field of type `ty`, which omits its zero value.
pub(crate) fn is_stored_scalar(ty: &ValueType, value: &Value) -> bool {
    match (ty, value) {
        (ValueType::String, Value::String(text)) => !text.is_empty(),
        (ValueType::Int32, Value::Number(number)) => {
            number.as_i64().is_some_and(|number| number != 0 && i32::try_from(number).is_ok())
        }
        (ValueType::Time, Value::String(text)) => {
            is_stored_time(text, false) || time(text, false).is_ok_and(|stored| stored == *text)
        }
        _ => false,
    }
}

/// Returns a time as it is stored: in UTC, in seconds or microseconds.
pub(crate) fn time(text: &str, micro: bool) -> Result<String, String> {
    let parsed: Timestamp = text.parse().map_err(|_| {
        format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05{}Z07:00\": cannot parse it",
            if micro { ".000000" } else { "" }
        )
    })?;
    // Rounded down, also before 1970.
    let second = parsed.as_second() - i64::from(parsed.subsec_nanosecond() < 0);
    let whole = Timestamp::from_second(second).unwrap_or(parsed).to_string();
    if !micro {
        return Ok(whole);
    }
    let fraction = parsed.subsec_nanosecond().rem_euclid(1_000_000_000) / 1000;
    Ok(format!("{}.{fraction:06}Z", whole.trim_end_matches('Z')))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::named;
    use super::*;

    fn normalized(name: &str, mut value: Value) -> (Value, Vec<String>) {
        let unknown = normalize(named(name).unwrap(), &mut value).unwrap();
        (value, unknown)
    }

    #[test]
    fn zeros_are_printed_where_typed_clients_print_them() {
        let (replica_set, _) =
            normalized("apps/v1.ReplicaSet", json!({"spec": {"replicas": 0, "minReadySeconds": 0}}));
        assert_eq!(
            replica_set,
            json!({"metadata": {}, "spec": {"replicas": 0, "selector": null, "template": {"metadata": {}, "spec": {"containers": null}}},
                   "status": {"replicas": 0}})
        );
        let (event, _) = normalized("core/v1.Event", json!({"count": 0, "reason": ""}));
        assert_eq!(event["firstTimestamp"], Value::Null);
        assert_eq!(event.get("count"), None);
    }

    #[test]
    fn unknown_fields_are_dropped_and_named_by_their_path() {
        let (pod, unknown) = normalized(
            "core/v1.Pod",
            json!({"metadata": {"foo": 1}, "spec": {"containers": [{"name": "a", "bar": 1}]}}),
        );
        assert_eq!(unknown, ["metadata.foo", "spec.containers[0].bar"]);
        assert_eq!(pod["spec"]["containers"], json!([{"name": "a", "resources": {}}]));
    }

    #[test]
    fn a_value_of_the_wrong_type_is_named_but_not_quoted() {
        let mut value = json!({"data": {"a": 1}});
        let error = normalize(named("core/v1.ConfigMap").unwrap(), &mut value).unwrap_err();
        assert_eq!(error, "json: cannot unmarshal number into Go struct field ConfigMap.data of type string");
        let mut value = json!({"data": {"a": "no base64!"}});
        assert_eq!(
            normalize(named("core/v1.Secret").unwrap(), &mut value).unwrap_err(),
            "illegal base64 data at input byte 2"
        );
    }

    #[test]
    fn amounts_and_times_have_one_form() {
        let (pod, _) = normalized(
            "core/v1.Pod",
            json!({"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "1000m", "memory": 1024}}}]}}),
        );
        assert_eq!(
            pod["spec"]["containers"][0]["resources"]["limits"],
            json!({"cpu": "1", "memory": "1024"})
        );
        assert_eq!(time("2026-01-01T01:00:00.5+01:00", false).unwrap(), "2026-01-01T00:00:00Z");
        assert_eq!(time("2026-01-01T00:00:00.123456Z", true).unwrap(), "2026-01-01T00:00:00.123456Z");
        assert_eq!(time("1969-12-31T23:59:59.25Z", true).unwrap(), "1969-12-31T23:59:59.250000Z");
        assert_eq!(time("1969-12-31T23:59:59.25Z", false).unwrap(), "1969-12-31T23:59:59Z");
    }

    #[test]
    fn a_time_in_its_stored_form_is_recognized_without_parsing_it() {
        for (text, micro) in [("2026-12-28T23:59:59Z", false), ("0001-01-01T00:00:00.000001Z", true)] {
            assert!(is_stored_time(text, micro) && !is_stored_time(text, !micro), "{text}");
            assert_eq!(time(text, micro).as_deref(), Ok(text));
        }
        for text in [
            "",
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:60Z",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00:00z",
            "2026-01-01T00:00:0éZ",
            "-026-01-01T00:00:00Z",
        ] {
            assert!(!is_stored_time(text, false), "{text}");
        }
    }
}
