//! Test client: raw requests, and watches read line by line.
#![allow(dead_code, unused_imports, reason = "each test file uses a part")]

mod server;

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use watchkeeper_apiserver::ApiServer;

pub(crate) use server::{AnswerBody, OURS, Server};

pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/wktest/configmaps";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Sends a request with any body and headers.
pub(crate) async fn send(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Response<AnswerBody> {
    server.send(method, path, headers, body.into()).await
}

async fn read(server: &Server, response: Response<AnswerBody>) -> (u16, Value) {
    let code = response.status().as_u16();
    let body = server.restore_names(&response.into_body().collect().await.unwrap().to_bytes());
    (code, serde_json::from_str(&body).unwrap_or_else(|_| body.into()))
}

/// Sends a JSON request.
pub(crate) async fn call(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    read(server, send(server, method, path, &[("content-type", "application/json")], text).await).await
}

pub(crate) async fn get(server: &Server, path: &str) -> (u16, Value) {
    call(server, "GET", path, &Value::Null).await
}

pub(crate) async fn post(server: &Server, path: &str, body: &Value) -> Value {
    let (code, value) = call(server, "POST", path, body).await;
    assert_eq!(code, 201, "{value}");
    value
}

/// Sends a request with its own headers and reads the response.
pub(crate) async fn raw(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Value) {
    read(server, send(server, method, path, headers, body.to_owned()).await).await
}

pub(crate) async fn patch(server: &Server, path: &str, kind: &str, body: &Value) -> (u16, Value) {
    raw(server, "PATCH", path, &[("content-type", kind)], &body.to_string()).await
}

pub(crate) fn config_map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// Creates a ConfigMap of each of these names on `server`.
pub(crate) async fn filled(server: Server, names: &[&str]) -> Server {
    for name in names {
        post(&server, CONFIG_MAPS, &config_map(name, &json!({}))).await;
    }
    server
}

/// Returns the names of a list's items.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

pub(crate) fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Returns the newest revision, as reported by a list.
pub(crate) async fn revision(server: &Server) -> u64 {
    version(&get(server, &format!("{CONFIG_MAPS}?limit=1")).await.1)
}

/// Asserts that `shown` is the newest revision: not older than `since`, and not ahead of a list. On a real cluster
/// others write meanwhile.
pub(crate) async fn assert_newest(server: &Server, shown: u64, since: u64) {
    let now = revision(server).await;
    assert!((since..=now).contains(&shown), "{shown} is not from {since} to {now}");
}

/// Returns the embedded server.
pub(crate) fn inside(server: &Server) -> &ApiServer {
    server.inside().expect("only the embedded server is asked")
}

/// An open watch.
pub(crate) struct Watch<'a> {
    server: &'a Server,
    body: AnswerBody,
    buffer: Vec<u8>,
}

impl<'a> Watch<'a> {
    pub(crate) async fn open(server: &'a Server, path: &str) -> Self {
        let response = send(server, "GET", path, &[], "").await;
        assert_eq!(response.status(), 200);
        Self { server, body: response.into_body(), buffer: Vec::new() }
    }

    /// Returns the next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_str(&self.server.restore_names(&line)).unwrap());
            }
            match self.body.frame().await {
                Some(frame) => self.buffer.extend_from_slice(frame.unwrap().data_ref().unwrap()),
                None => {
                    assert!(self.buffer.is_empty(), "the stream ended within an event");
                    return None;
                }
            }
        }
    }

    /// Returns the type, name and revision of the next event.
    pub(crate) async fn event(&mut self) -> (String, String, u64) {
        let event = self.next().await.expect("the watch ended");
        let metadata = &event["object"]["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&metadata["name"]), version(&event["object"]))
    }
}

/// Takes a number in the variable-length encoding of protobuf from the front of `bytes`.
pub(crate) fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}
