//! `AdmissionReview`: what a webhook is asked, and what it answers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::admission::attempt::{Attempt, Operation};
use crate::failure::quoted;
use crate::kinds::cells::text;
use crate::kinds::kind::Kind;

const GROUP: &str = "admission.k8s.io";

/// Returns the review of an attempt, in the version of the resource that the rules of the webhook select.
pub(super) fn review(
    attempt: &Attempt<'_>,
    uid: &str,
    version: &str,
    selected: &Kind,
    object: Option<&Value>,
) -> Value {
    let mut request = attempt.request(selected);
    request["uid"] = uid.into();
    let in_version = |object: &Value| attempt.convert(object.clone(), attempt.kind, selected);
    let object = object.filter(|_| attempt.operation != Operation::Delete);
    request["object"] = object.map_or(Value::Null, in_version);
    request["oldObject"] = attempt.old.map_or(Value::Null, in_version);
    json!({"kind": "AdmissionReview", "apiVersion": format!("{GROUP}/{version}"), "request": request})
}

/// The response of a webhook.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) allowed: bool,
    /// The `Status` of a refusal; null without.
    pub(super) status: Value,
    /// A JSON patch, still as text.
    pub(super) patch: Vec<u8>,
    pub(super) warnings: Vec<String>,
}

/// Reads an answer. The error says why it is not valid.
pub(super) fn read(answer: &[u8], uid: &str, version: &str, mutating: bool) -> Result<Response, String> {
    let review: Value = serde_json::from_slice(answer)
        .map_err(|_| "couldn't get version/kind; json parse error: the answer is not JSON".to_owned())?;
    let response = &review["response"];
    if !response.is_object() {
        return Err("webhook response was absent".to_owned());
    }
    if version == "v1" {
        let found = text(&response["uid"]);
        if found != uid {
            return Err(format!("expected response.uid={}, got {}", quoted(uid), quoted(found)));
        }
        let (api_version, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
        let expected = format!("{GROUP}/{version}");
        if api_version != expected || kind != "AdmissionReview" {
            let expected = format!("{expected}, Kind=AdmissionReview");
            let slash = if api_version.contains('/') { "" } else { "/" };
            return Err(format!(
                "expected webhook response of {expected}, got {slash}{api_version}, Kind={kind}"
            ));
        }
        check_patch(response, mutating)?;
    }
    let patch = STANDARD.decode(text(&response["patch"]));
    let warnings = response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Ok(Response {
        allowed: response["allowed"] == true,
        status: response["status"].clone(),
        patch: patch.map_err(|error| format!("illegal base64 data in response.patch: {error}"))?,
        warnings: warnings.map(str::to_owned).collect(),
    })
}

/// Refuses a patch of a validating webhook, or one of another type than a JSON patch.
fn check_patch(response: &Value, mutating: bool) -> Result<(), String> {
    let (patch, kind) = (!text(&response["patch"]).is_empty(), response["patchType"].as_str());
    let why = match (mutating, patch, kind) {
        (false, true, _) => "validating webhook may not return response.patch",
        (false, _, Some(_)) => "validating webhook may not return response.patchType",
        (true, true, None) => "webhook returned response.patch but not response.patchType",
        (true, false, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, true, Some("")) => {
            return Err("webhook returned invalid response.patchType of \"\"".to_owned());
        }
        (true, true, Some(kind)) if kind != "JSONPatch" => {
            return Err(format!("unsupported patch type {}", quoted(kind)));
        }
        _ => return Ok(()),
    };
    Err(why.to_owned())
}

/// Returns the `Status` of a refusal.
pub(super) fn refusal(name: &str, status: &Value) -> Value {
    let mut status = status.clone();
    if !status.is_object() {
        status = json!({});
    }
    let denied = format!("admission webhook {} denied the request", quoted(name));
    let message = match (text(&status["message"]), text(&status["reason"])) {
        ("", "") => format!("{denied} without explanation"),
        ("", why) | (why, _) => format!("{denied}: {why}"),
    };
    let code = status["code"].as_u64().filter(|code| (400..600).contains(code)).unwrap_or(400);
    status["message"] = message.into();
    status["code"] = code.into();
    status["status"] = "Failure".into();
    status["kind"] = "Status".into();
    status["apiVersion"] = "v1".into();
    if !status["metadata"].is_object() {
        status["metadata"] = json!({});
    }
    status
}

impl Attempt<'_> {
    /// Returns the request as reviews and expressions have it, without its objects.
    pub(in crate::admission) fn request(&self, selected: &Kind) -> Value {
        let kind = |kind: &Kind| match self.body {
            Some((version, name)) => {
                let (group, version) = version.split_once('/').unwrap_or(("", version));
                json!({"group": group, "version": version, "kind": name})
            }
            None => json!({"group": kind.group, "version": kind.version, "kind": kind.kind}),
        };
        let resource =
            |kind: &Kind| json!({"group": kind.group, "version": kind.version, "resource": kind.plural});
        let mut request = json!({
            "kind": kind(selected), "resource": resource(selected),
            "requestKind": kind(self.kind), "requestResource": resource(self.kind),
            "operation": self.operation.name(), "userInfo": self.user().shown(), "dryRun": self.dry_run,
            "options": self.options(),
        });
        for (field, text) in [
            ("subResource", self.subresource),
            ("requestSubResource", self.subresource),
            ("name", self.name),
            ("namespace", self.shown_namespace()),
        ] {
            if !text.is_empty() {
                request[field] = text.into();
            }
        }
        request
    }

    /// The namespace of the request, which is its own for a namespace.
    fn shown_namespace(&self) -> &str {
        if self.is_part_of("", "namespaces") { self.name } else { self.namespace }
    }

    /// The options of the request.
    fn options(&self) -> Value {
        let mut options = self.session.options();
        options["apiVersion"] = "meta.k8s.io/v1".into();
        options["kind"] = match self.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
        }
        .into();
        options
    }

    /// Converts an object between two versions of the resource. Objects of a subresource's own kind have one version.
    pub(in crate::admission) fn convert(&self, object: Value, from: &Kind, to: &Kind) -> Value {
        match std::ptr::eq(from, to) || self.body.is_some() {
            true => object,
            false => to.to_served(from.to_storage(object)),
        }
    }
}
