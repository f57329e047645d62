//! `ServiceAccount`: a new Pod gets an account, the pull secrets of the account, and a volume with its token.

use serde_json::{Value, json};

use crate::admission::attempt::{Attempt, Operation};
use crate::admission::plugin::Plugin;
use crate::failure::{Failure, Result, quoted};
use crate::kinds::cells::{list, text};
use crate::kinds::fill::{each, fill};
use crate::kinds::identity::random_suffix;
use crate::state::store::Key;

/// The account of a Pod that names none. A controller creates it in each namespace.
const DEFAULT: &str = "default";
/// The annotation of a Pod that only shows what a kubelet runs by itself.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The start of the name of a volume with a token.
const VOLUME: &str = "kube-api-access-";
/// Where programs look for the token.
const PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// An hour, and a little so that the volumes of the system can be told from those of users.
const TOKEN_SECONDS: i64 = 3607;
/// Readable by all.
const MODE: i64 = 420;

#[derive(Debug)]
pub(in crate::admission) struct ServiceAccount;

impl Plugin for ServiceAccount {
    fn mutate(&self, attempt: &Attempt<'_>, pod: &mut Value) -> Result<()> {
        if !is_new_pod(attempt) || is_mirror(pod) {
            return Ok(());
        }
        let name = match text(&pod["spec"]["serviceAccountName"]) {
            "" => DEFAULT.to_owned(),
            name => name.to_owned(),
        };
        for field in ["serviceAccountName", "serviceAccount"] {
            pod["spec"][field] = name.as_str().into();
        }
        let account = account(attempt, pod, &name)?;
        let own = pod["spec"].get("automountServiceAccountToken").and_then(Value::as_bool);
        if own.or(account["automountServiceAccountToken"].as_bool()).unwrap_or(true) {
            mount_token(attempt, &mut pod["spec"]);
        }
        let secrets = list(&account["imagePullSecrets"]);
        if list(&pod["spec"]["imagePullSecrets"]).is_empty() && !secrets.is_empty() {
            pod["spec"]["imagePullSecrets"] = secrets.into();
        }
        Ok(())
    }

    fn validate(&self, attempt: &Attempt<'_>, object: Option<&Value>) -> Result<()> {
        let Some(pod) = object.filter(|pod| is_new_pod(attempt) && is_mirror(pod)) else { return Ok(()) };
        let volumes = list(&pod["spec"]["volumes"]);
        let mut sources = volumes.iter().flat_map(|volume| list(&volume["projected"]["sources"]));
        let why = if !text(&pod["spec"]["serviceAccountName"]).is_empty() {
            "a mirror pod may not reference service accounts"
        } else if refers_to_secrets(&pod["spec"]) {
            "a mirror pod may not reference secrets"
        } else if sources.any(|source| source["serviceAccountToken"].is_object()) {
            "a mirror pod may not use ServiceAccountToken volume projections"
        } else {
            return Ok(());
        };
        Err(attempt.forbidden(object, why))
    }
}

fn is_new_pod(attempt: &Attempt<'_>) -> bool {
    attempt.operation == Operation::Create && attempt.is_about("", "pods")
}

fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"].get(MIRROR).is_some()
}

/// Returns the account of a Pod. The request waits a moment for a `default` one, because users create Pods right after
/// their namespace.
fn account(attempt: &Attempt<'_>, pod: &Value, name: &str) -> Result<Value> {
    let revision = attempt.session.core().lock().store.revision();
    let key = Key::new(attempt.namespace, name);
    if let Some(found) = attempt.find("", "v1", "serviceaccounts", &key) {
        return Ok(found.value());
    }
    if name == DEFAULT && attempt.session.wait_after(revision) {
        return Err(Failure::outdated());
    }
    let (namespace, shown) = (attempt.namespace, quoted(name));
    let why =
        format!("error looking up service account {namespace}/{name}: serviceaccount {shown} not found");
    Err(attempt.forbidden(Some(pod), &why))
}

/// Mounts a token in the containers that have nothing at its path. They use the volume of an earlier mount, if there is one.
fn mount_token(attempt: &Attempt<'_>, spec: &mut Value) {
    let mut volumes = list(&spec["volumes"]).iter().map(|volume| text(&volume["name"]));
    let known = volumes.find(|name| name.starts_with(VOLUME)).map(str::to_owned);
    let is_known = known.is_some();
    let name = known.unwrap_or_else(|| {
        let generator = attempt.session.generator().fork("service account volume");
        format!("{VOLUME}{}", random_suffix(&generator))
    });
    let mut is_used = false;
    for field in ["initContainers", "containers"] {
        for container in spec.get_mut(field).into_iter().flat_map(each) {
            if !list(&container["volumeMounts"]).iter().any(|mount| mount["mountPath"] == PATH) {
                let mount = json!({"name": name, "readOnly": true, "mountPath": PATH});
                append(container, "volumeMounts", mount);
                is_used = true;
            }
        }
    }
    if is_used && !is_known {
        append(spec, "volumes", token_volume(&name));
    }
}

fn token_volume(name: &str) -> Value {
    let namespace = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
    let certificate = json!([{"key": "ca.crt", "path": "ca.crt"}]);
    json!({"name": name, "projected": {"defaultMode": MODE, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": certificate}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
    ]}})
}

fn append(object: &mut Value, field: &str, element: Value) {
    fill(object, field, json!([]));
    if let Value::Array(list) = &mut object[field] {
        list.push(element);
    }
}

/// Whether a Pod uses a Secret in a volume or in the environment of a container.
fn refers_to_secrets(spec: &Value) -> bool {
    let mut containers = ["initContainers", "containers"].iter().flat_map(|field| list(&spec[*field]));
    list(&spec["volumes"]).iter().any(|volume| volume["secret"].is_object())
        || containers.any(|container| {
            list(&container["env"]).iter().any(|variable| variable["valueFrom"]["secretKeyRef"].is_object())
                || list(&container["envFrom"]).iter().any(|source| source["secretRef"].is_object())
        })
}
