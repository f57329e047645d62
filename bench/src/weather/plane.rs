//! The real control plane, run by the scripts of `reference/`, with an audit log of who creates Deployments.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::informer::Failure;

/// Only creates of Deployments are logged, with the answer.
const AUDIT_POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  verbs: [create]
  resources: [{group: apps, resources: [deployments]}]
- level: None
"#;

/// A control plane; dropping it stops everything.
#[derive(Debug)]
pub(super) struct Plane {
    scripts: PathBuf,
    folder: PathBuf,
    audit: PathBuf,
    /// The administrator's.
    pub(super) kubeconfig: PathBuf,
}

/// The creates of Deployments by the controller, from the audit log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Creates {
    /// The uids of the Deployments of each name.
    pub(super) uids: BTreeMap<String, BTreeSet<String>>,
    /// How many were refused because there was one already.
    pub(super) already_exist: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    user: User,
    object_ref: ObjectRef,
    response_status: Option<ResponseStatus>,
    response_object: Option<ResponseObject>,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize)]
struct ObjectRef {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    code: u16,
}

#[derive(Deserialize)]
struct ResponseObject {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
struct Metadata {
    #[serde(default)]
    uid: String,
}

impl Plane {
    /// Starts etcd and kube-apiserver, with their state in `folder`.
    pub(super) fn up(scripts: &Path, folder: &Path) -> Result<Self, Failure> {
        let (policy, audit) = (folder.join("audit-policy.yaml"), folder.join("audit.log"));
        fs::write(&policy, AUDIT_POLICY)?;
        let folder = folder.join("plane");
        let mut command = Command::new(scripts.join("up"));
        command.arg(&folder).arg("--");
        command.arg(format!("--audit-policy-file={}", policy.display()));
        command.arg(format!("--audit-log-path={}", audit.display()));
        let kubeconfig = PathBuf::from(output(&mut command)?.trim());
        Ok(Self { scripts: scripts.to_owned(), folder, audit, kubeconfig })
    }

    /// Kills kube-apiserver, and starts it again; returns when it is ready.
    pub(super) async fn kill_api_server(&self) -> Result<(), Failure> {
        self.script("restart-apiserver", &["--kill"]).await
    }

    /// Makes etcd forget its history.
    pub(super) async fn compact(&self) -> Result<(), Failure> {
        self.script("compact", &[]).await
    }

    async fn script(&self, name: &str, flags: &[&str]) -> Result<(), Failure> {
        let mut command = Command::new(self.scripts.join(name));
        command.arg(&self.folder).args(flags);
        tokio::task::spawn_blocking(move || output(&mut command)).await?.map(drop)
    }

    /// What the user has created so far.
    pub(super) fn creates(&self, user: &str) -> Result<Creates, Failure> {
        Ok(creates(&fs::read_to_string(&self.audit)?, user))
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        // The script says what went wrong.
        let _ = Command::new(self.scripts.join("down")).arg(&self.folder).status();
    }
}

/// Runs a program to its end and returns its standard output.
fn output(command: &mut Command) -> Result<String, Failure> {
    let output =
        command.output().map_err(|error| format!("cannot run {:?}: {error}", command.get_program()))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{:?} failed: {}: {errors}", command.get_program(), output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// A line that was cut when the server was killed is left out.
fn creates(audit: &str, user: &str) -> Creates {
    let mut creates = Creates::default();
    let records = audit.lines().filter_map(|line| serde_json::from_str::<Record>(line).ok());
    for record in records.filter(|record| record.user.username == user) {
        let uid = record.response_object.map(|object| object.metadata.uid).unwrap_or_default();
        match record.response_status.map(|status| status.code) {
            Some(201) => drop(creates.uids.entry(record.object_ref.name).or_default().insert(uid)),
            Some(409) => creates.already_exist += 1,
            _ => {}
        }
    }
    creates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creates_are_counted_by_name_and_uid_for_one_user() {
        let line = |user: &str, name: &str, code: u16, uid: &str| {
            format!(
                r#"{{"user":{{"username":"{user}"}},"objectRef":{{"name":"{name}"}},"responseStatus":{{"code":{code}}},"responseObject":{{"metadata":{{"uid":"{uid}"}}}}}}"#
            )
        };
        let audit = [
            line("c", "a", 201, "1"),
            line("c", "a", 409, ""),
            line("c", "a", 201, "2"),
            line("admin", "a", 201, "3"),
            line("c", "b", 201, "4"),
            "{\"user\":{\"usern".to_owned(),
        ];
        let found = creates(&audit.join("\n"), "c");
        let uids = |name: &str| found.uids[name].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!((uids("a"), uids("b"), found.already_exist), (vec!["1", "2"], vec!["4"], 1));
    }
}
