//! Scripts: steps with a request or watch, values from earlier responses, and the response of a real server.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One line of a script.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    /// The unique name of the step.
    #[serde(rename = "do")]
    pub(crate) name: String,
    /// `METHOD /path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<String>,
    /// The path of a watch, which is read to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) watch: Option<String>,
    /// Additional headers; null removes a default one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) headers: BTreeMap<String, Option<String>>,
    /// An object, a text, `{"base64": ..}`, or `{"=": step, ..}` for the response of a step with some fields replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<Value>,
    /// `anonymous` or `bad token`; the administrator by default.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// The request is repeated until its response has these values; it is not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<BTreeMap<String, Value>>,
    /// Parts of the response that depend on how the server was built or started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) drop: Vec<String>,
    /// The only parts of the response that are compared; all by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) only: Vec<String>,
    /// The response of a real server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Value>,
}

/// A script: the steps of one file, in order.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) file: PathBuf,
    pub(crate) steps: Vec<Step>,
}

/// Returns every script in order of file names: later ones build on the objects of earlier ones.
pub(crate) fn scripts() -> Vec<Script> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/conformance");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
        .into_iter()
        .map(|file| {
            let text = fs::read_to_string(&file).unwrap();
            let steps = text.lines().map(|line| {
                serde_json::from_str(line)
                    .unwrap_or_else(|error| panic!("{}: {error}\n{line}", file.display()))
            });
            Script { steps: steps.collect(), file }
        })
        .collect()
}

impl Script {
    /// Writes the script back with its present responses.
    pub(crate) fn save(&self) {
        let lines: String =
            self.steps.iter().map(|step| serde_json::to_string(step).unwrap() + "\n").collect();
        fs::write(&self.file, lines).unwrap();
    }
}

/// The responses so far, unmasked.
#[derive(Debug, Default)]
pub(crate) struct Answers(BTreeMap<String, Value>);

impl Answers {
    pub(crate) fn keep(&mut self, step: &str, answer: Value) {
        assert!(self.0.insert(step.to_owned(), answer).is_none(), "two steps are called {step:?}");
    }

    /// Replaces `{{step /pointer}}` by the value in that step's response, or an empty string.
    pub(crate) fn fill(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (reference, after) = after.split_once("}}").expect("a reference ends in }}");
            let (step, pointer) = reference.rsplit_once(' ').expect("a reference is {{step /pointer}}");
            filled += before;
            filled +=
                self.0.get(step).and_then(|a| a.pointer(pointer)).and_then(Value::as_str).unwrap_or_default();
            rest = after;
        }
        filled + rest
    }

    /// Returns the bytes of a body.
    pub(crate) fn body(&self, body: &Value) -> Vec<u8> {
        use base64::Engine as _;
        match body {
            Value::String(text) => self.fill(text).into_bytes(),
            Value::Object(map) if map.contains_key("base64") => {
                let text = map["base64"].as_str().unwrap();
                base64::engine::general_purpose::STANDARD.decode(text).unwrap()
            }
            Value::Object(map) if map.contains_key("=") => {
                let base = self.0.get(map["="].as_str().unwrap()).cloned().unwrap_or_default();
                let mut base = base.as_object().cloned().unwrap_or_default();
                let own: Map<String, Value> = map.clone();
                base.extend(own.into_iter().filter(|(key, _)| key != "="));
                Value::Object(base).to_string().into_bytes()
            }
            other => self.fill(&other.to_string()).into_bytes(),
        }
    }
}
