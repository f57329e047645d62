//! The `token` subresource of service accounts, which issues tokens.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Method;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::access::tokens::{Bound, ISSUER, Request};
use crate::failure::{Cause, Details, Failure, Result, quoted};
use crate::http::body::RequestBody;
use crate::http::handler::Call;
use crate::http::negotiate::Form;
use crate::http::reply::{self, Reply};
use crate::kinds::cells::text;
use crate::kinds::kind::Kind;
use crate::kinds::meta;
use crate::state::core::Core;
use crate::state::store::{Key, Stored};

const GROUP: &str = "authentication.k8s.io";
const TYPE: (&str, &str) = ("authentication.k8s.io/v1", "TokenRequest");
const DEFAULT_SECONDS: i64 = 3600;
const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;

/// The objects that a token is bound to, by kind.
type Bindings = BTreeMap<&'static str, Bound>;

impl Call {
    /// Answers a TokenRequest.
    pub(super) async fn request_token(
        &self,
        kind: &Arc<Kind>,
        key: &Key,
        form: Form,
        body: impl RequestBody,
    ) -> Result<Reply> {
        if self.method != Method::POST {
            return Err(Failure::method_not_allowed());
        }
        let body = self.read_body(body).await?;
        let mut value = self.read_typed(&body, TYPE)?;
        if value["spec"]["expirationSeconds"].as_i64().is_none() {
            value["spec"]["expirationSeconds"] = DEFAULT_SECONDS.into();
        }
        self.set_managers(&mut value, TYPE, "token")?;
        check_names(&value, key)?;
        self.admit_body(kind, key, ("token", TYPE.0, TYPE.1), &mut value, false)?;
        let account = self.read(kind, |core| core.get(kind, key))?;
        let uid = meta::text(&value, "uid");
        if !["", &account.uid].contains(&uid) {
            let why = format!(
                "the UID in the token request ({uid}) does not match the UID of the service account ({})",
                account.uid
            );
            return Err(conflict(GROUP, "TokenRequest", &key.name, &why));
        }
        check_seconds(&value["spec"])?;
        let bound = {
            let core = self.shared.core.lock();
            bindings(&core, &value["spec"]["boundObjectRef"], key)?
        };
        Ok(reply::value(201, form, &self.issue(value, &account, bound)))
    }

    /// Completes a valid request with its token.
    fn issue(&self, mut value: Value, account: &Stored, bound: Bindings) -> Value {
        let audiences = value["spec"]["audiences"].as_array().into_iter().flatten();
        let mut audiences: Vec<_> = audiences.map(|audience| text(audience).to_owned()).collect();
        if audiences.is_empty() {
            audiences = vec![ISSUER.to_owned()];
        }
        let seconds = value["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
        let now = self.now();
        let ends = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
        let request = Request { account, audiences: audiences.clone(), seconds, bound };
        let token = self.shared.tokens.issue(&request, &self.shared.generator);
        for (field, text) in [
            ("name", account.key.name.as_str()),
            ("namespace", &account.key.namespace),
            ("uid", &account.uid),
            ("creationTimestamp", &meta::timestamp(now)),
        ] {
            meta::set(&mut value, field, text);
        }
        let bound = value["spec"].get("boundObjectRef").cloned().unwrap_or_default();
        json!({
            "kind": TYPE.1, "apiVersion": TYPE.0, "metadata": value["metadata"],
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound},
            "status": {"token": token, "expirationTimestamp": meta::timestamp(ends)},
        })
    }
}

/// The name and namespace in the body, if given, must be those of the URL.
fn check_names(value: &Value, key: &Key) -> Result<()> {
    for (field, expected) in [("name", &key.name), ("namespace", &key.namespace)] {
        let sent = meta::text(value, field);
        if !["", expected].contains(&sent) {
            let why = format!("must match the service account {field} if specified");
            let cause = Cause::invalid(&format!("metadata.{field}"), &sent.into(), &why);
            return Err(Failure::invalid_as(GROUP, TYPE.1, &key.name, vec![cause]));
        }
    }
    Ok(())
}

fn check_seconds(spec: &Value) -> Result<()> {
    let seconds = &spec["expirationSeconds"];
    let why = match seconds.as_i64() {
        Some(..SHORTEST) => "may not specify a duration less than 10 minutes",
        Some(seconds) if seconds > LONGEST => "may not specify a duration larger than 2^32 seconds",
        _ => return Ok(()),
    };
    let cause = Cause::invalid("spec.expirationSeconds", seconds, why);
    Err(Failure::invalid_as(GROUP, TYPE.1, "", vec![cause]))
}

/// Finds the object that a token is to be bound to.
fn bindings(core: &Core, wanted: &Value, account: &Key) -> Result<Bindings> {
    let mut bound = Bindings::new();
    if !wanted.is_object() {
        return Ok(bound);
    }
    let (version, kind, name) = (text(&wanted["apiVersion"]), text(&wanted["kind"]), text(&wanted["name"]));
    let (label, plural, namespace) = match kind {
        "Pod" => ("pod", "pods", account.namespace.as_str()),
        "Secret" => ("secret", "secrets", account.namespace.as_str()),
        "Node" => ("node", "nodes", ""),
        _ => ("", "", ""),
    };
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    if label.is_empty() || !group.is_empty() {
        let version = version.rsplit('/').next().unwrap_or_default();
        let shown = format!("{group}/{version}, Kind={kind}");
        return Err(Failure::bad_request(format!("cannot bind token to object of type {shown}")));
    }
    let find = |plural: &str, namespace: &str, name: &str| {
        let kind = core.registry.find("", "v1", plural).ok_or_else(Failure::no_such_path)?;
        core.get(kind, &Key::new(namespace, name))
    };
    let found = find(plural, namespace, name)?;
    if label == "pod" {
        let pod = found.value();
        if pod["spec"]["serviceAccountName"] != account.name.as_str() {
            let name = quoted(&account.name);
            return Err(Failure::bad_request(format!(
                "cannot bind token for serviceaccount {name} to pod running with different serviceaccount name."
            )));
        }
        let node = text(&pod["spec"]["nodeName"]);
        if !node.is_empty() {
            let uid = find("nodes", "", node).map_or_else(|_| String::new(), |node| node.uid.clone());
            bound.insert("node", Bound { name: node.to_owned(), uid });
        }
    }
    let uid = text(&wanted["uid"]);
    if !["", &found.uid].contains(&uid) {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        return Err(conflict("", kind, name, &why));
    }
    bound.insert(label, Bound { name: name.to_owned(), uid: found.uid.clone() });
    Ok(bound)
}

/// A conflict about a kind that is not the one of the URL.
fn conflict(group: &str, kind: &str, name: &str, why: &str) -> Box<Failure> {
    let dot = if group.is_empty() { "" } else { "." };
    let message = format!("Operation cannot be fulfilled on {kind}{dot}{group} {}: {why}", quoted(name));
    Failure::new(409, "Conflict", message).with_details(Details {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: kind.to_owned(),
        ..Details::default()
    })
}
