//! `/openapi/v2` in protobuf: messages of `openapi.v2`, the form that clients written in Go ask for.

use serde_json::{Map, Value};

use crate::codec::wire::Message;
use crate::kinds::cells::{list, text};

/// Encodes a document, without its paths and definitions, which are encoded already.
pub(super) fn document(swagger: &str, info: &Value, paths: Message, definitions: Message) -> Vec<u8> {
    let mut about = Message::default();
    about.text(1, text(&info["title"])).text(2, text(&info["version"]));
    let mut document = Message::default();
    document.text(1, swagger).message(2, about).message(8, paths).message(9, definitions);
    document.into_bytes()
}

/// Adds a definition to the message of all definitions.
pub(super) fn add_definition(all: &mut Message, name: &str, definition: &Value) {
    all.message(1, named(name, schema(definition)));
}

/// Adds a path with its operations to the message of all paths.
pub(super) fn add_path(all: &mut Message, path: &str, item: &Value) {
    let mut message = Message::default();
    for (number, method) in
        [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (6, "options"), (7, "head"), (8, "patch")]
    {
        if item[method].is_object() {
            message.message(number, operation(&item[method]));
        }
    }
    for one in list(&item["parameters"]) {
        message.message(9, parameter(one));
    }
    extend(&mut message, 10, item);
    all.message(2, named(path, message));
}

fn named(name: &str, value: Message) -> Message {
    let mut message = Message::default();
    message.text(1, name).message(2, value);
    message
}

/// A value of any form, as YAML; JSON is YAML.
fn any(value: &Value) -> Message {
    let mut message = Message::default();
    message.text(2, &value.to_string());
    message
}

/// Adds the extensions of an object, the fields that begin with `x-`.
fn extend(message: &mut Message, number: u32, object: &Value) {
    let fields = object.as_object().into_iter().flatten();
    for (name, value) in fields.filter(|(name, _)| name.starts_with("x-")) {
        message.message(number, named(name, any(value)));
    }
}

fn texts<'a>(message: &mut Message, number: u32, values: impl IntoIterator<Item = &'a Value>) {
    for value in values.into_iter().filter_map(Value::as_str) {
        message.repeated(number, value);
    }
}

fn operation(operation: &Value) -> Message {
    let mut message = Message::default();
    texts(&mut message, 1, list(&operation["tags"]));
    message.text(3, text(&operation["description"])).text(5, text(&operation["operationId"]));
    texts(&mut message, 6, list(&operation["produces"]));
    texts(&mut message, 7, list(&operation["consumes"]));
    for one in list(&operation["parameters"]) {
        message.message(8, parameter(one));
    }
    let mut responses = Message::default();
    for (code, response) in operation["responses"].as_object().into_iter().flatten() {
        let mut one = Message::default();
        one.text(1, text(&response["description"]));
        if response["schema"].is_object() {
            one.message(2, Message::of(1, schema(&response["schema"])));
        }
        responses.message(1, named(code, Message::of(1, one)));
    }
    message.message(9, responses);
    texts(&mut message, 10, list(&operation["schemes"]));
    extend(&mut message, 13, operation);
    message
}

/// A parameter: of the body, the query or the path.
fn parameter(parameter: &Value) -> Message {
    let is_required = parameter["required"] == true;
    let place = text(&parameter["in"]);
    let (name, description) = (text(&parameter["name"]), text(&parameter["description"]));
    let is_unique = parameter["uniqueItems"] == true;
    let mut message = Message::default();
    let kind = match place {
        "body" => {
            message.text(1, description).text(2, name).text(3, place).flag(4, is_required);
            message.message(5, schema(&parameter["schema"]));
            Message::of(1, message)
        }
        "path" => {
            message.flag(1, is_required).text(2, place).text(3, description).text(4, name);
            message.text(5, text(&parameter["type"])).flag(19, is_unique);
            Message::of(2, Message::of(4, message))
        }
        _ => {
            message.flag(1, is_required).text(2, place).text(3, description).text(4, name);
            message.text(6, text(&parameter["type"])).flag(20, is_unique);
            Message::of(2, Message::of(3, message))
        }
    };
    Message::of(1, kind)
}

fn schema(schema: &Value) -> Message {
    let mut message = Message::default();
    let Value::Object(fields) = schema else { return message };
    for (number, name) in [(1, "$ref"), (2, "format"), (3, "title"), (4, "description"), (13, "pattern")] {
        message.text(number, fields.get(name).map_or("", text));
    }
    for (number, name) in [(5, "default"), (30, "example")] {
        if let Some(value) = fields.get(name) {
            message.message(number, any(value));
        }
    }
    for (number, name) in [(6, "multipleOf"), (7, "maximum"), (9, "minimum")] {
        if let Some(value) = fields.get(name).and_then(Value::as_f64) {
            message.double(number, value);
        }
    }
    for (number, name) in [(8, "exclusiveMaximum"), (10, "exclusiveMinimum"), (16, "uniqueItems")] {
        message.flag(number, fields.get(name) == Some(&Value::Bool(true)));
    }
    for (number, name) in [
        (11, "maxLength"),
        (12, "minLength"),
        (14, "maxItems"),
        (15, "minItems"),
        (17, "maxProperties"),
        (18, "minProperties"),
    ] {
        message.number(number, fields.get(name).and_then(Value::as_u64).unwrap_or(0));
    }
    texts(&mut message, 19, fields.get("required").into_iter().flat_map(list));
    for value in fields.get("enum").into_iter().flat_map(list) {
        message.message(20, any(value));
    }
    contents(&mut message, fields);
    extend(&mut message, 31, schema);
    message
}

/// Adds the type of a schema, and the schemas within it.
fn contents(message: &mut Message, fields: &Map<String, Value>) {
    if let Some(values) = fields.get("additionalProperties") {
        message.message(
            21,
            match values {
                Value::Bool(allowed) => Message::of_flag(2, *allowed),
                values => Message::of(1, schema(values)),
            },
        );
    }
    if let Some(ty) = fields.get("type") {
        let mut types = Message::default();
        texts(&mut types, 1, ty.as_array().map_or(std::slice::from_ref(ty), Vec::as_slice));
        message.message(22, types);
    }
    if let Some(items) = fields.get("items") {
        message.message(23, Message::of(1, schema(items)));
    }
    if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
        let mut all = Message::default();
        for (name, property) in properties {
            all.message(1, named(name, schema(property)));
        }
        message.message(25, all);
    }
}
