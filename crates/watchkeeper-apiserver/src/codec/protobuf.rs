//! Protobuf decoding: the `k8s` envelope, then the messages of the kind by field number, into JSON values.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::types::{Field, Type, ValueType, get, of_kind, schema};

/// The prefix of every object in protobuf.
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// The maximum nesting depth of messages.
const DEPTH: usize = 100;

/// Why a body cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtobufError {
    #[error("provided data does not appear to be a protobuf message, expected prefix {MAGIC:?}")]
    NoMagic,
    #[error("empty body (6b387300)")]
    Empty,
    #[error("unexpected EOF")]
    Truncated,
    #[error("proto: illegal wireType {0}")]
    WireType(u64),
    #[error("proto: a text is not valid UTF-8")]
    Text,
    #[error("proto: an embedded object is not valid JSON")]
    Json,
    #[error("proto: messages are nested too deeply")]
    Depth,
    #[error("no kind {kind:?} is registered for version {version:?}")]
    Unknown { version: String, kind: String },
}

type Result<T> = std::result::Result<T, ProtobufError>;

/// Decodes an object; `expected` is its apiVersion and kind where the envelope has none.
pub(crate) fn read(body: &[u8], expected: (&str, &str)) -> Result<Value> {
    let body = body.strip_prefix(MAGIC).ok_or(ProtobufError::NoMagic)?;
    if body.is_empty() {
        return Err(ProtobufError::Empty);
    }
    let (mut version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for part in Parts(body) {
        match part? {
            (1, Part::Bytes(meta)) => {
                for part in Parts(meta) {
                    match part? {
                        (1, Part::Bytes(text)) => version = utf8(text)?,
                        (2, Part::Bytes(text)) => kind = utf8(text)?,
                        _ => {}
                    }
                }
            }
            (2, Part::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let object = (
        if version.is_empty() { expected.0 } else { &version },
        if kind.is_empty() { expected.1 } else { &kind },
    );
    // `DeleteOptions` exists in every group version, but the table has it in `v1` only.
    let id = if object.1 == "DeleteOptions" { of_kind("v1", object.1) } else { of_kind(object.0, object.1) };
    let Some(id) = id else {
        return Err(ProtobufError::Unknown { version: object.0.to_owned(), kind: object.1.to_owned() });
    };
    let mut object = Map::new();
    message(get(id), raw, &mut object, DEPTH)?;
    for (field, text) in [("apiVersion", version), ("kind", kind)] {
        if !text.is_empty() {
            object.insert(field.to_owned(), text.into());
        }
    }
    Ok(Value::Object(object))
}

/// The content of a field on the wire.
enum Part<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// An iterator over the fields of a message.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn varint(&mut self) -> Result<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(ProtobufError::Truncated)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ProtobufError::Truncated)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(ProtobufError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| ProtobufError::Truncated)
    }

    fn part(&mut self) -> Result<(u64, Part<'a>)> {
        let tag = self.varint()?;
        let part = match tag & 7 {
            0 => Part::Number(self.varint()?),
            1 => Part::Number(u64::from_le_bytes(self.fixed()?)),
            2 => {
                let length = self.varint()?;
                Part::Bytes(self.take(usize::try_from(length).map_err(|_| ProtobufError::Truncated)?)?)
            }
            5 => Part::Number(u64::from(u32::from_le_bytes(self.fixed()?))),
            other => return Err(ProtobufError::WireType(other)),
        };
        Ok((tag >> 3, part))
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Result<(u64, Part<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let part = self.part();
        if part.is_err() {
            self.0 = &[];
        }
        Some(part)
    }
}

fn utf8(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::Text)
}

fn json(bytes: &[u8]) -> Result<Value> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(bytes).map_err(|_| ProtobufError::Json)
}

fn message(kind: &'static Type, bytes: &[u8], into: &mut Map<String, Value>, depth: usize) -> Result<()> {
    let depth = depth.checked_sub(1).ok_or(ProtobufError::Depth)?;
    for part in Parts(bytes) {
        let (number, part) = part?;
        if let Some(field) = kind.fields.iter().find(|field| field.number == number) {
            add(field, &part, into, depth)?;
        } else if let Some((_, inlined)) = kind.inlined.iter().find(|(inlined, _)| *inlined == number)
            && let Part::Bytes(bytes) = part
        {
            message(get(*inlined), bytes, into, depth)?;
        }
    }
    Ok(())
}

/// Adds the content of a field to the object: appends to a list or map, replaces any other value.
fn add(field: &'static Field, part: &Part<'_>, into: &mut Map<String, Value>, depth: usize) -> Result<()> {
    match (&field.ty, part) {
        (ValueType::List(inner), part) => {
            let list = into.entry(field.name).or_insert_with(|| json!([]));
            let Value::Array(list) = list else { return Ok(()) };
            match part {
                // Repeated numbers may be packed.
                Part::Bytes(bytes) if matches!(**inner, ValueType::Int32 | ValueType::Int64) => {
                    let mut packed = Parts(bytes);
                    while !packed.0.is_empty() {
                        list.push(scalar(inner, &Part::Number(packed.varint()?), depth)?);
                    }
                }
                part => list.push(scalar(inner, part, depth)?),
            }
        }
        (ValueType::Map(inner), Part::Bytes(entry)) => {
            let (mut key, mut value) = (String::new(), Value::Null);
            for part in Parts(entry) {
                match part? {
                    (1, Part::Bytes(text)) => key = utf8(text)?,
                    (2, part) => value = scalar(inner, &part, depth)?,
                    _ => {}
                }
            }
            into.entry(field.name).or_insert_with(|| json!({}))[key] = value;
        }
        (ty, part) => drop(into.insert(field.name.to_owned(), scalar(ty, part, depth)?)),
    }
    Ok(())
}

fn scalar(ty: &'static ValueType, part: &Part<'_>, depth: usize) -> Result<Value> {
    Ok(match (ty, part) {
        (ValueType::Bool, Part::Number(number)) => (*number != 0).into(),
        (ValueType::Int32 | ValueType::Int64, Part::Number(number)) => number.cast_signed().into(),
        (ValueType::Float, Part::Number(bits)) => f64::from_bits(*bits).into(),
        (ValueType::String, Part::Bytes(bytes)) => utf8(bytes)?.into(),
        (ValueType::Bytes, Part::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        (ValueType::Message(id), Part::Bytes(bytes)) => {
            let mut object = Map::new();
            message(get(*id), bytes, &mut object, depth)?;
            Value::Object(object)
        }
        (_, Part::Bytes(bytes)) => wrapped(ty, bytes, depth)?,
        // A number where the table expects a string: keep the number.
        (_, Part::Number(number)) => number.cast_signed().into(),
    })
}

/// Decodes the types that are messages on the wire and a scalar or plain value in JSON.
fn wrapped(ty: &'static ValueType, bytes: &[u8], depth: usize) -> Result<Value> {
    let (mut numbers, mut texts): ([i64; 4], [&[u8]; 5]) = ([0; 4], [&[]; 5]);
    let mut all = Vec::new();
    for part in Parts(bytes) {
        match part? {
            (number @ 1..=3, Part::Number(value)) => numbers[number as usize] = value.cast_signed(),
            (number @ 1..=4, Part::Bytes(bytes)) => {
                texts[number as usize] = bytes;
                all.push((number, bytes));
            }
            _ => {}
        }
    }
    let schema = |bytes: &[u8]| scalar(schema(), &Part::Bytes(bytes), depth);
    let items = |number: u64| all.iter().filter(move |(at, _)| *at == number).map(|(_, bytes)| *bytes);
    Ok(match ty {
        ValueType::Time | ValueType::MicroTime => {
            let time = Timestamp::new(numbers[1], i32::try_from(numbers[2]).unwrap_or(0)).ok();
            match time.filter(|_| !bytes.is_empty()) {
                None => Value::Null,
                Some(time) => time.to_string().into(),
            }
        }
        ValueType::IntOrString if numbers[1] == 0 => numbers[2].into(),
        ValueType::IntOrString => utf8(texts[3])?.into(),
        ValueType::Quantity => utf8(texts[1])?.into(),
        ValueType::Fields | ValueType::Raw | ValueType::Json => json(texts[1])?,
        ValueType::Strings => {
            Value::Array(items(1).map(|text| utf8(text).map(Value::from)).collect::<Result<_>>()?)
        }
        ValueType::SchemaOrBool if all.iter().any(|(at, _)| *at == 2) => schema(texts[2])?,
        ValueType::SchemaOrBool => (numbers[1] != 0).into(),
        ValueType::SchemaOrArray if all.iter().any(|(at, _)| *at == 1) => schema(texts[1])?,
        ValueType::SchemaOrArray => Value::Array(items(2).map(schema).collect::<Result<_>>()?),
        ValueType::SchemaOrStrings if all.iter().any(|(at, _)| *at == 1) => schema(texts[1])?,
        ValueType::SchemaOrStrings => {
            Value::Array(items(2).map(|text| utf8(text).map(Value::from)).collect::<Result<_>>()?)
        }
        _ => Value::Null,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::normalize;

    /// Each line of the fixture is one object of a real server, in protobuf and in JSON.
    #[test]
    fn an_object_in_protobuf_is_the_same_object_in_json() {
        for line in include_str!("../../tests/fixtures/protobuf.jsonl").lines() {
            let pair: Value = serde_json::from_str(line).unwrap();
            let body = STANDARD.decode(pair["protobuf"].as_str().unwrap()).unwrap();
            let mut read = read(&body, ("", "")).unwrap();
            let text = |field: &str| read[field].as_str().unwrap().to_owned();
            let (version, kind) = (text("apiVersion"), text("kind"));
            let unknown = normalize::normalize(of_kind(&version, &kind).unwrap(), &mut read).unwrap();
            assert_eq!(unknown, Vec::<String>::new(), "{kind}");
            assert_eq!(read, pair["json"], "{kind}");
        }
    }

    #[test]
    fn broken_bodies_are_refused() {
        assert_eq!(read(b"{}", ("v1", "Node")), Err(ProtobufError::NoMagic));
        assert_eq!(read(b"k8s\0\x12\x7f", ("v1", "Node")), Err(ProtobufError::Truncated));
        assert_eq!(read(b"k8s\0\x13", ("v1", "Node")), Err(ProtobufError::WireType(3)));
        let unknown = read(b"k8s\0\x12\0", ("v1", "Foo"));
        assert_eq!(unknown, Err(ProtobufError::Unknown { version: "v1".to_owned(), kind: "Foo".to_owned() }));
        // Nested `not` schemas: the depth is bounded.
        let mut schema = Vec::new();
        for _ in 0..200 {
            let mut outer = vec![0xe2, 0x01];
            let mut length = schema.len();
            while length >= 0x80 {
                outer.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
                length >>= 7;
            }
            outer.push(u8::try_from(length).unwrap());
            outer.extend(&schema);
            schema = outer;
        }
        let mut object = Map::new();
        let props = get(crate::types::named("apiextensions/v1.JSONSchemaProps").unwrap());
        assert_eq!(message(props, &schema, &mut object, DEPTH), Err(ProtobufError::Depth));
    }
}
