//! CertificateSigningRequests.

use serde_json::{Value, json};

use super::{Behaviour, Context, Subresource};
use crate::kinds::age::human;
use crate::kinds::cells::{Row, list, text};
use crate::kinds::fill::copy_field;

#[derive(Debug)]
pub(in crate::kinds) struct CertificateSigningRequest;

/// The conditions that only an approval sets.
const VERDICTS: [&str; 2] = ["Approved", "Denied"];

impl Behaviour for CertificateSigningRequest {
    fn subresources(&self) -> &'static [Subresource] {
        &[Subresource { name: "approval", body: None, verbs: &["get", "patch", "update"] }]
    }

    fn prepare_author(&self, request: &mut Value, user: &Value) {
        for field in ["username", "uid", "groups", "extra"] {
            copy_field(user, &mut request["spec"], field);
        }
    }

    /// What is requested never changes.
    fn prepare_update(&self, before: &Value, after: &mut Value, _context: &dyn Context) {
        copy_field(before, after, "spec");
    }

    /// The signer's write keeps the verdict of the approver.
    fn prepare_status(&self, before: &Value, after: &mut Value) {
        let is_verdict = |condition: &Value| VERDICTS.iter().any(|verdict| condition["type"] == *verdict);
        let kept = list(&before["status"]["conditions"]).iter().filter(|it| is_verdict(it));
        let sent = list(&after["status"]["conditions"]).iter().filter(|it| !is_verdict(it));
        let conditions: Vec<_> = kept.chain(sent).cloned().collect();
        if !conditions.is_empty() {
            after["status"]["conditions"] = conditions.into();
        }
    }

    /// The approver's write keeps the certificate.
    fn prepare_approval(&self, before: &Value, after: &mut Value) {
        copy_field(&before["status"], &mut after["status"], "certificate");
    }

    fn headers(&self) -> &'static str {
        "Name Age SignerName Requestor RequestedDuration Condition"
    }

    fn row(&self, row: &Row<'_>) -> Value {
        let spec = row.spec();
        let duration = spec["expirationSeconds"].as_i64().map_or("<none>".to_owned(), human);
        json!([
            row.name(),
            row.age(),
            text(&spec["signerName"]),
            text(&spec["username"]),
            duration,
            condition(row.status()),
        ])
    }
}

fn condition(status: &Value) -> String {
    let has = |wanted: &str| list(&status["conditions"]).iter().any(|c| c["type"] == wanted);
    let mut condition = match (has("Approved"), has("Denied")) {
        (_, true) => "Denied".to_owned(),
        (true, _) => "Approved".to_owned(),
        _ => "Pending".to_owned(),
    };
    if has("Failed") {
        condition += ",Failed";
    }
    if !text(&status["certificate"]).is_empty() {
        condition += ",Issued";
    }
    condition
}
