//! CertificateSigningRequests.

use serde_json::{Value, json};

use super::Behaviour;
use crate::kinds::age::human;
use crate::kinds::cells::{Row, list, text};

#[derive(Debug)]
pub(in crate::kinds) struct CertificateSigningRequest;

impl Behaviour for CertificateSigningRequest {
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
