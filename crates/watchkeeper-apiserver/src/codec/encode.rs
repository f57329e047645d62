//! Protobuf encoding of JSON values by the table of types.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use crate::codec::protobuf::MAGIC;
use crate::codec::wire::Message;
use crate::types::{Field, Id, ValueType, get, named, of_kind, schema};

/// Returns an object in the envelope in which protobuf objects travel.
pub(crate) fn enveloped(api_version: &str, kind: &str, object: Message) -> Vec<u8> {
    let mut identity = Message::default();
    identity.text(1, api_version).text(2, kind);
    let mut envelope = Message::default();
    envelope.message(1, identity).message(2, object);
    [MAGIC, &envelope.into_bytes()].concat()
}

/// Returns an object of a built-in type in its envelope; its own apiVersion and kind say which.
pub(crate) fn object(value: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = (value["apiVersion"].as_str()?, value["kind"].as_str()?);
    if (api_version, kind) == ("v1", "Status") {
        return Some(status(value));
    }
    Some(enveloped(api_version, kind, message(of_kind(api_version, kind)?, value)))
}

/// Returns a list of objects of a built-in type in its envelope.
pub(crate) fn list(
    (api_version, kind): (&str, &str),
    item: Id,
    metadata: &Value,
    items: impl Iterator<Item = Value>,
) -> Vec<u8> {
    enveloped(api_version, kind, partial_list(metadata, items.map(|value| message(item, &value))))
}

/// Returns the message of a `PartialObjectMetadata`.
pub(crate) fn partial(metadata: &Value) -> Message {
    Message::of(1, of_type("meta/v1.ObjectMeta", metadata))
}

/// Returns the message of a list of items: all lists have their metadata and their items in the same fields.
pub(crate) fn partial_list(metadata: &Value, items: impl Iterator<Item = Message>) -> Message {
    let mut list = Message::of(1, of_type("meta/v1.ListMeta", metadata));
    for item in items {
        list.message(2, item);
    }
    list
}

/// Returns a `Status` in its envelope.
pub(crate) fn status(status: &Value) -> Vec<u8> {
    enveloped("v1", "Status", of_type("meta/v1.Status", status))
}

/// Returns an event of a watch with its length in front; `object` is in its envelope.
pub(crate) fn watch_event(kind: &str, object: &[u8]) -> Vec<u8> {
    let mut raw = Message::default();
    raw.bytes(1, object);
    let mut event = Message::default();
    event.text(1, kind).message(2, raw);
    let event = event.into_bytes();
    // An event is an object, which is far shorter than 4 GiB.
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &event].concat()
}

fn of_type(name: &str, value: &Value) -> Message {
    named(name).map_or_else(Message::default, |id| message(id, value))
}

fn message(id: Id, value: &Value) -> Message {
    let mut message = Message::default();
    for field in &get(id).fields {
        if let Some(value) = value.get(field.name).filter(|value| !value.is_null()) {
            add(&mut message, field, value);
        }
    }
    for (number, inlined) in &get(id).inlined {
        let inlined = self::message(*inlined, value);
        if inlined != Message::default() {
            message.message(u32::try_from(*number).unwrap_or_default(), inlined);
        }
    }
    message
}

fn add(into: &mut Message, field: &Field, value: &Value) {
    // Numbers of fields are small.
    let number = u32::try_from(field.number).unwrap_or_default();
    match (&field.ty, value) {
        (ValueType::List(inner), Value::Array(items)) => {
            items.iter().for_each(|item| scalar(into, number, inner, item));
        }
        (ValueType::Map(inner), Value::Object(entries)) => {
            for (key, value) in entries {
                let mut entry = Message::default();
                entry.repeated(1, key);
                scalar(&mut entry, 2, inner, value);
                into.message(number, entry);
            }
        }
        (ty, value) => scalar(into, number, ty, value),
    }
}

fn scalar(into: &mut Message, number: u32, ty: &ValueType, value: &Value) {
    match (ty, value) {
        (ValueType::Message(id), value) => into.message(number, message(*id, value)),
        (ValueType::String, Value::String(text)) => into.repeated(number, text),
        (ValueType::Bool, Value::Bool(value)) => into.integer(number, u64::from(*value)),
        (ValueType::Int32 | ValueType::Int64, Value::Number(value)) => {
            into.integer(number, value.as_i64().unwrap_or_default().cast_unsigned())
        }
        (ValueType::Time | ValueType::MicroTime, Value::String(text)) => {
            let mut time = Message::default();
            if let Ok(at) = text.parse::<Timestamp>() {
                time.integer(1, at.as_second().cast_unsigned());
                time.number(2, u64::try_from(at.subsec_nanosecond()).unwrap_or_default());
            }
            into.message(number, time)
        }
        (ValueType::Fields, value) => {
            let mut fields = Message::default();
            fields.repeated(1, &value.to_string());
            into.message(number, fields)
        }
        (ValueType::Bytes, Value::String(text)) => {
            into.bytes(number, &STANDARD.decode(text).unwrap_or_default())
        }
        (ValueType::Float, Value::Number(value)) => into.double(number, value.as_f64().unwrap_or_default()),
        (ty, value) => into.message(number, wrapped(ty, value)),
    };
}

/// Returns the message of a value that has another form in JSON.
fn wrapped(ty: &ValueType, value: &Value) -> Message {
    let mut message = Message::default();
    match (ty, value) {
        (ValueType::IntOrString, Value::String(text)) => {
            message.integer(1, 1).repeated(3, text);
        }
        (ValueType::IntOrString, value) => {
            message.integer(2, value.as_i64().unwrap_or_default().cast_unsigned());
        }
        (ValueType::Quantity, Value::String(text)) => {
            message.repeated(1, text);
        }
        (ValueType::Quantity | ValueType::Raw | ValueType::Json, value) => {
            message.repeated(1, &value.to_string());
        }
        (ValueType::Strings, Value::Array(texts)) => {
            for text in texts.iter().filter_map(Value::as_str) {
                message.repeated(1, text);
            }
        }
        (ValueType::SchemaOrBool, Value::Bool(allows)) => {
            message.integer(1, (*allows).into());
        }
        (ValueType::SchemaOrBool, value) => {
            message.integer(1, 1);
            scalar(&mut message, 2, schema(), value);
        }
        (ValueType::SchemaOrArray, Value::Array(schemas)) => {
            schemas.iter().for_each(|value| scalar(&mut message, 2, schema(), value));
        }
        (ValueType::SchemaOrStrings, Value::Array(texts)) => {
            for text in texts.iter().filter_map(Value::as_str) {
                message.repeated(2, text);
            }
        }
        (ValueType::SchemaOrArray | ValueType::SchemaOrStrings, value) => {
            scalar(&mut message, 1, schema(), value);
        }
        // A value that does not fit its type is not stored.
        _ => {}
    }
    message
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::codec::protobuf;
    use crate::types::normalize::normalize;

    /// The metadata of objects of a real server, in protobuf and in JSON.
    #[test]
    fn metadata_is_written_as_it_is_read() {
        for line in include_str!("../../tests/fixtures/protobuf.jsonl").lines() {
            let pair: Value = serde_json::from_str(line).unwrap();
            let original = STANDARD.decode(pair["protobuf"].as_str().unwrap()).unwrap();
            let original = protobuf::read(&original, ("", "")).unwrap()["metadata"].clone();
            let metadata = &pair["json"]["metadata"];
            // A ConfigMap has its metadata in the same field.
            let written = enveloped("v1", "ConfigMap", partial(metadata));
            let mut read = protobuf::read(&written, ("", "")).unwrap()["metadata"].clone();
            let mut original = original;
            for each in [&mut read, &mut original] {
                // A real server writes empty values as well.
                each.as_object_mut()
                    .unwrap()
                    .retain(|_, value| *value != "" && *value != 0 && !value.is_null());
                let entries = each["managedFields"].as_array_mut().into_iter().flatten();
                entries.for_each(|it| it.as_object_mut().unwrap().retain(|_, value| *value != ""));
                let owners = each["ownerReferences"].as_array_mut().into_iter().flatten();
                owners.for_each(|it| it.as_object_mut().unwrap().retain(|_, value| *value != ""));
                each.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            }
            assert_eq!(read, original);
        }
    }

    /// Each line of the fixture is one object of a real server, in protobuf and in JSON.
    #[test]
    fn an_object_is_read_as_it_was_written() {
        for line in include_str!("../../tests/fixtures/protobuf.jsonl").lines() {
            let pair: Value = serde_json::from_str(line).unwrap();
            let expected = &pair["json"];
            let written = object(expected).unwrap();
            let mut read = protobuf::read(&written, ("", "")).unwrap();
            let text = |field: &str| expected[field].as_str().unwrap();
            let id = of_kind(text("apiVersion"), text("kind")).unwrap();
            let unknown = normalize(id, &mut read).unwrap();
            assert_eq!(unknown, Vec::<String>::new(), "{}", text("kind"));
            assert_eq!(read, *expected, "{}", text("kind"));
        }
    }

    #[test]
    fn values_that_have_another_form_in_json_are_wrapped() {
        let schema = json!({
            "type": "object", "minimum": -1.5, "default": {"a": [1, null]}, "enum": ["a", 7],
            "additionalProperties": {"type": "string"}, "items": {"type": "integer"},
            "properties": {"none": {"additionalProperties": false}, "all": {"additionalProperties": true}},
            "dependencies": {"a": ["b", "c"], "d": {"type": "null"}},
        });
        let versions =
            json!([{"name": "v1", "served": true, "storage": false, "schema": {"openAPIV3Schema": schema}}]);
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "spec": {"group": "g", "versions": versions}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "100m"}},
                "livenessProbe": {"httpGet": {"port": "http"}}, "readinessProbe": {"tcpSocket": {"port": 80}}}],
            "volumes": [{"name": "v", "secret": {"secretName": "s", "optional": false}}]}});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "AAEC", "b": ""}});
        let revision =
            json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "data": {"a": [1]}, "revision": 3});
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"extra": {"a": ["b", ""]}}});
        for sent in [definition, pod, secret, revision, review] {
            assert_eq!(protobuf::read(&object(&sent).unwrap(), ("", "")).unwrap(), sent);
        }
        assert_eq!(object(&json!({"apiVersion": "example.dev/v1", "kind": "Foo"})), None);
    }

    #[test]
    fn a_status_is_written_field_by_field() {
        let sent = json!({"metadata": {}, "status": "Failure", "code": 410});
        let expected = b"\x0a\0\x12\x07Failure\x30\x9a\x03";
        assert_eq!(of_type("meta/v1.Status", &sent).into_bytes(), expected);
    }

    #[test]
    fn an_event_has_its_length_in_front() {
        let event = watch_event("ADDED", b"k8s\0");
        assert_eq!(event, b"\0\0\0\x0f\x0a\x05ADDED\x12\x06\x0a\x04k8s\0");
    }
}
